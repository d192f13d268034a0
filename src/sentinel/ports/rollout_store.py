"""The part of the hub's store that is about deployments.

A deployment is stored in two parts, because one report changes one of thousands of targets: the head with the sums
over all targets, and one row for each target. Every change gives the head the next revision, and the rows that it
changed the same. A hub that has a deployment in memory reads only the rows that were changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from sentinel.core.hub.deployment import Request, TargetVersion
from sentinel.core.hub.rollout_row import Row, RowState
from sentinel.core.hub.rollout_state import Rollout, RolloutState
from sentinel.core.labels import Selector


class DeploymentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment without its rows."""

    request: Request
    """What was asked for. It never changes, nor do the next two."""
    created_by: str
    retry_of: str | None = None
    rollout: Rollout
    """Without `rows` and `batches`, which are empty."""
    batches: int
    """How many there are in all."""
    counts: Mapping[RowState, int]
    """How many rows are in which state; those that have none are left out."""
    revision: int = 1
    """How often it was stored."""
    events: int = 0
    """How many events it has had."""

    @property
    def id(self) -> str:
        return self.rollout.id


class RolloutRow(msgspec.Struct, frozen=True):
    """A target of a deployment."""

    position: int
    """In the order of the plan, from 0."""
    row: Row


class DeploymentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a deployment, which is kept as long as the deployment."""

    deployment_id: str
    number: int
    """Counts from 1."""
    time: datetime
    type: str
    """`deployment.state` or `deployment.instance`."""
    data: bytes
    """As in the log."""


class Holding(msgspec.Struct, frozen=True, order=True):
    """An instance that a deployment holds, or waits for."""

    instance_id: str
    deployment_id: str
    is_pending: bool
    """Whether the deployment itself waits for others."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a completed deployment gives to new instances."""

    deployment_id: str
    selector: Selector
    version: TargetVersion
    finished: datetime


class RolloutTransaction(Protocol):
    """What a transaction of the hub does with deployments.

    A deployment is locked before instances are. The lock ends with the transaction, also if the hub dies, so with
    several hubs one at a time advances a deployment.
    """

    def lock_targets(self) -> None:
        """Wait for other transactions that have called this.

        A transaction that checks whether instances are free, and then takes them, calls this before it locks
        anything else.
        """

    def deployment(self, deployment_id: str) -> DeploymentRecord | None:
        """Return a deployment, and lock it until the transaction ends."""

    def deployment_rows(self, deployment_id: str, *, after: int = 0) -> Sequence[RolloutRow]:
        """Return the rows that a revision after this one has changed, in the order of the plan."""

    def add_deployment(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        """Store a new deployment."""

    def save_deployment(self, deployment: DeploymentRecord, rows: Sequence[RolloutRow]) -> None:
        """Store a deployment that was read in this transaction, with the rows that have changed. Its revision is
        greater than the one before."""

    def add_deployment_event(self, event: DeploymentEvent) -> None:
        """Keep an event with its deployment. The log has it besides."""

    def holdings(self, instance_ids: Collection[str]) -> Sequence[Holding]:
        """Return which of these instances are held, and by which deployments, in the order of their ids."""

    def is_deploying(self, config_id: str) -> bool:
        """Whether a deployment that is not over brings instances to a version of this configuration, or may bring
        them back to one."""

    def offers(self) -> Sequence[Offer]:
        """Return, for each selector, the newest deployment that is offered to new instances, the newest first."""


class DeploymentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of deployments, those with the greatest ids first, which are the newest."""

    before: str = ""
    """Only lower ids. Empty: all."""
    limit: int
    states: Collection[RolloutState] = ()
    """Empty for all."""


class RolloutRead(msgspec.Struct, frozen=True):
    """A deployment with the rows that were asked for, as of the same revision."""

    deployment: DeploymentRecord
    rows: Sequence[RolloutRow]


class RolloutStore(Protocol):
    """Reads of deployments. Every call may raise `Unavailable`."""

    async def deployment(self, deployment_id: str) -> DeploymentRecord | None: ...

    async def deployments(self, query: DeploymentQuery) -> Sequence[DeploymentRecord]: ...

    async def count_deployments(self, states: Collection[RolloutState] = ()) -> int:
        """How many there are in these states; without states, in all."""

    async def rollout(self, deployment_id: str, *, after: int = 0) -> RolloutRead | None:
        """Return a deployment with the rows that a revision after this one has changed."""

    async def deployment_rows(
        self, deployment_id: str, *, after: int = -1, limit: int, states: Collection[RowState] = ()
    ) -> Sequence[RolloutRow]:
        """Return a page of rows in the order of the plan, those after this position. Without states, all."""

    async def active_deployments(self) -> Mapping[str, int]:
        """Return the ids of all deployments that are not over, with their revisions."""

    async def deployment_events(self, deployment_id: str, *, after: int, limit: int) -> Sequence[DeploymentEvent]:
        """Return events with greater numbers, in order."""
