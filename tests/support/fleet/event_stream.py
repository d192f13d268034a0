"""Reads streams of resources as a client does, and keeps the state that they describe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlencode

import msgspec

from sentinel.web.asgi import App, Message
from tests.support.fleet.api_client import SCOPE, ApiReply
from tests.support.fleet.http_client import ROOT

TIMEOUT = 90.0
"""Only a test that fails waits this long."""


class ServerEvent(msgspec.Struct, frozen=True):
    """An event of a stream."""

    type: str
    data: Any
    id: str

    @property
    def resource_id(self) -> str:
        return str(self.data["id"])


class StreamEnded(AssertionError):
    """The server has ended the stream. A client connects again."""


class EventParser:
    """Parses `text/event-stream` as the HTML standard says."""

    def __init__(self) -> None:
        self.last_id = ""
        self.comments = 0
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [event for line in lines if (event := self._line(line.decode())) is not None]

    def _line(self, line: str) -> ServerEvent | None:
        if line:
            name, _, value = line.partition(":")
            self.comments += not name
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        self.last_id = fields.get("id", self.last_id)
        if "data" not in fields:
            return None
        return ServerEvent(fields["event"], msgspec.json.decode(fields["data"]), self.last_id)


class Mirror:
    """The resources that a client knows which follows a stream."""

    def __init__(self) -> None:
        self.resources: dict[str, Any] = {}
        self.last_id = ""
        self.is_synced = False

    def apply(self, event: ServerEvent) -> None:
        self.last_id = event.id
        match event.type:
            case "resource.changed":
                self.resources[event.resource_id] = event.data
            case "resource.removed":
                self.resources.pop(event.resource_id, None)
            case "resource.synced":
                self.is_synced = True
            case other:
                raise AssertionError(f"expected an event of a known type, got {other}")

    def restart(self) -> None:
        """Forget everything after a 410."""
        self.resources.clear()
        self.last_id, self.is_synced = "", False


class EventStream:
    """An in-process client of one stream. It reads as fast as the test takes events, or nothing."""

    def __init__(self, app: App, path: str, *, headers: Mapping[str, str] | None = None, **query: object) -> None:
        fields = {"host": "localhost"} | {name.lower(): value for name, value in (headers or {}).items()}
        self._scope: dict[str, Any] = {
            **SCOPE,
            "method": "GET",
            "path": f"{ROOT}/{path}",
            "raw_path": f"{ROOT}/{path}".encode(),
            "query_string": urlencode({"watch": "true", **query}).encode(),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "state": {},
        }
        self._app = app
        self._parser = EventParser()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._events: list[ServerEvent] = []
        self._has_started = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._task: asyncio.Task[None] | None = None
        self.start: Message = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        await _in_time(self._has_started.wait())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_gone.set()
        self._may_read.set()
        assert self._task is not None
        await _in_time(self._task)

    @property
    def status(self) -> int:
        return int(self.start["status"])

    @property
    def comments(self) -> int:
        return self._parser.comments

    @property
    def last_id(self) -> str:
        return self._parser.last_id

    @property
    def has_ended(self) -> bool:
        return self._task is not None and self._task.done()

    def stop_reading(self) -> None:
        self._may_read.clear()

    def read_on(self) -> None:
        self._may_read.set()

    async def next(self) -> ServerEvent:
        """Return the next event. Raises `StreamEnded`."""
        async with asyncio.timeout(TIMEOUT):
            while not self._events:
                chunk = await self._chunks.get()
                if chunk is None:
                    raise StreamEnded("the stream has ended")
                self._events += self._parser.feed(chunk)
        return self._events.pop(0)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return the type and the resource id of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event.type.removeprefix("resource."), event.data.get("id", "")) for event in events]

    async def until_synced(self) -> list[ServerEvent]:
        """Return the events until `resource.synced`, which is included."""
        events = [await self.next()]
        while events[-1].type != "resource.synced":
            events.append(await self.next())
        return events

    async def read_waiting(self) -> None:
        """Read what has arrived."""
        while not self._chunks.empty():
            self._events += self._parser.feed(self._chunks.get_nowait() or b"")

    async def wait_for_end(self) -> None:
        while await _in_time(self._chunks.get()) is not None:
            pass

    async def reply(self) -> ApiReply:
        """Return the response to a request that got no stream."""
        assert self.status != 200, "it got a stream"
        body = b""
        while (chunk := await _in_time(self._chunks.get())) is not None:
            body += chunk
        headers = {name.decode(): value.decode() for name, value in self.start["headers"]}
        return ApiReply(self.status, headers, body)

    async def _run(self) -> None:
        await self._app(self._scope, self._receive, self._send)
        self._chunks.put_nowait(None)
        self._has_started.set()

    async def _receive(self) -> Message:
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            self._has_started.set()
            return
        await self._may_read.wait()
        self._chunks.put_nowait(message["body"])


async def _in_time(work: Any) -> Any:
    async with asyncio.timeout(TIMEOUT):
        return await work


@asynccontextmanager
async def watching(
    app: App, path: str = "clusters", *, after: str = "", token: str = "", **query: object
) -> AsyncIterator[EventStream]:
    """Open a stream, or one that goes on after an event."""
    headers = {"last-event-id": after} if after else {}
    if token:
        headers["authorization"] = f"Bearer {token}"
    async with EventStream(app, path, headers=headers, **query) as stream:
        yield stream
