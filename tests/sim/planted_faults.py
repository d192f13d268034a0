"""Planted faults: each breaks one promise, to show that the simulation finds it.

None of them changes our code. Each is a setting, a wrapped port, a pacer that forgets, or a store that alters what
it stores, and looks from outside like a bug in the component behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import INTERRUPTED, KnownReport, Resource
from sentinel.core.fleet import documents
from sentinel.core.fleet.documents import (
    AVAILABLE,
    Condition,
    ConditionStatus,
    DiscardedReport,
    DiscardReason,
    ResourceStatus,
)
from sentinel.core.pulse.decision import Decision, Policy, Reason, decide
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict
from sentinel.core.pulse.streamed import StreamedEvents
from sentinel.ports.adapter_api import AdapterApi
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from sentinel.ports.subscription import Delivery
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_store import CommitListener, MemoryFleetStore
from tests.sim.message_checker import WrappedSubscriber
from tests.sim.world import PlantedFault

T = TypeVar("T")
Alteration: TypeAlias = Callable[[StoredResource], StoredResource | None]
"""What a store stores instead; None to lose the write."""

WITHOUT_PACING = PlantedFault(republish_interval=timedelta(0))
WITHOUT_REPUBLISHING = PlantedFault(republish_interval=timedelta(hours=1))


class _ForgetsStreamed(Pacer):
    """Does not remember what was published because of the stream."""

    def record_streamed(self, resource: Observation, decision: Decision, now: datetime) -> None: ...


class _ForgetsWhenPolled(StreamedEvents):
    def polled(self, key: int, resource: Observation) -> int | None:
        super().polled(key, resource)
        return None


class _RepeatsStreamed(Pacer):
    """Publishes in a poll what the stream has published."""

    def follow_stream(self, *, follows_progress: bool) -> None:
        self._streamed = _ForgetsWhenPolled()
        self._streamed.restart(follows_progress=follows_progress)


class _NeverEndsStreamed(Pacer):
    """Believes forever that a change is being published which was not."""

    def end_streamed(self, resource: Observation) -> None: ...


class _BelievesTheStream(Pacer):
    """Publishes whatever the stream brings, also what polls have seen."""

    def decide_streamed(self, resource: Observation, policy: Policy, now: datetime) -> PacedDecision | None:
        paced = super().decide_streamed(resource, policy, now)
        if paced is not None:
            return paced
        decision = decide(resource, policy, now)
        has_changed = decision.reason is Reason.GENERATION_CHANGED
        return PacedDecision(resource, decision, PacingVerdict.PUBLISH) if has_changed else None


FORGOTTEN_STREAMED = PlantedFault(make_pacer=lambda interval: _ForgetsStreamed(republish_interval=interval))
REPEATED_STREAMED = PlantedFault(make_pacer=lambda interval: _RepeatsStreamed(republish_interval=interval))
ENDLESS_STREAMED = PlantedFault(make_pacer=lambda interval: _NeverEndsStreamed(republish_interval=interval))
BELIEVED_STREAM = PlantedFault(make_pacer=lambda interval: _BelievesTheStream(republish_interval=interval))


class AcksTooEarly(WrappedSubscriber):
    """A subscriber that acks messages on delivery instead of after their report."""

    async def deliveries(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscriber.deliveries():
            await delivery.ack()
            yield delivery


class _IgnoresEvents(WrappedSubscriber):
    """A subscriber that stops after two messages."""

    async def deliveries(self) -> AsyncIterator[Delivery]:
        left = 2
        async for delivery in self._subscriber.deliveries():
            if left == 0:
                await asyncio.sleep(timedelta(hours=1).total_seconds())
            left -= 1
            yield delivery


class _AlteredReporting:
    """An `AdapterApi` that alters the resources that an adapter reads."""

    def __init__(self, reporting: AdapterApi, alter: Callable[[Resource], Resource]) -> None:
        self._reporting = reporting
        self._alter = alter
        self.probe, self.report, self.close = reporting.probe, reporting.report, reporting.close

    async def get(self, ref: ResourceRef) -> Resource | None:
        resource = await self._reporting.get(ref)
        return None if resource is None else self._alter(resource)


class _RaisingStore(MemoryFleetStore):
    """A store whose every other `outdated` raises an error that no store may raise."""

    def __init__(self, database: MemoryDatabase, on_commit: CommitListener) -> None:
        super().__init__(database, on_commit=on_commit)
        self._raises = False

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        self._raises = not self._raises
        if self._raises:
            raise LookupError("planted")
        return await super().outdated(plural, adapters, limit=limit)


class _WrappingStore(MemoryFleetStore):
    """A store with wrapped transactions."""

    def __init__(
        self,
        database: MemoryDatabase,
        on_commit: CommitListener,
        wrap: Callable[[FleetTransaction], FleetTransaction],
    ) -> None:
        super().__init__(database, on_commit=on_commit)
        self._wrap = wrap

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        return await super().transact(lambda transaction: work(self._wrap(transaction)))


class _AlteredTransaction:
    """A `FleetTransaction` that alters what it stores."""

    def __init__(self, transaction: FleetTransaction, alter: Alteration) -> None:
        self._transaction = transaction
        self._alter = alter
        self.lock, self.children = transaction.lock, transaction.children
        self.count_children, self.insert = transaction.count_children, transaction.insert
        self.remove, self.record_discarded = transaction.remove, transaction.record_discarded
        self.record_generation, self.record = transaction.record_generation, transaction.record
        self.recall, self.remember = transaction.recall, transaction.remember

    def update(self, resource: StoredResource) -> None:
        altered = self._alter(resource)
        if altered is not None:
            self._transaction.update(altered)


class _RaisesOnLateReports(_AlteredTransaction):
    """Raises on late reports, which are mostly those without a waiting client."""

    def __init__(self, transaction: FleetTransaction) -> None:
        super().__init__(transaction, lambda stored: stored)
        self.record_discarded = self._raise_if_late

    def _raise_if_late(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        if report.reason is DiscardReason.STALE_TIME:
            raise LookupError("planted")


def _wrap_transactions(wrap: Callable[[FleetTransaction], FleetTransaction]) -> PlantedFault:
    return PlantedFault(make_store=lambda database, on_commit: _WrappingStore(database, on_commit, wrap))


def _alter_writes(alter: Alteration) -> PlantedFault:
    return _wrap_transactions(lambda transaction: _AlteredTransaction(transaction, alter))


def _alter_reads(alter: Callable[[Resource], Resource]) -> PlantedFault:
    return PlantedFault(wrap_reporting=lambda reporting: _AlteredReporting(reporting, alter))


def _without_interruptions(resource: Resource) -> Resource:
    return msgspec.structs.replace(resource, reports=tuple(map(_without_interruption, resource.reports)))


def _without_interruption(report: KnownReport) -> KnownReport:
    conditions = tuple(
        msgspec.structs.replace(each, reason="") if each.reason == INTERRUPTED else each
        for each in report.conditions
    )
    work = report.in_progress
    if work is not None and work.reason == INTERRUPTED:
        work = msgspec.structs.replace(work, reason="")
    return msgspec.structs.replace(report, conditions=conditions, in_progress=work)


def _with_available(
    stored: StoredResource, change: Callable[[Condition, ResourceStatus], Condition]
) -> StoredResource:
    document = documents.decode_document(stored.document)
    status = document.status
    conditions = tuple(change(each, status) if each.type == AVAILABLE else each for each in status.conditions)
    altered = msgspec.structs.replace(document, status=msgspec.structs.replace(status, conditions=conditions))
    return msgspec.structs.replace(stored, document=documents.encode_document(altered))


def _make_false(available: Condition, status: ResourceStatus) -> Condition:
    mirrored = [each for each in status.conditions if each.type.endswith("Successful")]
    newest = max((each.observed_generation for each in mirrored), default=0)
    if not available.is_true or newest <= available.observed_generation:
        return available
    updated = max(each.last_updated_time for each in mirrored)
    return msgspec.structs.replace(
        available,
        status=ConditionStatus.FALSE,
        observed_generation=newest,
        last_updated_time=updated,
        last_transition_time=updated,
    )


def _change_transition_time(available: Condition, status: ResourceStatus) -> Condition:
    return msgspec.structs.replace(available, last_transition_time=available.last_updated_time)


def _lose_write(stored: StoredResource) -> StoredResource | None:
    """Lose the report that completes a cluster."""
    return None if len(documents.decode_statuses(stored.statuses)) > 3 else stored


def _remove_report(stored: StoredResource) -> StoredResource:
    """Remove the report of validation once provision is available."""
    statuses = {each.adapter: each for each in documents.decode_statuses(stored.statuses)}
    if "provision" in statuses and statuses["provision"].status_of(AVAILABLE) is ConditionStatus.TRUE:
        del statuses["validation"]
    return msgspec.structs.replace(stored, statuses=documents.encode_statuses(tuple(statuses.values())))


def _forget_work(stored: StoredResource) -> StoredResource | None:
    """Lose what is written when an adapter reports work in progress."""
    return None if b'"in_progress"' in stored.statuses else stored


def _lower_generation(stored: StoredResource) -> StoredResource:
    document = documents.decode_document(stored.document)
    if document.generation != 3:
        return stored
    altered = msgspec.structs.replace(document, generation=2)
    return msgspec.structs.replace(stored, document=documents.encode_document(altered))


IGNORED_EVENTS = PlantedFault(wrap_subscriber=_IgnoresEvents)
EARLY_ACKS = PlantedFault(wrap_subscriber=AcksTooEarly)
UNSTABLE_AVAILABLE = _alter_writes(lambda stored: _with_available(stored, _make_false))
"""`Available` becomes False as soon as one adapter has reported a newer generation."""
CHANGING_TRANSITION_TIMES = _alter_writes(lambda stored: _with_available(stored, _change_transition_time))
"""The transition time changes with every report."""
LOST_REPORTS = _alter_writes(_lose_write)
REMOVED_REPORTS = _alter_writes(_remove_report)
FORGOTTEN_WORK = _alter_writes(_forget_work)
FALLING_GENERATIONS = _alter_writes(_lower_generation)
RAISING_MAINTENANCE = PlantedFault(make_store=_RaisingStore)
RAISING_LATE_REPORTS = _wrap_transactions(_RaisesOnLateReports)
IGNORED_REQUESTS = _alter_reads(lambda resource: msgspec.structs.replace(resource, pulse_requested_time=None))
"""An adapter reuses its last report although a pulse was requested after it."""
IGNORED_PROGRESS = _alter_reads(lambda resource: msgspec.structs.replace(resource, last_progress_time=None))
IGNORED_INTERRUPTIONS = _alter_reads(_without_interruptions)
