"""Reading the body of a request, within limits.

A body is refused as early as it can be: by what its headers say of it, before a byte of it is read, and as soon
as it grows past its limit. What is left of a refused body is the server's to discard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from sentinel.web import problem, strictjson
from sentinel.web.asgi import Receive
from sentinel.web.problem import shown

_UTF8 = frozenset(("utf-8", "utf8", "us-ascii"))


class Disconnected(Exception):
    """The client has gone before it had sent its request; there is nobody to answer."""


_PART_WITHIN: Final = timedelta(seconds=10)
"""For the next part of a body."""
_BODY_WITHIN: Final = timedelta(seconds=20)
"""For all of it. Shorter than a request may take, so that it is the client who is told, even where it sends a byte
now and then."""


async def read(
    receive: Receive,
    headers: Mapping[str, str],
    *,
    content_types: Sequence[str],
    limit: int,
    is_required: bool,
) -> bytes:
    """The body, which is one strict JSON value. `headers` has lower-case names; no body counts as `{}` where
    none is required. Raises `Problem`, or `Disconnected`.
    """
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared[:19]) > limit:
        raise problem.payload_too_large(limit)
    has_body = "transfer-encoding" in headers or declared not in ("", "0")
    if has_body:
        _check_headers(headers, content_types)
    content = await _receive(receive, limit)
    if not content:
        if is_required:
            raise problem.malformed("expected a JSON value, got nothing")
        return b"{}"
    if not has_body:  # a server that passes a body on without saying how it came
        _check_headers(headers, content_types)
    strictjson.check(content)
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


def _check_headers(headers: Mapping[str, str], content_types: Sequence[str]) -> None:
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
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _UTF8:
            raise problem.unsupported_media_type(
                f"expected a body in UTF-8, got the charset {shown(value)}", accepted=content_types
            )
