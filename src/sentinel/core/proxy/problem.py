"""What can be wrong with a configuration, as `config check` prints it and the hub answers it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum

import msgspec

from sentinel.core import kdl


class Level(IntEnum):
    """How deep a check looks."""

    SYNTAX = 1
    SCHEMA = 2
    SEMANTICS = 3


class Severity(StrEnum):
    """Whether a problem forbids using the configuration."""

    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True):
    """A problem and its place. Lines and columns count from one."""

    level: Level
    severity: Severity
    code: str
    line: int | None
    """None if the file as a whole is too large."""
    column: int | None
    message: str
    suggestion: str | None = None
    """What to write instead."""


def semantic_problem(
    code: str,
    place: kdl.Place,
    message: str,
    *,
    severity: Severity = Severity.ERROR,
    suggestion: str | None = None,
) -> Problem:
    """Return a problem of level 3."""
    return Problem(Level.SEMANTICS, severity, code, place.line, place.column, message, suggestion)


def syntax_problems(problems: Iterable[kdl.Problem], severity: Severity = Severity.ERROR) -> list[Problem]:
    """Return the parser's problems, or its warnings, as those of level 1."""
    return [
        Problem(
            level=Level.SYNTAX,
            severity=severity,
            code=found.code.value,
            line=found.line,
            column=found.column,
            message=found.message,
            suggestion=found.suggestion,
        )
        for found in problems
    ]
