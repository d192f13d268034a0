"""One connection of a client to the server, with bounds that uvicorn leaves open.

uvicorn's fast parser sets no limit on how large headers may grow, how long a client may take to send them, and how
much of a refused body is read so that the client gets to see the refusal. The limits are here. So is the way an
answer is written, with as few writes as possible.
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

_HEADERS_WITHIN = timedelta(seconds=10)
_LARGEST_HEAD = 64 * 1024
_LARGEST_REST = 16 * 1024 * 1024
_REST_WITHIN = timedelta(seconds=5)
_FLUSH_WITHIN = timedelta(seconds=1)
"""For a client to take the rest of an answer that the server has ended."""
_LARGE = 64 * 1024
"""An answer whose pieces are cheaper to send one by one than to copy into one."""
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


class ConnectionState(ServerState):
    """What uvicorn hands to every connection, with a way to tell them that the server stops."""

    def __init__(self, stopping: Stopping) -> None:
        super().__init__()
        self.stopping = stopping


class _OneAnswer(asyncio.Transport):
    """Takes one answer to the client: its head and the pieces of its body go out together.

    A write wakes the client, and that costs more than everything else about a small answer. Of a large one the
    head goes ahead: a client that is awake takes the body while it is being sent, which spares us keeping it.
    Pieces still wait for each other: who has answered should not have to wait until a slow client has taken some.
    """

    __slots__ = ("_missing", "_pieces", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._missing: int | None = None
        """How much is still to come; None before the head."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._pieces.append(data)
        if self._missing is None:
            length = _LENGTH.search(data)
            # Without a length we cannot tell when the body goes on, so the head and each chunk go out at once.
            self._missing = 0 if length is None else int(length[1])
            is_due = not 0 < self._missing < _LARGE
        else:
            self._missing -= len(data)
            is_due = self._missing <= 0
        if is_due:
            self._send()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        pieces, self._pieces = self._pieces, []
        if sum(map(len, pieces)) < _LARGE:
            self._transport.write(b"".join(pieces))
            return
        for piece in pieces:
            self._transport.write(piece)


class _HeadTooLarge(Exception):
    """Raised within the parser, which then refuses the request."""


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, with bounds on what it waits for and swallows, and problems for what is not HTTP.

    It is also the `asgi.Connection` of each of its requests.
    """

    def __init__(self, *, server_state: ConnectionState, **kwargs: Any) -> None:
        super().__init__(server_state=server_state, **kwargs)
        self.stopping = server_state.stopping
        self._answering: RequestResponseCycle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0
        self._rest = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        # asyncio does this for sockets that it made itself. Where an answer takes several writes, each would wait
        # for the client to acknowledge the one before: 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._arm(_HEADERS_WITHIN)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        # uvicorn tells only the request that came last, which may still wait for its turn behind this one.
        self._give_up()
        super().connection_lost(exc)

    def close(self) -> None:
        """Close once what was sent is delivered, or shortly after; harmless when repeated."""
        self._give_up()
        self.transport.close()
        self._disarm()
        self._arm(_FLUSH_WITHIN)

    def abort(self) -> None:
        """Drop the connection, with what is not delivered yet; harmless when repeated."""
        self._give_up()
        self.transport.abort()

    def on_message_begin(self) -> None:
        self._head = self._rest = 0
        if self._timer is None:
            self._arm(_HEADERS_WITHIN)
        super().on_message_begin()
        cast("Scope", self.scope)[CONNECTION] = self

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # Answered as if it had not asked; but the parser takes whatever follows for the other protocol.
            self.cycle.keep_alive = False
        if self.scope["method"] != "HEAD" and not self.cycle.waiting_for_100_continue:
            self.cycle.transport = _OneAnswer(self.transport)

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._rest += len(body)
            if self._rest > _LARGEST_REST:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Closed at once, with parts of the body unread, the connection would be reset, and the client might
        # never see why it was refused.
        if self.cycle.more_body and self._timer is None and not self.pipeline:
            self._arm(_REST_WITHIN)

    def send_400_response(self, msg: str) -> None:
        if self._head > _LARGEST_HEAD:
            status, detail = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "expected smaller headers"
        else:
            status, detail = HTTPStatus.BAD_REQUEST, "expected an HTTP request"
        refusal = Problem(status, Code.MALFORMED, detail)
        body = refusal.encode()
        head = f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        self.transport.write(STATUS_LINE[refusal.status.value] + head + body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _give_up(self) -> None:
        """Tell the application that the client has gone."""
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _unsupported_upgrade_warning(self) -> None:
        """Nobody needs to know."""

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > _LARGEST_HEAD:
            raise _HeadTooLarge

    def _arm(self, within: timedelta) -> None:
        self._timer = self.loop.call_later(within.total_seconds(), self.transport.abort)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
