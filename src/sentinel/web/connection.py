"""A client's connection, with limits that uvicorn does not have.

uvicorn's httptools protocol does not limit the size of headers, the time a client takes to send them, or how much
of a rejected body is read so that the client can see the response. This module does. It also sends each response
with as few writes as possible.
"""

from __future__ import annotations

import asyncio
import re
import socket
from datetime import timedelta
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sentinel.core.problem_codes import Code
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.web.asgi import CONNECTION, Scope
from sentinel.web.problem import CONTENT_TYPE, Problem

_HEADERS_TIMEOUT = timedelta(seconds=10)
_MAX_HEADER_BYTES = 64 * 1024
_MAX_DISCARDED_BYTES = 16 * 1024 * 1024
_DISCARD_TIMEOUT = timedelta(seconds=5)
_FLUSH_TIMEOUT = timedelta(seconds=1)
"""For a client to read the rest of a response that the server has ended."""
_LARGE_RESPONSE = 64 * 1024
"""From this size on, sending chunks one by one is cheaper than joining them."""
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


class ConnectionState(ServerState):
    """The state that uvicorn shares between connections, with a flag for the server's stop."""

    def __init__(self, stopping: Stopping) -> None:
        super().__init__()
        self.stopping = stopping


class ResponseTransport(asyncio.Transport):
    """Sends the headers and the body of a small response in one write.

    A write wakes the client, which costs more than all other work on a small response. The headers of a large one
    are sent first, together with the first chunk if that is small: a client that is already awake reads the body
    while it is sent, so we buffer less. The other chunks of its body are still sent together, so that the handler
    does not wait for a slow client between them.
    """

    __slots__ = ("_chunks", "_has_sent", "_remaining", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._chunks: list[bytes | bytearray | memoryview] = []
        self._remaining: int | None = None
        """How many bytes of the body are missing; None before the headers."""
        self._has_sent = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._remaining is None:
            length = _CONTENT_LENGTH.search(data)
            # Without Content-Length we cannot tell when the body ends, so send the headers and each chunk at once.
            self._remaining = 0 if length is None else int(length[1])
            is_due = self._remaining == 0
        else:
            is_large = len(data) >= _LARGE_RESPONSE
            self._remaining -= len(data)
            if is_large and not self._has_sent:
                self._send()
            is_due = self._remaining <= 0 or (self._remaining >= _LARGE_RESPONSE and not self._has_sent)
        self._chunks.append(data)
        if is_due:
            self._send()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        chunks, self._chunks = self._chunks, []
        self._has_sent = True
        if sum(map(len, chunks)) < _LARGE_RESPONSE:
            self._transport.write(b"".join(chunks))
            return
        for chunk in chunks:
            self._transport.write(chunk)


class _HeadersTooLarge(Exception):
    """Raised inside the parser, which then rejects the request."""


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection with timeouts and size limits. Malformed HTTP gets a problem as its response.

    It is also the `asgi.ClientConnection` of each of its requests.
    """

    def __init__(self, *, server_state: ConnectionState, **kwargs: Any) -> None:
        super().__init__(server_state=server_state, **kwargs)
        self.stopping = server_state.stopping
        self._active_cycle: RequestResponseCycle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._discarded_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        # asyncio does this only for sockets that it created. Without it, each further write of a response waits up
        # to 40 ms for the client to acknowledge the previous one.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start_timer(_HEADERS_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn notifies only the last request, which may still be queued behind the active one.
        self._notify_disconnect()
        super().connection_lost(exc)

    def close(self) -> None:
        """Close once all data is delivered, or after a short timeout. Harmless when repeated."""
        self._notify_disconnect()
        self.transport.close()
        self._stop_timer()
        self._start_timer(_FLUSH_TIMEOUT)

    def abort(self) -> None:
        """Drop the connection and undelivered data. Harmless when repeated."""
        self._notify_disconnect()
        self.transport.abort()

    def on_message_begin(self) -> None:
        self._header_bytes = self._discarded_bytes = 0
        if self._timer is None:
            self._start_timer(_HEADERS_TIMEOUT)
        super().on_message_begin()
        cast("Scope", self.scope)[CONNECTION] = self

    def on_url(self, url: bytes) -> None:
        self._count_header_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header_bytes(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # The upgrade is ignored, but the parser treats all further data as the other protocol.
            self.cycle.keep_alive = False
        if self.scope["method"] != "HEAD" and not self.cycle.waiting_for_100_continue:
            self.cycle.transport = ResponseTransport(self.transport)

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > _MAX_DISCARDED_BYTES:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Closing with unread data resets the connection, and the client might never see the response. So read on
        # for a while.
        if self.cycle.more_body and self._timer is None and not self.pipeline:
            self._start_timer(_DISCARD_TIMEOUT)

    def send_400_response(self, msg: str) -> None:
        if self._header_bytes > _MAX_HEADER_BYTES:
            status, detail = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected smaller headers"
        else:
            status, detail = HTTPStatus.BAD_REQUEST, "expected an HTTP request"
        rejection = Problem(status, Code.MALFORMED, detail)
        body = rejection.encode()
        head = f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        self.transport.write(STATUS_LINE[rejection.status.value] + head + body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def _notify_disconnect(self) -> None:
        """Tell the application that the client has disconnected."""
        if self._active_cycle is not None and not self._active_cycle.response_complete:
            self._active_cycle.disconnected = True
            self._active_cycle.message_event.set()

    def _unsupported_upgrade_warning(self) -> None:
        """Do not log it."""

    def _count_header_bytes(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise _HeadersTooLarge

    def _start_timer(self, timeout: timedelta) -> None:
        self._timer = self.loop.call_later(timeout.total_seconds(), self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
