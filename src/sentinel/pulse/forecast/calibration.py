"""Measures what it costs to watch a fleet.

The pulse runs a few cycles over the live fleet with a publisher that sends nothing. The first cycle records the
profile and pays the one-time costs of connecting and importing. The following cycles are measured, in CPU time of
the whole process and in wall time, with the same metrics as in a running pulse. A page has a fixed cost and a cost
per resource, and the walk shows only their sum. So the cost per resource is measured separately, by deciding again
on documents already fetched, and the rest is the fixed cost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from resource import RUSAGE_SELF, getrusage

import msgspec

from sentinel.core import events
from sentinel.core.ids import RANDOM_BYTES, uuid7s
from sentinel.core.json import Malformed
from sentinel.core.pulse import listing
from sentinel.core.pulse.decision import Policy, Reason
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.observation import MalformedItem
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from sentinel.core.times import timestamp
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FetchError, FleetPage, FleetReader
from sentinel.pulse.definition import PulseDefinition
from sentinel.pulse.explain import NullPublisher
from sentinel.pulse.forecast.estimate import Costs
from sentinel.pulse.forecast.simulation import FleetProfile
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, StreamReport
from sentinel.pulse.service import Pulse
from sentinel.pulse.telemetry import PulseTelemetry, unread_telemetry
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING

_DEADLINE = timedelta(seconds=1)
_MEASURING_SECONDS = 1.0
"""After this time, another cycle is not worth its requests."""
_MAX_CYCLES = 10
_MAX_DOCUMENTS = 200
_REPEAT_SECONDS = 0.02
_MAX_REPEATS = 1000


class Calibration(msgspec.Struct, frozen=True):
    """The measurements of a fleet."""

    at: datetime
    profile: FleetProfile
    costs: Costs
    malformed: Sequence[MalformedItem]
    """The items that could not be read."""


class EmptyFleet(LookupError):
    """The fleet has no readable resources to measure."""


async def calibrate(
    definition: PulseDefinition,
    *,
    fleet: FleetReader,
    clock: Clock,
    progress: Callable[[int], None] = lambda fetched: None,
    cpu: Callable[[], float] = time.process_time,
    wall: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measure a fleet. Raises `FetchError` if it cannot be read to its end, and `EmptyFleet`."""
    counted = _PageCounter(fleet)
    telemetry = unread_telemetry(shard=definition.shard, resource_type=definition.resource_type)
    recorder = _ProfileRecorder(progress, telemetry)
    composer, policy = definition.composer, definition.policy
    pulse = Pulse(
        resource_type=definition.resource_type,
        poll_interval=definition.poll_interval,
        policy=policy,
        pacer=Pacer(),
        composer=composer,
        fleet=counted,
        publisher=NullPublisher(),
        publish_deadline=_DEADLINE,
        clock=clock,
        observer=recorder,
        tracer=NO_TRACING,
    )
    await _cycle(pulse, clock)
    profile, documents, now = recorder.profile, recorder.documents, clock.now()
    if not documents:
        raise EmptyFleet(
            f"nothing to measure: no {definition.resource_type} (selector: {definition.shard}) that could be read"
        )

    counted.pages = cycles = fetched = 0
    cpu_start, wall_start = cpu(), wall()
    while not cycles or (cycles < _MAX_CYCLES and wall() - wall_start < _MEASURING_SECONDS):
        fetched += (await _cycle(pulse, clock)).fetched
        cycles += 1
    cpu_per_page, wall_per_page = (cpu() - cpu_start) / counted.pages, (wall() - wall_start) / counted.pages
    peak_mebibytes = _peak_mebibytes()
    is_plain = listing.decode_page(b"[%b]" % b",".join(documents)).is_plain
    deciding = _cost(lambda: _decide_all(documents, policy, now, is_plain=is_plain), cpu) / len(documents)
    composing = _cost(lambda: _compose(documents, composer, now), cpu) / len(documents)
    costs = Costs(
        resources=len(profile),
        pages=-(-counted.pages // cycles),
        cpu_microseconds_per_page=max(0.0, cpu_per_page - fetched / counted.pages * deciding) * 1e6,
        cpu_microseconds_per_resource=deciding * 1e6,
        cpu_microseconds_per_event=composing * 1e6,
        milliseconds_per_page=wall_per_page * 1e3,
        bytes_per_resource=sum(map(len, documents)) / len(documents),
        peak_mebibytes=peak_mebibytes,
    )
    return Calibration(now, profile, costs, recorder.malformed)


async def _cycle(pulse: Pulse, clock: Clock) -> CycleReport:
    report = await pulse.cycle(Stopping())
    if report.fetch_error:
        raise FetchError(report.fetch_error)
    return report


class _PageCounter:
    """A `FleetReader` that counts the pages of another."""

    def __init__(self, fleet: FleetReader) -> None:
        self._fleet = fleet
        self.pages = 0

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        async with aclosing(self._fleet.walk()) as pages:
            async for page in pages:
                self.pages += 1
                yield page

    async def close(self) -> None:
        await self._fleet.close()


class _ProfileRecorder:
    """A `PulseObserver` that records the profile of the first cycle, and a few documents to measure with.

    It passes everything to the telemetry, which is part of what a pulse costs.
    """

    needs_every_decision = True

    def __init__(self, progress: Callable[[int], None], telemetry: PulseTelemetry) -> None:
        self._progress = progress
        self._telemetry = telemetry
        self._fetched = 0
        self._is_done = False
        self.profile = FleetProfile()
        self.documents: list[bytes] = []
        self.malformed: list[MalformedItem] = []

    def decided(self, page: PageReport) -> None:
        self._telemetry.decided(page)
        self._fetched += len(page.paced_decisions)
        self._progress(self._fetched)
        if self._is_done:
            return
        self.malformed.extend(page.malformed)
        for paced in page.paced_decisions:
            if paced.verdict is not PacingVerdict.REPEATED:
                self.profile.add(paced.resource, page.at)
        for resource in page.resources[: _MAX_DOCUMENTS - len(self.documents)]:
            with suppress(Malformed):  # in a field that no decision reads; the cycle reports it if it is due
                resource.decode()
                self.documents.append(bytes(resource.document))

    def published(self, batch: PublishedBatch) -> None:
        self._telemetry.published(batch)

    def finished(self, report: CycleReport) -> None:
        self._telemetry.finished(report)
        self._is_done = True

    def streamed(self, report: StreamReport) -> None: ...

    def crashed(self, error: BaseException) -> None: ...


def _decide_all(documents: Sequence[bytes], policy: Policy, now: datetime, *, is_plain: bool) -> None:
    """Do what a pulse does for every resource of a page, if the page before was plain or not."""
    pacer = Pacer()
    pacer.begin_cycle()
    page = listing.decode_page(b"[%b]" % b",".join(documents), expects_plain=is_plain)
    for fetched in page.resources:
        pacer.decide(fetched.observation, policy, now)


def _compose(documents: Sequence[bytes], composer: Composer, now: datetime) -> None:
    """Do what a pulse does for every due resource, up to the broker."""
    time_text = timestamp(now)
    for document, identity in zip(documents, uuid7s(now, bytes(RANDOM_BYTES * len(documents))), strict=True):
        composed = composer.compose(composer.decode(msgspec.Raw(document)), Reason.EXPIRED_NOT_READY)
        events.structured(events.Event(identity, "", "", time_text, composed.data))


def _cost(work: Callable[[], None], cpu: Callable[[], float]) -> float:
    """The CPU seconds of one run, averaged over enough runs for the clock's resolution."""
    work()
    start = cpu()
    used, runs = 0.0, 0
    while used < _REPEAT_SECONDS and runs < _MAX_REPEATS:
        work()
        runs += 1
        used = cpu() - start
    return used / runs


def _peak_mebibytes() -> float:
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
