"""An adapter at work on virtual time: the broker in memory, the API a verified fake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from sentinel.adapter import Adapter
from sentinel.adapter.api_gate import ApiOperation
from sentinel.adapter.observer import Evaluation, ReportDisposition, SkipReason
from sentinel.adapter.service import AdapterService
from sentinel.core.adapter.resource import Resource
from sentinel.core.events import Event, event_type
from sentinel.core.fleet.documents import DiscardReason
from sentinel.core.pulse.observation import Json
from sentinel.drivers.deliveries import RETRY
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.api_trouble import ApiUnavailable
from sentinel.ports.publisher import Outcome
from sentinel.ports.subscription import DeadLetter, Message, Subscriber
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.reporting import FakeReporting
from sentinel.testing.task_http import FakeHttp

T = TypeVar("T")

AMPLE = timedelta(seconds=30)
HOUR = timedelta(hours=1)
_RETRY = msgspec.structs.replace(RETRY, jitter=0)
"""Without chance: what happens on virtual time happens the same way every time."""


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs a scenario on virtual time."""
    return loop.run(scenario)


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.skips: list[tuple[SkipReason, str, int]] = []
        self.answers: list[ReportDisposition] = []
        self.letters: list[str] = []
        self.returns: list[str] = []
        self.troubles: list[tuple[ApiOperation, str]] = []
        self.recoveries: list[ApiOperation] = []
        self.crashes: list[BaseException] = []
        self.ages: list[timedelta] = []
        self.in_flight = 0
        self.most_in_flight = 0

    def taken(self, queue_age: timedelta) -> None:
        self.ages.append(queue_age)

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        self.skips.append((reason, resource_id, events))

    def began(self) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.in_flight -= 1
        self.evaluations.append(evaluation)

    def interrupted(self) -> None:
        self.in_flight -= 1

    def reported(self, resource: Resource, answer: ReportDisposition, detail: DiscardReason | str | None) -> None:
        self.answers.append(answer)

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self.letters.append(reason)

    def returned(self, reason: str, resource_id: str, events: int) -> None:
        self.returns.append(reason)

    def api_failed(self, operation: ApiOperation, trouble: ApiUnavailable) -> None:
        self.troubles.append((operation, str(trouble)))

    def api_recovered(self, operation: ApiOperation) -> None:
        self.recoveries.append(operation)

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self.crashes.append(error)


class Workplace:
    """Runs the adapter between `async with` and its end, where it is asked to stop."""

    def __init__(
        self,
        adapter: Adapter,
        *,
        concurrency: int = 10,
        task_timeout: timedelta = timedelta(seconds=30),
        report_max_age: timedelta = timedelta(0),
        max_in_flight: int = 40,
        redact: Callable[[str], str] = str,
        drain: timedelta = timedelta(seconds=20),
        last_work: timedelta = timedelta(seconds=15),
        succeeds: Workplace | None = None,
        around: Callable[[Subscriber], Subscriber] = lambda subscriber: subscriber,
    ) -> None:
        """With `succeeds`, it takes the place of another process, at the same broker and API. `around` may put
        something between the broker and the adapter."""
        self.clock = SimulatedClock()
        self.api: FakeReporting = FakeReporting(clock=self.clock) if succeeds is None else succeeds.api
        self.broker: MemoryBroker = (
            MemoryBroker(now=self.clock.now, retry=_RETRY) if succeeds is None else succeeds.broker
        )
        self.http = FakeHttp()
        self.seen = Recorder()
        self.stopping = Stopping()
        self._subscriber = around(self.broker.subscribe(adapter.name, max_in_flight=max_in_flight))
        self.service = AdapterService(
            adapter=adapter,
            subscriber=self._subscriber,
            reporting=self.api,
            http=self.http,
            clock=self.clock,
            observer=self.seen,
            log=get_logger("test"),
            last_work=last_work,
            concurrency=concurrency,
            task_timeout=task_timeout,
            report_max_age=report_max_age,
            redact=redact,
            jitter=lambda: 0.5,
        )
        self._name = adapter.name
        self._drain = drain
        self._running: asyncio.Task[None] | None = None
        self._published = 0

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.service.run(self.stopping))
        return self

    async def kill(self) -> None:
        """Ends it as a power cut would: nothing is finished, and nothing is said."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait({self._running})
        await self._subscriber.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stops it as the lifecycle does: asked first, cancelled when the time is over, closed in the end."""
        assert self._running is not None
        self.stopping.request()
        await asyncio.wait({self._running}, timeout=self._drain.total_seconds())
        if not self._running.done():
            self._running.cancel()
        await asyncio.wait({self._running})
        await self._subscriber.close()
        if not self._running.cancelled():
            self._running.result()

    async def pulse(
        self, resource_id: str = "c1", *, kind: str = "Cluster", data: Json = None, subject: str | None = None
    ) -> None:
        """An event as a pulse sends it."""
        self._published += 1
        said: Json = {"resource_id": resource_id, "resource_type": kind} if data is None else data
        event = Event(
            f"event-{self._published}",
            event_type(kind, "clusters"),
            resource_id if subject is None else subject,
            "2025-01-01T00:00:00Z",
            msgspec.Raw(msgspec.json.encode(said)),
        )
        publisher = self.broker.publisher()
        await publisher.open()
        receipt = await publisher.publish([event], deadline=AMPLE)
        assert receipt.outcomes == [Outcome.CONFIRMED]

    async def deliver(self, message: Message) -> None:
        """A message that is no event of ours."""
        assert await self.broker.publish_to(self._name, message)

    @property
    def backlog(self) -> int:
        """How many messages the broker still keeps."""
        return self.broker.backlog(self._name)

    async def dead_letters(self) -> list[DeadLetter]:
        return list(await self.broker.dead_letters(self._name).peek(limit=100))

    async def until(self, is_true: Callable[[], bool], *, within: timedelta = HOUR) -> None:
        """Lets time pass until something has happened."""
        by = self.clock.now() + within
        while not is_true():
            assert self.clock.now() < by, "it has not happened"
            await asyncio.sleep(0.01)

    async def until_settled(self) -> None:
        """Until the broker has nothing left."""
        await self.until(lambda: self.backlog == 0)

    async def after(self, duration: timedelta) -> None:
        """Lets so much time pass."""
        await asyncio.sleep(duration.total_seconds())
