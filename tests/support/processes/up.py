"""`sentinel up` as somebody runs it, and whoever waits for the fleet in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.support.fleet.http_client import Body, FleetHttp, Reply
from tests.support.processes.service import ServiceProcess

PROMPT = {
    "SENTINEL_POLL_INTERVAL": "100ms",
    "SENTINEL_MAX_AGE_NOT_READY": "500ms",
    "SENTINEL_LOG__LEVEL": "info",
}
"""A loop in which nobody waits for long, with a log that tells what happens."""

PATIENCE = 30.0
_LOOK_AGAIN = 0.05


class UpProcess(ServiceProcess):
    """On a free port of loopback, where the arguments say nothing else."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            ("up", "--data-dir", str(folder), "--listen", listen, *arguments),
            environ=PROMPT | dict(environ or {}),
        )

    async def url(self) -> str:
        """Where it serves, once everything does."""
        line = await self.until_event("up.ready", timeout=PATIENCE)
        return str(line["http"])

    async def address(self) -> str:
        """Where it listens, ready or not."""
        line = await self.until(
            lambda line: line.get("event") == "http.listening" and line["logger"].endswith(".up")
        )
        return f"http://{line['address']}"

    async def until_said(self, text: str) -> None:
        """Waits for its standard output to contain this."""
        async with asyncio.timeout(PATIENCE):
            while text.encode() not in self.stdout:  # noqa: ASYNC110 - a buffer has no event
                await asyncio.sleep(_LOOK_AGAIN)


async def until(fleet: FleetHttp, path: str, holds: Callable[[Reply], bool], *, what: str) -> Reply:
    """Asks until an answer is as expected; nobody announces it."""
    reply: Reply | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                reply = await fleet.call("GET", path)
                if holds(reply):
                    return reply
                await asyncio.sleep(_LOOK_AGAIN)
    except TimeoutError:
        raise AssertionError(f"{path} is not {what} after {PATIENCE} s: {reply}") from None


async def until_ready(fleet: FleetHttp, path: str, *, generation: int = 1) -> Body:
    """The resource, once this generation of it is ready."""

    def is_ready(reply: Reply) -> bool:
        body = reply.json
        return body.get("generation") == generation and body["status"]["phase"] == "Ready"

    return (await until(fleet, path, is_ready, what=f"ready at generation {generation}")).json


async def until_gone(fleet: FleetHttp, path: str) -> None:
    """Until there is no such resource any more."""
    await until(fleet, path, lambda reply: reply.status == 404, what="gone")


async def client(url: str, *arguments: str, token: str = "") -> tuple[int, bytes]:
    """A command of the client, as a process: its exit code, and what it printed."""
    environ = {"SENTINEL_SERVER": url} | ({"SENTINEL_TOKEN": token} if token else {})
    async with ServiceProcess(arguments, environ=environ) as process:
        code = await process.exit_code()
        return code, bytes(process.stdout)


async def get(url: str, **headers: str) -> tuple[int, bytes]:
    """An answer to somebody who sends these headers."""
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.read()


def write_adapter(folder: Path, name: str, source: str, **settings: Any) -> Path:
    """An adapter of one's own, as a module and a configuration; the file to name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter.py").write_text(source)
    file = folder / f"{name}.yaml"
    file.write_bytes(
        msgspec.json.encode(
            {"task": "adapter:adapter", "hyperfleet_api": {"endpoint": "http://elsewhere.invalid"}, **settings}
        )
    )
    return file


def write_kinds(folder: Path, *kinds: tuple[str, str, Sequence[str]]) -> Path:
    """A kinds file: plural, kind, required adapters."""
    file = folder / "kinds.yaml"
    listed = [{"plural": plural, "kind": kind, "required_adapters": names} for plural, kind, names in kinds]
    file.write_bytes(msgspec.json.encode({"kinds": listed}))
    return file
