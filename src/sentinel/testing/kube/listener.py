"""The API over real HTTP on loopback, and the faults of its connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import msgspec
from aiohttp import web

from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.requests import ApiRequest, ApiResponse, StreamedResponse

Handler: TypeAlias = Callable[[ApiRequest], Awaitable[ApiResponse | StreamedResponse]]
Gate: TypeAlias = Callable[[], Awaitable[None]]

HOST = "127.0.0.1"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_JSON = "application/json"

_encode = msgspec.json.encode


class Listener:
    """Accepts connections on one port of loopback, and keeps the port while it refuses them."""

    def __init__(self, handler: Handler, *, gate: Gate, tls: ssl.SSLContext | None, port: int) -> None:
        self.port = port
        """Chosen by the system if it was 0."""
        self._handler = handler
        self._gate = gate
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._manager: web.Server | None = None
        self._reserved: socket.socket | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._manager.connections) if self._manager is not None else 0

    async def start(self) -> None:
        """Accept connections. Does nothing if it does already."""
        if self._server is not None:
            return
        if self._manager is None:
            self._manager = web.Server(self._respond, handler_cancellation=True, access_log=None, lingering_time=0)
        bound = self._reserved or _bound(self.port)
        self._reserved = None
        self.port = bound.getsockname()[1]
        self._server = await asyncio.get_running_loop().create_server(self._manager, sock=bound, ssl=self._tls)

    def refuse(self) -> None:
        """Refuse new connections. Open ones stay."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        # A bound socket that does not listen refuses connections, and nobody else can get the port.
        self._reserved = _bound(self.port)

    def reset(self) -> None:
        """Reset all open connections, as if the network had broken."""
        for connection in self._manager.connections if self._manager is not None else ():
            transport = connection.transport
            if transport is None:
                continue
            plain = transport.get_extra_info("socket")
            if plain is not None:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        if self._manager is not None:
            manager, self._manager = self._manager, None
            await manager.shutdown(0)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            return web.Response(status=error.status, text=error.text)
        try:
            response = await self._handler(_api_request(request, body))
        except ApiError as error:
            headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
            return _whole(ApiResponse(error.code, error.status, headers))
        if isinstance(response, ApiResponse):
            await self._gate()
            return _whole(response)
        return await self._stream(request, response.lines)

    async def _stream(self, request: web.BaseRequest, lines: AsyncIterator[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        async for line in lines:
            await self._gate()
            await response.write(line)
        await response.write_eof()
        return response


def _bound(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setblocking(False)
    listening.bind((HOST, port))
    return listening


def _api_request(request: web.BaseRequest, body: bytes) -> ApiRequest:
    certificate = request.get_extra_info("peercert") or {}
    subject: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            subject.setdefault(name, []).append(value)
    return ApiRequest(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
        certificate_subject=subject,
    )


def _whole(response: ApiResponse) -> web.Response:
    if isinstance(response.body, str):
        return web.Response(status=response.status, text=response.body, headers=response.headers)
    return web.Response(
        status=response.status, body=_encode(response.body), headers={"Content-Type": _JSON, **response.headers}
    )
