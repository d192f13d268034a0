"""An agent in the process of a test: its connection to a hub, with an applier in memory and driven time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.agent.hub_connection import HubConnection
from sentinel.agent.sampling import Sampling
from sentinel.agent.settings import MetricsSettings
from sentinel.agent.telemetry import AgentTelemetry
from sentinel.core.agent.offline import OfflineBehavior, OfflineMode
from sentinel.core.agent.proxy_metrics import MetricNames
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_client import HubClient, Registration
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import LogFormat, LogLevel, configure_logging, get_logger
from tests.support.agent.memory_applier import MemoryApplier
from tests.support.agent.recorded_calls import RecordedCalls

BACKOFF = Backoff(timedelta(seconds=1), timedelta(minutes=5), jitter=0)


class MeasuredProxy:
    """The metrics of a proxy, as a page."""

    def __init__(self) -> None:
        self.requests = 0
        self.failures = 0
        self.connections = 0
        self.is_away = False
        self.timeouts: list[timedelta] = []

    async def fetch(self, timeout: timedelta) -> str:
        self.timeouts.append(timeout)
        if self.is_away:
            raise Unavailable("connection refused")
        return (
            f'zentinel_requests_total{{status="200"}} {self.requests - self.failures}\n'
            f'zentinel_requests_total{{status="502"}} {self.failures}\n'
            f"zentinel_open_connections {self.connections}\n"
            'zentinel_build_info{version="0.6.20"} 1\n'
        )


class AgentHarness:
    """An agent that is not running yet."""

    def __init__(
        self,
        client: HubClient,
        *,
        clock: Clock,
        instance_id: str = "edge-1",
        applier: MemoryApplier | None = None,
        mode: OfflineMode = OfflineMode.KEEP_RUNNING,
        max_offline_duration: timedelta | None = None,
        deregisters_on_shutdown: bool = False,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self.calls = RecordedCalls(client)
        self.applier = applier or MemoryApplier()
        self.proxy = MeasuredProxy()
        self.registry = CollectorRegistry()
        self.has_ended = False
        """Whether it has ended the process by itself."""
        self.stopping = Stopping()
        self.log = StringIO()
        telemetry = AgentTelemetry(registry=self.registry, log=get_logger("agent"))
        self.sampling = Sampling(
            self.proxy.fetch,
            names=msgspec.convert(MetricsSettings(), MetricNames, from_attributes=True),
            clock=clock,
            observer=telemetry,
        )
        self.connection = HubConnection(
            client=self.calls,
            applier=self.applier,
            sampling=self.sampling,
            registration=lambda: Registration(
                instance_id=instance_id, name="Edge", sentinel_version=self.sampling.proxy_version
            ),
            policy=OfflineBehavior(mode=mode, max_offline_duration=max_offline_duration),
            backoff=backoff,
            deregisters_on_shutdown=deregisters_on_shutdown,
            stop_agent=self._end,
            clock=clock,
            observer=telemetry,
            jitter=lambda: 0.5,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AgentHarness]:
        """Run it until the context is left, as with SIGTERM."""
        logging = configure_logging(LogLevel.INFO, LogFormat.JSON, stream=self.log)
        task = asyncio.create_task(self.connection.run(self.stopping))
        try:
            yield self
        finally:
            self.stopping.request()
            await task
            logging.restore()

    def count(self, name: str, **labels: str) -> float:
        """The value of one of its metrics, without the prefix."""
        return self.registry.get_sample_value(f"sentinel_agent_{name}", labels) or 0.0

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of an event."""
        lines = [msgspec.json.decode(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    def _end(self) -> None:
        self.has_ended = not self.stopping.requested
        self.stopping.request()
