"""Tables and times for people: aligned text that reads the same on a terminal, in a pipe and in a ticket."""

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
    """The lines of a table; the columns named in `numbers` are aligned to the right.

    Cells may come from a server: what is not printable in them is escaped, or it would act on the terminal.
    """
    lines = [header, *([printable(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        )
        yield "  ".join(cells).rstrip()


def in_words(duration: timedelta) -> str:
    """A duration in its two largest units, such as `4m 10s`; what is finer than a second counts as nothing."""
    parts: list[str] = []
    for name, unit in _UNITS:
        count, duration = divmod(duration, unit)
        if count or (name == "s" and not parts):
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])


def count(number: float) -> str:
    """A number with three figures or more: `0.0333`, `6.25`, `1,234`."""
    if number >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"
