"""Servers on loopback sockets, and their clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import msgspec

from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.web.asgi import App
from sentinel.web.server import Server
from tests.web.asgi_client import LOG, TIMEOUT

LOOPBACK = Address("127.0.0.1", 0)


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[Server]:
    server = Server(app, address=LOOPBACK, log=LOG)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(f"http://{server.address}", timeout=timeout) as client:
        yield client


class RunningService:
    """A service that consists of one server."""

    def __init__(self, server: Server, *, drain: timedelta = timedelta(seconds=5)) -> None:
        self._server = server
        self._drain = drain
        self._is_open = asyncio.Event()
        self.stopping = Stopping()

    async def run(self) -> int:
        return await runner.run(
            parts=[self._part], log=LOG, stopping=self.stopping, signals=(), drain_timeout=self._drain
        )

    async def open(self) -> None:
        await self._is_open.wait()

    def _part(self) -> Part:
        return msgspec.structs.replace(self._server.part(), start=self._start)

    async def _start(self) -> None:
        await self._server.open()
        self._is_open.set()
