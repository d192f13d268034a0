"""Forecasts, compared with an hour of the real pulse on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from bench.pulse import PER_EVENT, PER_RESOURCE_BY_DEFAULT
from sentinel.core.events import Event
from sentinel.core.pulse.decision import Policy, Reason
from sentinel.core.pulse.observation import NO_LABELS, Observation
from sentinel.ports.fleet import FetchError
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.pulse.definition import PulseApiSettings, PulseDefinition
from sentinel.pulse.forecast import Forecast, forecast
from sentinel.pulse.forecast.calibration import EmptyFleet, calibrate
from sentinel.pulse.forecast.estimate import LOG_MICROSECONDS, PUBLISH_MICROSECONDS, Costs, Estimator
from sentinel.pulse.forecast.simulation import FleetProfile, SimulationPlan, SimulationResult, simulate
from sentinel.pulse.settings import PulseSettings
from sentinel.pulse.telemetry import unread_telemetry
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.pulse_harness import MINUTE, SECOND, PageCountingFleet, PulseRecorder, make_pulse

HOUR = timedelta(hours=1)
PAGE_SIZE = 10


class ReportingAdapters:
    """A publisher whose adapters report on each event after a fixed time."""

    broker_type = "memory"

    def __init__(self, fleet: FakeFleet, *, after: timedelta) -> None:
        self.events = 0
        self._fleet = fleet
        self._after = after

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        self.events += len(events)
        for event in events:
            asyncio.get_running_loop().call_later(self._after.total_seconds(), self._report, event.subject)
        return Receipt([PublishOutcome.CONFIRMED] * len(events), ())

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None: ...

    def _report(self, resource_id: str) -> None:
        document = self._fleet.get(resource_id)
        assert document is not None
        self._fleet.report(
            resource_id, generation=document.generation, is_ready=document.is_ready, at=SimulatedClock().now()
        )


def populated(count: int) -> PageCountingFleet:
    """A mixed fleet with the same proportions at any size; a fifth is not ready."""
    fleet = PageCountingFleet(page_size=PAGE_SIZE)
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


def definition_of(
    *,
    poll_interval: timedelta = 15 * SECOND,
    republish_interval: timedelta | None = None,
    max_events_per_second: float | None = None,
) -> PulseDefinition:
    return PulseSettings(
        resource_type="clusters",
        poll_interval=poll_interval,
        republish_interval=republish_interval,
        max_events_per_second=max_events_per_second,
        hyperfleet_api=PulseApiSettings(endpoint="http://fleet", page_size=PAGE_SIZE),
    ).definition


def forecast_of(
    fleet: FakeFleet,
    definition: PulseDefinition,
    *,
    size: int | None = None,
    answer_after: timedelta = SECOND,
    logs_events: bool = True,
) -> Forecast:
    result, _ = loop.run(
        forecast(
            definition,
            fleet=fleet,
            clock=SimulatedClock(),
            size=size,
            answer_after=answer_after,
            duration=HOUR,
            logs_events=logs_events,
        )
    )
    return result


@simulated
async def run_pulse(
    fleet: PageCountingFleet, definition: PulseDefinition, *, answer_after: timedelta = SECOND
) -> tuple[float, float]:
    """Run the real pulse for an hour; return events per minute and requests per second."""
    adapters = ReportingAdapters(fleet, after=answer_after)
    stopping = Stopping()
    pulse = make_pulse(
        fleet=fleet,
        publisher=adapters,
        clock=SimulatedClock(),
        observer=PulseRecorder(),
        poll_interval=definition.poll_interval,
        republish_interval=definition.republish_interval,
        max_events_per_second=definition.max_events_per_second,
    )
    fleet.pages = 0
    async with asyncio.TaskGroup() as group:
        group.create_task(pulse.run(stopping))
        await asyncio.sleep(HOUR.total_seconds() - 0.001)
        stopping.request()
    return adapters.events / 60, fleet.pages / HOUR.total_seconds()


@pytest.mark.parametrize(
    ("definition", "answer_after"),
    [
        (definition_of(), SECOND),
        (definition_of(poll_interval=20 * SECOND), 45 * SECOND),
        (definition_of(republish_interval=5 * MINUTE), 2 * MINUTE),
        (definition_of(max_events_per_second=0.2), SECOND),
    ],
    ids=["fast adapters", "slow adapters", "republish interval", "rate limit"],
)
def test_events_and_requests_are_within_20_percent_of_a_real_run(
    definition: PulseDefinition, answer_after: timedelta
) -> None:
    fleet = populated(40)

    expected = forecast_of(fleet, definition, answer_after=answer_after).now
    events, requests = run_pulse(fleet, definition, answer_after=answer_after)

    assert expected.events_per_minute == pytest.approx(events, rel=0.2)
    assert expected.api_requests_per_second == pytest.approx(requests, rel=0.2)


def test_a_small_fleet_forecasts_a_larger_one() -> None:
    definition = definition_of(poll_interval=30 * SECOND)

    expected = forecast_of(populated(60), definition, size=120).at_size
    events, requests = run_pulse(populated(120), definition)

    assert expected is not None
    assert expected.resources == 120
    assert expected.events_per_minute == pytest.approx(events, rel=0.2)
    assert expected.api_requests_per_second == pytest.approx(requests, rel=0.2)


# --- simulation -------------------------------------------------------------------------------------------------

PLAN = SimulationPlan(
    policy=Policy(10 * SECOND, 30 * MINUTE),
    poll_interval=5 * SECOND,
    republish_interval=None,
    max_events_per_second=None,
    answer_after=SECOND,
    start=START,
    duration=HOUR,
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


def result_of(profile: FleetProfile, plan: SimulationPlan = PLAN, *, size: int | None = None) -> SimulationResult:
    return simulate(profile, plan, size=len(profile) if size is None else size)


def test_the_next_event_is_at_the_first_poll_after_the_max_age() -> None:
    one = result_of(profile_of(1, is_ready=False))

    assert one.polls == 720
    assert one.events == 1 + (3600 - 10 - 1) // 15
    assert one.events_by_reason == {Reason.EXPIRED_NOT_READY: one.events}


def test_a_resource_without_a_report_is_paced() -> None:
    plan = msgspec.structs.replace(PLAN, answer_after=2 * HOUR)

    assert result_of(profile_of(1, is_ready=False), plan).events == 359
    assert (
        result_of(profile_of(1, is_ready=False), msgspec.structs.replace(plan, republish_interval=MINUTE)).events
        == 60
    )


def test_without_pacing_events_repeat_at_every_poll_until_a_report() -> None:
    plan = msgspec.structs.replace(PLAN, answer_after=30 * SECOND, republish_interval=timedelta(0))

    first_minute = result_of(profile_of(1, is_ready=False, age=lambda n: HOUR), plan).busiest_minute

    # Every poll until the first report; the reports on the other events keep the status fresh after that.
    assert first_minute == 6


def test_a_changed_spec_gets_one_event_and_then_ages() -> None:
    changed = result_of(profile_of(10, generation=2, age=lambda n: n * SECOND))

    assert changed.at_first_poll == 10
    assert changed.events_by_reason == {Reason.GENERATION_CHANGED: 10, Reason.EXPIRED_READY: 10}


def test_paused_resources_stay_paused() -> None:
    paused = result_of(profile_of(10, generation=2, is_paused=True))

    assert (paused.events, paused.max_remembered) == (0, 0)


def test_resources_of_equal_age_are_due_together() -> None:
    equal = result_of(profile_of(600))
    spread = result_of(profile_of(600, age=lambda n: n * 3 * SECOND))

    assert equal.events == pytest.approx(600)
    assert equal.busiest_minute == pytest.approx(600)
    assert spread.events == pytest.approx(1200, rel=0.01)
    assert spread.busiest_minute == pytest.approx(20, rel=0.2)


def test_jitter_spreads_resources_of_equal_age() -> None:
    policy = msgspec.structs.replace(PLAN.policy, max_age_jitter=0.5)

    spread = result_of(profile_of(600), msgspec.structs.replace(PLAN, policy=policy))

    assert spread.busiest_minute < 100
    assert 600 < spread.events < 1800


def test_a_rate_limit_spreads_a_backlog() -> None:
    plan = msgspec.structs.replace(PLAN, max_events_per_second=2.0)

    spread = result_of(profile_of(1000, age=lambda n: 2 * HOUR), plan)

    assert spread.events == pytest.approx(2000, rel=0.05)
    assert spread.busiest_minute <= 120 + 5
    assert spread.at_first_poll <= 10 + 5


def test_a_rate_limit_holds_on_average_for_samples_of_high_weight() -> None:
    plan = msgspec.structs.replace(PLAN, max_events_per_second=100.0, duration=10 * MINUTE)

    spread = result_of(profile_of(100, is_ready=False), plan, size=100_000)

    assert spread.events == pytest.approx(60_000, rel=0.05)


def test_resources_that_are_not_due_leave_the_pacing_table() -> None:
    healthy = result_of(profile_of(600, age=lambda n: n * 3 * SECOND))
    silent = result_of(
        profile_of(600, age=lambda n: n * 3 * SECOND), msgspec.structs.replace(PLAN, answer_after=2 * HOUR)
    )

    assert healthy.max_remembered < 10
    assert silent.max_remembered == pytest.approx(600)


@pytest.mark.parametrize("share", [0, 1, 50])
def test_a_sample_represents_a_fleet_of_any_size(share: int) -> None:
    """`share` of a thousand are not ready; the others have evenly spread ages up to the max age."""
    profile = profile_of(1000 - share, age=lambda n: n * 1.8 * SECOND)
    for n in range(share):
        profile.add(Observation(f"busy-{n}", "", 1, 1, False, START - n * SECOND / 5, NO_LABELS), START)

    found = result_of(profile, size=1_000_000)

    per_hour = 1000 * ((1000 - share) * 2 + share * 240)
    assert found.events == pytest.approx(per_hour, rel=0.02)


def test_each_group_of_a_profile_keeps_its_own_ages() -> None:
    profile = FleetProfile()
    for generation in (1, 2, 3):
        for updated in (None, START - MINUTE, START + MINUTE):
            profile.add(Observation("id", "", generation, 2, generation == 1, updated, NO_LABELS), START)

    sample = list(profile.sample(10))

    assert len(profile) == 9
    assert profile.ready == 3
    assert sorted((group.lead, group.is_reported, age) for group, age, _ in sample) == sorted(
        (lead, is_reported, age)
        for lead in (-1, 0, 1)
        for is_reported, age in ((False, timedelta(0)), (True, MINUTE), (True, timedelta(0)))
    )


# --- estimates --------------------------------------------------------------------------------------------------

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


def make_estimator(
    *, costs: Costs = COSTS, plan: SimulationPlan = PLAN, page_size: int = 100, profile: FleetProfile | None = None
) -> Estimator:
    return Estimator(
        profile=profile or profile_of(1000, age=lambda n: n * 1.8 * SECOND),
        costs=costs,
        plan=plan,
        page_size=page_size,
        microseconds_per_sent_event=40,
    )


def test_costs_grow_with_pages_resources_and_events() -> None:
    estimate = make_estimator().at(10_000)

    events = estimate.events_per_minute / 12
    assert estimate.events_per_minute == pytest.approx(10_000 / 30, rel=0.02)
    assert estimate.api_requests_per_second == 100 / 5
    assert estimate.cycle_seconds == pytest.approx(100 * 0.010 + events * 50e-6)
    assert estimate.cpu_millicores == pytest.approx((100 * 500e-6 + 10_000 * 5e-6 + events * 50e-6) / 5 * 1000)
    assert estimate.keeps_poll_interval


def test_a_fleet_that_is_too_large_does_not_keep_the_interval() -> None:
    estimate = make_estimator().at(100_000)

    assert not estimate.keeps_poll_interval
    assert estimate.cycle_seconds == pytest.approx(10, rel=0.01)
    assert estimate.api_requests_per_second == pytest.approx(100)


def test_the_largest_fleet_still_keeps_the_poll_interval() -> None:
    estimator = make_estimator()

    largest = estimator.largest_fleet()

    assert largest is not None
    assert 45_000 < largest < 50_000
    assert estimator.at(largest - 1000).keeps_poll_interval
    assert not estimator.at(largest + 1000).keeps_poll_interval


def test_a_rate_limit_allows_a_larger_fleet() -> None:
    busy = profile_of(10, is_ready=False)
    unlimited = make_estimator(profile=busy)
    limited = make_estimator(profile=busy, plan=msgspec.structs.replace(PLAN, max_events_per_second=10.0))

    assert (unlimited.largest_fleet() or 0) < (limited.largest_fleet() or 0)


def test_a_server_that_returns_everything_at_once_gets_one_request() -> None:
    unpaged = msgspec.structs.replace(COSTS, pages=1, milliseconds_per_page=100)

    estimate = make_estimator(costs=unpaged).at(10_000)

    assert estimate.api_requests_per_second == 1 / 5
    assert estimate.cycle_seconds == pytest.approx(1, rel=0.01)


def test_smaller_pages_than_requested_mean_more_requests() -> None:
    half = msgspec.structs.replace(COSTS, pages=20)

    assert make_estimator(costs=half).at(2000).api_requests_per_second == 40 / 5


def test_memory_grows_with_page_contents_and_the_pacing_table() -> None:
    few = msgspec.structs.replace(COSTS, resources=10, pages=1)
    silent = msgspec.structs.replace(PLAN, answer_after=2 * HOUR)

    base = make_estimator().at(1000).memory_mebibytes
    fuller = make_estimator(costs=few).at(1000).memory_mebibytes
    paced = make_estimator(plan=silent).at(100_000).memory_mebibytes

    assert base == pytest.approx(48, abs=0.1)
    assert fuller - base == pytest.approx(2 * 90 * 1800 / 2**20, abs=0.01)
    assert paced - base == pytest.approx(100_000 * 150 / 2**20, rel=0.05)


def test_a_fleet_without_cost_has_no_largest_size() -> None:
    free = msgspec.structs.replace(
        COSTS, cpu_microseconds_per_resource=0, milliseconds_per_page=0, cpu_microseconds_per_event=-40
    )

    assert make_estimator(costs=free).largest_fleet() is None


# --- calibration ------------------------------------------------------------------------------------------------


class TickingTimer:
    """A timer that advances by a tenth of a millisecond at each reading."""

    def __init__(self) -> None:
        self._reading = 0

    def __call__(self) -> float:
        self._reading += 1
        return self._reading / 10_000


def test_calibration_walks_once_for_the_profile_and_ten_times_for_cost() -> None:
    fleet = populated(25)
    fleet.put_encoded(b'{"id": 7}')

    found = loop.run(
        calibrate(definition_of(), fleet=fleet, clock=SimulatedClock(), cpu=TickingTimer(), wall=TickingTimer())
    )

    assert len(found.profile) == found.costs.resources == 25
    assert found.costs.pages == 3
    assert fleet.pages == 3 * 11
    assert len(found.malformed) == 1
    assert found.costs.cpu_microseconds_per_resource > 0
    assert found.costs.peak_mebibytes > 1


def test_resources_that_cannot_be_composed_are_not_used_to_measure() -> None:
    fleet = FakeFleet()
    fleet.put("fine", last_updated_time=START, observed_generation=1)
    fleet.put_encoded(b'{"id":"broken","spec":"\xff"}')

    found = loop.run(
        calibrate(definition_of(), fleet=fleet, clock=SimulatedClock(), cpu=TickingTimer(), wall=TickingTimer())
    )

    assert len(found.profile) == 2


def test_an_empty_fleet_cannot_be_measured() -> None:
    with pytest.raises(EmptyFleet, match="clusters"):
        forecast_of(FakeFleet(), definition_of())


def test_an_incomplete_walk_raises() -> None:
    fleet = populated(25)
    fleet.fail("page 2: 500", after_pages=1)

    with pytest.raises(FetchError, match="page 2: 500"):
        forecast_of(fleet, definition_of())


def test_the_assumed_cost_of_an_event_is_what_the_whole_budget_leaves() -> None:
    composing = 4.0

    assumed = PUBLISH_MICROSECONDS + LOG_MICROSECONDS

    assert assumed + composing + PER_RESOURCE_BY_DEFAULT == PER_EVENT


def test_calibration_logs_nothing_and_counts_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "sentinel")

    telemetry = unread_telemetry(shard="all", resource_type="clusters")
    telemetry.crashed(ValueError("a bug"))

    assert caplog.records == []


def test_logging_every_event_costs_cpu() -> None:
    fleet = populated(25)

    logging, silent = (forecast_of(fleet, definition_of(), logs_events=logs) for logs in (True, False))

    assert logging.assumed.cpu_microseconds_per_sent_event > silent.assumed.cpu_microseconds_per_sent_event


def test_the_measured_fleet_is_described() -> None:
    fleet = populated(40)

    result = forecast_of(fleet, definition_of())

    assert result.fleet.resources == result.fleet.ready + result.fleet.not_ready == 40
    assert result.at_size is None
    assert result.at == START
    assert isinstance(result.at, datetime)
