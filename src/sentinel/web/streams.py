"""Answers whose body is produced while it is sent, for as long as the client listens.

A stream takes no place among the requests at once and has no deadline, so it has bounds of its own: how many are
open, and how long a client may take nothing of what it is sent. It ends when its iterator does, when the client
goes or the server stops. In each case the iterator is closed, so that a `finally` in it runs
if its first chunk was asked for. For HEAD, and for a stream that is refused, it never is: acquire nothing before.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sentinel.runtime.log import Log
from sentinel.web.asgi import ClientConnection, Receive, Send
from sentinel.web.body import Disconnected
from sentinel.web.routing import Stream

MOST_STREAMS: Final = 1000
SEND_TIMEOUT: Final = timedelta(seconds=30)
"""For a client to take a chunk. Its connection holds what is on its way, so this only runs once that is full."""

_LAST_CHUNK_TIMEOUT: Final = timedelta(seconds=1)
"""For the end of a stream when the server stops: no client may delay that."""


class Stalled(Exception):
    """The client has taken nothing for too long."""


class Streams:
    """The open streams of an application."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._open: set[Stream] = set()

    def begin(self, stream: Stream) -> bool:
        """Count it as open; False if as many are open as may be."""
        if len(self._open) >= self._most:
            return False
        self._open.add(stream)
        return True

    async def end(self, stream: Stream, *, log: Log) -> None:
        """Close it, begun or not. An error in its clean-up is logged: its answer has ended already."""
        self._open.discard(stream)
        aclose = getattr(stream.content, "aclose", None)  # generators have it, other iterators may
        if aclose is None:
            return
        try:
            await aclose()
        except Exception as error:  # a loop's edge: the request is over, whatever its clean-up does
            log.exception("http.stream_close_failed", error=error)


async def send_body(
    stream: Stream, *, receive: Receive, send: Send, connection: ClientConnection, log: Log
) -> None:
    """Send the body of a stream whose head is sent, until it ends for one reason or another."""
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_until_gone(receive))
            if await connection.stopping.interrupts(_send_all(stream, send, connection, log)):
                await _send_last(send, connection)
            watching.cancel()
    except* Disconnected:
        pass


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise Disconnected  # cancels the sending, wherever it waits


async def _send_all(stream: Stream, send: Send, connection: ClientConnection, log: Log) -> None:
    try:
        async for chunk in stream.content:
            if chunk:
                await _send(send, chunk, timeout=SEND_TIMEOUT)
                # Neither an iterator with data at hand nor a send with room for it has to wait. Without this, such
                # a stream would keep everything else from running, even the news that its client has gone.
                await asyncio.sleep(0)
        await _send(send, b"", is_last=True, timeout=SEND_TIMEOUT)
    except Stalled:
        log.warning("http.stalled", seconds=SEND_TIMEOUT.total_seconds())
        connection.abort()
    except Exception as error:  # the server's edge: the client sees an answer that breaks off
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
