"""What can be wrong with a KDL document."""

from __future__ import annotations

from enum import StrEnum

import msgspec

MAX_PROBLEMS = 1_000
"""More are counted, but not kept: a file that is not KDL at all has one in every word."""

_MAX_QUOTED = 60
_MAX_MESSAGE = 400
"""A raw string may have a million hashes, and its messages quote them."""


class Code(StrEnum):
    """The kinds of problems."""

    TOO_LARGE = "too-large"
    TOO_DEEP = "too-deep"
    NUMBER_TOO_LONG = "number-too-long"
    TOO_MANY_PROBLEMS = "too-many-problems"
    INVALID_UTF8 = "invalid-utf8"
    DISALLOWED_CHARACTER = "disallowed-character"
    BARE_KEYWORD = "bare-keyword"
    UNKNOWN_KEYWORD = "unknown-keyword"
    VERSION_1_RAW_STRING = "version-1-raw-string"
    NEWLINE_IN_STRING = "newline-in-string"
    BAD_ESCAPE = "bad-escape"
    BAD_MULTILINE_STRING = "bad-multiline-string"
    BAD_INDENTATION = "bad-indentation"
    UNCLOSED_STRING = "unclosed-string"
    UNCLOSED_COMMENT = "unclosed-comment"
    UNCLOSED_BLOCK = "unclosed-block"
    UNOPENED_BLOCK = "unopened-block"
    WRONG_BRACE = "wrong-brace"
    ARRAY = "array"
    NUMERIC_NAME = "numeric-name"
    NEEDS_QUOTES = "needs-quotes"
    BAD_TYPE = "bad-type"
    BAD_PROPERTY = "bad-property"
    BAD_SLASHDASH = "bad-slashdash"
    MISSING_NAME = "missing-name"
    MISSING_SPACE = "missing-space"
    MISSING_NEWLINE = "missing-newline"
    UNEXPECTED = "unexpected"
    COMMENT_IN_URL = "comment-in-url"
    """A warning: valid, but hardly meant."""
    COMMA_IN_TEXT = "comma-in-text"
    """A warning, too."""
    QUOTES_IN_TEXT = "quotes-in-text"
    """A warning, too."""


class Problem(msgspec.Struct, frozen=True):
    """A fault of the document. All of them are errors of level 1, the syntax."""

    code: Code
    line: int | None
    """None if the file as a whole is too large."""
    column: int | None
    message: str
    suggestion: str | None = None
    """What to write instead."""

    def __str__(self) -> str:
        place = "" if self.line is None else f"{self.line}:{self.column}: "
        return f"{place}{self.message}" + (f" ({self.suggestion})" if self.suggestion else "")


class ProblemList:
    """Collects problems, a bounded number of them."""

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._dropped = 0

    @property
    def is_full(self) -> bool:
        return len(self._kept) >= MAX_PROBLEMS

    def add(self, code: Code, place: tuple[int, int], message: str, suggestion: str | None = None) -> None:
        if self.is_full:
            self._dropped += 1
            return
        shown = suggestion and suggestion[:_MAX_MESSAGE]
        self._kept.append(Problem(code, *place, message[:_MAX_MESSAGE], shown))

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems by position."""
        found = sorted(self._kept, key=lambda problem: (problem.line or 0, problem.column or 0))
        if self._dropped:
            last = found[-1]
            message = f"expected a KDL document, got {self._dropped} more problems after the first {MAX_PROBLEMS}"
            found.append(Problem(Code.TOO_MANY_PROBLEMS, last.line, last.column, message))
        return tuple(found)


def shortened(text: str) -> str:
    """Return a piece of the source for a message: on one line, and not too long."""
    shown = text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 1] + "…"
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)
