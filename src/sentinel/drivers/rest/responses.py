"""Responses of REST servers, and helpers to read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import aiohttp
import msgspec

from sentinel.drivers.rest.errors import TooLarge

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


class LineSplitter:
    """Splits a body that arrives in chunks into lines."""

    def __init__(self, limit: int) -> None:
        """`limit` bounds the bytes of a line."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def has_rest(self) -> bool:
        """Whether a line has begun that is not complete."""
        return self._size > 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends. Raises `TooLarge`."""
        *lines, rest = chunk.split(b"\n")
        self._parts.append(lines[0] if lines else rest)
        self._size += len(self._parts[-1])
        if lines:
            lines[0] = b"".join(self._parts)
            self._parts = [rest] if rest else []
            self._size = len(rest)
        if self._size > self._limit or any(len(line) > self._limit for line in lines):
            raise TooLarge(self._limit, part="line")
        return lines


def excerpt(text: str, limit: int = _MAX_EXCERPT) -> str:
    """Shorten the text to one printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else f"{line[:limit]}…"


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
