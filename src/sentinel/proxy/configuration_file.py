"""Reads the proxy's configuration file: all its problems, or what it means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy import matching, reading
from sentinel.core.proxy.model import Configuration, Protocol
from sentinel.core.proxy.problem import Problem, Severity, syntax_problems
from sentinel.core.proxy.unimplemented import unimplemented
from sentinel.core.proxy.validation import check_schema
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
    found = [*syntax_problems(parsed.problems), *check_schema(parsed.document)]
    warnings = tuple(_line(file, problem) for problem in found if problem.severity is Severity.WARNING)
    errors = tuple(_line(file, problem) for problem in found if problem.severity is Severity.ERROR)
    if errors:
        return LoadedConfiguration(configuration=None, problems=errors, warnings=warnings)
    configuration = reading.read(parsed.document)
    if problems := tuple(f"{file}: {problem}" for problem in _problems_here(configuration)):
        return LoadedConfiguration(configuration=None, problems=problems, warnings=warnings)
    return LoadedConfiguration(
        configuration=configuration, warnings=warnings, unimplemented=unimplemented(parsed.document)
    )


def _problems_here(configuration: Configuration) -> Iterator[str]:
    """Yield why this process on this machine cannot serve a valid configuration."""
    for listener in configuration.listeners:
        if listener.protocol is Protocol.H3:
            yield f'listener "{listener.id}": expected protocol http or https, got h3, which needs the real proxy'
    yield from matching.pattern_problems(configuration.routes)
    yield from tls.problems(configuration)
    for route in configuration.routes:
        if route.static_files is not None and not Path(route.static_files.root).is_dir():
            yield f'route "{route.id}": static-files: expected a directory, got {route.static_files.root}'


def _line(file: Path, problem: Problem) -> str:
    place = "" if problem.line is None else f":{problem.line}:{problem.column}"
    hint = f" ({problem.suggestion})" if problem.suggestion else ""
    return f"{file}{place}: {problem.message}{hint}"
