"""A pulse does the same whether or not it decides again on pages that have not changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import cycle
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from sentinel.core.events import Event
from sentinel.core.labels import Selector, SelectorParam, equality
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.listing import PageShape
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.fleet_api.fleet_reader import HttpFleetReader
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.responses import RestResponse
from sentinel.ports.fleet import FleetPage, FleetReader
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.pulse.report import CycleReport, PulseObserver, PulseObservers
from sentinel.pulse.service import Pulse
from sentinel.pulse.telemetry import PulseMetrics, PulseTelemetry
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.tracing import NO_TRACING
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock, run, simulated
from tests.support.clocks import AdjustedClock
from tests.support.fleet.listed_fleet import Change, ListedFleet, changes
from tests.support.pulse_harness import PulseRecorder, make_pulse

SECOND = timedelta(seconds=1)


class Poll(msgspec.Struct, frozen=True):
    """One poll, and what happens before and during it."""

    wait: int
    """Seconds since the poll before."""
    clock_moves: int
    """By how many seconds the clock is set forward, or back."""
    before: Sequence[Change]
    during: Sequence[Change]
    """One before each request."""


class History(msgspec.Struct, frozen=True):
    """A fleet, a pulse over it, and what happens to them."""

    shape: PageShape
    has_conditions: bool
    size: int
    policy: Policy
    selector: Selector
    max_events_per_second: float | None
    outcomes: Sequence[PublishOutcome]
    polls: Sequence[Poll]


class Record(msgspec.Struct):
    """All that a pulse did."""

    requests: list[str] = []
    events: list[tuple[datetime, Event]] = []
    cycles: list[CycleReport] = []
    pacing: list[Mapping[str, object]] = []
    log: list[tuple[str, object]] = []
    metrics: dict[tuple[str, str], float] = {}


class FleetClient(RestClient):
    """A client of a fleet in memory, which changes before a request."""

    def __init__(self, fleet: ListedFleet, clock: AdjustedClock, requests: list[str]) -> None:
        super().__init__(base_url="http://fleet.test", user_agent="test")
        self.upcoming: list[Change] = []
        self._fleet = fleet
        self._clock = clock
        self._requests = requests

    async def request(self, method: str, path: str, **options: Any) -> RestResponse:
        self._requests.append(path)
        if self.upcoming:
            self._fleet.apply(self.upcoming.pop(0), self._clock.now())
        return RestResponse(200, self._fleet.respond(dict(parse_qsl(urlsplit(path).query))), {})


class ForgetfulReader:
    """A reader that knows nothing of the walk before."""

    def __init__(self, client: RestClient, selector: Selector) -> None:
        self._client = client
        self._selector = selector

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        async for page in make_reader(self._client, self._selector).walk():
            yield FleetPage(page.resources, page.malformed)

    async def close(self) -> None: ...


def make_reader(client: RestClient, selector: Selector) -> HttpFleetReader:
    return HttpFleetReader(
        client,
        resource_type="clusters",
        selector=selector,
        selector_param=SelectorParam.LABELS,
        page_size=2,
        timeout=SECOND,
        retry_for=SECOND,
        backoff=Backoff(initial=SECOND / 4, maximum=SECOND / 4),
        fields=("id",),
        jitter=lambda: 0.5,
    )


class Publisher:
    """Records events, and answers them with these outcomes in turn."""

    broker_type = "memory"

    def __init__(self, outcomes: Sequence[PublishOutcome], clock: SimulatedClock) -> None:
        self.events: list[tuple[datetime, Event]] = []
        self._outcomes = cycle(outcomes)
        self._clock = clock

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        self.events += [(self._clock.now(), event) for event in events]
        await asyncio.sleep(0.001)
        return Receipt([next(self._outcomes) for _ in events], [0.001] * len(events), "")

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None: ...


class CapturingHandler(logging.Handler):
    def __init__(self, lines: list[tuple[str, object]]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.msg, vars(record)["fields"]))


async def replay(history: History, *, knows_pages: bool) -> Record:
    """Run a pulse through the history."""
    clock, record = AdjustedClock(), Record()
    fleet = ListedFleet(
        shape=history.shape, has_conditions=history.has_conditions, size=history.size, now=clock.now()
    )
    client = FleetClient(fleet, clock, record.requests)
    reader: FleetReader = ForgetfulReader(client, history.selector)
    if knows_pages:
        reader = make_reader(client, history.selector)
    logger = logging.Logger("test", logging.INFO)  # noqa: LOG001  # no other test may see it
    logger.addHandler(CapturingHandler(record.log))
    log = Log(logger, {})
    registry = CollectorRegistry()
    series = PulseMetrics(registry).claim(shard="all", resource_type="clusters")
    telemetry = PulseTelemetry(series=series, log=log, broker_type="memory")
    recorder, pacer, publisher = PulseRecorder(), Pacer(), Publisher(history.outcomes, clock)
    pulse = Pulse(
        resource_type="clusters",
        poll_interval=5 * SECOND,
        policy=history.policy,
        pacer=pacer,
        composer=Composer({"id": ".id", "revision": ".revision"}),
        fleet=reader,
        publisher=publisher,
        publish_deadline=SECOND,
        clock=clock,
        observer=PulseObservers(telemetry, recorder, log=log),
        tracer=NO_TRACING,
        max_events_per_second=history.max_events_per_second,
        randomness=Random(1).randbytes,  # noqa: S311  # the same ids in both runs
        jitter=lambda: 0.5,
    )
    for poll in history.polls:
        await asyncio.sleep(poll.wait)
        clock.offset += poll.clock_moves * SECOND
        for change in poll.before:
            fleet.apply(change, clock.now())
        client.upcoming = list(poll.during)
        await pulse.cycle(Stopping())
        record.pacing.append({**vars(pacer), "_table": dict(vars(pacer)["_table"])})
    record.events, record.cycles = publisher.events, recorder.cycles
    record.metrics = {
        (sample.name, str(sample.labels)): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    return record


polls = st.builds(
    Poll,
    wait=st.sampled_from([0, 1, 5, 5, 5, 5, 30]),
    clock_moves=st.sampled_from([0, 0, 0, 0, 0, 0, 60, -1, -7, -3600]),
    before=st.just([]) | st.lists(changes, max_size=2),
    during=st.just([]) | st.just([]) | st.lists(changes, max_size=5),
)
histories = st.builds(
    History,
    shape=st.sampled_from(PageShape),
    has_conditions=st.booleans(),
    size=st.integers(0, 9),
    policy=st.builds(
        Policy,
        max_age_not_ready=st.just(10 * SECOND),
        max_age_ready=st.just(60 * SECOND),
        checks_generation=st.booleans(),
        follows_progress=st.booleans(),
        max_age_jitter=st.sampled_from([0.0, 0.3]),
    ),
    selector=st.sampled_from([Selector(), Selector((equality("region", "us-east"),))]),
    max_events_per_second=st.sampled_from([None, None, 0.5]),
    outcomes=st.lists(st.sampled_from([PublishOutcome.CONFIRMED, *PublishOutcome]), min_size=1, max_size=5),
    polls=st.lists(polls, min_size=2, max_size=8),
)


@given(histories)
def test_a_pulse_that_knows_pages_does_the_same_as_one_that_does_not(history: History) -> None:
    known = run(replay(history, knows_pages=True))
    forgetful = run(replay(history, knows_pages=False))

    assert known == forgetful


class QuietFleet(FakeFleet):
    """Two resources that are not due, each on its own page."""

    def __init__(self) -> None:
        super().__init__(page_size=1)
        for resource_id in ("a", "b"):
            self.put(resource_id, observed_generation=1, is_ready=True, last_updated_time=START)


async def decided_in_three_cycles(observer: PulseObserver, recorder: PulseRecorder) -> list[list[str]]:
    """Poll three times, with a report on `a` before the last. Return the resources with a decision, by cycle."""
    clock, fleet, decided = SimulatedClock(), QuietFleet(), []
    publisher = Publisher([PublishOutcome.CONFIRMED], clock)
    pulse = make_pulse(fleet=fleet, publisher=publisher, clock=clock, observer=observer)
    for reported in ((), (), ("a",)):
        for resource_id in reported:
            fleet.report(resource_id, generation=1, is_ready=True, at=clock.now())
        recorder.pages.clear()
        report = await pulse.cycle(Stopping())
        assert (report.fetched, report.skipped, report.published) == (2, 2, 0)
        decided.append([paced.resource.id for page in recorder.pages for paced in page.paced_decisions])
        await clock.sleep(5 * SECOND)
    return decided


@simulated
async def test_only_changed_pages_are_decided_on_again() -> None:
    recorder = PulseRecorder()

    decided = await decided_in_three_cycles(recorder, recorder)

    assert decided == [["a", "b"], [], ["a"]]


@simulated
async def test_an_observer_that_needs_every_decision_gets_them() -> None:
    curious = PulseRecorder()
    curious.needs_every_decision = True
    recorder = PulseRecorder()
    observers = PulseObservers(recorder, curious, log=get_logger("test"))

    decided = await decided_in_three_cycles(observers, recorder)

    assert decided == [["a", "b"]] * 3
