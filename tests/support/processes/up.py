"""`sentinel up` as a process, its configuration files, and functions that poll its API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.support.fleet.http_client import Body, FleetHttp, Reply
from tests.support.processes.service import ServiceProcess

FAST_SETTINGS = {
    "SENTINEL_POLL_INTERVAL": "100ms",
    "SENTINEL_MAX_AGE_NOT_READY": "500ms",
    "SENTINEL_LOG__LEVEL": "info",
}
"""Short intervals, and a log with the events that tests wait for."""

TIMEOUT = 90.0
_POLL_INTERVAL = 0.05


class UpProcess(ServiceProcess):
    """`sentinel up`, by default on a free port of loopback."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            ("up", "--data-dir", str(folder), "--listen", listen, "--listen-grpc", "127.0.0.1:0", *arguments),
            environ=FAST_SETTINGS | dict(environ or {}),
        )

    async def ready(self) -> Mapping[str, Any]:
        """Wait until all parts are ready and return the log line that says so, with the addresses."""
        return await self.until_event("up.ready", timeout=TIMEOUT)

    async def url(self) -> str:
        """Wait until all parts are ready and return the URL of the API."""
        return str((await self.ready())["http"])

    async def address(self) -> str:
        """Wait until it listens, ready or not, and return its URL."""
        line = await self.until(
            lambda line: line.get("event") == "http.listening" and line["logger"].endswith(".up")
        )
        return f"http://{line['address']}"

    async def until_printed(self, text: str) -> None:
        """Wait until standard output contains this text."""
        async with asyncio.timeout(TIMEOUT):
            while text.encode() not in self.stdout:  # noqa: ASYNC110 - a buffer has no event
                await asyncio.sleep(_POLL_INTERVAL)


async def until(fleet: FleetHttp, path: str, is_expected: Callable[[Reply], bool], *, expected: str) -> Reply:
    """Poll a path until the response is as expected, and return the response."""
    reply: Reply | None = None
    try:
        async with asyncio.timeout(TIMEOUT):
            while True:
                reply = await fleet.call("GET", path)
                if is_expected(reply):
                    return reply
                await asyncio.sleep(_POLL_INTERVAL)
    except TimeoutError:
        raise AssertionError(f"{path}: expected {expected} within {TIMEOUT} s, got {reply}") from None


async def until_ready(fleet: FleetHttp, path: str, *, generation: int = 1) -> Body:
    """Wait until this generation of a resource is ready, and return the resource."""

    def is_ready(reply: Reply) -> bool:
        body = reply.json
        return body.get("generation") == generation and body["status"]["phase"] == "Ready"

    return (await until(fleet, path, is_ready, expected=f"ready at generation {generation}")).json


async def get(url: str, **headers: str) -> tuple[int, bytes]:
    """Send a GET with these headers and return the status and body."""
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.read()


def write_adapter(folder: Path, name: str, source: str, **settings: Any) -> Path:
    """Write a module with an adapter and its configuration, and return the path of the configuration."""
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
    """Write a kinds file from plurals, kinds and required adapters, and return its path."""
    file = folder / "kinds.yaml"
    listed = [{"plural": plural, "kind": kind, "required_adapters": names} for plural, kind, names in kinds]
    file.write_bytes(msgspec.json.encode({"kinds": listed}))
    return file
