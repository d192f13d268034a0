"""`sentinel hub serve` as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import PROGRAM, ServiceProcess

TIMEOUT = timedelta(minutes=4)
"""Only a test that fails waits this long."""


class HubProcess(ServiceProcess):
    """A hub, by default on free ports of loopback."""

    def __init__(
        self,
        database_url: str,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        listen_grpc: str = "127.0.0.1:0",
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        super().__init__(
            (
                "hub",
                "serve",
                f"--listen={listen}",
                f"--listen-grpc={listen_grpc}",
                f"--database-url={database_url}",
                *arguments,
            ),
            environ=environ or {},
            program=program,
        )

    async def url(self) -> str:
        """Wait until it listens for users, and return the URL of its REST API."""
        line = await self.until_event("http.listening")
        return f"http://{line['address']}"

    async def grpc_address(self) -> str:
        """Wait until it listens for agents, and return the address."""
        line = await self.until_event("grpc.listening")
        return str(line["address"])


class RunningHub:
    """A hub, and its REST API."""

    def __init__(self, process: HubProcess, rest: FleetHttp, address: str) -> None:
        self.process = process
        self.rest = rest
        self.address = address

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the REST API, and return the body of a success."""
        reply = await self.rest.call(method, f"/api/v1/{path}", body)
        assert reply.status < 300, reply
        return reply.json if reply.content else None

    async def save(self, *contents: str) -> None:
        """Save a configuration `api` with these versions."""
        first, *others = contents
        await self.call("POST", "configs", {"id": "api", "content": first})
        for content in others:
            await self.call("POST", "configs/api/versions", {"content": content})

    async def assign(self, instance_id: str, version: int) -> None:
        await self.call("PUT", f"instances/{instance_id}/assignment", {"config_id": "api", "version": version})

    async def until_instance(self, instance_id: str, **fields: object) -> dict[str, Any]:
        """Wait until an instance exists and has these fields, and return it."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while True:
                reply = await self.rest.call("GET", f"/api/v1/instances/{instance_id}")
                instance: dict[str, Any] = reply.json
                if reply.status == 200 and fields.items() <= instance.items():
                    return instance
                await asyncio.sleep(0.1)


@asynccontextmanager
async def serving(database_url: str, *arguments: str, port: int = 0) -> AsyncIterator[RunningHub]:
    process = HubProcess(database_url, "--insecure", *arguments, listen_grpc=f"127.0.0.1:{port}")
    async with process, FleetHttp(await process.url()) as rest:
        address = await process.grpc_address()
        await process.until_event("service.started")
        yield RunningHub(process, rest, address)
