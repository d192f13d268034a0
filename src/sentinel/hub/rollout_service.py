"""What users do with deployments, on the store and the runner.

A deployment whose targets are free starts in the transaction that creates it. All other commands of users are
events of the runner's next step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from sentinel.core.counted import counted
from sentinel.core.hub import deployment_plan, rollout_queries, rollout_state
from sentinel.core.hub.deployment import Request, RequestProblem, TargetVersion
from sentinel.core.hub.deployment_plan import Plan
from sentinel.core.hub.instance import Timeouts
from sentinel.core.hub.rollout_state import Abort, Event, Pause, Promote, Resume, Rollback, Rollout, Started
from sentinel.core.ids import RANDOM_BYTES, uuid7
from sentinel.hub import deployment_documents, rollout_copies
from sentinel.hub.rollout_copies import RolloutCopies, RolloutCopy
from sentinel.hub.rollout_planning import Draft, RolloutPlanning
from sentinel.hub.rollout_runner import RolloutRunner
from sentinel.hub.rollout_step import RolloutStep, Stored
from sentinel.hub.version_problems import DeploymentProblem
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import HubStore, HubTransaction
from sentinel.ports.rollout_store import (
    DeploymentEvent,
    DeploymentQuery,
    DeploymentRecord,
    Holding,
    RolloutRow,
)
from sentinel.web import idempotency
from sentinel.web.audit import Auditor
from sentinel.web.errors import Conflict, NotFound, Unprocessable
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.problem import shown
from sentinel.web.routing import Caller

_MAX_COUNTER: Final = 0xFFF
"""The 12 bits that follow the milliseconds in a UUIDv7."""
KIND: Final = "deployment"
"""The kind of audit entries about deployments."""


class PlannedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment would do."""

    plan: Plan
    """`batches` have what is assigned to each instance now, which is what it would go back to."""
    to: TargetVersion
    problems: Sequence[RequestProblem]
    """The problems of the plan: unknown ids, a selector without matches, instances that are busy."""
    version_problems: Sequence[DeploymentProblem]
    """Why the version cannot be deployed."""
    warnings: Sequence[DeploymentProblem]
    """What warns of the version."""
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


