"""Listeners for probes and metrics.

They serve a few fixed pages from memory, without routing or middleware. `probe_thread` runs them in a thread, so
that a probe responds even while the service's event loop stands still. They use aiohttp's low-level server, which
the HTTP client has loaded anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from types import TracebackType

import msgspec
from aiohttp import hdrs, web

from sentinel.runtime.listening import BACKLOG, Address, bind
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.probes.pages import Page, PageResponse, metrics_pages, probe_pages

_SERVER = "sentinel"
_IDLE_TIMEOUT = timedelta(seconds=30)
_CLOSE_TIMEOUT = timedelta(seconds=1)


def listeners(
    *,
    metrics_address: Address | None,
    probes_address: Address | None,
    metrics: Metrics,
    health: Health,
    log: Log,
) -> list[Listener]:
    """Return the listeners for these addresses: one if both are the same, none for None."""
    pages: dict[Address, dict[str, Page]] = {}
    for address, added in ((probes_address, probe_pages(health)), (metrics_address, metrics_pages(metrics))):
        if address is not None:
            pages.setdefault(address, {}).update(added)
    return [Listener(address, served, log=log) for address, served in pages.items()]


class Listener:
    """Serves pages on one address while its context is entered."""

    def __init__(self, address: Address, pages: Mapping[str, Page], *, log: Log) -> None:
        self.address = address
        """Once entered, with the actual port."""
        self._pages = pages
        self._log = log
        self._manager: web.Server | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Listener:
        loop = asyncio.get_running_loop()
        listening = await bind(self.address)
        self.address = Address(self.address.host, listening.getsockname()[1])
        self._manager = manager = web.Server(self._respond)
        self._server = await loop.create_server(
            lambda: _Connection(manager, loop, self._log), sock=listening, backlog=BACKLOG
        )
        self._log.info("http.listening", address=str(self.address), paths=sorted(self._pages))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._manager is not None:
            self._server.close()
            self._manager.pre_shutdown()
            await self._manager.shutdown(_CLOSE_TIMEOUT.total_seconds())

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        page = self._pages.get(request.path)
        if page is None:
            return _problem(HTTPStatus.NOT_FOUND, f"expected one of {', '.join(sorted(self._pages))}")
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            response = _problem(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or HEAD")
            response.headers[hdrs.ALLOW] = "GET, HEAD"
            return response
        return _web_response(page(request.headers.get(hdrs.ACCEPT, "")))


class _Connection(web.RequestHandler):
    """aiohttp's connection, but it does not expose versions and logs no traceback for malformed requests."""

    def __init__(self, manager: web.Server, loop: asyncio.AbstractEventLoop, log: Log) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # how aiohttp turns it off
            keepalive_timeout=_IDLE_TIMEOUT.total_seconds(),
            lingering_time=0,
        )
        self._log = log

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if exc is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._log.exception("http.failed", error=exc, path=request.path)
        else:
            self._log.debug("http.malformed", error=exc)
        response = _problem(HTTPStatus(status), HTTPStatus(status).description)
        response.force_close()
        return response


def _problem(status: HTTPStatus, detail: str) -> web.Response:
    problem = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "code": status.name.lower(),
    }
    return _web_response(PageResponse(status, "application/problem+json", msgspec.json.encode(problem)))


def _web_response(response: PageResponse) -> web.Response:
    headers = {
        hdrs.CONTENT_TYPE: response.content_type,
        hdrs.SERVER: _SERVER,
        hdrs.CACHE_CONTROL: "no-store",
    }
    return web.Response(status=response.status, body=response.body, headers=headers)
