"""Tables, durations and numbers for people, as aligned plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from sentinel.runtime.settings.report import printable

_UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)


def render(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Collection[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table. The columns named in `numbers` are right-aligned.

    Cells may come from a server, so control characters, which could control the terminal, are escaped.
    """
    lines = [header, *([printable(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        )
        yield "  ".join(cells).rstrip()


def format_duration(duration: timedelta) -> str:
    """Format a duration in its two largest units, such as `4m 10s`. Fractions of a second are dropped."""
    parts: list[str] = []
    for name, unit in _UNITS:
        count, duration = divmod(duration, unit)
        if count or (name == "s" and not parts):
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


def format_number(number: float) -> str:
    """Format a number with at least three significant digits: `0.0333`, `6.25`, `1,234`."""
    if number >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"
