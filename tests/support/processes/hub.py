"""`sentinel hub serve` as a process."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.processes.service import ServiceProcess


class HubProcess(ServiceProcess):
    """A hub, by default on free ports of loopback."""

    def __init__(
        self,
        database_url: str,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        listen_grpc: str = "127.0.0.1:0",
        environ: Mapping[str, str] | None = None,
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
        )

    async def url(self) -> str:
        """Wait until it listens for users, and return the URL of its REST API."""
        line = await self.until_event("http.listening")
        return f"http://{line['address']}"

    async def grpc_address(self) -> str:
        """Wait until it listens for agents, and return the address."""
        line = await self.until_event("grpc.listening")
        return str(line["address"])
