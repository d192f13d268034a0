"""The deployments of a hub in memory, with the test in place of agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from sentinel.core.hub.instance import Timeouts
from sentinel.core.hub.rollout_state import Event, Reported, ReportedState
from sentinel.core.ids import RANDOM_BYTES, uuid7
from sentinel.hub.canary_metrics import CanaryMetrics
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.registry import Registry
from sentinel.hub.rollout_copies import RolloutCopies
from sentinel.hub.rollout_planning import RolloutPlanning
from sentinel.hub.rollout_runner import RolloutRunner
from sentinel.hub.rollout_service import Created, RolloutService
from sentinel.hub.settings import HubSettings
from sentinel.ports.hub_store import HubStore
from sentinel.ports.rollout_store import DeploymentRecord
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import ManualClock
from sentinel.web.audit import Auditor
from sentinel.web.routing import Caller

NO_OBSERVER: Any = SimpleNamespace(
    deployment_changed=lambda *args: None, deployment_ended=lambda *args: None, state_changed=lambda *args: None
)


def deployment_id(number: int) -> str:
    """Return the id of the first, second, ... deployment of a hub whose clock has not moved."""
    return uuid7(ManualClock().now(), number.to_bytes(2, "big") + bytes(RANDOM_BYTES - 2))


class RunningRollouts(RolloutService):
    """The use cases of users, and the reports of agents."""

    def __init__(
        self,
        store: HubStore,
        *,
        registry: Registry,
        checker: ConfigChecker,
        clock: ManualClock,
        auditor: Auditor,
    ) -> None:
        copies, settings, timeouts = RolloutCopies(store), HubSettings(), Timeouts()
        metrics = CanaryMetrics(store=store, registry=registry, heartbeat_interval=settings.heartbeat_interval)
        self._runner = RolloutRunner(
            store=store,
            copies=copies,
            registry=registry,
            metrics=metrics,
            timeouts=timeouts,
            clock=clock,
            observer=NO_OBSERVER,
            log=get_logger("test"),
        )
        super().__init__(
            store=store,
            planning=RolloutPlanning(store=store, checker=checker),
            runner=self._runner,
            copies=copies,
            timeouts=timeouts,
            deployment_timeout=settings.deployment_timeout,
            clock=clock,
            auditor=auditor,
            randomness=bytes,
        )
        self.was_created = asyncio.Event()
        self.was_rolled_back = asyncio.Event()
        """Set when a user has asked for a rollback."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stopping = Stopping()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._runner.run(stopping))
            yield
            stopping.request()

    async def create(self, caller: Caller, *args: Any, **kwargs: Any) -> Created:
        created = await super().create(caller, *args, **kwargs)
        self.was_created.set()
        return created

    async def rollback(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        record = await super().rollback(caller, deployment_id)
        self.was_rolled_back.set()
        return record

    async def report(
        self, deployment_id: str, state: ReportedState, *instance_ids: str, message: str = ""
    ) -> None:
        """Let agents report how far they are."""
        is_rollback = state is ReportedState.ROLLED_BACK
        async with asyncio.TaskGroup() as tasks:
            for each in instance_ids:
                event: Event = Reported(each, state, is_rollback=is_rollback, message=message)
                tasks.create_task(self._runner.report(deployment_id, event, instance_id=each, incarnation=1))
