"""A forecast against what then happens: the same fleet, driven for an hour on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Policy, Reason
from sentinel.core.pulse.observation import NO_LABELS, Observation
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.ports.publisher import Outcome, Receipt
from sentinel.pulse.forecast import Forecast, forecast
from sentinel.pulse.forecast.calibration import EmptyFleet, calibrate
from sentinel.pulse.forecast.projection import Costs, ForecastProjection
from sentinel.pulse.forecast.simulation import FleetProfile, SimulationPlan, SimulationResult, simulate
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import LogLevel
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.settings.log import LogSettings
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock
from tests.support.pulse_harness import MINUTE, SECOND, Recorder, make_pulse

HOUR = timedelta(hours=1)
PAGE = 10


class CountedFleet(FakeFleet):
    """Counts its pages; each of them is a request."""

    pages = 0

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        async for page in super().walk():
            self.pages += 1
            yield page


class Adapters:
    """A broker and whoever listens to it: each event is answered by a report, after a while."""

    broker_type = "memory"

    def __init__(self, fleet: FakeFleet, *, after: timedelta) -> None:
        self.events = 0
        self._fleet = fleet
        self._after = after

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        self.events += len(events)
        for event in events:
            asyncio.get_running_loop().call_later(self._after.total_seconds(), self._answer, event.subject)
        return Receipt([Outcome.CONFIRMED] * len(events), ())

    def trouble(self) -> str | None:
        return None

    async def close(self) -> None: ...

    def _answer(self, resource_id: str) -> None:
        document = self._fleet.get(resource_id)
        assert document is not None
        self._fleet.report(
            resource_id, generation=document.generation, is_ready=document.is_ready, at=SimulatedClock().now()
        )


def populated(count: int) -> CountedFleet:
    """A fleet with some of everything, and the same shares of it at any size: a fifth is not ready."""
    fleet = CountedFleet(page_size=PAGE)
    for n in range(count):
        is_ready, is_new = n % 5 != 0, n % 20 == 7
        age = (n * 61 % 100) / 100 * (30 * MINUTE if is_ready else 15 * SECOND)
        fleet.put(
            f"cls-{n}",
            generation=2 if n % 10 == 3 else 1,
            observed_generation=0 if is_new else 1,
            is_ready=is_ready,
            last_updated_time=None if is_new else START - age,
        )
    return fleet


def settings_of(
    *,
    poll_interval: timedelta = 15 * SECOND,
    republish_interval: timedelta | None = None,
    max_events_per_second: float | None = None,
    log_level: LogLevel = LogLevel.INFO,
) -> PulseSettings:
    return PulseSettings(
        resource_type="clusters",
        poll_interval=poll_interval,
        republish_interval=republish_interval,
        max_events_per_second=max_events_per_second,
        hyperfleet_api=ApiSettings(endpoint="http://fleet", page_size=PAGE),
        log=LogSettings(level=log_level),
    )


def forecast_of(
    fleet: FakeFleet, settings: PulseSettings, *, size: int | None = None, answer_after: timedelta = SECOND
) -> Forecast:
    answer, _ = loop.run(
        forecast(settings, fleet=fleet, clock=SimulatedClock(), size=size, answer_after=answer_after, lasting=HOUR)
    )
    return answer


def driven(
    fleet: CountedFleet, settings: PulseSettings, *, answer_after: timedelta = SECOND
) -> tuple[float, float]:
    """Events a minute and requests a second of an hour of the real pulse."""

    async def scenario() -> tuple[float, float]:
        adapters = Adapters(fleet, after=answer_after)
        stopping = Stopping()
        pulse = make_pulse(
            fleet=fleet,
            publisher=adapters,
            clock=SimulatedClock(),
            observer=Recorder(),
            poll_interval=settings.poll_interval,
            republish_interval=settings.republish_interval,
            max_events_per_second=settings.max_events_per_second,
        )
        fleet.pages = 0
        async with asyncio.TaskGroup() as group:
            group.create_task(pulse.run(stopping))
            await asyncio.sleep(HOUR.total_seconds() - 0.001)
            stopping.request()
        return adapters.events / 60, fleet.pages / HOUR.total_seconds()

    return loop.run(scenario())


@pytest.mark.parametrize(
    ("settings", "answer_after"),
    [
        (settings_of(), SECOND),
        (settings_of(poll_interval=20 * SECOND), 45 * SECOND),
        (settings_of(republish_interval=5 * MINUTE), 2 * MINUTE),
        (settings_of(max_events_per_second=0.2), SECOND),
    ],
    ids=["prompt adapters", "slow adapters", "a longer pacing", "a ceiling"],
)
def test_events_and_requests_are_within_a_fifth_of_a_driven_run(
    settings: PulseSettings, answer_after: timedelta
) -> None:
    fleet = populated(40)

    expected = forecast_of(fleet, settings, answer_after=answer_after).now
    events, requests = driven(fleet, settings, answer_after=answer_after)

    assert expected.events_per_minute == pytest.approx(events, rel=0.2)
    assert expected.api_requests_per_second == pytest.approx(requests, rel=0.2)


def test_a_small_fleet_forecasts_a_larger_one_of_its_kind() -> None:
    settings = settings_of(poll_interval=30 * SECOND)

    expected = forecast_of(populated(60), settings, size=120).at_size
    events, requests = driven(populated(120), settings)

    assert expected is not None
    assert expected.resources == 120
    assert expected.events_per_minute == pytest.approx(events, rel=0.2)
    assert expected.api_requests_per_second == pytest.approx(requests, rel=0.2)


# --- the rehearsal ----------------------------------------------------------------------------------------------

PLAN = SimulationPlan(
    policy=Policy(10 * SECOND, 30 * MINUTE),
    poll_interval=5 * SECOND,
    republish_interval=None,
    max_events_per_second=None,
    answer_after=SECOND,
    start=START,
    lasting=HOUR,
)


def profile_of(
    count: int,
    *,
    age: Callable[[int], timedelta] = lambda n: timedelta(0),
    is_ready: bool = True,
    generation: int = 1,
    is_paused: bool = False,
) -> FleetProfile:
    profile = FleetProfile()
    for n in range(count):
        seen = Observation(f"{n}", "", generation, 1, is_ready, START - age(n), NO_LABELS, is_paused)
        profile.add(seen, START)
    return profile


def rehearsed(profile: FleetProfile, plan: SimulationPlan = PLAN, *, size: int | None = None) -> SimulationResult:
    return simulate(profile, plan, size=len(profile) if size is None else size)


def test_a_resource_that_is_answered_gets_its_next_event_at_the_first_poll_after_its_max_age() -> None:
    one = rehearsed(profile_of(1, is_ready=False))

    assert one.polls == 720
    assert one.events == 1 + (3600 - 10 - 1) // 15
    assert one.events_by_reason == {Reason.EXPIRED_NOT_READY: one.events}


def test_one_that_is_not_answered_in_time_is_paced() -> None:
    plan = msgspec.structs.replace(PLAN, answer_after=2 * HOUR)

    assert rehearsed(profile_of(1, is_ready=False), plan).events == 359
    assert (
        rehearsed(profile_of(1, is_ready=False), msgspec.structs.replace(plan, republish_interval=MINUTE)).events
        == 60
    )


def test_without_pacing_what_is_not_answered_is_repeated_at_every_poll() -> None:
    plan = msgspec.structs.replace(PLAN, answer_after=30 * SECOND, republish_interval=timedelta(0))

    first_minute = rehearsed(profile_of(1, is_ready=False, age=lambda n: HOUR), plan).busiest_minute

    assert (
        first_minute == 6
    )  # until the first answer; those to the others keep the status young for the rest of it


def test_a_changed_spec_is_sent_once_and_then_ages_as_before() -> None:
    changed = rehearsed(profile_of(10, generation=2, age=lambda n: n * SECOND))

    assert changed.at_first_poll == 10
    assert changed.events_by_reason == {Reason.GENERATION_CHANGED: 10, Reason.EXPIRED_READY: 10}


def test_the_paused_are_expected_to_stay_so() -> None:
    paused = rehearsed(profile_of(10, generation=2, is_paused=True))

    assert (paused.events, paused.most_remembered) == (0, 0)


def test_those_that_age_together_come_together() -> None:
    herd = rehearsed(profile_of(600))
    spread = rehearsed(profile_of(600, age=lambda n: n * 3 * SECOND))

    assert herd.events == pytest.approx(600)
    assert herd.busiest_minute == pytest.approx(600)
    assert spread.events == pytest.approx(1200, rel=0.01)
    assert spread.busiest_minute == pytest.approx(20, rel=0.2)


def test_a_ceiling_spreads_a_backlog() -> None:
    plan = msgspec.structs.replace(PLAN, max_events_per_second=2.0)

    spread = rehearsed(profile_of(1000, age=lambda n: 2 * HOUR), plan)

    assert spread.events == pytest.approx(2000, rel=0.05)
    assert spread.busiest_minute <= 120 + 5
    assert spread.at_first_poll <= 10 + 5


def test_a_ceiling_on_a_fleet_of_which_each_actor_plays_thousands_holds_on_average() -> None:
    plan = msgspec.structs.replace(PLAN, max_events_per_second=100.0, lasting=10 * MINUTE)

    spread = rehearsed(profile_of(100, is_ready=False), plan, size=100_000)

    assert spread.events == pytest.approx(60_000, rel=0.05)


def test_what_is_not_due_is_not_remembered() -> None:
    healthy = rehearsed(profile_of(600, age=lambda n: n * 3 * SECOND))
    silent = rehearsed(
        profile_of(600, age=lambda n: n * 3 * SECOND), msgspec.structs.replace(PLAN, answer_after=2 * HOUR)
    )

    assert healthy.most_remembered < 10
    assert silent.most_remembered == pytest.approx(600)


@pytest.mark.parametrize("share", [0, 1, 50])
def test_a_cast_of_a_few_hundred_stands_for_any_number(share: int) -> None:
    """Of a thousand, so many are not ready; the rest have every age up to their limit."""
    profile = profile_of(1000 - share, age=lambda n: n * 1.8 * SECOND)
    for n in range(share):
        profile.add(Observation(f"busy-{n}", "", 1, 1, False, START - n * SECOND / 5, NO_LABELS), START)

    found = rehearsed(profile, size=1_000_000)

    per_hour = 1000 * ((1000 - share) * 2 + share * 240)
    assert found.events == pytest.approx(per_hour, rel=0.02)


def test_every_way_that_a_resource_can_stand_is_kept_apart() -> None:
    profile = FleetProfile()
    for generation in (1, 2, 3):
        for updated in (None, START - MINUTE, START + MINUTE):
            profile.add(Observation("id", "", generation, 2, generation == 1, updated, NO_LABELS), START)

    drawn = list(profile.drawn(10))

    assert len(profile) == 9
    assert profile.ready == 3
    assert sorted((standing.lead, standing.is_reported, age) for standing, age, _ in drawn) == sorted(
        (lead, is_reported, age)
        for lead in (-1, 0, 1)
        for is_reported, age in ((False, timedelta(0)), (True, MINUTE), (True, timedelta(0)))
    )


# --- the projection ---------------------------------------------------------------------------------------------

COSTS = Costs(
    resources=1000,
    pages=10,
    cpu_microseconds_per_page=500,
    cpu_microseconds_per_resource=5,
    cpu_microseconds_per_event=10,
    milliseconds_per_page=10,
    bytes_per_resource=1800,
    peak_mebibytes=40,
)


def projection(
    *, costs: Costs = COSTS, plan: SimulationPlan = PLAN, page_size: int = 100, profile: FleetProfile | None = None
) -> ForecastProjection:
    return ForecastProjection(
        profile=profile or profile_of(1000, age=lambda n: n * 1.8 * SECOND),
        costs=costs,
        plan=plan,
        page_size=page_size,
        microseconds_per_sent_event=40,
    )


def test_costs_grow_with_pages_resources_and_events() -> None:
    outlook = projection().at(10_000)

    events = outlook.events_per_minute / 12
    assert outlook.events_per_minute == pytest.approx(10_000 / 30, rel=0.02)
    assert outlook.api_requests_per_second == 100 / 5
    assert outlook.cycle_seconds == pytest.approx(100 * 0.010 + events * 50e-6)
    assert outlook.cpu_millicores == pytest.approx((100 * 500e-6 + 10_000 * 5e-6 + events * 50e-6) / 5 * 1000)
    assert outlook.is_in_time


def test_a_fleet_that_is_too_large_is_polled_late() -> None:
    outlook = projection().at(100_000)

    assert not outlook.is_in_time
    assert outlook.cycle_seconds == pytest.approx(10, rel=0.01)
    assert outlook.api_requests_per_second == pytest.approx(100)


def test_the_largest_fleet_is_the_last_that_keeps_the_poll_interval() -> None:
    ahead = projection()

    largest = ahead.largest_fleet()

    assert largest is not None
    assert 45_000 < largest < 50_000
    assert ahead.at(largest - 1000).is_in_time
    assert not ahead.at(largest + 1000).is_in_time


def test_a_ceiling_bounds_what_events_take_from_a_cycle() -> None:
    busy = profile_of(10, is_ready=False)
    unbounded = projection(profile=busy)
    bounded = projection(profile=busy, plan=msgspec.structs.replace(PLAN, max_events_per_second=10.0))

    assert (unbounded.largest_fleet() or 0) < (bounded.largest_fleet() or 0)


def test_a_server_that_hands_out_everything_at_once_is_asked_once() -> None:
    whole = msgspec.structs.replace(COSTS, pages=1, milliseconds_per_page=100)

    outlook = projection(costs=whole).at(10_000)

    assert outlook.api_requests_per_second == 1 / 5
    assert outlook.cycle_seconds == pytest.approx(1, rel=0.01)


def test_pages_that_hold_less_than_was_asked_for_are_counted_as_they_come() -> None:
    half = msgspec.structs.replace(COSTS, pages=20)

    assert projection(costs=half).at(2000).api_requests_per_second == 40 / 5


def test_memory_grows_with_fuller_pages_and_with_what_pacing_remembers() -> None:
    few = msgspec.structs.replace(COSTS, resources=10, pages=1)
    silent = msgspec.structs.replace(PLAN, answer_after=2 * HOUR)

    base = projection().at(1000).memory_mebibytes
    fuller = projection(costs=few).at(1000).memory_mebibytes
    paced = projection(plan=silent).at(100_000).memory_mebibytes

    assert base == pytest.approx(48, abs=0.1)
    assert fuller - base == pytest.approx(2 * 90 * 1800 / 2**20, abs=0.01)
    assert paced - base == pytest.approx(100_000 * 150 / 2**20, rel=0.05)


def test_nothing_limits_a_fleet_that_costs_nothing() -> None:
    free = msgspec.structs.replace(
        COSTS, cpu_microseconds_per_resource=0, milliseconds_per_page=0, cpu_microseconds_per_event=-40
    )

    assert projection(costs=free).largest_fleet() is None


# --- the measuring ----------------------------------------------------------------------------------------------


class Meter:
    """A clock that is a tenth of a millisecond further whenever it is read."""

    def __init__(self) -> None:
        self._reading = 0

    def __call__(self) -> float:
        self._reading += 1
        return self._reading / 10_000


def test_a_fleet_is_walked_once_for_its_profile_and_a_few_times_for_its_costs() -> None:
    fleet = populated(25)
    fleet.put_encoded(b'{"id": 7}')

    found = loop.run(calibrate(settings_of(), fleet=fleet, clock=SimulatedClock(), cpu=Meter(), wall=Meter()))

    assert len(found.profile) == found.costs.resources == 25
    assert found.costs.pages == 3
    assert fleet.pages == 3 * 11
    assert len(found.malformed) == 1
    assert found.costs.cpu_microseconds_per_resource > 0
    assert found.costs.peak_mebibytes > 1


def test_resources_that_cannot_be_composed_are_not_measured_with() -> None:
    fleet = FakeFleet()
    fleet.put("fine", last_updated_time=START, observed_generation=1)
    fleet.put_encoded(b'{"id":"broken","spec":"\xff"}')

    found = loop.run(calibrate(settings_of(), fleet=fleet, clock=SimulatedClock(), cpu=Meter(), wall=Meter()))

    assert len(found.profile) == 2


def test_an_empty_fleet_cannot_be_measured() -> None:
    with pytest.raises(EmptyFleet, match="clusters"):
        forecast_of(FakeFleet(), settings_of())


def test_a_fleet_that_cannot_be_read_to_its_end_is_no_forecast() -> None:
    fleet = populated(25)
    fleet.fail("page 2: 500", after_pages=1)

    with pytest.raises(FetchError, match="page 2: 500"):
        forecast_of(fleet, settings_of())


def test_logging_every_event_has_its_price() -> None:
    fleet = populated(25)

    loud, quiet = (forecast_of(fleet, settings_of(log_level=level)) for level in (LogLevel.INFO, LogLevel.WARNING))

    assert loud.assumed.cpu_microseconds_per_sent_event > quiet.assumed.cpu_microseconds_per_sent_event


def test_the_present_fleet_is_described() -> None:
    fleet = populated(40)

    answer = forecast_of(fleet, settings_of())

    assert answer.fleet.resources == answer.fleet.ready + answer.fleet.not_ready == 40
    assert answer.at_size is None
    assert answer.at == START
    assert isinstance(answer.at, datetime)
