"""Checks the settlement of messages by one adapter process, and its calls of the API.

A message may be acked only for a reason: the API has answered a report on its resource, and the resource was read
for that report after the message had arrived; or the API has said that the resource is gone; or the adapter's last
report is recent enough; or the adapter does not handle the resource's kind. A report that the adapter was
interrupted does not count. No message is lost, and no valid message is dead-lettered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta

from sentinel.adapter import Adapter
from sentinel.core.adapter.event_target import ResourceRef, kind_of
from sentinel.core.adapter.resource import INTERRUPTED, Resource
from sentinel.core.fleet.documents import AVAILABLE, Report, ReportedCondition
from sentinel.ports.adapter_api import AdapterApi, ReportOutcome, ReportResult
from sentinel.ports.subscription import Delivery, Message, Subscriber
from tests.sim.process import SimulatedProcess

POISON = "poison"
"""Marks the subject of a message that names no resource."""


class MessageLog:
    """All messages that the broker has accepted, and which subscriptions have settled them."""

    def __init__(self) -> None:
        self.interruptions = 0
        """How many answered reports said that the adapter was interrupted."""
        self._published: dict[str, None] = {}
        self._settled: dict[str, set[str]] = defaultdict(set)

    def published(self, message_id: str) -> None:
        self._published[message_id] = None

    def settled(self, subscription: str, message: Message) -> None:
        self._settled[subscription].add(message.attributes["id"])

    def lost(self, subscription: str) -> list[str]:
        """Messages that a subscription has never settled."""
        return [each for each in self._published if each not in self._settled[subscription]]


class MessageChecker:
    """Tracks which messages one adapter process may ack."""

    def __init__(
        self, process: SimulatedProcess, *, messages: MessageLog, adapter: Adapter, report_max_age: timedelta
    ) -> None:
        self._process = process
        self._messages = messages
        self._adapter = adapter
        self._report_max_age = report_max_age
        self._read: dict[str, int] = {}
        """The step of the last read of each resource."""
        self._reported: dict[str, int] = {}
        """The step of the read for the last report. Messages that arrived before it may be acked."""

    def subscriber(self, subscriber: Subscriber) -> Subscriber:
        return _CheckedSubscriber(subscriber, self)

    def reporting(self, reporting: AdapterApi) -> AdapterApi:
        return _CheckedReporting(reporting, self)

    def step(self) -> int:
        """See `Trace.step`."""
        return self._process.trace.step()

    def resource_read(self, resource_id: str, step: int, resource: Resource | None) -> None:
        """The API has returned the resource, or that it does not exist."""
        self._read[resource_id] = step
        if resource is None or self._is_fresh(resource):
            self._reported[resource_id] = step

    def report_answered(self, resource_id: str, report: Report, result: ReportResult) -> None:
        """The API has accepted or discarded a report."""
        self._process.trace.note(
            self._process.name,
            f"report {resource_id}@{report.observed_generation} {result.outcome}",
            *_conditions(report),
        )
        if _is_interrupted(report.conditions):
            self._messages.interruptions += 1
        else:
            self._reported[resource_id] = self._read[resource_id]

    def acked(self, message: Message, step: int) -> None:
        resource_id = message.attributes.get("subject", "")
        self._process.trace.note(self._process.name, f"ack {resource_id}")
        self._messages.settled(self._adapter.name, message)
        is_foreign = not self._adapter.may_handle(kind_of(message.attributes.get("type", "")))
        self._process.trace.require(
            is_foreign or self._reported.get(resource_id, -1) > step,
            f"{self._process.name}: a message about {resource_id} is acked before its report was answered",
        )

    def dead_lettered(self, message: Message, reason: str) -> None:
        self._process.trace.note(self._process.name, "dead letter", reason)
        self._messages.settled(self._adapter.name, message)
        self._process.trace.require(
            POISON in message.attributes.get("subject", ""),
            f"{self._process.name}: a valid message is dead-lettered:",
            reason,
        )

    def _is_fresh(self, resource: Resource) -> bool:
        """Whether another evaluation is unnecessary: the last report is recent, about this generation and not
        interrupted, and neither a request nor progress came after it."""
        report = resource.newest_of(self._adapter.name)
        if report is None or report.last_report_time is None:
            return False
        reported = report.last_report_time
        triggers = (resource.pulse_requested_time, resource.last_progress_time)
        return (
            report.observed_generation == resource.generation
            and not _is_interrupted(report.conditions)
            and all(each is None or each < reported for each in triggers)
            and timedelta(0) <= self._process.clock.now() - reported < self._report_max_age
        )


class WrappedSubscriber:
    """A `Subscriber` whose deliveries a subclass changes."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self.broker_type = subscriber.broker_type
        self.open, self.unavailable_reason, self.close = (
            subscriber.open,
            subscriber.unavailable_reason,
            subscriber.close,
        )


class _CheckedSubscriber(WrappedSubscriber):
    """Checks every settlement before it takes effect."""

    def __init__(self, subscriber: Subscriber, checker: MessageChecker) -> None:
        super().__init__(subscriber)
        self._checker = checker

    async def deliveries(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscriber.deliveries():
            yield _CheckedDelivery(delivery, self._checker)


class _CheckedDelivery:
    def __init__(self, delivery: Delivery, checker: MessageChecker) -> None:
        self._delivery = delivery
        self._checker = checker
        self._step = checker.step()
        self.message = delivery.message
        self.attempts = delivery.attempts
        self.received_time: datetime = delivery.received_time
        self.published_time = delivery.published_time

    async def ack(self) -> None:
        self._checker.acked(self.message, self._step)
        await self._delivery.ack()

    async def nack(self) -> None:
        await self._delivery.nack()

    async def dead_letter(self, reason: str) -> None:
        self._checker.dead_lettered(self.message, reason)
        await self._delivery.dead_letter(reason)


class _CheckedReporting:
    """An `AdapterApi` that records every result."""

    def __init__(self, reporting: AdapterApi, checker: MessageChecker) -> None:
        self._reporting = reporting
        self._checker = checker
        self.probe, self.close = reporting.probe, reporting.close

    async def get(self, ref: ResourceRef) -> Resource | None:
        step = self._checker.step()
        resource = await self._reporting.get(ref)
        self._checker.resource_read(ref.id, step, resource)
        return resource

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        result = await self._reporting.report(resource, report)
        if result.outcome is not ReportOutcome.REFUSED:
            self._checker.report_answered(resource.id, report, result)
        return result


def _is_interrupted(conditions: Iterable[ReportedCondition]) -> bool:
    return any(each.type == AVAILABLE and each.reason == INTERRUPTED for each in conditions)


def _conditions(report: Report) -> list[str]:
    return [f"{each.type}={each.status}" for each in report.conditions]
