"""A client of streams without a server, and handlers that answer with them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, ParamSpec

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing import loop
from sentinel.web.asgi import CONNECTION, App, Message
from sentinel.web.routing import Request, Stream
from tests.web.calling import scope

P = ParamSpec("P")


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test on a loop where waiting is free."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        loop.run(test(*args, **options))

    return run


class FakeConnection:
    """The connection of a request, as `server.Server` offers it; keeps what it is told."""

    def __init__(self) -> None:
        self.stopping = Stopping()
        self.told: list[str] = []

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")


class Listener:
    """Sends one request and takes what comes, for as long as it wants to."""

    def __init__(self, app: App, path: str = "/things", *, method: str = "GET", takes: int | None = None) -> None:
        """Takes the head and `takes` chunks, then nothing until told to take the rest; None: everything."""
        self.connection = FakeConnection()
        self.messages: list[Message] = []
        self._room = None if takes is None else takes + 1
        self._takes_rest = asyncio.Event()
        self._scope = {**scope(method, path), CONNECTION: self.connection}
        self._app = app
        self._has_asked = False
        self._gone = asyncio.Event()
        self._came = asyncio.Event()

    async def listen(self) -> None:
        """Returns when the answer has ended."""
        await self._app(self._scope, self._receive, self._send)

    def take_rest(self) -> None:
        """The client takes everything from now on."""
        self._takes_rest.set()

    def go(self) -> None:
        """The client closes its connection."""
        self._gone.set()

    async def heard(self, chunks: int) -> None:
        """Waits for so many chunks of the body."""
        while len(self.chunks) < chunks:
            self._came.clear()
            await self._came.wait()

    async def begun(self) -> None:
        """Waits for the head."""
        while not self.messages:
            self._came.clear()
            await self._came.wait()

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
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._room is not None and len(self.messages) >= self._room:
            await self._takes_rest.wait()
        self.messages.append(message)
        self._came.set()


class Feed:
    """A handler whose streams send what they are fed, and note how they end."""

    def __init__(self, *chunks: bytes, is_endless: bool = True) -> None:
        self.streams = 0
        """Handed out so far."""
        self.asked = 0
        """How many chunks were asked for."""
        self.has_ended = asyncio.Event()
        self._chunks: Iterable[bytes] = chunks
        self._is_endless = is_endless

    async def __call__(self, request: Request) -> Stream:
        self.streams += 1
        return Stream(content=self._content(), content_type="text/event-stream", headers={"X-Feed": "1"})

    async def _content(self) -> AsyncIterator[bytes]:
        try:
            for chunk in self._chunks:
                self.asked += 1
                yield chunk
            if self._is_endless:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # what is to be cleaned up may take a moment
            self.has_ended.set()
