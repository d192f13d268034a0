"""What our HTTP clients make of an answer, whichever API it is from: bounded, printable, without the token."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from sentinel.core.model import UNREADABLE

_EXCERPT = 300


class FieldError(msgspec.Struct, frozen=True):
    """What a problem says about one field."""

    field: str = ""
    message: str = ""


class Problem(msgspec.Struct, frozen=True):
    """An error's body, as RFC 9457 has it and as others do."""

    code: str = ""
    detail: str = ""
    reason: str = ""
    message: str = ""
    title: str = ""
    errors: tuple[FieldError, ...] | None = None

    @property
    def field_errors(self) -> tuple[FieldError, ...]:
        """What it says about single fields; empty where the server says null, or nothing."""
        return self.errors or ()

    @property
    def text(self) -> str:
        """What it says in words, the most telling that there are."""
        return self.detail or self.reason or self.message or self.title


def problem_in(body: bytes) -> Problem | None:
    """The problem that a body is; None for one that is none."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return None


def refusal_in(response: aiohttp.ClientResponse, body: bytes) -> Problem:
    """The problem that a body is, or one in the words of the body; without any where that is a page of HTML."""
    problem = problem_in(body)
    if problem is not None:
        return problem
    return Problem(detail="" if "html" in response.content_type else body.decode("utf-8", "replace"))


def status_line(response: aiohttp.ClientResponse, token: str) -> str:
    """The status, and what the server calls it; without the token."""
    return f"{response.status} {excerpt(response.reason or '', token)}".rstrip()


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
