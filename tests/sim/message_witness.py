"""Stands between a broker and one life of an adapter, and between that adapter and the API.

What it claims: a message is acknowledged only for a reason. Either the API has answered a report on its resource,
and the resource was read for that report after the message had come; or the API has said that the resource is
gone; or our last report on it is fresh, where that is good enough; or it is about a kind that is none of this
adapter's business. That the adapter had to end before its work did is a report, and no answer. No message is lost,
and none that was good is given up.
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
from sentinel.ports.clock import Clock
from sentinel.ports.subscription import Delivery, Message, Subscriber
from tests.sim.trace import Trace

POISON = "poison"
"""What the subject of a message contains that leads to no resource."""


class Ledger:
    """Every message that a broker has taken, and who is done with it."""

    def __init__(self) -> None:
        self.interruptions = 0
        """How many reports were answered that said that an adapter had ended before its work did."""
        self._placed: dict[str, None] = {}
        self._settled: dict[str, set[str]] = defaultdict(set)

    def placed(self, message_id: str) -> None:
        self._placed[message_id] = None

    def settled(self, subscription: str, message: Message) -> None:
        self._settled[subscription].add(message.attributes["id"])

    def lost(self, subscription: str) -> list[str]:
        """What a subscription should have got, and was never done with."""
        return [each for each in self._placed if each not in self._settled[subscription]]


class MessageWitness:
    """What one life of an adapter may acknowledge by now."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        ledger: Ledger,
        adapter: Adapter,
        clock: Clock,
        report_max_age: timedelta,
    ) -> None:
        self._name = name
        self._trace = trace
        self._ledger = ledger
        self._adapter = adapter
        self._clock = clock
        self._report_max_age = report_max_age
        self._read: dict[str, int] = {}
        """The step at which a resource was last asked for."""
        self._settled: dict[str, int] = {}
        """The step of the read from which on messages about a resource are answered."""

    def subscriber(self, subscriber: Subscriber) -> Subscriber:
        return _Watched(subscriber, self)

    def reporting(self, reporting: AdapterApi) -> AdapterApi:
        return _Reporting(reporting, self)

    def step(self) -> int:
        """Says when: before whatever gets a greater number."""
        return self._trace.step()

    def answered(self, resource_id: str, step: int, resource: Resource | None) -> None:
        """The API has shown the resource, or said that there is none."""
        self._read[resource_id] = step
        if resource is None or self._is_fresh(resource):
            self._settled[resource_id] = step

    def reported(self, resource_id: str, report: Report, answer: ReportResult) -> None:
        """The API has accepted a report or has deliberately discarded it."""
        self._trace.note(
            self._name, f"report {resource_id}@{report.observed_generation} {answer.outcome}", *_said(report)
        )
        if _is_interrupted(report.conditions):
            self._ledger.interruptions += 1
        else:
            self._settled[resource_id] = self._read[resource_id]

    def acknowledges(self, message: Message, step: int) -> None:
        resource_id = message.attributes.get("subject", "")
        self._trace.note(self._name, f"ack {resource_id}")
        self._ledger.settled(self._adapter.name, message)
        is_foreign = not self._adapter.may_handle(kind_of(message.attributes.get("type", "")))
        self._trace.require(
            is_foreign or self._settled.get(resource_id, -1) > step,
            f"{self._name}: a message about {resource_id} is acknowledged before its report was answered",
        )

    def gives_up(self, message: Message, reason: str) -> None:
        self._trace.note(self._name, "dead letter", reason)
        self._ledger.settled(self._adapter.name, message)
        self._trace.require(
            POISON in message.attributes.get("subject", ""), f"{self._name}: a good message is given up:", reason
        )

    def _is_fresh(self, resource: Resource) -> bool:
        """Whether another look would show nothing new: the last is young enough, was at this generation and to its
        end, and nobody has asked for one since, nor has an adapter made progress."""
        report = resource.report_of(self._adapter.name)
        if report is None or report.last_report_time is None:
            return False
        reported = report.last_report_time
        news = (resource.pulse_requested_time, resource.last_progress_time)
        return (
            report.observed_generation == resource.generation
            and not _is_interrupted(report.conditions)
            and all(each is None or each < reported for each in news)
            and timedelta(0) <= self._clock.now() - reported < self._report_max_age
        )


class _Watched:
    """`ports.subscription.Subscriber`, with every settlement noted before it takes effect."""

    def __init__(self, subscriber: Subscriber, witness: MessageWitness) -> None:
        self._subscriber = subscriber
        self._witness = witness
        self.broker_type = subscriber.broker_type
        self.open, self.trouble, self.close = subscriber.open, subscriber.trouble, subscriber.close

    async def deliveries(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscriber.deliveries():
            yield _Delivery(delivery, self._witness)


class _Delivery:
    """`ports.subscription.Delivery`."""

    def __init__(self, delivery: Delivery, witness: MessageWitness) -> None:
        self._delivery = delivery
        self._witness = witness
        self._step = witness.step()
        self.message = delivery.message
        self.attempts = delivery.attempts
        self.received_time: datetime = delivery.received_time
        self.published_time = delivery.published_time

    async def ack(self) -> None:
        self._witness.acknowledges(self.message, self._step)
        await self._delivery.ack()

    async def nack(self) -> None:
        await self._delivery.nack()

    async def dead_letter(self, reason: str) -> None:
        self._witness.gives_up(self.message, reason)
        await self._delivery.dead_letter(reason)


class _Reporting:
    """`ports.adapter_api.AdapterApi`, with every answer noted."""

    def __init__(self, reporting: AdapterApi, witness: MessageWitness) -> None:
        self._reporting = reporting
        self._witness = witness
        self.probe, self.close = reporting.probe, reporting.close

    async def get(self, ref: ResourceRef) -> Resource | None:
        step = self._witness.step()
        resource = await self._reporting.get(ref)
        self._witness.answered(ref.id, step, resource)
        return resource

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        answer = await self._reporting.report(resource, report)
        if answer.outcome is not ReportOutcome.REFUSED:
            self._witness.reported(resource.id, report, answer)
        return answer


def _is_interrupted(conditions: Iterable[ReportedCondition]) -> bool:
    return any(each.type == AVAILABLE and each.reason == INTERRUPTED for each in conditions)


def _said(report: Report) -> list[str]:
    return [f"{each.type}={each.status}" for each in report.conditions]
