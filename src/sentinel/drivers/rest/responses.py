"""Responses of REST servers, and helpers to read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp
import msgspec

_MAX_EXCERPT = 300


class RestResponse(msgspec.Struct, frozen=True):
    """A successful response with its whole body."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    """Case-insensitive."""

    @property
    def etag(self) -> str:
        """The entity tag, or ""."""
        return self.headers.get("ETag", "")

    @property
    def line(self) -> str:
        """The status line, such as `200 OK`."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read the body. If it is longer than `limit`, return at least `limit + 1` bytes of it."""
    chunks = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(chunks)


def excerpt(text: str) -> str:
    """Shorten the text to one printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_EXCERPT else f"{line[:_MAX_EXCERPT]}…"


def retry_after(headers: Mapping[str, str]) -> timedelta:
    """Parse Retry-After, which is in seconds or a date. A date is compared with the server's own clock."""
    value = headers.get("Retry-After", "")
    try:
        if value.strip().isdecimal():
            return timedelta(seconds=int(value))
        date = headers.get("Date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max(parsedate_to_datetime(value) - now, timedelta(0))
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
