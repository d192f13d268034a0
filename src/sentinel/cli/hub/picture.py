"""A problem and its place, drawn for people: the line of the file with a caret below what is meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

import click

from sentinel.core.kdl import split_lines
from sentinel.core.proxy.problem import Problem, Severity
from sentinel.runtime.settings.report import printable

_BEFORE: Final = 60
_SHOWN: Final = 100
"""Characters of a long line: before the place, and in all."""
_TAB: Final = "    "
_PIECE: Final = re.compile(
    r"[\udc80-\udcff]+|[^\S\t ]|[\x00-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
    r'|r?#*"""'
    r'|r?#*"(?:[^"\\]|\\.)*(?:"#*|$)'
    r"|\\u\{[^}]*\}|\\\S"
    r"|\[[^\]]*\]|\([^()]*\)"
    r"|[^\s{}()\[\]\";=\\][^\s{}()\[\]\";=]*"
)
"""What the carets go below: invalid bytes, a control character, quotes, an escape, a list, a word …"""
_COLORS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


class Pictures:
    """Draws the problems of one file."""

    def __init__(self, name: str, source: bytes, *, is_colored: bool) -> None:
        self._name = printable(name)
        self._lines = split_lines(source)
        self._is_colored = is_colored

    def draw(self, problem: Problem) -> Iterator[str]:
        """Yield the message with its place, the line, and what to write instead."""
        place = "" if problem.line is None else f":{problem.line}:{problem.column}"
        severity = self._style(problem.severity.value, _COLORS[problem.severity], bold=True)
        message = printable(problem.message)
        yield f"{self._style(self._name + place, None, bold=True)}: {severity}: {message} [{problem.code}]"
        margin = ""
        if problem.line is not None and problem.column is not None:
            gutter = f" {problem.line} | "
            margin = " " * (len(gutter) - 2) + "| "
            shown, start, length = _excerpt(self._lines[problem.line - 1], problem.column - 1)
            yield f"{self._style(gutter, 'blue')}{shown}".rstrip()
            carets = self._style("^" * length, _COLORS[problem.severity], bold=True)
            yield f"{self._style(margin, 'blue')}{' ' * start}{carets}"
        if problem.suggestion is not None:
            yield f"{' ' * max(2, len(margin) - 2)}{self._style('=', 'blue')} {printable(problem.suggestion)}"

    def _style(self, text: str, color: str | None, *, bold: bool = False) -> str:
        return click.style(text, fg=color, bold=bold or None) if self._is_colored else text


def _excerpt(line: str, at: int) -> tuple[str, int, int]:
    """Return a line as a terminal shows it, and where in it the carets start and how many there are."""
    first = max(0, at - _BEFORE) if len(line) > _SHOWN else 0
    last = first + _SHOWN
    found = _PIECE.match(line, at, last)
    end = at + 1 if found is None else found.end()
    head, piece, tail = _shown(line[first:at]), _shown(line[at:end]), _shown(line[end:last])
    if first:
        head = f"…{head}"
    if last < len(line):
        tail = f"{tail}…"
    return f"{head}{piece}{tail}", _width(head), max(1, _width(piece))


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else _TAB if char == "\t" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    """Return a control character, or a byte that is not UTF-8, as an escape."""
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return printable(char)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
