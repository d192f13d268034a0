"""An HTTP server that sends a test's responses and records the requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Self, TypeAlias

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer


class ReceivedRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    body: bytes


class ScriptedResponse(msgspec.Struct, frozen=True):
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


def problem(status: int, code: str = "", detail: str = "", **more: object) -> ScriptedResponse:
    """An error response of the HyperFleet API."""
    body = msgspec.json.encode({"status": status, "code": code, "detail": detail, **more})
    return ScriptedResponse(status, body, {"Content-Type": "application/problem+json"})


def document(value: object, status: int = 200) -> ScriptedResponse:
    """A JSON response."""
    return ScriptedResponse(status, msgspec.json.encode(value), {"Content-Type": "application/json"})


Script: TypeAlias = Callable[[ReceivedRequest], ScriptedResponse | Awaitable[ScriptedResponse]]


class ScriptedServer:
    """Listens on loopback inside `async with`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[ReceivedRequest] = []
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._respond)
        self._server = TestServer(application, host="127.0.0.1")

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    @property
    def paths(self) -> list[str]:
        """Method and path of every request so far."""
        return [f"{each.method} {each.path}" for each in self.requests]

    async def _respond(self, request: web.Request) -> web.Response:
        received = ReceivedRequest(request.method, request.path_qs, dict(request.headers), await request.read())
        self.requests.append(received)
        scripted = self.script(received)
        response = scripted if isinstance(scripted, ScriptedResponse) else await scripted
        return web.Response(status=response.status, body=response.body, headers=response.headers)
