"""`sentinel agent` as a process, and the small proxy beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.support.processes.service import PROGRAM, ServiceProcess
from tools.services.server import free_port


class AgentProcess(ServiceProcess):
    """An agent with these settings."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        file = folder / "agent.yaml"
        file.write_bytes(msgspec.yaml.encode(settings))
        super().__init__(
            (
                "agent",
                f"--config={file}",
                "--metrics-bind-address=127.0.0.1:0",
                "--health-probe-bind-address=127.0.0.1:0",
            ),
            environ=environ or {},
            program=program,
        )

    async def agent_metric(self, name: str, **labels: str) -> float:
        """Return one of the agent's metrics, by its name without the prefix."""
        return await self.metric(name, prefix="sentinel_agent_", **labels)


class Host:
    """A machine: the folder, the proxy and the agent's settings."""

    def __init__(self, folder: Path, *, hub: str, instance_id: str = "edge-1") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.metrics_port = free_port()
        self.config = folder / "config.kdl"
        self.config.write_text(self.content("initial"))
        self.settings: dict[str, Any] = {
            "hub": {"address": hub},
            "instance": {"id": instance_id, "name": "Edge 1", "labels": {"zone": "a"}},
            "proxy": {
                "config_path": "config.kdl",
                "test_command": [],
                "reload": {"pid_file": "proxy.pid"},
                "health_url": f"{self.url}/health",
                "health": {"attempts": 3, "interval": "100ms", "timeout": "5s"},
                "metrics_url": f"http://127.0.0.1:{self.metrics_port}/metrics",
            },
            "state_dir": "state",
            "offline_behavior": {"retry_backoff": {"initial": "100ms", "max": "500ms"}},
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def content(self, name: str, *, health: str = "/health") -> str:
        """A configuration that answers `name` at `/name`."""
        page = self.folder / name
        page.mkdir(exist_ok=True)
        (page / "name").write_text(name)
        return f"""
system
listeners {{ listener "web" {{ address "127.0.0.1:{self.port}" }} }}
routes {{
    route "health" {{ priority high; matches {{ path "{health}" }}; builtin-handler "health" }}
    route "name" {{ matches {{ path "/name" }}; static-files {{ root "{page}" }} }}
}}
observability {{ metrics {{ address "127.0.0.1:{self.metrics_port}"; path "/metrics" }} }}
"""

    def proxy(self) -> ServiceProcess:
        """The proxy, not started yet."""
        pid_file = self.folder / "proxy.pid"
        return ServiceProcess(["proxy", "-c", str(self.config), "--pid-file", str(pid_file)], environ={})

    def agent(
        self, *, environ: Mapping[str, str] | None = None, program: Sequence[str] = PROGRAM, **changes: Any
    ) -> AgentProcess:
        """The agent, not started yet. `changes` replace settings."""
        return AgentProcess(self.folder, self.settings | changes, environ=environ, program=program)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ServiceProcess]:
        """Run the proxy."""
        async with self.proxy() as proxy:
            await proxy.until_event("service.started")
            yield proxy

    async def name(self) -> str:
        """Ask the proxy which configuration it runs; empty if it does not respond."""
        try:
            async with aiohttp.ClientSession() as client, client.get(f"{self.url}/name") as response:
                return await response.text()
        except (aiohttp.ClientError, OSError):
            return ""

    async def until_name(self, name: str) -> None:
        """Wait until the proxy runs a configuration."""
        async with asyncio.timeout(90):
            while await self.name() != name:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.1)
