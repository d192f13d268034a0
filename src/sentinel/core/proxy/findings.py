"""Collects the problems of one document: a bounded number of them, with suggestions that cost a bounded time."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from enum import StrEnum
from typing import Final, TypeAlias

from sentinel.core import kdl
from sentinel.core.proxy.problem import Level, Problem, Severity

At: TypeAlias = kdl.Node | kdl.Value | kdl.Property | None
"""Where a problem is. None is the start of the document."""
MAX_PROBLEMS: Final = 1_000
"""The limit for each severity. More are counted, but not kept."""

_MAX_COMPARISONS: Final = 20_000
"""Comparing names is slow, and a generated file may have a thousand wrong references to a thousand upstreams."""
_MAX_NAME: Final = 60
_MAX_SHOWN: Final = 60


class Code(StrEnum):
    """The kinds of problems of level 2, apart from those of values."""

    UNKNOWN_BLOCK = "unknown-block"
    UNKNOWN_KEY = "unknown-key"
    INCLUDE = "include"
    MISSING = "missing"
    CONFLICT = "conflict"
    BAD_SECRET = "bad-secret"  # noqa: S105 - the name of a problem
    DUPLICATE_ID = "duplicate-id"
    DUPLICATE_ADDRESS = "duplicate-address"
    DANGLING_REFERENCE = "dangling-reference"
    NOT_SUPPORTED = "not-supported"
    UNSUPPORTED_VERSION = "unsupported-version"
    NEWER_VERSION = "newer-version"
    IGNORED_VALUE = "ignored-value"
    IGNORED_KEY = "ignored-key"
    IGNORED_ARGUMENT = "ignored-argument"
    REPEATED = "repeated"
    DEPRECATED = "deprecated"
    UNUSED = "unused"
    NO_HANDLER = "no-handler"
    TOO_MANY_PROBLEMS = "too-many-problems"


class Findings:
    """The problems found so far."""

    def __init__(self) -> None:
        self._kept: dict[Severity, list[Problem]] = {severity: [] for severity in Severity}
        self._dropped = dict.fromkeys(Severity, 0)
        self._comparisons = 0

    def error(self, code: StrEnum, at: At, message: str, suggestion: str | None = None) -> None:
        self.add(Severity.ERROR, code, at, message, suggestion)

    def warning(self, code: StrEnum, at: At, message: str, suggestion: str | None = None) -> None:
        self.add(Severity.WARNING, code, at, message, suggestion)

    def add(self, severity: Severity, code: StrEnum, at: At, message: str, suggestion: str | None = None) -> None:
        """Add a problem."""
        if self.is_full(severity):
            self.drop(severity)
            return
        line, column = (1, 1) if at is None else (at.line, at.column)
        self._kept[severity].append(Problem(Level.SCHEMA, severity, code.value, line, column, message, suggestion))

    def drop(self, severity: Severity) -> None:
        """Count a problem without keeping it, where its message would cost time."""
        self._dropped[severity] += 1

    def is_full(self, severity: Severity) -> bool:
        return len(self._kept[severity]) >= MAX_PROBLEMS

    @property
    def may_compare(self) -> bool:
        """Whether there is time left to look for suggestions."""
        return self._comparisons <= _MAX_COMPARISONS

    def nearest(self, name: str, candidates: Collection[str]) -> str | None:
        """Return the candidate that was probably meant."""
        self._comparisons += len(candidates)
        if not self.may_compare or len(name) > _MAX_NAME:
            return None
        spelled = {candidate.lower().replace("_", "-"): candidate for candidate in candidates}
        found = difflib.get_close_matches(name.lower().replace("_", "-"), spelled, n=1, cutoff=0.6)
        return spelled[found[0]] if found else None

    def sorted(self) -> list[Problem]:
        """Return the problems by position. What was dropped is said at the last one of its severity."""
        found = [problem for kept in self._kept.values() for problem in kept]
        for severity, dropped in self._dropped.items():
            if dropped:
                last = max(self._kept[severity], key=_place)
                message = f"expected a valid configuration, got {dropped} more problems like these"
                code = Code.TOO_MANY_PROBLEMS.value
                found.append(Problem(Level.SCHEMA, severity, code, last.line, last.column, message))
        found.sort(key=_place)
        return found


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line or 1, problem.column or 1


def shown(value: kdl.Scalar) -> str:
    """Return a value for a message: as written in KDL, on one line, and not too long."""
    text = kdl.print_value(kdl.Value(value[:_MAX_SHOWN] if isinstance(value, str) else value))
    if not text.isprintable():
        text = "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def shown_name(name: str) -> str:
    """Return the name of a node or property for a message."""
    text = kdl.print_name(name[:_MAX_SHOWN])
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
