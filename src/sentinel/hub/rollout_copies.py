"""The deployments in progress, as this process knows them.

Heartbeats and streams read from here what an agent has to do, so they cost no query. A copy is replaced after each
step of this process, and when the log says that another hub has taken one. Then only the changed rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, Protocol

import msgspec

from sentinel.core.hub import rollout_queries
from sentinel.core.hub.rollout_row import Row
from sentinel.core.hub.rollout_state import Rollout, RolloutState
from sentinel.ports.hub_store import HubStore, HubTransaction
from sentinel.ports.rollout_store import DeploymentRecord, RolloutRow

_MAX_OVER: Final = 8
"""How many deployments that are over are kept for agents that report late."""


class RolloutCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment with all of its rows, as of a revision."""

    record: DeploymentRecord
    rollout: Rollout
    """The rollout with all rows and batches. The one in the record has none."""
    positions: Mapping[str, int]
    """The positions of the rows, by instance."""

    @property
    def id(self) -> str:
        return self.record.id

    def updated(self, record: DeploymentRecord, rows: Sequence[RolloutRow]) -> RolloutCopy:
        """Return the copy of a later revision, whose changed rows are these."""
        changed = {each.row.instance_id: each.row for each in rows}
        rollout = msgspec.structs.replace(
            record.rollout, rows={**self.rollout.rows, **changed}, batches=self.rollout.batches
        )
        return RolloutCopy(record=record, rollout=rollout, positions=self.positions)


def whole(record: DeploymentRecord, rows: Sequence[RolloutRow]) -> RolloutCopy:
    """Return a copy of all rows, in the order of the plan."""
    by_batch = groupby((each.row for each in rows), key=lambda row: row.batch)
    batches = tuple(tuple(row.instance_id for row in batch) for _, batch in by_batch)
    rollout = msgspec.structs.replace(
        record.rollout, rows={each.row.instance_id: each.row for each in rows}, batches=batches
    )
    positions = {each.row.instance_id: each.position for each in rows}
    return RolloutCopy(record=record, rollout=rollout, positions=positions)


def lock(transaction: HubTransaction, deployment_id: str, known: RolloutCopy | None) -> RolloutCopy | None:
    """Lock a deployment and return it as it is stored, reading only what changed since the copy that is known."""
    record = transaction.deployment(deployment_id)
    if record is None:
        return None
    if known is None or known.record.revision > record.revision:
        return whole(record, transaction.deployment_rows(deployment_id))
    if known.record.revision == record.revision:
        return known
    return known.updated(record, transaction.deployment_rows(deployment_id, after=known.record.revision))


class StepListener(Protocol):
    """Is told when agents have something else to do."""

    def steps_changed(self, instance_ids: Sequence[str]) -> None:
        """A deployment wants something else of these instances. Must not block."""


class RolloutCopies:
    """The copies of this process."""

    def __init__(self, store: HubStore) -> None:
        self._store = store
        self._copies: dict[str, RolloutCopy] = {}
        self._by_instance: dict[str, set[str]] = {}
        """The deployments in progress that an instance is a target of."""
        self._over: list[str] = []
        self._listeners: list[StepListener] = []

    def __iter__(self) -> Iterator[RolloutCopy]:
        return iter([*self._copies.values()])

    def notify(self, listener: StepListener) -> None:
        """Tell a listener about changes from now on."""
        self._listeners.append(listener)

    def get(self, deployment_id: str) -> RolloutCopy | None:
        """Return a deployment that is in memory."""
        return self._copies.get(deployment_id)

    def of_instance(self, instance_id: str) -> Sequence[RolloutCopy]:
        """Return the deployments in progress that the instance is a target of."""
        return [self._copies[each] for each in self._by_instance.get(instance_id, ())]

    @property
    def pending(self) -> Sequence[str]:
        """The deployments that wait for others, in their order."""
        return sorted(each.id for each in self if each.rollout.state is RolloutState.PENDING)

    async def find(self, deployment_id: str) -> RolloutCopy | None:
        """Return a deployment, from the store if it is not in memory. Raises `Unavailable`."""
        return self._copies.get(deployment_id) or await self.refresh(deployment_id)

    async def refresh(self, deployment_id: str) -> RolloutCopy | None:
        """Read what was stored since the copy, at least until this call. Raises `Unavailable`."""
        known = self._copies.get(deployment_id)
        after = 0 if known is None else known.record.revision
        found = await self._store.rollout(deployment_id, after=after)
        if found is None:
            return None
        if known is None or found.deployment.revision < after:
            self.put(whole(found.deployment, found.rows))
        elif found.deployment.revision > after:
            self.put(known.updated(found.deployment, found.rows))
        return self._copies.get(deployment_id)

    def put(self, copy: RolloutCopy) -> None:
        """Take over a copy, unless there is a later one."""
        before = self._copies.get(copy.id)
        if before is not None and before.record.revision >= copy.record.revision:
            return
        self._copies[copy.id] = copy
        if before is None or before.rollout.is_over != copy.rollout.is_over:
            self._index(copy)
        old: Mapping[str, Row] = {} if before is None else before.rollout.rows
        changed = [each for each, row in copy.rollout.rows.items() if _has_other_step(old.get(each), row)]
        for listener in self._listeners:
            listener.steps_changed(changed)

    def _index(self, copy: RolloutCopy) -> None:
        if not copy.rollout.is_over:
            for instance_id in copy.positions:
                self._by_instance.setdefault(instance_id, set()).add(copy.id)
            return
        for instance_id in copy.positions:
            if copy.id in (found := self._by_instance.get(instance_id, set())):
                found.discard(copy.id)
                if not found:
                    del self._by_instance[instance_id]
        self._over.append(copy.id)
        while len(self._over) > _MAX_OVER:
            oldest = self._copies.get(self._over.pop(0))
            if oldest is not None and oldest.rollout.is_over:
                del self._copies[oldest.id]


def releases(before: Rollout | None, after: Rollout) -> bool:
    """Whether other deployments may have instances that they could not have before."""
    if before is None or rollout_queries.holds_all_targets(after):
        return False
    return rollout_queries.holds_all_targets(before) or after.open_rows < before.open_rows


def _has_other_step(before: Row | None, after: Row) -> bool:
    old = None if before is None else before.step
    return old is not after.step
