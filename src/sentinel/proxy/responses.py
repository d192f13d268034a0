"""What the proxy sends to clients: its own responses, and the headers of all of them."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from sentinel.core.proxy import forwarded_headers
from sentinel.core.proxy.model import HeaderPolicy

SERVER = "sentinel"
NO_CACHE = "no-cache, no-store, must-revalidate"
_NO_POLICY = HeaderPolicy()


class ResponseHeaders(web.StreamResponse):
    """A response with the headers that it was given, changed by the policy of its route.

    aiohttp adds headers when it sends a response. A Server and a Content-Type that nobody asked for are left out,
    and the policy comes last, so that it can also remove a Date.
    """

    policy: HeaderPolicy = _NO_POLICY

    async def _prepare_headers(self) -> None:
        headers = self.headers
        missing = [name for name in (hdrs.SERVER, hdrs.CONTENT_TYPE) if name not in headers]
        await super()._prepare_headers()
        for name in missing:
            headers.popall(name, None)
        if self.policy != _NO_POLICY:
            changed = forwarded_headers.apply(self.policy, list(headers.items()))
            headers.clear()
            headers.extend(changed)


class Response(web.Response, ResponseHeaders):
    """A response whose whole body is known."""


class ErrorResponse(Response):
    """An error that the proxy itself has found."""


class FileResponse(web.FileResponse, ResponseHeaders):
    """A file. Unlike aiohttp's, it can be sent by its handler: then aiohttp does not send it once more."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None if self.prepared else await super().prepare(request)


def problem(status: HTTPStatus, detail: str) -> ErrorResponse:
    """Return an error in the format of all our servers."""
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": status.name.lower(),
    }
    return ErrorResponse(
        status=status,
        body=msgspec.json.encode(document),
        headers={hdrs.CONTENT_TYPE: "application/problem+json", hdrs.SERVER: SERVER},
    )


def json_page(document: object, *, status: HTTPStatus = HTTPStatus.OK, request_id: str) -> Response:
    """Return a builtin handler's page."""
    return page(msgspec.json.encode(document), "application/json; charset=utf-8", request_id, status=status)


def page(body: bytes, content_type: str, request_id: str, *, status: HTTPStatus = HTTPStatus.OK) -> Response:
    headers = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: NO_CACHE,
        hdrs.SERVER: SERVER,
        "X-Request-Id": request_id,
    }
    return Response(status=status, body=body, headers=headers)


def abort(request: web.BaseRequest) -> None:
    """Reset the connection: the client must not take what it got for the whole response."""
    if request.transport is not None:
        request.transport.abort()
