"""What came back from a server: read within limits, and shown as one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp
import msgspec

_EXCERPT = 300


class RestResponse(msgspec.Struct, frozen=True):
    """A response that refuses nothing, read to its end."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    """By names in any case."""

    @property
    def etag(self) -> str:
        """The entity tag, empty where the server sent none."""
        return self.headers.get("ETag", "")

    @property
    def line(self) -> str:
        """The status and its standard phrase, for people."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)


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


def excerpt(text: str) -> str:
    """One short printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…"


def retry_after(headers: Mapping[str, str]) -> timedelta:
    """What the server asks for, in seconds or as a date; a date is measured by the server's own clock."""
    value = headers.get("Retry-After", "")
    try:
        if value.strip().isdecimal():
            return timedelta(seconds=int(value))
        date = headers.get("Date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max(parsedate_to_datetime(value) - now, timedelta(0))
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
