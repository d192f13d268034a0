"""Test servers on loopback that control every byte of a response, and how its connection ends."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self


class StreamServer(ABC):
    """Listens inside `async with`. Each connection is served in a task, which ends with the server."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.address = ""
        """Host and port. Like `url`, it is empty before the server listens."""
        self.url = ""
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, which is closed afterwards. A client that disconnects ends it."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        self.url = f"{'https' if self._tls else 'http'}://{self.address}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve_and_close(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_and_close(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self.serve(reader, writer)
        finally:
            writer.close()


class BytesServer(StreamServer):
    """Sends the same bytes in response to every request."""

    def __init__(self, response: bytes, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self._response = response

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._response)
        await writer.drain()
