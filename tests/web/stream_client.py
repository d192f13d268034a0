"""An in-process client of streams, and handlers that return them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.web.asgi import CONNECTION, App, Message
from sentinel.web.routing import Request, Stream
from tests.web.asgi_client import scope


class FakeConnection:
    """A `ClientConnection` that records calls."""

    def __init__(self) -> None:
        self.stopping = Stopping()
        self.calls: list[str] = []

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


class StreamClient:
    """A client that sends one request and receives a stream."""

    def __init__(self, app: App, path: str = "/things", *, method: str = "GET", reads: int | None = None) -> None:
        """Reads the headers and `reads` chunks, then nothing until `read_rest`. None: reads everything."""
        self.connection = FakeConnection()
        self.messages: list[Message] = []
        self._room = None if reads is None else reads + 1
        self._reads_rest = asyncio.Event()
        self._scope = {**scope(method, path), CONNECTION: self.connection}
        self._app = app
        self._has_sent = False
        self._disconnected = asyncio.Event()
        self._arrived = asyncio.Event()

    async def listen(self) -> None:
        """Send the request. Return when the response has ended."""
        await self._app(self._scope, self._receive, self._send)

    @asynccontextmanager
    async def listening(self, *, chunks: int) -> AsyncIterator[None]:
        """Enter when this many chunks have arrived, and leave when the response has ended."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.listen())
            await self.wait_for_chunks(chunks)
            yield

    def read_rest(self) -> None:
        """Read everything from now on."""
        self._reads_rest.set()

    def disconnect(self) -> None:
        self._disconnected.set()

    async def wait_for_chunks(self, count: int) -> None:
        while len(self.chunks) < count:
            self._arrived.clear()
            await self._arrived.wait()

    async def wait_for_headers(self) -> None:
        while not self.messages:
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def chunks(self) -> list[bytes]:
        return [message["body"] for message in self.messages[1:] if message["body"]]

    @property
    def is_complete(self) -> bool:
        """Whether the end of the body was sent."""
        return not self.messages[-1].get("more_body", True)

    async def _receive(self) -> Message:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._room is not None and len(self.messages) >= self._room:
            await self._reads_rest.wait()
        self.messages.append(message)
        self._arrived.set()


class Feed:
    """A handler whose streams send these chunks, and then stay open if they are endless."""

    def __init__(self, *chunks: bytes, is_endless: bool = True) -> None:
        self.streams = 0
        """How many were returned."""
        self.requested_chunks = 0
        self.has_ended = asyncio.Event()
        self._chunks: Iterable[bytes] = chunks
        self._is_endless = is_endless

    async def __call__(self, request: Request) -> Stream:
        self.streams += 1
        return Stream(content=self._content(), content_type="text/event-stream", headers={"X-Feed": "1"})

    async def _content(self) -> AsyncIterator[bytes]:
        try:
            for chunk in self._chunks:
                self.requested_chunks += 1
                yield chunk
            if self._is_endless:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # clean-up may suspend
            self.has_ended.set()
