"""A hub's REST API on loopback, and commands against it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable
from typing import Any, Self

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.hub.command import hub as command
from sentinel.core.proxy.facts import Resolve
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.web.asgi import Receive, Scope, Send
from sentinel.web.server import Server
from tests.cli.client import serving
from tests.hub.rest.rest_hub import RestHub
from tests.web.rest_caller import ADMIN


class ServedHub(RestHub):
    """A hub whose REST API listens."""

    def __init__(self, *, resolve: Resolve = Resolve.ERROR) -> None:
        super().__init__(resolve=resolve)
        self._server = Server(self._handle, address=Address("127.0.0.1", 0), log=get_logger("test"))
        self._streaming = asyncio.Event()
        self._has_read = asyncio.Event()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._server.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()
        await super().__aexit__()

    @property
    def url(self) -> str:
        return f"http://{self._server.address}"

    def connection(self) -> ServerConnection:
        """Return a connection of an admin."""
        return ServerConnection(server=self.url, token=ADMIN, environ={})

    async def until_streaming(self) -> None:
        """Wait until a client follows the events."""
        async with asyncio.timeout(60):
            await self._streaming.wait()

    async def until_read(self) -> None:
        """Wait until a client has read the targets of a deployment."""
        async with asyncio.timeout(60):
            await self._has_read.wait()

    async def restart(self, *, meanwhile: Awaitable[object]) -> None:
        """Close all connections, wait for something, and serve again on the same port."""
        address = self._server.address
        await self._server.close()
        await meanwhile
        self._server = Server(self._handle, address=address, log=get_logger("test"))
        await self._server.open()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/api/v1/events":
            self._streaming.set()
        await self.app(scope, receive, send)
        if scope.get("path", "").endswith("/instances"):
            self._has_read.set()

    async def run(self, *words: object, token: str = ADMIN, stdin: str = "") -> tuple[int, str, str]:
        """Run `sentinel hub` with these words; return its exit code, stdout and stderr."""
        environ = {"SENTINEL_SERVER": self.url, "SENTINEL_TOKEN": token}
        return await serving.run(command, *words, environ=environ, stdin=stdin)

    async def watching(self, *words: str, stdout: int, stderr: int | None = None) -> asyncio.subprocess.Process:
        """Begin `sentinel hub WORDS list --watch`; the first word is the noun."""
        noun, *options = words
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sentinel.cli", "hub", noun, "list", "--watch", "--interval=50ms", *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "SENTINEL_SERVER": self.url, "SENTINEL_TOKEN": ADMIN, "COLUMNS": "200"},
        )

    async def read(self, *words: object) -> Any:
        """Run a command that succeeds, and return its JSON."""
        code, output, errors = await self.run(*words, "--output", "json")
        assert code == 0, errors
        return json.loads(output)
