"""What a fleet costs to watch, measured on the fleet itself.

The pulse makes a few cycles over it with a publisher that sends nothing: the first takes the profile and pays for
what is paid once, connecting and importing; those after it are measured, in CPU time and in wall time. A page has
a price of its own and one for each of its resources. One fleet shows only their sum, so the latter is measured
apart, by judging documents that were fetched over again, and the rest is the former's.
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
from sentinel.core.pulse import listing
from sentinel.core.pulse.decision import Policy, Reason, decide
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.observation import Malformed
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FetchError, FleetPage, FleetReader
from sentinel.pulse.explain import NullPublisher
from sentinel.pulse.forecast.projection import Costs
from sentinel.pulse.forecast.simulation import FleetProfile
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch
from sentinel.pulse.service import Pulse
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING

_DEADLINE = timedelta(seconds=1)
_ENOUGH = 1.0
"""Seconds of measuring after which no further cycle is worth the requests it costs."""
_MOST_CYCLES = 10
_DOCUMENTS = 200
_REPEATED_FOR = 0.02
_MOST_REPEATS = 1000


class Calibration(msgspec.Struct, frozen=True):
    """What was found out about a fleet."""

    at: datetime

    profile: FleetProfile
    costs: Costs
    malformed: Sequence[str]
    """One text for each item that could not be read."""


class EmptyFleet(LookupError):
    """There is nothing to measure."""


async def calibrate(
    settings: PulseSettings,
    *,
    fleet: FleetReader,
    clock: Clock,
    progress: Callable[[int], None] = lambda fetched: None,
    cpu: Callable[[], float] = time.process_time,
    wall: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Measures; raises `FetchError` where the fleet cannot be read to its end, and `EmptyFleet`."""
    counted = _CountedFleet(fleet)
    surveyor = _Surveyor(progress)
    composer = Composer(settings.message_data)
    pulse = Pulse(
        resource_type=settings.resource_type,
        poll_interval=settings.poll_interval,
        policy=settings.policy,
        pacer=Pacer(),
        composer=composer,
        fleet=counted,
        publisher=NullPublisher(),
        publish_deadline=_DEADLINE,
        clock=clock,
        observer=surveyor,
        tracer=NO_TRACING,
    )
    await _cycle(pulse, clock)
    profile, documents, now = surveyor.profile, surveyor.documents, clock.now()
    if not documents:
        raise EmptyFleet(
            f"nothing to measure: no {settings.resource_type} (selector: {settings.shard}) that could be read"
        )

    counted.pages = cycles = fetched = 0
    cpu_began, wall_began = cpu(), wall()
    while not cycles or (cycles < _MOST_CYCLES and wall() - wall_began < _ENOUGH):
        fetched += (await _cycle(pulse, clock)).fetched
        cycles += 1
    cpu_per_page, wall_per_page = (cpu() - cpu_began) / counted.pages, (wall() - wall_began) / counted.pages
    peak_mebibytes = _peak_mebibytes()
    judging = _cost(lambda: _judge(documents, settings.policy, now), cpu) / len(documents)
    composing = _cost(lambda: _compose(documents, composer, now), cpu) / len(documents)
    costs = Costs(
        resources=len(profile),
        pages=-(-counted.pages // cycles),
        cpu_microseconds_per_page=max(0.0, cpu_per_page - fetched / counted.pages * judging) * 1e6,
        cpu_microseconds_per_resource=judging * 1e6,
        cpu_microseconds_per_event=composing * 1e6,
        milliseconds_per_page=wall_per_page * 1e3,
        bytes_per_resource=sum(map(len, documents)) / len(documents),
        peak_mebibytes=peak_mebibytes,
    )
    return Calibration(now, profile, costs, surveyor.malformed)


async def _cycle(pulse: Pulse, clock: Clock) -> CycleReport:
    report = await pulse.cycle(Stopping())
    if report.fetch_error:
        raise FetchError(report.fetch_error)
    return report


class _CountedFleet:
    """A fleet whose pages are counted."""

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


class _Surveyor:
    """An observer that takes the profile of the first cycle, and a few documents to measure with."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._fetched = 0
        self._is_done = False
        self.profile = FleetProfile()
        self.documents: list[bytes] = []
        self.malformed: list[str] = []

    def judged(self, page: PageReport) -> None:
        self._fetched += len(page.judgements)
        self._progress(self._fetched)
        if self._is_done:
            return
        self.malformed.extend(page.malformed)
        for judgement in page.judgements:
            if judgement.verdict is not PacingVerdict.REPEATED:
                self.profile.add(judgement.resource, page.at)
        for resource in page.resources[: _DOCUMENTS - len(self.documents)]:
            with suppress(Malformed):  # in a part that no decision reads; the cycle reports it if it is due
                resource.decode()
                self.documents.append(bytes(resource.document))

    def published(self, batch: PublishedBatch) -> None: ...

    def finished(self, report: CycleReport) -> None:
        self._is_done = True

    def crashed(self, error: BaseException) -> None: ...


def _judge(documents: Sequence[bytes], policy: Policy, now: datetime) -> None:
    """What a pulse does with every resource of a page."""
    pacer = Pacer()
    pacer.begin()
    page = listing.read(b"[%b]" % b",".join(documents))
    for fetched in page.resources:
        seen = fetched.observation
        decision = decide(seen, policy, now, pacer.first_seen(seen, now))
        pacer.consider(seen, decision, now)


def _compose(documents: Sequence[bytes], composer: Composer, now: datetime) -> None:
    """What a pulse does with every resource that is due, up to the broker."""
    time_text = events.timestamp(now)
    for document in documents:
        composed = composer.compose(msgspec.json.decode(document), Reason.EXPIRED_NOT_READY)
        identity = events.uuid7(now, bytes(10))
        events.structured(events.Event(identity, "", "", time_text, composed.data))


def _cost(work: Callable[[], None], cpu: Callable[[], float]) -> float:
    """CPU seconds for doing it once, from doing it often enough for the clock to notice."""
    work()
    began = cpu()
    used, times = 0.0, 0
    while used < _REPEATED_FOR and times < _MOST_REPEATS:
        work()
        times += 1
        used = cpu() - began
    return used / times


def _peak_mebibytes() -> float:
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