class RolloutService:
    """The use cases of users. Every one may raise `Unavailable`.

    `plan` and `create` raise `Invalid` (400) for a request that is wrong by itself, and `NotFound` (404) for a
    configuration or a version that does not exist.
    """

    def __init__(
        self,
        *,
        store: HubStore,
        planning: RolloutPlanning,
        runner: RolloutRunner,
        copies: RolloutCopies,
        timeouts: Timeouts,
        deployment_timeout: timedelta,
        clock: Clock,
        auditor: Auditor,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`deployment_timeout` is how long the deployment to one instance may take."""
        self._store = store
        self._planning = planning
        self._runner = runner
        self._copies = copies
        self._timeouts = timeouts
        self._deployment_timeout = deployment_timeout
        self._clock = clock
        self._auditor = auditor
        self._randomness = randomness
        self._created = 0

    async def plan(self, request: Request) -> PlannedDeployment:
        """Return what a deployment would do. Its problems are returned, not raised."""
        draft = await self._planning.draft(request)
        diff, restart_required = await self._planning.compare(draft)
        ids = [facts.instance_id for batch in draft.plan.batches for facts in batch]
        holdings = await self._store.transact(lambda transaction: transaction.holdings(ids))
        busy = [] if request.queue else [RequestProblem("targets", _busy(each)) for each in holdings]
        return PlannedDeployment(
            plan=draft.plan,
            to=draft.to,
            problems=[*draft.plan.problems, *busy],
            version_problems=draft.version_problems.errors,
            warnings=draft.version_problems.warnings,
            diff=diff,
            restart_required=restart_required,
        )

    async def create(self, caller: Caller, request: Request, *, key: IdempotencyKey | None) -> Created:
        """Start a deployment, or queue it.

        Raises `Unprocessable` (422, its `errors` are `FieldError` or `DeploymentProblem`) if it has problems, and
        `Conflict` (409) if an instance is busy and `queue` is false. The same key with another request is a 422.
        """
        return await self._create(caller, request, key=key, retry_of=None)

    async def retry(self, caller: Caller, deployment_id: str, *, key: IdempotencyKey | None) -> Created:
        """Start a new deployment of the same version over the targets whose own attempt was unsuccessful. Raises
        `NotFound`, `Conflict` if there is none, it is not over, or an instance is busy, and as `create`."""
        copy = await self._find(deployment_id)
        ids = rollout_queries.retry_targets(copy.rollout)
        facts = {each.instance_id: each for each in await self._planning.facts_by_id(ids) if not each.has_left}
        if not facts:
            reason = "has no instance whose attempt failed" if copy.rollout.is_over else "is not over"
            raise Conflict(f"the deployment {deployment_id} {reason}")
        targets = [facts[each] for each in ids if each in facts]
        request = deployment_plan.retry_request(copy.record.request, targets)
        return await self._create(caller, request, key=key, retry_of=deployment_id)

    async def pause(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Begin no further batch. This and the next four raise `NotFound`, and `Conflict` in the wrong state. They
        return the deployment as it is then."""
        return await self._command(caller, deployment_id, "pause", Pause())

    async def resume(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Continue a paused deployment."""
        return await self._command(caller, deployment_id, "resume", Resume())

    async def promote(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Begin the next batch without waiting for the analysis of the canaries."""
        return await self._command(caller, deployment_id, "promote", Promote())

    async def abort(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Begin no further batch. Instances in flight finish."""
        return await self._command(caller, deployment_id, "abort", Abort())

    async def rollback(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        """Bring every instance that was touched back to what it ran before. Also `Conflict` if another deployment
        has one of them."""
        return await self._command(caller, deployment_id, "rollback", Rollback(), takes_targets=True)

    async def get(self, deployment_id: str) -> DeploymentRecord:
        """Raises `NotFound`."""
        found = await self._store.deployment(deployment_id) if _may_exist(deployment_id) else None
        if found is None:
            raise _no_deployment(deployment_id)
        return found

    async def find(self, query: DeploymentQuery) -> tuple[Sequence[DeploymentRecord], int]:
        """Return a page, and how many match in all."""
        return await self._store.deployments(query), await self._store.count_deployments(query.states)

    async def instances(
        self, deployment_id: str, *, after: int, limit: int
    ) -> tuple[DeploymentRecord, Sequence[RolloutRow]]:
        """Return rows in the order of the plan, those after a position (-1: from the first). Raises `NotFound`.

        How many there are in all is the sum of the record's `counts`.
        """
        record = await self.get(deployment_id)
        return record, await self._store.deployment_rows(deployment_id, after=after, limit=limit)

    async def events(self, deployment_id: str, *, after: int, limit: int) -> Sequence[DeploymentEvent]:
        """Return events after a number, in order. The total is the record's `events`. Raises `NotFound`."""
        await self.get(deployment_id)
        return await self._store.deployment_events(deployment_id, after=after, limit=limit)

    async def _create(
        self, caller: Caller, request: Request, *, key: IdempotencyKey | None, retry_of: str | None
    ) -> Created:
        earlier = await self._earlier(key)
        if earlier is not None:
            # Before planning: that deployment has changed the fleet, so the same request may be refused by now.
            return earlier
        draft = await self._planning.draft(request)
        errors = [DeploymentProblem(field=each.field, message=each.message) for each in draft.plan.problems]
        details = [each.message for each in errors]
        if wrong := draft.version_problems.errors:
            errors += wrong
            number = counted(len(wrong), "error")
            details.append(f"{draft.to.name} has {number}, so it cannot be deployed")
        if errors:
            raise Unprocessable("; ".join(details), errors=errors)
        work = partial(self._create_in, caller, request, draft, key, retry_of)
        made = await idempotency.attempt(key, partial(self._store.transact, work))
        if isinstance(made, Created):
            return made
        stored, body = made
        self._runner.created(stored)
        return Created(stored.copy.id, body, is_replayed=False)

    async def _earlier(self, key: IdempotencyKey | None) -> Created | None:
        if key is None:
            return None
        return await self._store.transact(lambda transaction: _recall(transaction, key))

    def _create_in(
        self,
        caller: Caller,
        request: Request,
        draft: Draft,
        key: IdempotencyKey | None,
        retry_of: str | None,
        transaction: HubTransaction,
    ) -> Created | tuple[Stored, bytes]:
        now = self._clock.now()
        transaction.lock_targets()
        if (earlier := _recall(transaction, key)) is not None:
            return earlier
        rollout = rollout_state.create(
            self._new_id(now),
            request,
            draft.plan,
            to=draft.to,
            deployment_timeout=self._deployment_timeout,
            now=now,
        )
        busy = transaction.holdings([*rollout.rows])
        if busy and not request.queue:
            raise Conflict(_busy(busy[0]))
        copy = _add(transaction, rollout, request, caller, retry_of)
        step = RolloutStep(transaction, copy, now=now, timeouts=self._timeouts)
        if busy:
            step.announce()
        else:
            step.apply(Started())
        # After the instances, to keep the order of locks. If the version was deleted, all of it is rolled back.
        found = transaction.version(draft.to.name) if transaction.keep_config(request.config_id) else None
        if found is None or found.hash != draft.to.hash:
            raise NotFound(f"{draft.to.name} was deleted")
        stored = step.store()
        transaction.record(
            self._auditor.entry(
                caller, action="create", kind=KIND, resource_id=rollout.id, now=now, detail=str(draft.to.name)
            )
        )
        body = deployment_documents.encode(deployment_documents.document(stored.copy.record))
        idempotency.remember(transaction, key, version=0, body=body, now=now)
        return stored, body

    def _new_id(self, now: datetime) -> str:
        """Ids are in the order of creation. Deployments that wait for the same instances start in that order."""
        self._created = (self._created + 1) & _MAX_COUNTER
        return uuid7(now, self._created.to_bytes(2, "big") + self._randomness(RANDOM_BYTES - 2))

    async def _command(
        self, caller: Caller, deployment_id: str, action: str, event: Event, *, takes_targets: bool = False
    ) -> DeploymentRecord:
        await self._find(deployment_id)
        entry = self._auditor.entry(
            caller, action=action, kind=KIND, resource_id=deployment_id, now=self._clock.now()
        )
        answer = await self._runner.command(deployment_id, event, entry, takes_targets=takes_targets)
        if answer.refusal is not None:
            raise Conflict(answer.refusal)
        return answer.copy.record

    async def _find(self, deployment_id: str) -> RolloutCopy:
        copy = await self._copies.refresh(deployment_id) if _may_exist(deployment_id) else None
        if copy is None:
            raise _no_deployment(deployment_id)
        return copy


def _add(
    transaction: HubTransaction, rollout: Rollout, request: Request, caller: Caller, retry_of: str | None
) -> RolloutCopy:
    rows = [RolloutRow(position, row) for position, row in enumerate(rollout.rows.values())]
    record = DeploymentRecord(
        request=request,
        created_by=caller.identity.name,
        retry_of=retry_of,
        rollout=msgspec.structs.replace(rollout, rows={}, batches=()),
        batches=len(rollout.batches),
        counts=dict(rollout.counts),
    )
    transaction.add_deployment(record, rows)
    return rollout_copies.whole(record, rows)


def _recall(transaction: HubTransaction, key: IdempotencyKey | None) -> Created | None:
    earlier = idempotency.recall(transaction, key)
    if earlier is None:
        return None
    made = msgspec.json.decode(earlier.body, type=_Identified)
    return Created(made.id, earlier.body, is_replayed=True)


class _Identified(msgspec.Struct, frozen=True):
    id: str


def _busy(holding: Holding) -> str:
    return f"the deployment {holding.deployment_id} is in progress on the instance {holding.instance_id}"


def _may_exist(deployment_id: str) -> bool:
    """Whether an id can be in the database. PostgreSQL refuses a NUL in a query."""
    return deployment_id.isprintable()


def _no_deployment(deployment_id: str) -> NotFound:
    return NotFound(f"there is no deployment {shown(deployment_id)}")
