"""Ids: how ours are made, and which form any id must have."""

from __future__ import annotations

from datetime import datetime

MAX_ID_LENGTH = 128


RANDOM_BYTES = 10
"""How many random bytes an id needs."""

_RANDOM_DIGITS = 2 * RANDOM_BYTES
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The digit with its two high bits set to the variant of RFC 9562."""


def uuid7(now: datetime, random_bytes: bytes) -> str:
    """Return a UUID of version 7 from a time and ten random bytes. It sorts by time, so it is cheap to index."""
    [made] = uuid7s(now, random_bytes[:RANDOM_BYTES])
    return made


def uuid7s(now: datetime, random_bytes: bytes) -> list[str]:
    """Return one UUID for each ten random bytes, all of one time, which is formatted once."""
    time = f"{int(now.timestamp() * 1000):012x}"
    start, digits = f"{time[:8]}-{time[8:]}-7", random_bytes.hex()
    each = [digits[at : at + _RANDOM_DIGITS] for at in range(0, len(digits), _RANDOM_DIGITS)]
    return [f"{start}{own[1:4]}-{_VARIANTS[own[4]]}{own[5:8]}-{own[8:]}" for own in each]


def segment_pattern(max_length: int) -> str:
    """Return the regular expression for a URL path segment that needs no escaping and is not `.` or `..`.

    Ids and plurals must match it.
    """
    return rf"(?!\.{{1,2}}$)[A-Za-z0-9._~-]{{1,{max_length}}}"
