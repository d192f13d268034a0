"""From a file or an object, the environment and flags to one frozen struct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, ParsedSource
from sentinel.runtime.settings.merge import merge, overlay
from sentinel.runtime.settings.report import Loaded, Origin, Source, sorted_problems
from sentinel.runtime.settings.schema import section
from sentinel.runtime.settings.sources import Assignment, from_environment, from_flags
from sentinel.runtime.settings.validation import Validation
from sentinel.runtime.settings.yaml_file import parse_file

T = TypeVar("T", bound=msgspec.Struct)

PREFIX = "SENTINEL_"


def load(
    struct: type[T],
    *,
    file: Path | None = None,
    document: ParsedSource | None = None,
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
    validation = Validation(environ=environ, known=declared.paths(), is_partial=written.root is None)
    validation.problems.extend(written.problems)

    tree = MappingNode((), root)
    for key, text in (defaults or {}).items():
        tree = overlay(tree, declared, Assignment(tuple(key.split(".")), text, Origin()), validation)
    if written.root is not None:
        tree = merge(tree, written.root, declared)
    given, warnings = from_environment(declared, environ, PREFIX)
    given += from_flags(sets, validation)
    for key, text in (overrides or {}).items():
        flag = "--" + key.replace(".", "-").replace("_", "-")
        given.append(Assignment(tuple(key.split(".")), text, Origin(Source.FLAG, flag)))
    for value in given:
        tree = overlay(tree, declared, value, validation)

    settings = declared.read(tree, "", root, validation)
    return Loaded(
        settings=settings if isinstance(settings, struct) and not validation.problems else None,
        problems=sorted_problems(validation.problems),
        warnings=tuple(warnings),
        entries=() if validation.problems else tuple(validation.entries),
        secrets=tuple(validation.secrets),
    )


def _written(file: Path | None, document: ParsedSource | None) -> ParsedSource:
    if file is None:
        return document or ParsedSource(MappingNode((), Origin()), Origin())
    if document is not None:
        raise TypeError("expected a file or a document, got both")
    return parse_file(file)
