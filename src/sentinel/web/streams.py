"""Responses whose body is produced while it is sent.

A stream has no timeout and does not count as a concurrent request. It has its own limits: how many are open, and
how long a client may read nothing. It ends when its iterator does, when the client disconnects or when the server
stops. The iterator is closed in each case. A `finally` in a generator only runs if its first chunk was requested,
which is not the case for HEAD or for a rejected stream. So a generator must not acquire anything before its `try`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sentinel.runtime.log import Log
from sentinel.web.asgi import ClientConnection, ClientDisconnected, Receive, Send
from sentinel.web.routing import Stream

MAX_STREAMS: Final = 1000
SEND_TIMEOUT: Final = timedelta(seconds=30)
"""For a client to make room for a chunk. It only matters once the connection's send buffer is full."""

_LAST_CHUNK_TIMEOUT: Final = timedelta(seconds=1)
"""For the last chunk when the server stops, so that no client can delay the stop."""


class Stalled(Exception):
    """The client has read nothing for too long."""


class Streams:
    """The open streams of an application."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._open: set[Stream] = set()

    def begin(self, stream: Stream) -> bool:
        """Count a stream as open. Return False if the limit is reached."""
        if len(self._open) >= self._limit:
            return False
        self._open.add(stream)
        return True

    async def end(self, stream: Stream, *, log: Log) -> None:
        """Close a stream, begun or not. Errors of its clean-up are only logged: its response has ended."""
        self._open.discard(stream)
        aclose = getattr(stream.content, "aclose", None)  # optional for iterators that are not generators
        if aclose is None:
            return
        try:
            await aclose()
        except Exception as error:  # the response has already ended
            log.exception("http.stream_close_failed", error=error)


async def send_body(
    stream: Stream, *, receive: Receive, send: Send, connection: ClientConnection, log: Log
) -> None:
    """Send the body of a stream whose headers are sent, until it ends for any reason."""
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_wait_for_disconnect(receive))
            if await connection.stopping.interrupts(_send_all(stream, send, connection, log)):
                await _send_last(send, connection)
            watching.cancel()
    except* ClientDisconnected:
        pass


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnected  # cancels the sending task


async def _send_all(stream: Stream, send: Send, connection: ClientConnection, log: Log) -> None:
    try:
        async for chunk in stream.content:
            if chunk:
                await _send(send, chunk, timeout=SEND_TIMEOUT)
                # Neither an iterator with data ready nor a send with room in the buffer suspends. Without this,
                # such a stream would block the event loop, including the notice that its client has disconnected.
                await asyncio.sleep(0)
        await _send(send, b"", is_last=True, timeout=SEND_TIMEOUT)
    except Stalled:
        log.warning("http.stalled", seconds=SEND_TIMEOUT.total_seconds())
        if stream.on_stalled is not None:
            stream.on_stalled()
        connection.abort()
    except Exception as error:  # the client sees a truncated response
        log.exception("http.failed", error=error)
        connection.close()


async def _send_last(send: Send, connection: ClientConnection) -> None:
    try:
        await _send(send, b"", is_last=True, timeout=_LAST_CHUNK_TIMEOUT)
    except Stalled:
        connection.abort()
    else:
        connection.close()


async def _send(send: Send, chunk: bytes, *, timeout: timedelta, is_last: bool = False) -> None:
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})
    except TimeoutError:
        raise Stalled from None
