"""Reads metrics in Prometheus' text format, also as OpenMetrics.

Only series of the names that someone asks for are decoded: a proxy has thousands of others. A line that cannot be
read is skipped, because one bad line says nothing about the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import msgspec

_SERIES = re.compile(
    r"""
    ([a-zA-Z_:][a-zA-Z0-9_:]*)                          # the name
    (?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?             # labels; a brace in a value does not end them
    [ \t]+([^ \t]+)                                     # the value; a timestamp or an exemplar may follow
    """,
    re.VERBOSE,
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


class Series(msgspec.Struct, frozen=True):
    """One series and its value."""

    name: str
    labels: Mapping[str, str]
    value: float
    """Possibly infinite, or not a number."""


def parse(text: str, names: Collection[str]) -> Iterator[Series]:
    """Yield the series of these names, in the order of the text."""
    for line in text.split("\n"):
        match = _SERIES.match(line)
        if match is None or match[1] not in names:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        yield Series(match[1], dict(_labels(match[2] or "")), value)


def _labels(text: str) -> Iterator[tuple[str, str]]:
    for match in _LABEL.finditer(text):
        yield match[1], _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), match[2])
