"""Faults that are planted to see whether the simulation finds them: each a part that breaks one promise.

None of them is made by changing our code. A setting, a wrapped port, a store that alters what it is given: each is
what a mistake in the part behind it would look like from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TypeAlias, TypeVar

import msgspec

from sentinel.core import fleet
from sentinel.core.fleet import AVAILABLE, Condition, ConditionStatus, ResourceStatus
from sentinel.ports.fleet_store import FleetTransaction, Stored
from sentinel.ports.subscription import Delivery, Subscriber
from sentinel.testing.fleet_store import Faults, MemoryFleetStore, Watcher
from tests.sim.world import Plan

T = TypeVar("T")
Alteration: TypeAlias = Callable[[Stored], Stored]

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


class _Altering(MemoryFleetStore):
    """A store that keeps something else than it is given."""

    def __init__(self, faults: Faults, watcher: Watcher, alter: Alteration) -> None:
        super().__init__(faults=faults, watcher=watcher)
        self._alter = alter

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        return await super().transact(lambda transaction: work(_Altered(transaction, self._alter)))


class _Altered:
    """`ports.fleet_store.FleetTransaction`."""

    def __init__(self, transaction: FleetTransaction, alter: Alteration) -> None:
        self._transaction = transaction
        self._alter = alter
        self.lock, self.children = transaction.lock, transaction.children
        self.count_children, self.insert = transaction.count_children, transaction.insert
        self.remove, self.keep_discarded = transaction.remove, transaction.keep_discarded
        self.keep_generation, self.record = transaction.keep_generation, transaction.record
        self.recall, self.remember = transaction.recall, transaction.remember

    def update(self, resource: Stored) -> None:
        self._transaction.update(self._alter(resource))


def _altering(alter: Alteration) -> Plan:
    return Plan(make_store=lambda faults, watcher: _Altering(faults, watcher, alter))


def _with_available(stored: Stored, change: Callable[[Condition, ResourceStatus], Condition]) -> Stored:
    document = fleet.decode_document(stored.document)
    status = document.status
    conditions = tuple(change(each, status) if each.type == AVAILABLE else each for each in status.conditions)
    altered = msgspec.structs.replace(document, status=msgspec.structs.replace(status, conditions=conditions))
    return msgspec.structs.replace(stored, document=fleet.encode_document(altered))


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


def _forget_a_report(stored: Stored) -> Stored:
    statuses = fleet.decode_statuses(stored.statuses)
    return msgspec.structs.replace(stored, statuses=fleet.encode_statuses(statuses[:3]))


def _count_wrong(stored: Stored) -> Stored:
    document = fleet.decode_document(stored.document)
    if document.generation != 3:
        return stored
    altered = msgspec.structs.replace(document, generation=2)
    return msgspec.structs.replace(stored, document=fleet.encode_document(altered))


DEAF = Plan(around_subscriber=_Deaf)
ACKNOWLEDGED_TOO_EARLY = Plan(around_subscriber=_Hasty)
WITHOUT_STICKINESS = _altering(lambda stored: _with_available(stored, _unstick))
"""`Available` falls as soon as one adapter has reported a newer generation."""
WITH_RESTLESS_TRANSITIONS = _altering(lambda stored: _with_available(stored, _stir))
"""A transition time that moves with every report."""
WITH_LOST_REPORTS = _altering(_forget_a_report)
WITH_FALLING_GENERATIONS = _altering(_count_wrong)
