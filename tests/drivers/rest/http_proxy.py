"""An HTTP proxy on loopback that records requests and resolves host names by a table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from tests.support.http.stream_server import StreamServer


class ProxiedRequest(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: Mapping[str, str]
    """With lower-case names."""


class HttpProxy(StreamServer):
    """Forwards requests and tunnels TLS inside `async with`."""

    def __init__(self, servers: Mapping[str, str] | None = None, *, rejection: bytes = b"") -> None:
        """`servers` maps `host:port` of the requests to the URL of the server.

        `rejection` is a whole response, which is sent to every request if it is set.
        """
        super().__init__()
        self._servers = {name: urlsplit(url) for name, url in (servers or {}).items()}
        self._rejection = rejection
        self.proxied: list[ProxiedRequest] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
