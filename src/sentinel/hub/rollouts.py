"""What users do with deployments: plan, create, pause, resume, promote, abort, roll back, retry, read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from sentinel.core.hub.deployment import Problem, Request, TargetVersion
from sentinel.core.hub.deployment_plan import Plan
from sentinel.hub.version_problems import DeploymentProblem
from sentinel.ports.rollout_store import DeploymentEvent, DeploymentQuery, DeploymentRecord, RolloutRow
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.routing import Caller


class PlannedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment would do."""

    plan: Plan
    """`batches` have what is assigned to each instance now, which is what it would go back to."""
    to: TargetVersion
    problems: Sequence[Problem]
    """The problems of the plan: unknown ids, a selector without matches, instances that are busy."""
    version_problems: Sequence[DeploymentProblem]
    """Why the version cannot be deployed."""
    diff: str
    """Unified, from what most of the instances run to the new version; empty if they run it already."""
    restart_required: bool
    """Whether any instance has to restart."""


class Created(msgspec.Struct, frozen=True):
    """A deployment that a request has created, or an earlier request with the same key."""

    id: str
    body: bytes
    """The encoded `DeploymentDocument` as of its creation."""
    is_replayed: bool


class Rollouts(Protocol):
    """The use cases of users. Every one may raise `Unavailable`.

    `plan` and `create` raise `Invalid` (400) for a request that is wrong by itself, and `NotFound` (404) for a
    configuration or a version that does not exist.
    """

    async def plan(self, request: Request) -> PlannedDeployment:
        """Return what a deployment would do. Its problems are returned, not raised."""

    async def create(self, caller: Caller, request: Request, *, key: IdempotencyKey | None) -> Created:
        """Start a deployment, or queue it.

        Raises `Unprocessable` (422, its `errors` are `FieldError` or `DeploymentProblem`) if it has problems, and
        `Conflict` (409) if an instance is busy and `queue` is false. The same key with another request is a 422.
        """

    async def retry(self, caller: Caller, deployment_id: str, *, key: IdempotencyKey | None) -> Created:
        """Start a new deployment of the same version over the targets whose own attempt was unsuccessful. Raises
        `NotFound`, `Conflict` if there is none, it is not over, or an instance is busy, and as `create`."""

    async def pause(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Begin no further batch. This and the next four raise `NotFound`, and `Conflict` in the wrong state. They
        return the deployment as it is then."""

    async def resume(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Go on."""

    async def promote(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """End the watch over the canaries."""

    async def abort(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Begin no batch any more. What is in flight finishes."""

    async def rollback(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Bring every instance that was touched back to what it ran before. Also `Conflict` if another deployment
        has one of them."""

    async def get(self, deployment_id: str) -> DeploymentRecord:
        """Raises `NotFound`."""

    async def find(self, query: DeploymentQuery) -> tuple[Sequence[DeploymentRecord], int]:
        """Return a page, and how many match in all."""

    async def instances(
        self, deployment_id: str, *, after: int, limit: int
    ) -> tuple[DeploymentRecord, Sequence[RolloutRow]]:
        """Return rows in the order of the plan, those after a position (-1: from the first). Raises `NotFound`.

        How many there are in all is the sum of the record's `counts`.
        """

    async def events(self, deployment_id: str, *, after: int, limit: int) -> Sequence[DeploymentEvent]:
        """Return events after a number, in order. The total is the record's `events`. Raises `NotFound`."""
