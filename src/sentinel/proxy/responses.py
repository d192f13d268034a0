"""Responses that the proxy makes itself."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

SERVER = "sentinel"
NO_CACHE = "no-cache, no-store, must-revalidate"


def problem(status: HTTPStatus, detail: str) -> web.Response:
    """Return an error in the format of all our servers."""
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": status.name.lower(),
    }
    return web.Response(
        status=status,
        body=msgspec.json.encode(document),
        headers={hdrs.CONTENT_TYPE: "application/problem+json", hdrs.SERVER: SERVER},
    )


def json_page(document: object, *, status: HTTPStatus = HTTPStatus.OK, request_id: str) -> web.Response:
    """Return a builtin handler's page."""
    return page(msgspec.json.encode(document), "application/json; charset=utf-8", request_id, status=status)


def page(body: bytes, content_type: str, request_id: str, *, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    headers = {
        hdrs.CONTENT_TYPE: content_type,
        hdrs.CACHE_CONTROL: NO_CACHE,
        hdrs.SERVER: SERVER,
        "X-Request-Id": request_id,
    }
    return web.Response(status=status, body=body, headers=headers)
