"""A pulse wired for tests: every collaborator can be replaced, and all reports are recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Required, TypedDict, Unpack

import msgspec

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import Composer, MessageData
from sentinel.core.pulse.pacing import Pacer
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FleetPage, FleetReader
from sentinel.ports.fleet_stream import FleetStream
from sentinel.ports.publisher import Publisher, PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, PulseObserver, StreamReport
from sentinel.pulse.service import Pulse
from sentinel.runtime.tracing import NO_TRACING, Tracer
from sentinel.testing.fleet import FakeFleet

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class PulseRecorder:
    """A `PulseObserver` that records all reports."""

    needs_every_decision = False

    def __init__(self) -> None:
        self.pages: list[PageReport] = []
        self.batches: list[PublishedBatch] = []
        self.cycles: list[CycleReport] = []
        self.streamed_reports: list[StreamReport] = []
        self.crashes: list[BaseException] = []

    def decided(self, page: PageReport) -> None:
        self.pages.append(msgspec.structs.replace(page, resources=()))

    def published(self, batch: PublishedBatch) -> None:
        self.batches.append(batch)

    def finished(self, report: CycleReport) -> None:
        self.cycles.append(report)

    def streamed(self, report: StreamReport) -> None:
        self.streamed_reports.append(report)

    def crashed(self, error: BaseException) -> None:
        self.crashes.append(error)

    @property
    def confirmed(self) -> list[str]:
        """The ids of the resources of all confirmed events, in order."""
        return [
            pending.paced.resource.id
            for batch in self.batches
            for pending, outcome in zip(batch.pending, batch.outcomes, strict=True)
            if outcome is PublishOutcome.CONFIRMED
        ]


class PageCountingFleet(FakeFleet):
    """A fake fleet that counts the pages it served."""

    pages = 0

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        async for page in super().walk():
            self.pages += 1
            yield page


class PulseOptions(TypedDict, total=False):
    """Arguments of `Pulse` that `make_pulse` passes on."""

    fleet: Required[FleetReader]
    publisher: Required[Publisher]
    clock: Required[Clock]
    observer: Required[PulseObserver]
    stream: FleetStream | None
    max_events_per_second: float | None
    may_publish: Callable[[], bool]


def make_pulse(
    *,
    poll_interval: timedelta = 5 * SECOND,
    max_age_not_ready: timedelta = 10 * SECOND,
    max_age_ready: timedelta = 30 * MINUTE,
    republish_interval: timedelta | None = None,
    follows_progress: bool = False,
    message_data: MessageData | None = None,
    publish_deadline: timedelta = 5 * SECOND,
    pacer: Pacer | None = None,
    tracer: Tracer = NO_TRACING,
    **options: Unpack[PulseOptions],
) -> Pulse:
    """A pulse over clusters with the specification's defaults."""
    return Pulse(
        resource_type="clusters",
        poll_interval=poll_interval,
        policy=Policy(max_age_not_ready, max_age_ready, follows_progress=follows_progress),
        pacer=Pacer(republish_interval=republish_interval) if pacer is None else pacer,
        composer=Composer(message_data or {"resource_id": ".id", "resource_type": ".kind"}),
        publish_deadline=publish_deadline,
        tracer=tracer,
        jitter=lambda: 0.5,
        **options,
    )
