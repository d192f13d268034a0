"""Runs the steps of deployments: on reports of agents, changes of instances, commands of users, and deadlines.

Every deployment in progress has at most one step at a time in this process. Events that arrive during a step are
handled together in the next one, so a thousand reports cost a few transactions. Another hub may take a step at the
same time: its transaction holds the lock of the deployment, and this one then reads what it has stored. The lock
ends with the transaction, so a hub that dies blocks no other, and the hubs need no leader.

It reads the log: there it learns of the steps of other hubs, and of instances that went offline, left, or were
assigned something by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from sentinel.core.hub import rollout_queries, rollout_row
from sentinel.core.hub.instance import Timeouts
from sentinel.core.hub.rollout_state import Analysed, Event, Observed, Rollout, RolloutState, Started
from sentinel.hub import rollout_copies
from sentinel.hub.canary_metrics import CanaryMetrics
from sentinel.hub.observer import HubObserver
from sentinel.hub.registry import Registry
from sentinel.hub.rollout_copies import RolloutCopies, RolloutCopy
from sentinel.hub.rollout_step import RolloutStep, Stored, facts_of
from sentinel.ports.audit import AuditEntry
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import HubEvent, HubEventType, HubStore, HubTransaction
from sentinel.ports.rollout_store import Holding
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.workqueue import Again, Completed, RunResult, WorkQueue

_WORKERS: Final = 4
"""Deployments that take a step at the same time."""
_RETRY: Final = timedelta(seconds=1)
_MIN_DELAY: Final = timedelta(milliseconds=100)
_LOOK_INTERVAL: Final = timedelta(seconds=30)
"""How often a deployment that waits for others checks whether they are over. The log usually says so earlier."""
_READ_SIZE: Final = 500
_INSTANCE_EVENTS: Final = (HubEventType.INSTANCE_STATE, HubEventType.INSTANCE_CHANGED)
_DEPLOYMENT_EVENTS: Final = (
    HubEventType.DEPLOYMENT_STATE,
    HubEventType.DEPLOYMENT_INSTANCE,
    HubEventType.DEPLOYMENT_CHANGED,
)


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an event."""

    copy: RolloutCopy
    """The deployment after the step."""
    refusal: str | None = None
    """Why a user's command is refused; None if it is not."""
    next_action: str | None = None
    """What the agent that reported should do next; None if it is not a target."""


class _Input:
    """An event for the next step, and the future of the caller that waits for the answer."""

    __slots__ = ("answer", "entry", "event", "incarnation", "instance_id", "takes_targets")

    def __init__(
        self,
        event: Event,
        *,
        instance_id: str = "",
        incarnation: int = 0,
        entry: AuditEntry | None = None,
        takes_targets: bool = False,
    ) -> None:
        self.event = event
        self.instance_id = instance_id
        self.incarnation = incarnation
        self.entry = entry
        self.takes_targets = takes_targets
        self.answer: asyncio.Future[StepResult] | None = None

    def settle(self, result: StepResult | BaseException) -> None:
        if self.answer is None or self.answer.done():
            return
        if isinstance(result, BaseException):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class _Outcome(msgspec.Struct, frozen=True):
    stored: Stored
    refusals: Sequence[str | None]
    next_actions: Sequence[str | None]


