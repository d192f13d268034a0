"""An agent as a process that can be killed: the applier and the connection to the hub, as in production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.agent.applier import Applier
from sentinel.agent.hub_connection import HubConnection
from sentinel.agent.proxy_actions import ProxyActions
from sentinel.agent.sampling import Sampling
from sentinel.agent.secret_values import SecretValues
from sentinel.agent.settings import MetricsSettings
from sentinel.agent.telemetry import AgentTelemetry
from sentinel.core.agent.offline import OfflineBehavior, OfflineMode
from sentinel.core.agent.proxy_metrics import MetricNames
from sentinel.ports.hub_client import Registration
from sentinel.ports.proxy_control import ProxyControl
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from tests.sim.agents.host import Disk, HostProxy, HostStateDir
from tests.sim.agents.network import AgentLink
from tests.sim.process import SimulatedProcess
from tests.sim.trace import Trace

_ATTEMPTS = 3
_INTERVAL = timedelta(seconds=1)
_BACKOFF = Backoff(timedelta(seconds=1), timedelta(seconds=30), jitter=0.5)


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is made of what it uses. A planted fault changes one of them."""

    proxy: Callable[[HostProxy], ProxyControl] = lambda proxy: proxy
    applier: type[Applier] = Applier


class SimulatedAgent(SimulatedProcess):
    """An agent. Its proxy and its disk outlive it."""

    network: AgentLink

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        link: AgentLink,
        proxy: HostProxy,
        disk: Disk,
        parts: AgentParts,
        skew: timedelta,
        random: Random,
    ) -> None:
        super().__init__(name, trace, network=link, skew=skew)
        self.proxy = proxy
        self.disk = disk
        self.state_dir = HostStateDir(name, disk=disk, random=random)
        self._parts = parts
        self._random = random

    async def _run(self, stopping: Stopping) -> None:
        parts, log = self._parts, self.trace.log(self.name)
        applier = parts.applier(
            actions=ProxyActions(
                proxy=parts.proxy(self.proxy),
                state_dir=self.state_dir,
                secrets=SecretValues(environ={}, read_vault=None),
                interval=_INTERVAL,
                clock=self.clock,
            ),
            state_dir=self.state_dir,
            attempts=_ATTEMPTS,
            clock=self.clock,
            log=log,
        )
        telemetry = AgentTelemetry(registry=CollectorRegistry(), log=log)
        connection = HubConnection(
            client=self.network.client(),
            applier=applier,
            sampling=Sampling(
                None,
                names=msgspec.convert(MetricsSettings(), MetricNames, from_attributes=True),
                clock=self.clock,
                observer=telemetry,
            ),
            registration=lambda: Registration(instance_id=self.name, name=self.name),
            policy=OfflineBehavior(mode=OfflineMode.KEEP_RUNNING, max_offline_duration=None),
            backoff=_BACKOFF,
            deregisters_on_shutdown=False,
            stop_agent=lambda: self.trace.note(self.name, "wants to end"),
            clock=self.clock,
            observer=telemetry,
            jitter=self._random.random,
        )
        async with asyncio.TaskGroup() as tasks:
            await applier.start()
            tasks.create_task(applier.run(stopping))
            tasks.create_task(connection.run(stopping))

    async def _disconnect(self) -> None: ...
