"""Ids: how ours are made, and which form any id must have."""

from __future__ import annotations

from datetime import datetime

MAX_ID_LENGTH = 128


def uuid7(now: datetime, random_bytes: bytes) -> str:
    """Return a UUID of version 7 from a time and ten random bytes. It sorts by time, so it is cheap to index."""
    milliseconds = int(now.timestamp() * 1000)
    number = (milliseconds << 80) | int.from_bytes(random_bytes[:10], "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def segment_pattern(max_length: int) -> str:
    """Return the regular expression for a URL path segment that needs no escaping and is not `.` or `..`.

    Ids and plurals must match it.
    """
    return rf"(?!\.{{1,2}}$)[A-Za-z0-9._~-]{{1,{max_length}}}"
