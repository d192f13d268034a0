"""Reading the body of a request, within limits.

A body is refused as early as it can be: by what its headers say of it, before a byte of it is read, and as soon
as it grows past its limit. What is left of a refused body is the server's to discard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from sentinel.web import problem, strict_json
from sentinel.web.asgi import Receive
from sentinel.web.problem import shown
from sentinel.web.routing import AnyBody, Body, BytesBody

_UTF8 = frozenset(("utf-8", "utf8", "us-ascii"))


class Disconnected(Exception):
    """The client has gone before it had sent its request; there is nobody to answer."""


_PART_WITHIN: Final = timedelta(seconds=10)
"""For the next part of a body."""
_BODY_WITHIN: Final = timedelta(seconds=20)
"""For all of it. Shorter than a request may take, so that it is the client who is told, even where it sends a byte
now and then."""


async def read(receive: Receive, headers: Mapping[str, str], declared: AnyBody) -> bytes:
    """The body that a route declares; JSON is checked to be one strict value.

    `headers` has lower-case names. Where no body is required, its absence counts as `{}` in JSON and as nothing
    otherwise. Raises `Problem`, or `Disconnected`.
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
    if not has_body:  # a server that passes a body on without saying how it came
        _check_headers(headers, declared)
    if is_json:
        strict_json.check(content)
    return content


async def _receive(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    now = asyncio.get_running_loop().time
    end = now() + _BODY_WITHIN.total_seconds()
    while True:
        try:
            async with asyncio.timeout_at(min(end, now() + _PART_WITHIN.total_seconds())):
                event = await receive()
        except TimeoutError:
            raise problem.too_slow(part=_PART_WITHIN, whole=_BODY_WITHIN) from None
        if event["type"] == "http.disconnect":
            raise Disconnected
        if event["type"] != "http.request":
            raise TypeError(f"expected a part of a request, got {event['type']}")
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
        wanted = " or ".join(content_types)
        got = shown(given) if given else "none"
        raise problem.unsupported_media_type(
            f"expected the Content-Type {wanted}, got {got}", accepted=content_types
        )
    if isinstance(declared, BytesBody):
        return
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _UTF8:
            raise problem.unsupported_media_type(
                f"expected a body in UTF-8, got the charset {shown(value)}", accepted=content_types
            )
