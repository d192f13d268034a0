"""A fleet API on loopback, and the client's commands against it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import click
import msgspec
from click.testing import CliRunner, Result

from sentinel.api.kinds import Kinds
from sentinel.core.access import Identity
from sentinel.core.pulse.decision import Policy
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.web.asgi import Message, Receive, Scope, Send
from sentinel.web.server import Server
from tests.support.fleet.api_client import KINDS, ApiClient

UNSET_VARIABLES = ("SENTINEL_SERVER", "SENTINEL_TOKEN", "NO_COLOR", "COLUMNS")
"""Variables of the developer's shell that would change the results."""


class ServedFleet(ApiClient):
    """A fleet API that records the requests of its clients."""

    def __init__(
        self,
        *,
        kinds: Kinds = KINDS,
        identities: Sequence[Identity] = (),
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        super().__init__(kinds=kinds, identities=identities, policies=policies)
        self._server = Server(self._handle, address=Address("127.0.0.1", 0), log=get_logger("test"))
        self._responded = asyncio.Condition()
        self._streaming = asyncio.Event()
        self.before_patch: Callable[[], Awaitable[object]] | None = None
        """Called once, just before the first PATCH is handled."""
        self.has_streams = True
        """Otherwise requests for streams are rejected, as by older servers."""
        self.requests: list[str] = []
        """Method, path and status of each request from the network, in order of the responses."""

    @property
    def url(self) -> str:
        return f"http://{self._server.address}"

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._server.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_serving()
        await super().__aexit__()

    async def stop_serving(self) -> None:
        await self._server.close()

    async def drop_one_request(self, meanwhile: Callable[[], Awaitable[object]] | None = None) -> None:
        """Stop serving, close the next connection without a response, and serve again on the same port."""
        dropped = asyncio.Event()

        def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            dropped.set()

        address = self._server.address
        await self.stop_serving()
        if meanwhile is not None:
            await meanwhile()
        async with asyncio.timeout(60), await asyncio.start_server(drop, address.host, address.port):
            await dropped.wait()
        self._server = Server(self._handle, address=address, log=get_logger("test"))
        await self._server.open()

    async def until_streaming(self) -> None:
        """Wait until a client has a stream."""
        async with asyncio.timeout(60):
            await self._streaming.wait()

    async def until(self, ending: str, *, times: int = 1) -> None:
        """Wait until this many requests, counted from the start, end like this."""
        async with asyncio.timeout(60), self._responded:
            await self._responded.wait_for(lambda: sum(each.endswith(ending) for each in self.requests) >= times)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0
        if scope["method"] == "PATCH" and self.before_patch is not None:
            before_patch, self.before_patch = self.before_patch, None
            await before_patch()

        async def send_and_record(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)
            if status == 200 and b"watch=true" in scope["query_string"]:
                self._streaming.set()

        if not self.has_streams and b"watch=true" in scope["query_string"]:
            scope = {**scope, "query_string": b"size=none"}  # any parameter that is rejected
        await self.app(scope, receive, send_and_record)
        async with self._responded:
            self.requests.append(f"{scope['method']} {scope['path']} {status}")
            self._responded.notify_all()

    async def run(
        self, command: click.Command, *arguments: object, token: str = "", **more: Any
    ) -> tuple[int, str, str]:
        """Run a command against this API; return its exit code, stdout and stderr."""
        return await run(
            command, *arguments, environ={"SENTINEL_SERVER": self.url, "SENTINEL_TOKEN": token}, **more
        )


async def run(
    command: click.Command, *arguments: object, environ: Mapping[str, str] | None = None, stdin: str = ""
) -> tuple[int, str, str]:
    """Run a command in a thread, because the server uses this thread's event loop."""
    env = {**dict.fromkeys(UNSET_VARIABLES), **{name: value or None for name, value in (environ or {}).items()}}
    result: Result = await asyncio.to_thread(
        CliRunner().invoke,
        command,
        [str(argument) for argument in arguments],
        env=env,
        input=stdin,
        standalone_mode=False,
    )
    if isinstance(result.exception, click.ClickException):
        return 2, result.stdout, result.stderr + result.exception.format_message()
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.stdout, result.stderr


def decoded(text: str) -> Any:
    """Decode JSON output."""
    return msgspec.json.decode(text)
