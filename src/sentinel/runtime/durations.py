"""Durations as Go writes them: `500ms`, `5s`, `1h30m`.

The configuration files of this product are shared with Go services, so the grammar is that of Go's
`time.ParseDuration`, exactly: a sign, decimals, every unit down to nanoseconds, and a bare `0`. A Python
`timedelta` resolves microseconds; what is finer is rounded to the nearest one.
"""

from __future__ import annotations

import re
from datetime import timedelta

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign
    "μs": 10**3,  # the Greek letter; Go takes both
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LONGEST = 2**63 - 1
_LONGEST_TEXT = 64


def parse(text: str) -> timedelta:
    """The duration that the text names; raises `ValueError` where Go would refuse it."""
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return timedelta(0)
    if not unsigned or len(unsigned) > _LONGEST_TEXT:
        raise ValueError("not a duration")
    nanoseconds = 0
    position = 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None or not (part[1] or part[2]):
            raise ValueError("not a duration")
        unit = _NANOSECONDS[part[3]]
        fraction = part[2] or ""
        nanoseconds += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        position = part.end()
    if nanoseconds > _LONGEST:
        raise ValueError("longer than 2562047h47m")
    microseconds = (nanoseconds + 500) // 1000
    return timedelta(microseconds=-microseconds if text[0] == "-" else microseconds)


def render(duration: timedelta) -> str:
    """The shortest text in whole units that `parse` reads back as the same duration."""
    microseconds = duration // timedelta(microseconds=1)
    if microseconds < 0:
        return "-" + render(-duration)
    if microseconds < 1000:
        return f"{microseconds}us" if microseconds else "0s"
    if microseconds < 10**6:
        return f"{_decimal(microseconds, 10**3)}ms"
    minutes, rest = divmod(microseconds, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    return (
        (f"{hours}h" if hours else "")
        + (f"{minutes}m" if minutes else "")
        + (f"{_decimal(rest, 10**6)}s" if rest else "")
    )


def _decimal(count: int, unit: int) -> str:
    whole, rest = divmod(count, unit)
    if not rest:
        return str(whole)
    return f"{whole}." + str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
