"""Faults that are planted to see whether the simulation finds them: each a part that breaks one promise.

None of them is made by changing our code. A setting, a wrapped port, a store that alters what it is given: each is
what a mistake in the part behind it would look like from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
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
from sentinel.ports.adapter_api import AdapterApi
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from sentinel.ports.subscription import Delivery, Subscriber
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_store import CommitListener, MemoryFleetStore
from tests.sim.world import Plan

T = TypeVar("T")
Alteration: TypeAlias = Callable[[StoredResource], StoredResource | None]
"""What a store keeps in the place of what it is given; None where that is lost."""

WITHOUT_PACING = Plan(republish_interval=timedelta(0))
WITHOUT_REPETITION = Plan(republish_interval=timedelta(hours=1))
"""A pulse that says everything once."""


class _Hasty:
    """A subscriber that acknowledges messages when they come, and not when their report was accepted."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self.broker_type = subscriber.broker_type
        self.open, self.trouble, self.close = subscriber.open, subscriber.trouble, subscriber.close

    async def deliveries(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscriber.deliveries():
            await delivery.ack()
            yield delivery


class _Deaf:
    """A subscriber that hands out a few messages, and then no more."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self.broker_type = subscriber.broker_type
        self.open, self.trouble, self.close = subscriber.open, subscriber.trouble, subscriber.close

    async def deliveries(self) -> AsyncIterator[Delivery]:
        left = 2
        async for delivery in self._subscriber.deliveries():
            if left == 0:
                await asyncio.sleep(timedelta(hours=1).total_seconds())
            left -= 1
            yield delivery


class _Overlooking:
    """`ports.adapter_api.AdapterApi` that leaves out something of what an adapter reads."""

    def __init__(self, reporting: AdapterApi, leave_out: Callable[[Resource], Resource]) -> None:
        self._reporting = reporting
        self._leave_out = leave_out
        self.probe, self.report, self.close = reporting.probe, reporting.report, reporting.close

    async def get(self, ref: ResourceRef) -> Resource | None:
        resource = await self._reporting.get(ref)
        return None if resource is None else self._leave_out(resource)


class _Stumbling(MemoryFleetStore):
    """A store that cannot say every other time what is outdated, and in no way that a store may fail."""

    def __init__(self, database: MemoryDatabase, on_commit: CommitListener) -> None:
        super().__init__(database, on_commit=on_commit)
        self._stumbles = False

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        self._stumbles = not self._stumbles
        if self._stumbles:
            raise LookupError("planted")
        return await super().outdated(plural, adapters, limit=limit)


class _Wrapping(MemoryFleetStore):
    """A store with something around its transactions."""

    def __init__(
        self,
        database: MemoryDatabase,
        on_commit: CommitListener,
        around: Callable[[FleetTransaction], FleetTransaction],
    ) -> None:
        super().__init__(database, on_commit=on_commit)
        self._around = around

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        return await super().transact(lambda transaction: work(self._around(transaction)))


class _Altered:
    """`ports.fleet_store.FleetTransaction` that keeps something else than it is given."""

    def __init__(self, transaction: FleetTransaction, alter: Alteration) -> None:
        self._transaction = transaction
        self._alter = alter
        self.lock, self.children = transaction.lock, transaction.children
        self.count_children, self.insert = transaction.count_children, transaction.insert
        self.remove, self.keep_discarded = transaction.remove, transaction.keep_discarded
        self.keep_generation, self.record = transaction.keep_generation, transaction.record
        self.recall, self.remember = transaction.recall, transaction.remember

    def update(self, resource: StoredResource) -> None:
        kept = self._alter(resource)
        if kept is not None:
            self._transaction.update(kept)


class _Choking(_Altered):
    """Fails on reports that come too late. Those are above all such as nobody waits for any longer."""

    def __init__(self, transaction: FleetTransaction) -> None:
        super().__init__(transaction, lambda stored: stored)
        self.keep_discarded = self._choke

    def _choke(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        if report.reason is DiscardReason.STALE_TIME:
            raise LookupError("planted")


def _wrapping(around: Callable[[FleetTransaction], FleetTransaction]) -> Plan:
    return Plan(make_store=lambda database, on_commit: _Wrapping(database, on_commit, around))


def _altering(alter: Alteration) -> Plan:
    return _wrapping(lambda transaction: _Altered(transaction, alter))


def _overlooking(leave_out: Callable[[Resource], Resource]) -> Plan:
    return Plan(around_reporting=lambda reporting: _Overlooking(reporting, leave_out))


def _as_if_ended(resource: Resource) -> Resource:
    return msgspec.structs.replace(resource, reports=tuple(map(_without_interruption, resource.reports)))


def _without_interruption(report: KnownReport) -> KnownReport:
    conditions = tuple(
        msgspec.structs.replace(each, reason="") if each.reason == INTERRUPTED else each
        for each in report.conditions
    )
    return msgspec.structs.replace(report, conditions=conditions)


def _with_available(
    stored: StoredResource, change: Callable[[Condition, ResourceStatus], Condition]
) -> StoredResource:
    document = documents.decode_document(stored.document)
    status = document.status
    conditions = tuple(change(each, status) if each.type == AVAILABLE else each for each in status.conditions)
    altered = msgspec.structs.replace(document, status=msgspec.structs.replace(status, conditions=conditions))
    return msgspec.structs.replace(stored, document=documents.encode_document(altered))


def _unstick(available: Condition, status: ResourceStatus) -> Condition:
    mirrored = [each for each in status.conditions if each.type.endswith("Successful")]
    newest = max((each.observed_generation for each in mirrored), default=0)
    if not available.is_true or newest <= available.observed_generation:
        return available
    moment = max(each.last_updated_time for each in mirrored)
    return msgspec.structs.replace(
        available,
        status=ConditionStatus.FALSE,
        observed_generation=newest,
        last_updated_time=moment,
        last_transition_time=moment,
    )


def _stir(available: Condition, status: ResourceStatus) -> Condition:
    return msgspec.structs.replace(available, last_transition_time=available.last_updated_time)


def _lose_a_report(stored: StoredResource) -> StoredResource | None:
    """The one that would complete a cluster's."""
    return None if len(documents.decode_statuses(stored.statuses)) > 3 else stored


def _forget_a_report(stored: StoredResource) -> StoredResource:
    """The one of validation, which is long there when provision is done."""
    statuses = {each.adapter: each for each in documents.decode_statuses(stored.statuses)}
    if "provision" in statuses and statuses["provision"].status_of(AVAILABLE) is ConditionStatus.TRUE:
        del statuses["validation"]
    return msgspec.structs.replace(stored, statuses=documents.encode_statuses(tuple(statuses.values())))


def _count_wrong(stored: StoredResource) -> StoredResource:
    document = documents.decode_document(stored.document)
    if document.generation != 3:
        return stored
    altered = msgspec.structs.replace(document, generation=2)
    return msgspec.structs.replace(stored, document=documents.encode_document(altered))


DEAF = Plan(around_subscriber=_Deaf)
ACKNOWLEDGED_TOO_EARLY = Plan(around_subscriber=_Hasty)
WITHOUT_STICKINESS = _altering(lambda stored: _with_available(stored, _unstick))
"""`Available` falls as soon as one adapter has reported a newer generation."""
WITH_RESTLESS_TRANSITIONS = _altering(lambda stored: _with_available(stored, _stir))
"""A transition time that moves with every report."""
WITH_LOST_REPORTS = _altering(_lose_a_report)
WITH_FORGOTTEN_REPORTS = _altering(_forget_a_report)
WITH_FALLING_GENERATIONS = _altering(_count_wrong)
WITH_STUMBLING_UPKEEP = Plan(make_store=_Stumbling)
WITH_LATE_REPORTS_THAT_FAIL = _wrapping(_Choking)
OVERLOOKING_REQUESTS = _overlooking(lambda resource: msgspec.structs.replace(resource, pulse_requested_time=None))
"""An adapter for which its last report is fresh although somebody has asked for another look since."""
OVERLOOKING_PROGRESS = _overlooking(lambda resource: msgspec.structs.replace(resource, last_progress_time=None))
OVERLOOKING_INTERRUPTIONS = _overlooking(_as_if_ended)
