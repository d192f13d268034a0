"""What our HTTP clients make of an answer, whichever API it is from: bounded, printable, without the token."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp

_EXCERPT = 300


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, or its beginning where it is longer than `limit`: at least one byte more than that."""
    chunks = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(chunks)


def excerpt(text: str, token: str) -> str:
    """One short printable line, without the token."""
    if token:
        text = text.replace(token, "***")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…"


def retry_after(response: aiohttp.ClientResponse) -> timedelta:
    """What the server asks for, in seconds or as a date; a date is measured by the server's own clock."""
    value = response.headers.get("Retry-After", "")
    try:
        if value.strip().isdecimal():
            return timedelta(seconds=int(value))
        date = response.headers.get("Date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max(parsedate_to_datetime(value) - now, timedelta(0))
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
