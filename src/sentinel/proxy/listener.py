"""Accepts the connections of clients on one address."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import TypeAlias

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from sentinel.core.proxy.model import Listener
from sentinel.proxy import tls
from sentinel.proxy.responses import abort, problem
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
        """The address; once open, with the actual port."""
        self.is_draining = False
        self._handle = handle
        self._log = log
        self._tls: ssl.SSLContext | None = None
        self._manager: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._closed = asyncio.Event()
        self._closed.set()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def open(self) -> None:
        """Listen. Raises `ListenError`, or `Misconfigured` if the certificate cannot be read."""
        loop = asyncio.get_running_loop()
        listener = self.listener
        self._tls = accepting = tls.listener_context(listener)
        if accepting is not None:
            accepting.sni_callback = self._use_current_context
        # A client that has gone takes its request with it.
        self._manager = manager = web.Server(
            self._respond, request_factory=_begin_request, handler_cancellation=True
        )
        listening = await bind(self.address)
        self._server = await loop.create_server(
            lambda: _Connection(manager, self, loop, self._log), sock=listening, backlog=BACKLOG, ssl=accepting
        )
        self.address = Address(self.address.host, listening.getsockname()[1])
        self._log.info(
            "proxy.listening", listener=listener.id, address=str(self.address), tls=self._tls is not None
        )

    def read_tls_files(self) -> ssl.SSLContext | None:
        """Read certificate, key and CA again, for `use`. Raises `Misconfigured`."""
        return tls.listener_context(self.listener)

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this context for connections from now on."""
        self._tls = context

    def _use_current_context(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        """Called by OpenSSL at the start of a handshake: asyncio's server has only its first context."""
        if self._tls is not None:
            connection.context = self._tls

    async def drain(self) -> None:
        """Accept no more connections, close idle ones, and return when the others have ended their request."""
        if self._server is not None and not self.is_draining:
            self.is_draining = True
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening)
            # A connection that was accepted just now gets its transport in the next steps of the loop. If the
            # server is closed by then, asyncio forgets the connection without closing it.
            for _ in range(_ACCEPT_STEPS):
                await asyncio.sleep(0)
            self._server.close()
            for connection in tuple(self._connections):
                connection.close_if_idle()
        await self._closed.wait()

    async def close(self) -> None:
        """Close everything now."""
        if self._server is not None and self._manager is not None:
            self._server.close()
            await self._manager.shutdown(_CLOSE_TIMEOUT.total_seconds())

    def connection_opened(self, connection: _Connection) -> None:
        self._connections.add(connection)
        self._closed.clear()

    def connection_closed(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._closed.set()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._handle(self.listener, request)


class _Connection(web.RequestHandler):
    """aiohttp's connection. It knows whether it is idle, and logs no traceback for a malformed request.

    aiohttp itself would close idle connections only after all others, and from then on read no more of a body.
    """

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
        self._body: StreamReader | None = None
        """The body of the last request."""
        self._is_responding = False
        self._has_begun = False
        """Whether a part of the next request has arrived."""

    @property
    def is_last_request(self) -> bool:
        """Whether the connection ends with the response."""
        return self._owner.is_draining or not self._owner.listener.keepalive_timeout

    def close_if_idle(self) -> None:
        """Close the connection, unless a request has at least begun to arrive."""
        if self._is_responding or self._has_begun or self.transport is None:
            return
        is_flushed = not self.transport.get_write_buffer_size()
        self.force_close()
        if is_flushed:
            # With TLS the transport would also wait until the client closes the connection.
            self._owner.connection_closed(self)

    def request_began(self, body: StreamReader) -> None:
        self._body = body
        self._is_responding, self._has_begun = True, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._owner.connection_opened(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._owner.connection_closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Before aiohttp gets it, because the request may begin meanwhile.
        if not self._is_responding and (self._body is None or self._body.is_eof()):
            self._has_begun = True
        super().data_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        finished = await super().finish_response(request, resp, start_time)
        self._is_responding = False
        if self.is_last_request:
            finished[0].force_close()
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):  # the client's: errors of targets are handled by `forwarding`
            self._log.debug("request.client_gone", error=exc)
        elif exc is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._log.exception("request.failed", error=exc, path=request.path)
        else:
            self._log.debug("request.malformed", error=exc)
        if request.writer.output_size:
            abort(request)  # part of a response has been sent
        response = problem(HTTPStatus(status), HTTPStatus(status).description)
        response.force_close()
        return response


class _Request(web.BaseRequest):
    """aiohttp's request. While the listener drains, the response says that the connection ends with it."""

    @property
    def keep_alive(self) -> bool:
        connection = self.protocol
        is_last = isinstance(connection, _Connection) and connection.is_last_request
        return super().keep_alive and not is_last


def _begin_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    if isinstance(protocol, _Connection):
        protocol.request_began(payload)
    return _Request(message, payload, protocol, writer, task, asyncio.get_running_loop())
