"""From a file or an object, the environment and flags to one frozen struct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, Parsed
from sentinel.runtime.settings.merge import merge, overlay
from sentinel.runtime.settings.report import Loaded, Origin, Source, in_order
from sentinel.runtime.settings.schema import section
from sentinel.runtime.settings.sources import Given, from_environment, from_flags
from sentinel.runtime.settings.validation import Reading
from sentinel.runtime.settings.yaml_file import parse_file

T = TypeVar("T", bound=msgspec.Struct)

PREFIX = "SENTINEL_"


def load(
    struct: type[T],
    *,
    file: Path | None = None,
    document: Parsed | None = None,
    environ: Mapping[str, str],
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Loaded[T]:
    """Loads the settings that a struct declares. Whatever is wrong with them is a problem, not an exception.

    The settings are in a `file`, in a `document` (see `sources.from_object`), or in neither; `environ` and `sets`
    win over both. A process that loads documents for others passes an `environ` without its own variables.

    `sets` are the values of `--set`. `overrides` are those of a command's own flags, by key: `log.level` for
    `--log-level`; they beat everything. `defaults`, by key, stand in for those of the struct.
    """
    declared = section(struct)
    written = _written(file, document)
    root = written.at
    reading = Reading(environ=environ, known=declared.paths(), is_partial=written.table is None)
    reading.problems.extend(written.problems)

    tree = MappingNode((), root)
    for key, text in (defaults or {}).items():
        tree = overlay(tree, declared, Given(tuple(key.split(".")), text, Origin()), reading)
    if written.table is not None:
        tree = merge(tree, written.table, declared)
    given, warnings = from_environment(declared, environ, PREFIX)
    given += from_flags(sets, reading)
    for key, text in (overrides or {}).items():
        flag = "--" + key.replace(".", "-").replace("_", "-")
        given.append(Given(tuple(key.split(".")), text, Origin(Source.FLAG, flag)))
    for value in given:
        tree = overlay(tree, declared, value, reading)

    settings = declared.read(tree, "", root, reading)
    return Loaded(
        settings=settings if isinstance(settings, struct) and not reading.problems else None,
        problems=in_order(reading.problems),
        warnings=tuple(warnings),
        entries=() if reading.problems else tuple(reading.entries),
        secrets=tuple(reading.secrets),
    )


def _written(file: Path | None, document: Parsed | None) -> Parsed:
    if file is None:
        return document or Parsed(MappingNode((), Origin()), Origin())
    if document is not None:
        raise TypeError("expected a file or a document, got both")
    return parse_file(file)
