"""A server of event streams whose connections a test scripts, as SURFACE's streams are on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import msgspec
from aiohttp import web

from tests.support.http.loopback import LoopbackServer

Script: TypeAlias = Callable[["StreamConnection"], Awaitable[web.StreamResponse]]


def event(type_: str, data: object, event_id: str = "") -> bytes:
    """One event, encoded."""
    head = f"id: {event_id}\n" if event_id else ""
    return head.encode() + b"event: resource.%b\ndata: %b\n\n" % (type_.encode(), msgspec.json.encode(data))


def resource(identifier: str, generation: int = 1, **more: object) -> dict[str, object]:
    """A resource whose spec no adapter has observed."""
    return {"id": identifier, "kind": "Cluster", "generation": generation, "labels": {}, **more}


class StreamConnection:
    """A request for a stream, and the response to it."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.path = request.path_qs
        self.last_event_id = request.headers.get("Last-Event-ID")
        self.headers: Mapping[str, str] = dict(request.headers)
        self._request = request

    async def send(self, *chunks: bytes) -> web.StreamResponse:
        """Send these chunks and end the stream."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(self._request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    async def send_and_hold(self, *chunks: bytes) -> web.StreamResponse:
        """Send these chunks, then nothing more."""
        await self.send(*chunks)
        await asyncio.Event().wait()
        raise AssertionError

    async def send_and_break(self, *chunks: bytes) -> web.StreamResponse:
        """Send these chunks, then drop the connection."""
        response = await self.send(*chunks)
        assert self._request.transport is not None
        self._request.transport.abort()
        return response


class EventStreamServer(LoopbackServer):
    """Runs one script for each connection; the last one for all that follow. Listens inside `async with`."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__()
        self.connections: list[StreamConnection] = []
        self.times: list[float] = []
        """When each connection was requested, in the loop's time."""
        self._scripts = list(scripts)

    def make_runner(self) -> web.BaseRunner:
        return web.ServerRunner(web.Server(self._respond, handler_cancellation=True), shutdown_timeout=0.1)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = StreamConnection(request)
        self.connections.append(connection)
        self.times.append(asyncio.get_running_loop().time())
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        return await script(connection)
