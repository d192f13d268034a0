"""An HTTP server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer


class Asked(msgspec.Struct, frozen=True):
    """A request that came in."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    body: bytes


class Said(msgspec.Struct, frozen=True):
    """An answer that goes out."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


def problem(status: int, code: str = "", detail: str = "", **more: object) -> Said:
    """An error as the HyperFleet API says it."""
    body = msgspec.json.encode({"status": status, "code": code, "detail": detail, **more})
    return Said(status, body, {"Content-Type": "application/problem+json"})


def document(value: object, status: int = 200) -> Said:
    """JSON."""
    return Said(status, msgspec.json.encode(value), {"Content-Type": "application/json"})


class ScriptedServer:
    """Listens on loopback between `async with` and its end."""

    def __init__(self, script: Callable[[Asked], Said | Awaitable[Said]]) -> None:
        self.script = script
        self.asked: list[Asked] = []
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(application, host="127.0.0.1")

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    @property
    def paths(self) -> list[str]:
        """What was asked for so far."""
        return [f"{each.method} {each.path}" for each in self.asked]

    async def _answer(self, request: web.Request) -> web.Response:
        asked = Asked(request.method, request.path_qs, dict(request.headers), await request.read())
        self.asked.append(asked)
        said = self.script(asked)
        answer = said if isinstance(said, Said) else await said
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
