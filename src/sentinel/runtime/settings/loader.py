"""Loads a struct of settings from a file or an object, the environment and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Required, TypedDict, TypeVar

import msgspec

from sentinel.runtime.settings.config_tree import MappingNode, ParsedSource
from sentinel.runtime.settings.merge import merge, overlay
from sentinel.runtime.settings.report import Loaded, Origin, Source, sorted_problems
from sentinel.runtime.settings.schema import Section, section
from sentinel.runtime.settings.sources import Assignment, from_environment, from_flags
from sentinel.runtime.settings.validation import Validation
from sentinel.runtime.settings.yaml_file import parse_file

T = TypeVar("T", bound=msgspec.Struct)

PREFIX = "SENTINEL_"


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of `load`, for functions that pass them on."""

    file: Path | None
    document: ParsedSource | None
    environ: Required[Mapping[str, str]]
    sets: Sequence[str]
    overrides: Mapping[str, str] | None
    defaults: Mapping[str, str] | None


def load(
    struct: type[T],
    *,
    file: Path | None = None,
    document: ParsedSource | None = None,
    environ: Mapping[str, str],
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    schema: Section | None = None,
) -> Loaded[T]:
    """Load the settings that a struct declares. Errors in the settings are returned as problems, not raised.

    Settings come from a `file` or a `document` (see `sources.from_object`), or from neither. `environ` and `sets`
    override both. A process that loads documents for others passes an `environ` without its own variables.

    `sets` are the values of `--set`. `overrides` are a command's own options by key, such as `log.level` for
    `--log-level`; they override everything. `defaults`, by key, replace those of the struct. `schema` replaces the
    one that the struct declares, for types that are only known at run time.
    """
    if file is not None and document is not None:
        raise TypeError("expected a file or a document, got both")
    source = (document or ParsedSource.of(None, Origin())) if file is None else parse_file(file)
    schema = section(struct) if schema is None else schema
    validation = Validation(environ=environ, known=schema.paths(), is_partial=source.root is None)
    validation.problems.extend(source.problems)

    tree = MappingNode((), source.at)
    for key, text in (defaults or {}).items():
        tree = overlay(tree, schema, Assignment.to(key, text, Origin()), validation)
    if source.root is not None:
        tree = merge(tree, source.root, schema)
    assignments, warnings = from_environment(schema, environ, PREFIX)
    assignments += from_flags(sets, validation)
    for key, text in (overrides or {}).items():
        flag = "--" + key.replace(".", "-").replace("_", "-")
        assignments.append(Assignment.to(key, text, Origin(Source.FLAG, flag)))
    for assignment in assignments:
        tree = overlay(tree, schema, assignment, validation)

    settings = schema.read(tree, "", source.at, validation)
    return Loaded(
        settings=settings if isinstance(settings, struct) and not validation.problems else None,
        problems=sorted_problems(validation.problems),
        warnings=tuple(warnings),
        entries=() if validation.problems else tuple(validation.entries),
        secrets=tuple(validation.secrets),
    )
