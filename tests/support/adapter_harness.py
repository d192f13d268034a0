"""An adapter service on virtual time, with the in-memory broker and the fake API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Self, TypedDict, Unpack

import msgspec

from sentinel.adapter import Adapter, Context, Done, Outcome, Resource
from sentinel.adapter.observer import ApiOperation, Evaluation, SkipReason
from sentinel.adapter.service import AdapterService
from sentinel.core.events import Event, event_type
from sentinel.core.json import Json
from sentinel.drivers.deliveries import RETRY
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.publisher import PublishOutcome
from sentinel.ports.subscription import DeadLetter, Message, Subscriber
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.tracing import Tracer
from sentinel.testing.adapter_api import FakeAdapterApi
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.task_http import FakeHttp

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
_RETRY = msgspec.structs.replace(RETRY, jitter=0)
"""Without jitter, so that a test runs the same way every time."""


class ScriptedTask:
    """A task that returns the given outcome, records its arguments, and can be blocked."""

    def __init__(self, outcome: Outcome | None = None, *, is_blocked: bool = False) -> None:
        self.adapter = Adapter("dns")
        self.adapter.task(kinds=["Cluster"])(self._run)
        self.resources: list[Resource] = []
        self.contexts: list[Context] = []
        self._outcome = outcome or Done()
        self._released = asyncio.Event()
        if not is_blocked:
            self.release()

    def block(self) -> None:
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    async def _run(self, resource: Resource, context: Context) -> Outcome:
        self.resources.append(resource)
        self.contexts.append(context)
        await self._released.wait()
        return self._outcome


class AdapterRecorder:
    """An observer that records what it is told."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.skips: list[tuple[SkipReason, str, int]] = []
        self.report_outcomes: list[ReportOutcome] = []
        self.dead_letter_reasons: list[str] = []
        self.nack_reasons: list[str] = []
        self.api_errors: list[tuple[ApiOperation, str]] = []
        self.recoveries: list[ApiOperation] = []
        self.crashes: list[BaseException] = []
        self.queue_ages: list[timedelta] = []
        self.in_flight = 0
        self.max_in_flight = 0

    def dequeued(self, queue_age: timedelta) -> None:
        self.queue_ages.append(queue_age)

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        self.skips.append((reason, resource_id, events))

    def started(self) -> None:
        self.in_flight += 1
        self.max_in_flight = max(self.in_flight, self.max_in_flight)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.in_flight -= 1
        self.evaluations.append(evaluation)

    def interrupted(self) -> None:
        self.in_flight -= 1

    def reported(self, resource: Resource, result: ReportResult) -> None:
        self.report_outcomes.append(result.outcome)

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self.dead_letter_reasons.append(reason)

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self.nack_reasons.append(reason)

    def api_failed(self, operation: ApiOperation, error: ApiUnavailable) -> None:
        self.api_errors.append((operation, str(error)))

    def api_recovered(self, operation: ApiOperation) -> None:
        self.recoveries.append(operation)

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self.crashes.append(error)


class ServiceOptions(TypedDict, total=False):
    """Arguments of `AdapterService` that the harness passes on."""

    concurrency: int
    task_timeout: timedelta
    report_max_age: timedelta
    redact: Callable[[str], str]
    tracer: Tracer


class AdapterHarness:
    """Runs the adapter inside `async with`, and stops it at the end."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        max_in_flight: int = 40,
        drain: timedelta = 20 * SECOND,
        grace_period: timedelta = 15 * SECOND,
        peer: AdapterHarness | None = None,
        around: Callable[[Subscriber], Subscriber] = lambda subscriber: subscriber,
        clock: Clock | None = None,
        **options: Unpack[ServiceOptions],
    ) -> None:
        """It shares the broker and the API of `peer`, as another process would. `around` may wrap the
        subscriber. `clock` replaces virtual time, for tasks in threads."""
        self.clock = SimulatedClock() if clock is None else clock
        self.api: FakeAdapterApi = FakeAdapterApi(clock=self.clock) if peer is None else peer.api
        self.broker: MemoryBroker = MemoryBroker(now=self.clock.now, retry=_RETRY) if peer is None else peer.broker
        self.http = FakeHttp()
        self.seen = AdapterRecorder()
        self.stopping = Stopping()
        self._subscriber = around(self.broker.subscribe(adapter.name, max_in_flight=max_in_flight))
        self.service = AdapterService(
            adapter=adapter,
            api=self.api,
            http=self.http,
            clock=self.clock,
            observer=self.seen,
            log=get_logger("test"),
            subscriber=self._subscriber,
            grace_period=grace_period,
            jitter=lambda: 0.5,
            **options,
        )
        self._name = adapter.name
        self._drain = drain
        self._running: asyncio.Task[None] | None = None
        self._published = 0

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.service.run(self.stopping))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def kill(self) -> None:
        """End it like a power cut: nothing is finished or reported."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait({self._running})
        await self._subscriber.close()

    async def stop(self) -> None:
        """Stop it like the lifecycle: request, cancel after the drain, close."""
        assert self._running is not None
        self.stopping.request()
        await asyncio.wait({self._running}, timeout=self._drain.total_seconds())
        if not self._running.done():
            self._running.cancel()
        await asyncio.wait({self._running})
        await self._subscriber.close()
        if not self._running.cancelled():
            self._running.result()

    async def put_and_pulse(self, *resource_ids: str) -> None:
        """Create these clusters and publish an event for each."""
        for resource_id in resource_ids:
            self.api.put(resource_id)
            await self.pulse(resource_id)

    async def pulse(
        self,
        resource_id: str = "c1",
        *,
        kind: str = "Cluster",
        data: Json = None,
        subject: str | None = None,
        traceparent: str = "",
    ) -> None:
        """Publish an event as a pulse does."""
        self._published += 1
        if data is None:
            data = {"resource_id": resource_id, "resource_type": kind}
        event = Event(
            f"event-{self._published}",
            event_type(kind, "clusters"),
            resource_id if subject is None else subject,
            "2025-01-01T00:00:00Z",
            msgspec.Raw(msgspec.json.encode(data)),
            traceparent,
        )
        publisher = self.broker.publisher()
        await publisher.open()
        receipt = await publisher.publish([event], deadline=30 * SECOND)
        assert receipt.outcomes == [PublishOutcome.CONFIRMED]

    async def deliver(self, message: Message) -> None:
        """Deliver a message that no pulse sent."""
        assert await self.broker.publish_to(self._name, message)

    @property
    def backlog(self) -> int:
        """How many messages the broker still has."""
        return self.broker.backlog(self._name)

    async def dead_letters(self) -> list[DeadLetter]:
        return list(await self.broker.dead_letters(self._name).peek(limit=100))

    async def until(self, is_true: Callable[[], bool], *, timeout: timedelta = HOUR) -> None:
        """Let virtual time pass until the condition is true."""
        deadline = self.clock.now() + timeout
        while not is_true():
            assert self.clock.now() < deadline, "timeout"
            await asyncio.sleep(0.01)

    async def until_settled(self) -> None:
        """Wait until every delivery is settled."""
        await self.until(lambda: self.backlog == 0)

    async def after(self, duration: timedelta) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(duration.total_seconds())
