"""Calls an application in process, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sentinel.core.access import Action, Role, table
from sentinel.runtime.log import get_logger
from sentinel.web.app import build_app
from sentinel.web.asgi import App, Message
from sentinel.web.identity import Guard
from sentinel.web.middleware import RequestRecord
from sentinel.web.routing import Handler, Method, Parameter, Request, Response, ResponseSpec, Route

LOG = get_logger("test")
READ, WRITE, FORCE_DELETE = Action("things.read"), Action("things.write"), Action("things.force-delete")
PERMISSIONS = table(
    "things",
    {
        Role.VIEWER: (READ,),
        Role.OPERATOR: (Role.VIEWER, WRITE),
        Role.ADMIN: (Role.OPERATOR, FORCE_DELETE),
    },
)
OPEN_GUARD = Guard(identities=(), permissions=PERMISSIONS, is_insecure=True)
OK_SPEC = (ResponseSpec(status=200, description="OK."),)
TIMEOUT = 60
"""In seconds; only a failing test waits this long."""


class RequestRecorder:
    """An observer that keeps all records."""

    def __init__(self) -> None:
        self.started = 0
        self.records: list[RequestRecord] = []

    def began(self) -> None:
        self.started += 1

    def ended(self, record: RequestRecord) -> None:
        self.records.append(record)


class ReceivedResponse(msgspec.Struct, frozen=True):
    """A response as the client receives it.

    Its status is 0 if the application sent nothing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def call(
    app: App,
    method: str,
    path: str,
    *,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes | Iterable[bytes] = b"",
    address: str = "127.0.0.1",
) -> ReceivedResponse:
    """Send one request as an ASGI server would."""
    chunks = [body] if isinstance(body, bytes) else list(body)
    events = [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope(method, path, query=query, headers=headers, address=address), receive, send)
    if not sent:
        return ReceivedResponse(0, {}, b"")
    return ReceivedResponse(
        sent[0]["status"],
        {name.decode(): value.decode() for name, value in sent[0]["headers"]},
        b"".join(message["body"] for message in sent[1:]),
    )


def scope(
    method: str,
    path: str,
    *,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    address: str = "127.0.0.1",
) -> dict[str, object]:
    """Return the scope of a request, by default from this machine."""
    given = {"host": "localhost", **(headers or {})}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": (address, 4242),
        "server": ("127.0.0.1", 8000),
    }


def route(handler: Handler, *, method: Method = Method.GET, path: str = "/things", **more: Any) -> Route:
    """Return a route with defaults for tests."""
    given: dict[str, Any] = {
        "action": READ,
        "summary": "A thing",
        "tag": "things",
        "responses": OK_SPEC,
        **more,
    }
    if "path_parameters" not in given and "{id}" in path:
        given["path_parameters"] = (Parameter(name="id", description="Of the thing."),)
    return Route(method=method, path=path, handler=handler, **given)


def make_app(*routes: Route, guard: Guard = OPEN_GUARD, **more: Any) -> App:
    """Return an application with these routes that needs no tokens."""
    return build_app(routes, guard=guard, log=LOG, **more)


def returning(response: Response) -> Handler:
    """Return a handler that always returns this response."""

    async def handler(request: Request) -> Response:
        return response

    return handler


OK = returning(Response(body=b"{}"))


class BlockingHandler:
    """A handler that waits until the test lets it end."""

    def __init__(self) -> None:
        self.has_started = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.has_started.set()
        async with asyncio.timeout(TIMEOUT):
            await self.may_end.wait()
        return Response(body=b'"done"')


def raising(make: Callable[[], BaseException]) -> Handler:
    """Return a handler that always raises this error."""

    async def handler(request: Request) -> Response:
        raise make()

    return handler
