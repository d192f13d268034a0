"""Durations in Go's syntax: `500ms`, `5s`, `1h30m`.

Go services read the same configuration files, so the grammar is exactly that of Go's `time.ParseDuration`: a sign,
decimals, every unit down to nanoseconds, and a bare `0`. Durations are rounded to microseconds, the resolution of
`timedelta`.
"""

from __future__ import annotations

import re
from datetime import timedelta

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign
    "μs": 10**3,  # the Greek letter; Go accepts both
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_MAX_NANOSECONDS = 2**63 - 1
_MAX_TEXT = 64


def parse(text: str) -> timedelta:
    """Parse a duration. Raises `ValueError` if Go would."""
    nanoseconds = parse_nanoseconds(text)
    microseconds = (abs(nanoseconds) + 500) // 1000
    return timedelta(microseconds=-microseconds if nanoseconds < 0 else microseconds)


def parse_nanoseconds(text: str) -> int:
    """Parse a duration without rounding, to compare it with a limit as Go and Kubernetes do."""
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0
    if not unsigned or len(unsigned) > _MAX_TEXT:
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
    if nanoseconds > _MAX_NANOSECONDS:
        raise ValueError("longer than 2562047h47m")
    return -nanoseconds if text[0] == "-" else nanoseconds


def render(duration: timedelta) -> str:
    """Return the shortest text that `parse` turns back into the same duration."""
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
