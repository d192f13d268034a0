"""A fleet API on loopback, and somebody who uses it by commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import click
import msgspec
from click.testing import CliRunner, Result

from sentinel.core.access import Identity
from sentinel.core.pulse.decision import Policy
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.web.asgi import Message, Receive, Scope, Send
from sentinel.web.server import Server
from tests.support.fleet.api_client import FleetClient

FOREIGN = ("SENTINEL_SERVER", "SENTINEL_TOKEN", "NO_COLOR", "COLUMNS")
"""Variables of whoever runs the tests, which would count."""


class ServedFleet(FleetClient):
    """A fleet API whose requests can be waited for."""

    def __init__(
        self, *, identities: Sequence[Identity] = (), policies: Mapping[str, Policy] | None = None
    ) -> None:
        super().__init__(identities=identities, policies=policies)
        self._serving = Server(self._listening, address=Address("127.0.0.1", 0), log=get_logger("test"))
        self._heard = asyncio.Condition()
        self.before_patch: Callable[[], Awaitable[object]] | None = None
        """What somebody else does in the moment before the first change arrives."""
        self.requests: list[str] = []
        """What came over the network and has been answered: method and path, with the status."""

    @property
    def url(self) -> str:
        return f"http://{self._serving.address}"

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._serving.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._serving.close()
        await super().__aexit__()

    async def be_away_for_a_request(self) -> None:
        """Stops serving, hangs up on the next who asks, and serves again on the same port."""
        asked = asyncio.Event()

        def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            asked.set()

        address = self._serving.address
        await self._serving.close()
        async with asyncio.timeout(10), await asyncio.start_server(hang_up, address.host, address.port):
            await asked.wait()
        self._serving = Server(self._listening, address=address, log=get_logger("test"))
        await self._serving.open()

    async def until(self, ending: str, *, times: int = 1) -> None:
        """Waits for so many answers to requests that end like this, from the beginning."""
        async with asyncio.timeout(10), self._heard:
            await self._heard.wait_for(lambda: sum(each.endswith(ending) for each in self.requests) >= times)

    async def _listening(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0
        if scope["method"] == "PATCH" and self.before_patch is not None:
            interfere, self.before_patch = self.before_patch, None
            await interfere()

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self.app(scope, receive, noting)
        async with self._heard:
            self.requests.append(f"{scope['method']} {scope['path']} {status}")
            self._heard.notify_all()

    async def run(
        self, command: click.Command, *arguments: object, token: str = "", **more: Any
    ) -> tuple[int, str, str]:
        """Calls a command: exit code, what it printed, and what it said on stderr."""
        return await run(
            command, *arguments, environ={"SENTINEL_SERVER": self.url, "SENTINEL_TOKEN": token}, **more
        )


async def run(
    command: click.Command, *arguments: object, environ: Mapping[str, str] | None = None, stdin: str = ""
) -> tuple[int, str, str]:
    """Calls a command, in a thread because the server is on this one's loop."""
    env = {**dict.fromkeys(FOREIGN), **{name: value or None for name, value in (environ or {}).items()}}
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
    """What was printed for scripts."""
    return msgspec.json.decode(text)
