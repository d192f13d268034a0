"""Reads the proxy's configuration file: all its problems, or what it means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy import reading
from sentinel.core.proxy.check import check
from sentinel.core.proxy.model import Configuration
from sentinel.core.proxy.problem import Level, Problem, Severity, semantic_problem
from sentinel.core.proxy.render import RENDERED_KEYS
from sentinel.core.proxy.secrets import secret_uses
from sentinel.core.proxy.unimplemented import unimplemented
from sentinel.proxy import tls


class LoadedConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says."""

    configuration: Configuration | None
    """None if there are problems."""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unimplemented: tuple[str, ...] = ()
    """What the small proxy ignores, although it is valid."""

    @property
    def remarks(self) -> frozenset[str]:
        """All that is worth a warning."""
        return frozenset((*self.warnings, *self.unimplemented))


def load(file: Path) -> LoadedConfiguration:
    """Read and check the file, and the files that it names. Never raises."""
    try:
        with file.open("rb") as opened:
            source = opened.read(kdl.MAX_BYTES + 1)
    except OSError as error:
        return LoadedConfiguration(configuration=None, problems=(f"{file}: {error.strerror or error}",))
    parsed = kdl.parse(source)
    found = check(parsed, level=Level.SCHEMA).problems
    warnings = tuple(_line(file, problem) for problem in found if problem.severity is Severity.WARNING)
    errors = tuple(_line(file, problem) for problem in found if problem.severity is Severity.ERROR)
    if errors:
        return LoadedConfiguration(configuration=None, problems=errors, warnings=warnings)
    configuration = reading.read(parsed.document)
    problems = [_line(file, problem) for problem in _secrets(parsed.document)]
    problems += (f"{file}: {problem}" for problem in _problems_here(configuration))
    if problems:
        return LoadedConfiguration(configuration=None, problems=tuple(problems), warnings=warnings)
    return LoadedConfiguration(
        configuration=configuration, warnings=warnings, unimplemented=unimplemented(parsed.document)
    )


def _secrets(document: kdl.Document) -> Iterator[Problem]:
    """Yield the secrets that an agent would have replaced."""
    for use in secret_uses(document):
        key = RENDERED_KEYS[use.block.owner.kind, use.node.name]
        message = f"expected {key} with a path, got {use.node.name} with a secret, which an agent replaces"
        yield semantic_problem("secret", use.place, message, suggestion=f"write {key} with the path of a file")


def _problems_here(configuration: Configuration) -> Iterator[str]:
    """Yield what this machine lacks: files and directories that the configuration names."""
    yield from tls.problems(configuration)
    for route in configuration.routes:
        if route.static_files is not None and not Path(route.static_files.root).is_dir():
            yield f'route "{route.id}": static-files: expected a directory, got {route.static_files.root}'


def _line(file: Path, problem: Problem) -> str:
    place = "" if problem.line is None else f":{problem.line}:{problem.column}"
    hint = f" ({problem.suggestion})" if problem.suggestion else ""
    return f"{file}{place}: {problem.message}{hint}"
