"""Test servers on a free port of loopback."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from typing import Self

from aiohttp import web


async def listen(runner: web.BaseRunner, *, tls: ssl.SSLContext | None = None) -> str:
    """Start the server and return its URL."""
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    return f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"


class LoopbackServer(ABC):
    """Listens inside `async with`; `url` is empty before."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = ""
        self._tls = tls
        self._runner: web.BaseRunner | None = None

    @abstractmethod
    def make_runner(self) -> web.BaseRunner:
        """Build the server. The application's signals open and close what its handlers use."""

    async def __aenter__(self) -> Self:
        self._runner = self.make_runner()
        self.url = await listen(self._runner, tls=self._tls)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()
