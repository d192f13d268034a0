"""An agent that applies to a proxy in memory, on virtual time, and the hub that hands it tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from sentinel.agent.applier import Applier
from sentinel.agent.proxy_actions import ProxyActions
from sentinel.agent.secret_values import ReadVault, SecretValues
from sentinel.core.agent.orders import Content, Order, Report, ReportState, Source, Task
from sentinel.core.hub.versions import content_hash
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import START
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.proxy_control import MemoryProxy
from sentinel.testing.state_dir import MemoryStateDir

V1 = 'system { worker-threads 1 }\nupstreams { upstream "a" { target "127.0.0.1:1" } }\n'
V2 = 'system { worker-threads 1 }\nupstreams { upstream "a" { target "127.0.0.1:2" } }\n'
V3 = 'system { worker-threads 2 }\nupstreams { upstream "a" { target "127.0.0.1:2" } }\n'
TEXTS = {"api@1": V1, "api@2": V2, "api@3": V3}

SETTLED = timedelta(minutes=1)
"""Longer than any apply takes in memory."""


def task(version: str, *, marker: str = "", source: Source = Source.ACTION) -> Task:
    """Return what an assignment by hand asks for."""
    return Task(version=version, hash=content_hash(TEXTS[version]), source=source, marker=marker)


def order(
    version: str,
    deployment_id: str = "d-1",
    *,
    is_rollback: bool = False,
    deadline: timedelta = timedelta(minutes=5),
) -> Task:
    """Return what a deployment asks for. The deadline is relative to the start of virtual time."""
    return Task(
        version=version,
        hash=content_hash(TEXTS[version]),
        order=Order(deployment_id=deployment_id, is_rollback=is_rollback, deadline=START + deadline),
        source=Source.EVENT,
    )


class ApplyingAgent:
    """An applier with what is around it. What outlives a process is given to the next one."""

    def __init__(
        self,
        *,
        proxy: MemoryProxy | None = None,
        state_dir: MemoryStateDir | None = None,
        environ: Mapping[str, str] | None = None,
        read_vault: ReadVault | None = None,
    ) -> None:
        self.proxy = proxy or MemoryProxy(V1)
        self.state_dir = state_dir or MemoryStateDir()
        self.secrets: dict[str, bytes] = {}
        """Values that the hub sends."""
        self.texts = dict(TEXTS)
        self.told: list[Report] = []
        """All reports that were delivered."""
        self.fetched: list[str] = []
        self.is_connected = True
        clock = SimulatedClock()
        self.applier = Applier(
            actions=ProxyActions(
                proxy=self.proxy,
                state_dir=self.state_dir,
                secrets=SecretValues(environ=environ or {}, read_vault=read_vault),
                interval=timedelta(seconds=1),
                clock=clock,
            ),
            state_dir=self.state_dir,
            attempts=3,
            clock=clock,
            log=get_logger("agent"),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ApplyingAgent]:
        """Run it, with a session that delivers and fetches. At the end it is killed."""
        applying = asyncio.create_task(self.applier.run(Stopping()))
        session = asyncio.create_task(self._serve())
        await self.applier.start()
        try:
            yield self
        finally:
            for each in (session, applying):
                each.cancel()
                await asyncio.wait([each])

    async def apply(self, *tasks: Task) -> None:
        """Hand over tasks, and wait until nothing happens any more."""
        for each in tasks:
            self.applier.receive(each)
        await asyncio.sleep(SETTLED.total_seconds())

    def connect(self) -> None:
        """The hub can be reached again."""
        self.is_connected = True
        self.applier.changed.set()

    @property
    def states(self) -> list[ReportState]:
        return [each.state for each in self.told]

    async def _serve(self) -> None:
        while True:
            self.applier.changed.clear()
            if self.is_connected:
                self._exchange()
            await self.applier.changed.wait()

    def _exchange(self) -> None:
        for report in self.applier.pending_reports:
            self.told.append(report)
            self.applier.delivered(report)
        wanted = self.applier.wanted
        if wanted is not None:
            self.fetched.append(wanted.version)
            text = self.texts[wanted.version]
            content = Content(version=wanted.version, hash=content_hash(text), content=text, secrets=self.secrets)
            self.applier.supply(wanted, content)
