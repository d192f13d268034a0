"""Reads the proxy's configuration file: all its problems, or what it means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy import reading
from sentinel.core.proxy.check import check
from sentinel.core.proxy.model import Configuration, with_port_offset
from sentinel.core.proxy.problem import Level, Problem, Severity, semantic_problem
from sentinel.core.proxy.render import RENDERED_KEYS
from sentinel.core.proxy.secrets import secret_uses
from sentinel.core.proxy.unimplemented import unimplemented
from sentinel.proxy import tls

MAX_PORT: Final = 65535


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


def load(file: Path, *, port_offset: int = 0) -> LoadedConfiguration:
    """Read and check the file, and the files that it names. Never raises.

    `port_offset` is added to the ports to listen on, so that several proxies on one machine can share a file.
    """
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
    configuration = with_port_offset(reading.read(parsed.document), port_offset)
    problems = [_line(file, problem) for problem in _secrets(parsed.document)]
    problems += (f"{file}: {problem}" for problem in _problems_here(configuration))
    problems += (f"{file}: {problem}" for problem in _ports_beyond(configuration))
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


def _ports_beyond(configuration: Configuration) -> Iterator[str]:
    """Yield the ports that are invalid because of the offset."""
    addresses = {f'listener "{each.id}"': each.address for each in configuration.listeners}
    if configuration.metrics is not None:
        addresses["observability.metrics"] = configuration.metrics.address
    for name, address in addresses.items():
        if address.port > MAX_PORT:
            yield f"{name}: expected at most port {MAX_PORT} after adding the port offset, got {address.port}"


def _line(file: Path, problem: Problem) -> str:
    place = "" if problem.line is None else f":{problem.line}:{problem.column}"
    hint = f" ({problem.suggestion})" if problem.suggestion else ""
    return f"{file}{place}: {problem.message}{hint}"
