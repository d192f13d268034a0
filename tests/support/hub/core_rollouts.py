"""Deployments in memory, moved by `core.hub.rollout` alone: for tests of what users see of them.

Tests give a deployment the events that agents, the clock and other deployments cause in a real hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from sentinel.core.hub import deployment_plan, rollout, rollout_queries, rollout_state
from sentinel.core.hub.deployment import InstanceFacts, Problem, Request, Targets, TargetVersion
from sentinel.core.hub.rollout_state import (
    Abort,
    Event,
    Pause,
    Promote,
    Refuse,
    Reported,
    ReportedState,
    Resume,
    Rollback,
    RollbackState,
    Rollout,
    RowChanged,
    Started,
    StateChanged,
)
from sentinel.core.hub.versions import VersionName
from sentinel.hub import deployment_documents, version_problems
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.rollouts import Created, PlannedDeployment
from sentinel.hub.version_problems import DeploymentProblem
from sentinel.ports.hub_store import ConfigVersion, HubEventType, HubStore, HubTransaction, InstanceQuery
from sentinel.ports.rollout_store import DeploymentEvent, DeploymentQuery, DeploymentRecord, RolloutRow
from sentinel.testing.clock import ManualClock
from sentinel.web.errors import Conflict, NotFound, Unprocessable
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.problem import FieldError
from sentinel.web.routing import Caller

DEPLOYMENT_TIMEOUT = timedelta(minutes=5)


class CoreRollouts:
    """`Rollouts` without agents. `do` moves a deployment on."""

    def __init__(self, store: HubStore, *, checker: ConfigChecker, clock: ManualClock) -> None:
        self._store = store
        self._checker = checker
        self._clock = clock
        self._records: dict[str, DeploymentRecord] = {}
        self._events: dict[str, list[DeploymentEvent]] = {}
        self._created: dict[str, tuple[IdempotencyKey, Created]] = {}
        self._changed = asyncio.Condition()
        self.was_created = asyncio.Event()

    async def plan(self, request: Request) -> PlannedDeployment:
        version = await self._version(request)
        found = await self._store.instances(InstanceQuery(limit=10_000))
        known = [
            InstanceFacts(
                instance_id=each.id,
                state=each.life.state,
                assigned=None
                if each.sync.assignment is None
                else TargetVersion(each.sync.assignment.version, each.sync.assignment.hash),
                labels=each.labels,
            )
            for each in found.instances
        ]
        plan = deployment_plan.plan(request, known)
        return PlannedDeployment(
            plan=plan,
            to=TargetVersion(VersionName(request.config_id, request.version), version.hash),
            problems=[*plan.problems, *self._busy(request, plan)],
            version_problems=await version_problems.find(self._checker, version),
            diff=f"+{request.config_id}@{request.version}\n",
            restart_required=False,
        )

    async def create(
        self, caller: Caller, request: Request, *, key: IdempotencyKey | None, retry_of: str | None = None
    ) -> Created:
        if key is not None and key.key in self._created:
            earlier, created = self._created[key.key]
            if earlier != key:
                raise Unprocessable("this Idempotency-Key was used for another request")
            return msgspec.structs.replace(created, is_replayed=True)
        planned = await self.plan(request)
        busy = [each for each in planned.problems if each not in planned.plan.problems]
        errors: list[FieldError | DeploymentProblem] = [
            *(FieldError(each.field, each.message) for each in planned.plan.problems),
            *planned.version_problems,
        ]
        if errors:
            raise Unprocessable(errors[0].message, errors=errors)
        if busy:
            raise Conflict(busy[0].message)
        moved = rollout_state.create(
            f"deployment-{len(self._records) + 1}",
            request,
            planned.plan,
            to=planned.to,
            deployment_timeout=DEPLOYMENT_TIMEOUT,
            now=self._clock.now(),
        )
        self._records[moved.id] = DeploymentRecord(
            request=request,
            created_by=caller.identity.name,
            retry_of=retry_of,
            rollout=moved,
            batches=len(moved.batches),
            counts=moved.counts,
        )
        self._events[moved.id] = []
        await self.do(moved.id, Started())
        created = Created(moved.id, deployment_documents.encode(self._document(moved.id)), is_replayed=False)
        if key is not None:
            self._created[key.key] = (key, created)
        self.was_created.set()
        return created

    async def retry(self, caller: Caller, deployment_id: str, *, key: IdempotencyKey | None) -> Created:
        record = await self.get(deployment_id)
        ids = rollout_queries.retry_targets(record.rollout)
        if not ids:
            raise Conflict("there is nothing to retry")
        request = msgspec.structs.replace(record.request, targets=Targets(ids=ids))
        return await self.create(caller, request, key=key, retry_of=deployment_id)

    async def pause(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        return await self.do(deployment_id, Pause())

    async def resume(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        return await self.do(deployment_id, Resume())

    async def promote(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        return await self.do(deployment_id, Promote())

    async def abort(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        return await self.do(deployment_id, Abort())

    async def rollback(self, caller: Caller, deployment_id: str) -> DeploymentRecord:
        return await self.do(deployment_id, Rollback())

    async def get(self, deployment_id: str) -> DeploymentRecord:
        if deployment_id not in self._records:
            raise NotFound(f"there is no deployment {deployment_id!r}")
        return self._records[deployment_id]

    async def find(self, query: DeploymentQuery) -> tuple[Sequence[DeploymentRecord], int]:
        matching = [
            each
            for each in sorted(self._records.values(), key=lambda each: each.id, reverse=True)
            if not query.states or each.rollout.state in query.states
        ]
        page = [each for each in matching if not query.before or each.id < query.before]
        return page[: query.limit], len(matching)

    async def instances(
        self, deployment_id: str, *, after: int, limit: int
    ) -> tuple[DeploymentRecord, Sequence[RolloutRow]]:
        record = await self.get(deployment_id)
        rows = [RolloutRow(position, row) for position, row in enumerate(record.rollout.rows.values())]
        return record, rows[after + 1 :][:limit]

    async def events(self, deployment_id: str, *, after: int, limit: int) -> Sequence[DeploymentEvent]:
        await self.get(deployment_id)
        return self._events[deployment_id][after:][:limit]

    async def until_rolling_back(self, deployment_id: str) -> None:
        """Wait until a user has asked for a rollback."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(
                lambda: self._records[deployment_id].rollout.rollback is RollbackState.RUNNING
            )

    async def do(self, deployment_id: str, *events: Event) -> DeploymentRecord:
        """Let something happen to a deployment, and tell users of it. Raises `Conflict` if it is refused."""
        record = await self.get(deployment_id)
        for event in events:
            moved, commands = rollout.advance(record.rollout, event, self._clock.now())
            for command in commands:
                if isinstance(command, Refuse):
                    raise Conflict(command.message)
            record = self._save(record, moved)
            for command in commands:
                if isinstance(command, RowChanged):
                    row = moved.rows[command.instance_id]
                    data = deployment_documents.encode(
                        deployment_documents.row_event(deployment_id, row, moved.to)
                    )
                    await self._tell(deployment_id, HubEventType.DEPLOYMENT_INSTANCE, data)
                elif isinstance(command, StateChanged):
                    data = deployment_documents.encode(self._document(deployment_id))
                    await self._tell(deployment_id, HubEventType.DEPLOYMENT_STATE, data)
        async with self._changed:
            self._changed.notify_all()
        return self._records[deployment_id]

    async def report(
        self, deployment_id: str, state: ReportedState, *instance_ids: str, message: str = ""
    ) -> DeploymentRecord:
        """Let agents report how far they are."""
        is_rollback = state is ReportedState.ROLLED_BACK
        reports = [Reported(each, state, is_rollback=is_rollback, message=message) for each in instance_ids]
        return await self.do(deployment_id, *reports)

    def _save(self, record: DeploymentRecord, moved: Rollout) -> DeploymentRecord:
        saved = msgspec.structs.replace(record, rollout=moved, counts=moved.counts)
        self._records[moved.id] = saved
        return saved

    def _document(self, deployment_id: str) -> deployment_documents.DeploymentDocument:
        return deployment_documents.document(self._records[deployment_id])

    async def _tell(self, deployment_id: str, event_type: HubEventType, data: bytes) -> None:
        now = self._clock.now()

        def work(transaction: HubTransaction) -> None:
            transaction.append_event(event_type, deployment_id, data, now)

        await self._store.transact(work)
        told = self._events[deployment_id]
        told.append(
            DeploymentEvent(
                deployment_id=deployment_id, number=len(told) + 1, time=now, type=event_type, data=data
            )
        )
        record = self._records[deployment_id]
        self._records[deployment_id] = msgspec.structs.replace(record, events=len(told))

    async def _version(self, request: Request) -> ConfigVersion:
        version = await self._store.version(VersionName(request.config_id, request.version))
        if version is None:
            raise NotFound(f"there is no version {request.config_id}@{request.version}")
        return version

    def _busy(self, request: Request, plan: deployment_plan.Plan) -> Sequence[Problem]:
        wanted = {facts.instance_id for batch in plan.batches for facts in batch}
        return [
            Problem("targets", f"the deployment {each.id} has {', '.join(sorted(held))}")
            for each in self._records.values()
            if (held := wanted & rollout_queries.held_instances(each.rollout)) and not request.queue
        ]
