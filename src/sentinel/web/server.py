"""uvicorn as a part of the lifecycle.

By default uvicorn owns the process: signals, logging, listening. Here it only serves. The lifecycle stops it, we
bind the socket (so that port 0 is resolved and an occupied port gives a clear error), and logs are ours. Streams
are notified when the server stops, so that it does not wait for them. `web.connection` limits what a client may
do.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import uvicorn

from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address, bind
from sentinel.runtime.log import Log
from sentinel.web.asgi import App
from sentinel.web.connection import ConnectionState, HttpConnection

KEEP_ALIVE = timedelta(seconds=75)
"""Longer than the usual 60 s of load balancers, so that they close idle connections first. If we did, their next
request might already be on its way."""
CLOSE_TIMEOUT = timedelta(seconds=2)
SEND_TIMEOUT = timedelta(seconds=45)
"""For a client that reads nothing of its response. Linux only; other systems have no such socket option. Longer
than the 30 s of streams, which count and log the clients they cut off."""

_DATE_INTERVAL = timedelta(seconds=1)


class Server:
    """Serves an application on one address.

    `part()` runs it as a part that finishes the requests in progress when the lifecycle stops it. To share it
    between parts, use `open` and `close`.
    """

    def __init__(
        self,
        app: App,
        *,
        address: Address,
        log: Log,
        keep_alive: timedelta = KEEP_ALIVE,
        close_timeout: timedelta = CLOSE_TIMEOUT,
        send_timeout: timedelta = SEND_TIMEOUT,
    ) -> None:
        """`close_timeout` is for requests in progress when `close` is called and the server was not stopped.
        `send_timeout` is for clients that read nothing of what they are sent."""
        self.address = address
        """After `open`, with the actual port."""
        self._log = log
        self._close_timeout = close_timeout
        self._send_timeout = send_timeout
        self._serving: asyncio.Task[None] | None = None
        self._server = _UvicornServer(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=HttpConnection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=round(keep_alive.total_seconds()),
            )
        )

    def part(self, *, name: str = "http") -> Part:
        """Return the server as a part of a service."""
        return Part(name=name, loops=(self.run,), start=self.open, close=self.close)

    async def open(self) -> None:
        """Start to serve. Raises `ListenError` if the address cannot be bound."""
        listening = await bind(self.address)
        if sys.platform == "linux":
            # Connections inherit it. Without it, a client that never reads makes us keep its response forever: no
            # timer of ours covers the undelivered data of a connection that we have closed.
            milliseconds = self._send_timeout // timedelta(milliseconds=1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self.address = Address(self.address.host, listening.getsockname()[1])
        self._serving = asyncio.create_task(self._server.serve([listening]), name=f"serve {self.address}")
        started = asyncio.create_task(self._server.has_started.wait())
        await asyncio.wait((started, self._serving), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._serving.done():
            self._serving.result()
        self._log.info("http.listening", address=str(self.address))

    async def run(self, stopping: Stopping) -> None:
        """Serve until stopped. Then accept no more connections and finish the requests in progress."""
        if self._serving is None:
            raise RuntimeError("expected an open server")
        if await stopping.interrupts(_ended(self._serving)):
            await self._drain(self._serving)
        self._serving.result()

    async def close(self) -> None:
        """Finish requests within the close timeout and abort the rest. Harmless when repeated."""
        serving, self._serving = self._serving, None
        if serving is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._close_timeout.total_seconds()):
                await self._drain(serving)
        if not serving.done():
            self._log.warning("http.cut_off", requests=len(self._server.server_state.tasks))
            self._server.abort_connections()
            serving.cancel()
            await _ended(serving)

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        self._server.drain()
        await _ended(serving)


async def _ended(serving: asyncio.Task[None]) -> None:
    # Not awaited directly: cancelling the wait must not cancel the server.
    await asyncio.wait((serving,))


class _UvicornServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = Stopping()
        self.server_state = ConnectionState(self._stopping)
        self.has_started = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the lifecycle handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    async def main_loop(self) -> None:
        """Update the Date header every second. uvicorn's own loop would wake ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_INTERVAL.total_seconds()):
                    await self._stopping.wait()

    def drain(self) -> None:
        """Accept no more connections, end streams, and stop after the last request."""
        self.should_exit = True
        self._stopping.request()

    def abort_connections(self) -> None:
        """Close every connection now."""
        for listening in self.servers:
            listening.close()
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.transport.abort()
