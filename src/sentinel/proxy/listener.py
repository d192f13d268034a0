"""Accepts the connections of clients on one address."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import TypeAlias

from aiohttp import web

from sentinel.core.proxy.model import Listener
from sentinel.proxy import tls
from sentinel.proxy.responses import problem
from sentinel.runtime.listening import BACKLOG, Address, bind
from sentinel.runtime.log import Log

Handler: TypeAlias = Callable[[Listener, web.BaseRequest], Awaitable[web.StreamResponse]]

_CLOSE_TIMEOUT = timedelta(milliseconds=100)
_ACCEPT_STEPS = 3


class ProxyListener:
    """A listener in use."""

    def __init__(self, listener: Listener, *, handle: Handler, log: Log) -> None:
        self.listener = listener
        self.address = Address(listener.address.host, listener.address.port)
        """Once open, with the actual port."""
        self.open_connections = 0
        self._handle = handle
        self._log = log
        self._tls: ssl.SSLContext | None = None
        self._manager: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._is_draining = False
        self._closed = asyncio.Event()
        self._closed.set()

    async def open(self) -> None:
        """Listen. Raises `ListenError`, or `Misconfigured` if the certificate cannot be read."""
        loop = asyncio.get_running_loop()
        listener = self.listener
        self._tls = tls.listener_context(listener)
        # A client that has gone takes its request with it.
        self._manager = manager = web.Server(self._respond, handler_cancellation=True)
        listening = await bind(self.address)
        self._server = await loop.create_server(
            lambda: _Connection(manager, self, loop, self._log), sock=listening, backlog=BACKLOG, ssl=self._tls
        )
        self.address = Address(self.address.host, listening.getsockname()[1])
        self._log.info(
            "proxy.listening", listener=listener.id, address=str(self.address), tls=self._tls is not None
        )

    def reload_certificate(self) -> None:
        """Read the certificate again, for connections from now on. Raises `Misconfigured`."""
        if self._tls is not None and self.listener.tls is not None:
            tls.load_certificate(self._tls, self.listener.tls, f'listener "{self.listener.id}"')

    async def drain(self) -> None:
        """Accept no more connections, and return when those that are open have ended their request."""
        if self._server is not None and self._manager is not None and not self._is_draining:
            self._is_draining = True
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening)
            # A connection that was accepted just now gets its transport in the next steps of the loop. If the
            # server is closed by then, asyncio forgets the connection without closing it.
            for _ in range(_ACCEPT_STEPS):
                await asyncio.sleep(0)
            self._server.close()
            self._manager.pre_shutdown()
        await self._closed.wait()

    async def close(self) -> None:
        """Close everything now."""
        if self._server is not None and self._manager is not None:
            self._server.close()
            await self._manager.shutdown(_CLOSE_TIMEOUT.total_seconds())

    def connection_opened(self) -> None:
        self.open_connections += 1
        self._closed.clear()

    def connection_closed(self) -> None:
        self.open_connections -= 1
        if not self.open_connections:
            self._closed.set()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._handle(self.listener, request)
        if self._is_draining:  # its connection was not open yet when the others were asked to close
            response.force_close()
        return response


class _Connection(web.RequestHandler):
    """aiohttp's connection. It is counted, and logs no traceback for a malformed request."""

    def __init__(
        self, manager: web.Server, owner: ProxyListener, loop: asyncio.AbstractEventLoop, log: Log
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # how aiohttp turns it off
            keepalive_timeout=owner.listener.keepalive_timeout.total_seconds(),
            auto_decompress=False,
        )
        self._owner = owner
        self._log = log

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._owner.connection_opened()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._owner.connection_closed()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if exc is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._log.exception("request.failed", error=exc, path=request.path)
        else:
            self._log.debug("request.malformed", error=exc)
        response = problem(HTTPStatus(status), HTTPStatus(status).description)
        response.force_close()
        return response
