"""The request bodies that a route can declare, and how they are read.

A body is rejected as early as possible: by its headers before a byte is read, and as soon as it exceeds its limit.
`web.connection` discards the rest of a rejected body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias

import msgspec

from sentinel.web import forms, problem, strict_json
from sentinel.web.asgi import ClientDisconnected, Receive
from sentinel.web.problem import shown

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
BODY_LIMIT: Final = 1024 * 1024
"""The default limit of a body in bytes."""
FORM_LIMIT: Final = 64 * 1024
"""The default limit of a form in bytes."""

_UTF8 = frozenset(("utf-8", "utf8", "us-ascii"))
_CHUNK_TIMEOUT: Final = timedelta(seconds=10)
_BODY_TIMEOUT: Final = timedelta(seconds=20)
"""Shorter than the request timeout, so that a client that sends a byte now and then gets a 408."""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON body. Handlers read it with `request.decode(...)`, or undecoded with `request.body()`."""

    type: Any
    """The type it is decoded into, usually a struct with `forbid_unknown_fields`."""
    description: str = ""
    content_types: tuple[str, ...] = (JSON,)
    limit: int = BODY_LIMIT
    """In bytes."""
    is_required: bool = True
    """If it is not, an absent body is read as `{}`."""
    example: msgspec.Raw | None = None


class TextBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body of UTF-8 text. Handlers read it with `request.text()`."""

    description: str = ""
    content_types: tuple[str, ...] = (TEXT,)
    limit: int = BODY_LIMIT
    """In bytes."""
    is_required: bool = True
    """If it is not, an absent body is read as empty."""
    example: str | None = None

    @property
    def type(self) -> Any:
        return str


class BytesBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body of any bytes. Handlers read it with `request.body()`."""

    description: str = ""
    content_types: tuple[str, ...] = (BYTES,)
    limit: int = BODY_LIMIT
    """In bytes."""
    is_required: bool = True
    """If it is not, an absent body is read as empty."""


class FormBody(msgspec.Struct, frozen=True, kw_only=True):
    """A form as browsers send it. Handlers read it with `request.form()`."""

    type: Any
    """Only for the OpenAPI document: a struct with a field for each form field."""
    description: str = ""
    limit: int = FORM_LIMIT
    """In bytes."""
    is_required: bool = True
    """If it is not, an absent body is read as a form without fields."""
    example: msgspec.Raw | None = None

    @property
    def content_types(self) -> tuple[str, ...]:
        return (forms.CONTENT_TYPE,)


AnyBody: TypeAlias = Body | TextBody | BytesBody | FormBody


async def read(receive: Receive, headers: Mapping[str, str], declared: AnyBody) -> bytes:
    """Read the body that a route declares. JSON is checked to be one strict value.

    `headers` has lower-case names. Raises `Problem` or `ClientDisconnected`.
    """
    is_json = isinstance(declared, Body)
    length = headers.get("content-length", "")
    if length.isdigit() and int(length[:19]) > declared.limit:
        raise problem.payload_too_large(declared.limit)
    has_body = "transfer-encoding" in headers or length not in ("", "0")
    if has_body:
        _check_headers(headers, declared)
    content = await _receive(receive, declared.limit)
    if not content:
        if declared.is_required:
            raise problem.malformed(f"expected a {'JSON value' if is_json else 'body'}, got nothing")
        return b"{}" if is_json else b""
    if not has_body:  # an ASGI server may pass on a body without these headers
        _check_headers(headers, declared)
    if is_json:
        strict_json.check(content)
    return content


async def _receive(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    deadline = now() + _BODY_TIMEOUT.total_seconds()
    while True:
        try:
            async with asyncio.timeout_at(min(deadline, now() + _CHUNK_TIMEOUT.total_seconds())):
                event = await receive()
        except TimeoutError:
            raise problem.too_slow(chunk=_CHUNK_TIMEOUT, whole=_BODY_TIMEOUT) from None
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        if event["type"] != "http.request":
            raise TypeError(f"expected http.request, got {event['type']}")
        if chunk := event.get("body", b""):
            size += len(chunk)
            if size > limit:
                raise problem.payload_too_large(limit)
            chunks.append(chunk)
        if not event.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_headers(headers: Mapping[str, str], declared: AnyBody) -> None:
    content_types = declared.content_types
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise problem.unsupported_media_type("expected a body that is not compressed, got a Content-Encoding")
    given = headers.get("content-type", "")
    media_type, *parameters = (part.strip() for part in given.split(";"))
    if media_type.lower() not in content_types:
        expected = " or ".join(content_types)
        got = shown(given) if given else "none"
        raise problem.unsupported_media_type(
            f"expected the Content-Type {expected}, got {got}", accepted=content_types
        )
    if isinstance(declared, BytesBody):
        return
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _UTF8:
            raise problem.unsupported_media_type(
                f"expected a body in UTF-8, got the charset {shown(value)}", accepted=content_types
            )
