"""uvicorn as a part of our lifecycle.

uvicorn would own the process: its signals, its logging, its way of listening. Here it only serves. The lifecycle
says when to stop, the listening socket is bound by us (so that port 0 has an answer and an occupied port a clear
error), and log lines are ours. Applications that stream are told when the server stops, so that it need not wait
for answers without an end. `web.connection` bounds what a single client may do.
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
"""Longer than the usual minute of load balancers, so that it is they who give up a connection, and never we
while their next request is on its way."""
CLOSING = timedelta(seconds=2)
PATIENCE = timedelta(seconds=30)
"""For a client that takes nothing of its answer. Only Linux can be told; elsewhere there is no such bound."""

_DATE_EVERY = timedelta(seconds=1)


class Server:
    """Serves an application on one address.

    As a part (`part()`), it finishes what it has begun when the lifecycle asks it to stop; as a thing that parts
    share, `open` and `close` do.
    """

    def __init__(
        self,
        app: App,
        *,
        address: Address,
        log: Log,
        keep_alive: timedelta = KEEP_ALIVE,
        closing: timedelta = CLOSING,
        patience: timedelta = PATIENCE,
    ) -> None:
        """`closing` is for what is still under way when it is closed without having been asked to stop, `patience`
        for clients that take nothing of what they are sent."""
        self.address = address
        """Where it listens; once opened, with the port that was picked."""
        self._log = log
        self._closing = closing
        self._patience = patience
        self._serving: asyncio.Task[None] | None = None
        self._server = _Server(
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
        """As a part of a service."""
        return Part(name=name, loops=(self.run,), start=self.open, close=self.close)

    async def open(self) -> None:
        """Begins to serve; raises `ListenError` where the address cannot be had."""
        listening = await bind(self.address)
        if sys.platform == "linux":
            # Connections inherit it. A client that asks and never reads would have us keep its answer for as long
            # as it likes: no timer of ours sees what a connection that we have closed still has to deliver.
            milliseconds = self._patience // timedelta(milliseconds=1)
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
        """Serves until asked to stop, then takes no more connections and finishes the requests under way."""
        if self._serving is None:
            raise RuntimeError("expected a server that is open")
        if await stopping.interrupts(_ended(self._serving)):
            await self._drain(self._serving)
        self._serving.result()

    async def close(self) -> None:
        """Finishes what can be finished quickly, and cuts off the rest; harmless when repeated."""
        serving, self._serving = self._serving, None
        if serving is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._closing.total_seconds()):
                await self._drain(serving)
        if not serving.done():
            self._log.warning("http.cut_off", requests=len(self._server.server_state.tasks))
            self._server.cut_off()
            serving.cancel()
            await _ended(serving)

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        self._server.leave()
        await _ended(serving)


async def _ended(serving: asyncio.Task[None]) -> None:
    # Not awaited itself: whoever gives up waiting must not cancel what it waits for.
    await asyncio.wait((serving,))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = Stopping()
        self.server_state = ConnectionState(self._stopping)
        self.has_started = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the lifecycle."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    async def main_loop(self) -> None:
        """Keeps the header Date true. uvicorn's own loop wakes ten times a second to see whether it should end."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_EVERY.total_seconds()):
                    await self._stopping.wait()

    def leave(self) -> None:
        """Takes no more connections, ends streams, and ends when the last request has been answered."""
        self.should_exit = True
        self._stopping.request()

    def cut_off(self) -> None:
        """Ends every connection on the spot."""
        for listening in self.servers:
            listening.close()
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.transport.abort()