class RolloutRunner:
    """The steps of all deployments. An `EventReader` of the feed."""

    def __init__(
        self,
        *,
        store: HubStore,
        copies: RolloutCopies,
        registry: Registry,
        metrics: CanaryMetrics,
        timeouts: Timeouts,
        clock: Clock,
        observer: HubObserver,
        log: Log,
    ) -> None:
        self._store = store
        self._copies = copies
        self._registry = registry
        self._metrics = metrics
        self._timeouts = timeouts
        self._clock = clock
        self._observer = observer
        self._log = log
        self._listening_since = clock.now()
        """Since when agents could reach a hub. Silence before it does not count."""
        self._queue: WorkQueue[str, _Input] = WorkQueue(clock=clock, log=log, workers=_WORKERS)

    async def run(self, stopping: Stopping) -> None:
        """Take steps until stopped."""
        self._listening_since = self._clock.now()
        try:
            await self._queue.run(self._process, stopping)
        finally:
            for inputs in self._queue.waiting.values():
                for each in inputs:
                    each.settle(Unavailable("the hub is shutting down"))

    async def report(self, deployment_id: str, event: Event, *, instance_id: str, incarnation: int) -> StepResult:
        """Handle a report of an agent. Raises `Unavailable`."""
        return await self._answer(deployment_id, _Input(event, instance_id=instance_id, incarnation=incarnation))

    async def command(
        self, deployment_id: str, event: Event, entry: AuditEntry, *, takes_targets: bool = False
    ) -> StepResult:
        """Do what a user wants, or return why not. With `takes_targets`, no other deployment may have one.
        Raises `Unavailable`."""
        return await self._answer(deployment_id, _Input(event, entry=entry, takes_targets=takes_targets))

    def created(self, stored: Stored) -> None:
        """Take over a deployment that was just created."""
        self._take_over(stored)
        self._queue.add(stored.copy.id)

    async def take(self, events: Sequence[HubEvent]) -> None:
        """Read deployments again that others have changed, and look at instances that were changed."""
        changed = dict.fromkeys(event.subject for event in events if event.type in _DEPLOYMENT_EVENTS)
        for deployment_id in changed:
            await self._refresh(deployment_id)
        subjects = dict.fromkeys(event.subject for event in events if event.type in _INSTANCE_EVENTS)
        await self._look_at([each for each in subjects if self._copies.of_instance(each)])

    async def resync(self) -> None:
        """Read all deployments in progress, and how their instances are."""
        known = [copy.id for copy in self._copies]
        for deployment_id in {**await self._store.active_deployments(), **dict.fromkeys(known)}:
            await self._refresh(deployment_id)
        active = [copy for copy in self._copies if not copy.rollout.is_over]
        await self._look_at([*dict.fromkeys(each for copy in active for each in copy.positions)])

    async def _refresh(self, deployment_id: str) -> None:
        known = self._copies.get(deployment_id)
        copy = await self._copies.refresh(deployment_id)
        if copy is None or copy is known:
            return
        self._queue.add(deployment_id)
        self._start_pending(None if known is None else known.rollout, copy.rollout)

    async def _look_at(self, instance_ids: Sequence[str]) -> None:
        for start in range(0, len(instance_ids), _READ_SIZE):
            found = await self._store.instances_by_id(instance_ids[start : start + _READ_SIZE])
            for record in found.values():
                facts = facts_of(record)
                for copy in self._copies.of_instance(record.id):
                    row = copy.rollout.rows[record.id]
                    # This hub made most of these changes itself; skip what the row has already.
                    if rollout_row.observe(row, facts) is not row:
                        self._queue.add(copy.id, _Input(Observed((facts,))))

    async def _answer(self, deployment_id: str, given: _Input) -> StepResult:
        given.answer = asyncio.get_running_loop().create_future()
        self._queue.add(deployment_id, given)
        return await given.answer

    async def _process(self, deployment_id: str, inputs: Sequence[_Input]) -> RunResult:
        try:
            outcome = await self._step(deployment_id, inputs)
        except Unavailable as error:
            self._log.warning("deployment.failed", deployment=deployment_id, error=error)
            # Agents could not report while the store was away. That time must not count as their silence.
            self._listening_since = self._clock.now()
            for each in inputs:
                each.settle(error)
            return Again(_RETRY)
        except Exception as error:
            for each in inputs:
                each.settle(error)
            raise
        if outcome is None:
            return Completed()
        await self._finish(outcome, inputs)
        return await self._analyse_and_wait(outcome.stored)

    async def _step(self, deployment_id: str, inputs: Sequence[_Input]) -> _Outcome | None:
        known, now = self._copies.get(deployment_id), self._clock.now()
        work = partial(self._work, deployment_id, known, inputs, now, self._listening_since)
        return await self._store.transact(work)

    def _work(
        self,
        deployment_id: str,
        known: RolloutCopy | None,
        inputs: Sequence[_Input],
        now: datetime,
        listening_since: datetime,
        transaction: HubTransaction,
    ) -> _Outcome | None:
        """One step, in its transaction. A store may run it on another thread, and again."""
        is_pending = known is not None and known.rollout.state is RolloutState.PENDING
        if is_pending or any(each.takes_targets for each in inputs):
            transaction.lock_targets()
        copy = rollout_copies.lock(transaction, deployment_id, known)
        if copy is None:
            return None
        step = RolloutStep(transaction, copy, now=now, timeouts=self._timeouts)
        refusals: list[str | None] = []
        actions: list[str | None] = []
        for each in inputs:
            refusals.append(self._take_in(transaction, step, each))
            actions.append(_next_action(step, each) if each.instance_id else None)
            if each.entry is not None and refusals[-1] is None:
                transaction.record(each.entry)
        if is_pending and step.rollout.state is RolloutState.PENDING and not _blockers(transaction, step.rollout):
            step.apply(Started())
        step.pass_time(listening_since)
        return _Outcome(step.store(), refusals, actions)

    def _take_in(self, transaction: HubTransaction, step: RolloutStep, given: _Input) -> str | None:
        if given.instance_id and not _is_target(step, given):
            return None
        if given.takes_targets:
            busy = [each for each in _others(transaction, step.rollout) if not each.is_pending]
            if busy:
                return f"the deployment {busy[0].deployment_id} has the instance {busy[0].instance_id}"
        return step.apply(given.event)

    async def _finish(self, outcome: _Outcome, inputs: Sequence[_Input]) -> None:
        stored = outcome.stored
        self._take_over(stored)
        try:
            await self._registry.refresh_known(stored.instances)
        except Unavailable as error:
            self._log.warning("deployment.failed", deployment=stored.copy.id, error=error)
        for given, refusal, action in zip(inputs, outcome.refusals, outcome.next_actions, strict=True):
            given.settle(StepResult(copy=stored.copy, refusal=refusal, next_action=action))

    def _take_over(self, stored: Stored) -> None:
        before, after = stored.before, stored.copy.rollout
        self._copies.put(stored.copy)
        for instance_id, change in stored.instance_changes:
            self._observer.state_changed(instance_id, change)
        if (before.state, before.rollback) != (after.state, after.rollback):
            self._observer.deployment_changed(stored.copy.id, after.state, after.rollback, after.reason)
        if before.finished is None and after.finished is not None:
            started = after.started or after.created
            self._observer.deployment_ended(after.strategy, after.state, after.finished - started)
        self._start_pending(before, after)

    def _start_pending(self, before: Rollout | None, after: Rollout) -> None:
        if rollout_copies.releases(before, after):
            for deployment_id in self._copies.pending:
                self._queue.add(deployment_id)

    async def _analyse_and_wait(self, stored: Stored) -> RunResult:
        rollout = stored.copy.rollout
        for command in stored.analyses:
            try:
                verdict = await self._metrics.judge(rollout, command)
            except Unavailable as error:
                # The deployment asks again after the next interval.
                self._log.warning("analysis.failed", deployment=rollout.id, error=error)
                continue
            self._observer.canaries_judged(rollout.id, verdict)
            self._queue.add(rollout.id, _Input(Analysed(command.until, verdict)))
        if rollout.state is RolloutState.PENDING:
            return Again(_LOOK_INTERVAL)
        deadline = rollout_queries.next_deadline(rollout, self._listening_since)
        if deadline is None:
            return Completed()
        return Again(max(deadline - self._clock.now(), _MIN_DELAY))


def _is_target(step: RolloutStep, given: _Input) -> bool:
    """Whether the report comes from a target of the deployment, and from its present incarnation."""
    row = step.rollout.rows.get(given.instance_id)
    if row is None or row.incarnation != given.incarnation:
        return False
    return step.incarnation(given.instance_id) == given.incarnation


def _next_action(step: RolloutStep, given: _Input) -> str | None:
    row = step.rollout.rows.get(given.instance_id)
    if row is None or row.incarnation != given.incarnation:
        return None
    return rollout_queries.next_action(step.rollout, given.instance_id)


def _others(transaction: HubTransaction, rollout: Rollout) -> Sequence[Holding]:
    found = transaction.holdings([*rollout.rows])
    return [each for each in found if each.deployment_id != rollout.id]


def _blockers(transaction: HubTransaction, rollout: Rollout) -> Sequence[Holding]:
    """Return what keeps a deployment waiting: others that have its targets, or have waited for them longer."""
    others = _others(transaction, rollout)
    return [each for each in others if not each.is_pending or each.deployment_id < rollout.id]
