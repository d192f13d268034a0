"""Deployments of the hub in memory: the part of the transaction, and the reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import RolloutState
from sentinel.ports.rollout_store import (
    DeploymentEvent,
    DeploymentQuery,
    DeploymentRecord,
    Holding,
    Offer,
    RolloutRead,
    RolloutRow,
)
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.rollout_tables import RolloutTables
from sentinel.testing.transaction import MemoryTransaction


class MemoryRolloutTransaction(MemoryTransaction):
    """A verified fake of `ports.rollout_store.RolloutTransaction`."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._rollouts = database.tables(RolloutTables)
        self._locked_deployments: set[str] = set()

    def lock_targets(self) -> None:
        self._require_open()

    def deployment(self, deployment_id: str) -> DeploymentRecord | None:
        self._require_open()
        self._locked_deployments.add(deployment_id)
        return self._rollouts.deployments.get(deployment_id)

    def deployment_rows(self, deployment_id: str, *, after: int = 0) -> Sequence[RolloutRow]:
        self._require_open()
        return self._rollouts.changed_rows(deployment_id, after)

    def add_deployment(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        self._require_open()
        self._locked_deployments.add(deployment.id)
        self._put(deployment, rows)

    def save_deployment(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        self._require_open()
        if deployment.id not in self._locked_deployments:
            raise RuntimeError(f"the deployment {deployment.id} was not read in this transaction")
        self._put(deployment, rows)

    def add_deployment_event(self, event: DeploymentEvent) -> None:
        self._require_open()
        self._assign(self._rollouts.events, (event.deployment_id, event.number), event)

    def holdings(self, instance_ids: Collection[str]) -> Sequence[Holding]:
        self._require_open()
        return self._rollouts.holdings(instance_ids)

    def is_deploying(self, config_id: str) -> bool:
        self._require_open()
        return self._rollouts.is_deploying(config_id)

    def offers(self) -> Sequence[Offer]:
        self._require_open()
        return self._rollouts.offers()

    def _put(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        self._assign(self._rollouts.deployments, deployment.id, deployment)
        for row in rows:
            self._assign(self._rollouts.rows, (deployment.id, row.position), (row, deployment.revision))


class MemoryRollouts:
    """A verified fake of `ports.rollout_store.RolloutStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._rollouts = database.tables(RolloutTables)

    async def deployment(self, deployment_id: str) -> DeploymentRecord | None:
        return await self._database.call("deployment", lambda: self._rollouts.deployments.get(deployment_id))

    async def deployments(self, query: DeploymentQuery) -> Sequence[DeploymentRecord]:
        return await self._database.call("deployments", lambda: self._rollouts.page(query))

    async def count_deployments(self, states: Collection[RolloutState] = ()) -> int:
        return await self._database.call("count_deployments", lambda: self._rollouts.count(states))

    async def rollout(self, deployment_id: str, *, after: int = 0) -> RolloutRead | None:
        return await self._database.call("rollout", lambda: self._rollouts.read(deployment_id, after))

    async def deployment_rows(
        self, deployment_id: str, *, after: int = -1, limit: int, states: Collection[RowState] = ()
    ) -> Sequence[RolloutRow]:
        return await self._database.call(
            "deployment_rows", lambda: self._rollouts.page_of_rows(deployment_id, after, limit, states)
        )

    async def active_deployments(self) -> Mapping[str, int]:
        return await self._database.call("active_deployments", self._rollouts.active)

    async def deployment_events(self, deployment_id: str, *, after: int, limit: int) -> Sequence[DeploymentEvent]:
        return await self._database.call(
            "deployment_events", lambda: self._rollouts.page_of_events(deployment_id, after, limit)
        )
