"""The deployments of the hub in memory, and the queries on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.ports.rollout_store import (
    DeploymentEvent,
    DeploymentQuery,
    DeploymentRecord,
    Holding,
    Offer,
    RolloutRead,
    RolloutRow,
)


class RolloutTables:
    """Deployments, their rows with the revision that changed each last, and their events."""

    def __init__(self) -> None:
        self.deployments: dict[str, DeploymentRecord] = {}
        self.rows: dict[tuple[str, int], tuple[RolloutRow, int]] = {}
        """Rows by deployment and position."""
        self.events: dict[tuple[str, int], DeploymentEvent] = {}

    def changed_rows(self, deployment_id: str, after: int) -> list[RolloutRow]:
        return [row for row, revision in self._rows(deployment_id) if revision > after]

    def read(self, deployment_id: str, after: int) -> RolloutRead | None:
        found = self.deployments.get(deployment_id)
        return None if found is None else RolloutRead(found, self.changed_rows(deployment_id, after))

    def page(self, query: DeploymentQuery) -> list[DeploymentRecord]:
        found = [each for each in self._with_states(query.states) if not query.before or each.id < query.before]
        return sorted(found, key=lambda each: each.id, reverse=True)[: query.limit]

    def count(self, states: Collection[RolloutState]) -> int:
        return len(self._with_states(states))

    def page_of_rows(
        self, deployment_id: str, after: int, limit: int, states: Collection[RowState]
    ) -> list[RolloutRow]:
        found = [row for row, _ in self._rows(deployment_id) if row.position > after]
        return [row for row in found if not states or row.row.state in states][:limit]

    def active(self) -> dict[str, int]:
        return {each.id: each.revision for each in self._active()}

    def page_of_events(self, deployment_id: str, after: int, limit: int) -> list[DeploymentEvent]:
        found = [each for key, each in sorted(self.events.items()) if key[0] == deployment_id and key[1] > after]
        return found[:limit]

    def holdings(self, instance_ids: Collection[str]) -> list[Holding]:
        return sorted(
            Holding(row.row.instance_id, each.id, each.rollout.state is RolloutState.PENDING)
            for each in self._active()
            for row, _ in self._rows(each.id)
            if row.row.instance_id in instance_ids and (_holds_all(each) or row.row.is_open)
        )

    def is_deploying(self, config_id: str) -> bool:
        return any(
            each.request.config_id == config_id
            or any(_previous_config(row) == config_id for row, _ in self._rows(each.id))
            for each in self._active()
        )

    def offers(self) -> Sequence[Offer]:
        newest: dict[str, Offer] = {}
        for each in self.deployments.values():
            offer = _offer(each)
            if offer is not None:
                key = str(offer.selector)
                newest[key] = max(newest.get(key, offer), offer, key=_age)
        return sorted(newest.values(), key=_age, reverse=True)

    def _rows(self, deployment_id: str) -> list[tuple[RolloutRow, int]]:
        found = [each for key, each in self.rows.items() if key[0] == deployment_id]
        return sorted(found, key=lambda each: each[0].position)

    def _active(self) -> Iterable[DeploymentRecord]:
        return [each for each in self.deployments.values() if not each.rollout.is_over]

    def _with_states(self, states: Collection[RolloutState]) -> list[DeploymentRecord]:
        return [each for each in self.deployments.values() if not states or each.rollout.state in states]


def _holds_all(record: DeploymentRecord) -> bool:
    return not record.rollout.is_terminal or record.rollout.rollback is RollbackState.RUNNING


def _previous_config(row: RolloutRow) -> str | None:
    previous = row.row.previous
    return None if previous is None else previous.name.config_id


def _offer(record: DeploymentRecord) -> Offer | None:
    rollout, selector = record.rollout, record.request.targets.selector
    if selector is None or rollout.finished is None or not rollout.is_offered_to_new_instances:
        return None
    return Offer(deployment_id=record.id, selector=selector, version=rollout.to, finished=rollout.finished)


def _age(offer: Offer) -> tuple[datetime, str]:
    return offer.finished, offer.deployment_id
