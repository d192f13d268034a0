"""An HTTP proxy on loopback that records requests and resolves host names by a table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec


class ProxiedRequest(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: Mapping[str, str]
    """With lower-case names."""


class HttpProxy:
    """Forwards requests and tunnels TLS inside `async with`."""

    def __init__(self, servers: Mapping[str, str] | None = None, *, rejection: bytes = b"") -> None:
        """`servers` maps `host:port` of the requests to the URL of the server.

        `rejection` is a whole response, which is sent to every request if it is set.
        """
        self._servers = {name: urlsplit(url) for name, url in (servers or {}).items()}
        self._rejection = rejection
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.proxied: list[ProxiedRequest] = []
        self.address = ""
        """Host and port, for the environment variable."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._forward(reader, writer)
            finally:
                writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        lines = [line.partition(": ")[::2] for line in head[1:] if line]
        request = ProxiedRequest(method, target, {name.lower(): value for name, value in lines})
        self.proxied.append(request)
        if self._rejection:
            writer.write(self._rejection)
            await writer.drain()
            return
        if method == "CONNECT":
            server = self._servers[target]
            upstream_reader, upstream = await asyncio.open_connection(server.hostname, server.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            url = urlsplit(target)
            server = self._servers[f"{url.hostname}:{url.port or 80}"]
            upstream_reader, upstream = await asyncio.open_connection(server.hostname, server.port)
            kept = [f"{name}: {value}" for name, value in lines if name.lower() != "proxy-authorization"]
            path = target.partition(url.netloc)[2]
            upstream.write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "", ""]).encode("latin-1"))
        try:
            await asyncio.gather(_copy(reader, upstream), _copy(upstream_reader, writer))
        finally:
            upstream.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()
