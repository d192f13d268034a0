"""Deployments on SQL: the part of the transaction, and the reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import RolloutState
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.drivers.sql.hub import rollout_rows, rollout_statements, rows
from sentinel.drivers.sql.transaction import SqlTransaction
from sentinel.ports.rollout_store import (
    DeploymentEvent,
    DeploymentQuery,
    DeploymentRecord,
    Holding,
    Offer,
    RolloutRead,
    RolloutRow,
)


class SqlRolloutTransaction(SqlTransaction):
    """`ports.rollout_store.RolloutTransaction` in a SQL database."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._locked_deployments: set[str] = set()

    def lock_targets(self) -> None:
        self._run(rollout_statements.LOCK_TARGETS, {})

    def deployment(self, deployment_id: str) -> DeploymentRecord | None:
        found = self._rows(rollout_statements.LOCK, id=deployment_id)
        self._locked_deployments.add(deployment_id)
        return rollout_rows.to_deployment(found[0]) if found else None

    def deployment_rows(self, deployment_id: str, *, after: int = 0) -> Sequence[RolloutRow]:
        found = self._rows(rollout_statements.CHANGED_ROWS, id=deployment_id, after=after)
        return [rollout_rows.to_row(row) for row in found]

    def add_deployment(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        self._run(rollout_statements.ADD, rollout_rows.deployment_values(deployment))
        self._locked_deployments.add(deployment.id)
        for row in rows:
            self._run(rollout_statements.ADD_ROW, rollout_rows.row_values(deployment, row))

    def save_deployment(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        self._require_open()
        if deployment.id not in self._locked_deployments:
            raise RuntimeError(f"the deployment {deployment.id} was not read in this transaction")
        self._run(rollout_statements.SAVE, {**rollout_rows.progress_values(deployment), "of": deployment.id})
        for row in rows:
            key: Mapping[str, SqlValue] = {"of": deployment.id, "of_position": row.position}
            self._run(rollout_statements.SAVE_ROW, {**rollout_rows.row_values(deployment, row), **key})

    def add_deployment_event(self, event: DeploymentEvent) -> None:
        self._run(rollout_statements.ADD_EVENT, rollout_rows.event_values(event))

    def holdings(self, instance_ids: Collection[str]) -> Sequence[Holding]:
        found = self._rows(rollout_statements.HOLDINGS, ids=rows.json_texts(instance_ids))
        return [Holding(row[0], row[1], RolloutState(row[2]) is RolloutState.PENDING) for row in found]

    def is_deploying(self, config_id: str) -> bool:
        return bool(self._rows(rollout_statements.IS_DEPLOYING, config_id=config_id))

    def offers(self) -> Sequence[Offer]:
        found = [rollout_rows.to_offer(row) for row in self._rows(rollout_statements.OFFERS)]
        return [offer for offer in found if offer is not None]


class SqlRollouts:
    """`ports.rollout_store.RolloutStore` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def deployment(self, deployment_id: str) -> DeploymentRecord | None:
        found = await self._rows(rollout_statements.HEAD, id=deployment_id)
        return rollout_rows.to_deployment(found[0]) if found else None

    async def deployments(self, query: DeploymentQuery) -> Sequence[DeploymentRecord]:
        statement = rollout_statements.page(frozenset(query.states), is_first=not query.before)
        position: Mapping[str, SqlValue] = {"before": query.before} if query.before else {}
        found = await self._rows(statement, limit=query.limit, **position)
        return [rollout_rows.to_deployment(row) for row in found]

    async def count_deployments(self, states: Collection[RolloutState] = ()) -> int:
        return int((await self._rows(rollout_statements.count(frozenset(states))))[0][0])

    async def rollout(self, deployment_id: str, *, after: int = 0) -> RolloutRead | None:
        while True:
            head = await self._rows(rollout_statements.HEAD, id=deployment_id)
            if not head:
                return None
            deployment = rollout_rows.to_deployment(head[0])
            found = await self._rows(rollout_statements.CHANGED_ROWS, id=deployment_id, after=after)
            # A row of a later revision: another step was stored in between, so read the head again.
            if all(row[2] <= deployment.revision for row in found):
                return RolloutRead(deployment, [rollout_rows.to_row(row) for row in found])

    async def deployment_rows(
        self, deployment_id: str, *, after: int = -1, limit: int, states: Collection[RowState] = ()
    ) -> Sequence[RolloutRow]:
        statement = rollout_statements.page_of_rows(frozenset(states))
        found = await self._rows(statement, id=deployment_id, after=after, limit=limit)
        return [rollout_rows.to_row(row) for row in found]

    async def active_deployments(self) -> Mapping[str, int]:
        return {row[0]: row[1] for row in await self._rows(rollout_statements.ACTIVE)}

    async def deployment_events(self, deployment_id: str, *, after: int, limit: int) -> Sequence[DeploymentEvent]:
        found = await self._rows(rollout_statements.EVENTS, id=deployment_id, after=after, limit=limit)
        return [rollout_rows.to_event(row) for row in found]

    async def _rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        return await self._database.read(lambda session: session.rows(statement, **values))
