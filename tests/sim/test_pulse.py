"""The whole pulse on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

import pytest

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Reason
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.fleet import FleetPage
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import simulated
from tests.sim.pulse_simulation import PulseSimulation, ScriptedPublisher
from tests.support.pulse_harness import MINUTE, SECOND, make_pulse


class SlowFleet(FakeFleet):
    """A fleet whose first page takes a while."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__()
        self.delay = delay

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        await asyncio.sleep(self.delay.total_seconds())
        async for page in super().walk():
            yield page


def assert_one_event_per_max_age(times: Sequence[datetime], max_age: timedelta) -> None:
    """Each event follows the previous one after the max age, at the next poll."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps
    assert all(max_age <= gap <= max_age + 5 * SECOND for gap in gaps), Counter(gaps)


@simulated
async def events_for_a_constant_status(republish_interval: timedelta | None = None) -> list[datetime]:
    simulation = PulseSimulation(republish_interval=republish_interval)
    simulation.fleet.put("stuck", observed_generation=1, last_updated_time=START - MINUTE)

    await simulation.run(5 * MINUTE)
    return simulation.publisher.times_of("stuck")


@simulated
async def events_for_an_unobserved_generation(republish_interval: timedelta | None = None) -> list[datetime]:
    """One of two adapters is silent, so observed_generation stays behind although the other one reports."""
    simulation = PulseSimulation(republish_interval=republish_interval)
    simulation.fleet.put("half", generation=2, observed_generation=1, is_ready=True, last_updated_time=START)

    async def report_regularly() -> None:
        while True:
            await simulation.clock.sleep(3 * SECOND)
            simulation.fleet.report("half", generation=1, is_ready=True, at=simulation.clock.now())

    async with asyncio.TaskGroup() as group:
        adapter = group.create_task(report_regularly())
        await simulation.run(5 * MINUTE)
        adapter.cancel()
    return simulation.publisher.times_of("half")


Storm: TypeAlias = Callable[..., list[datetime]]
STORMS = pytest.mark.parametrize("storm", [events_for_a_constant_status, events_for_an_unobserved_generation])


@STORMS
def test_a_status_that_cannot_advance_costs_one_event_per_max_age(storm: Storm) -> None:
    times = storm()

    assert_one_event_per_max_age(times, 10 * SECOND)
    assert len(times) == 31


@STORMS
def test_the_storm_tests_fail_without_pacing(storm: Storm) -> None:
    times = storm(timedelta(0))

    with pytest.raises(AssertionError):
        assert_one_event_per_max_age(times, 10 * SECOND)


@simulated
async def test_an_adapter_clock_that_is_ahead_delays_nothing() -> None:
    simulation = PulseSimulation()
    simulation.fleet.put("fast", observed_generation=1, last_updated_time=START + 4 * MINUTE)

    await simulation.run(2 * MINUTE)

    times = simulation.publisher.times_of("fast")

    assert times[0] == START + 10 * SECOND
    assert_one_event_per_max_age(times, 10 * SECOND)


@simulated
async def test_a_changed_spec_is_published_at_the_next_poll() -> None:
    simulation = PulseSimulation()
    simulation.put_ready("calm")

    async with simulation.running(20 * SECOND, after=7 * SECOND):
        simulation.fleet.change_spec("calm", {"replicas": 5}, at=simulation.clock.now())

    assert simulation.publisher.times_of("calm") == [START + 10 * SECOND, START + 20 * SECOND]
    reasons = {paced.decision.reason for page in simulation.recorder.pages for paced in page.paced_decisions[:1]}
    assert reasons == {Reason.NOT_EXPIRED, Reason.GENERATION_CHANGED}


@simulated
async def test_the_max_age_counts_from_the_last_report() -> None:
    simulation = PulseSimulation(poll_interval=SECOND)
    simulation.fleet.put("busy")
    broker = MemoryBroker()
    subscriber = broker.subscribe("adapter")
    publisher = broker.publisher()
    await publisher.open()
    pulse = make_pulse(
        fleet=simulation.fleet,
        publisher=publisher,
        clock=simulation.clock,
        observer=simulation.recorder,
        poll_interval=SECOND,
    )
    received: list[datetime] = []

    async def adapter() -> None:
        async for delivery in subscriber.deliveries():
            received.append(simulation.clock.now())
            await simulation.clock.sleep(2 * SECOND)
            simulation.fleet.report("busy", generation=1, is_ready=False, at=simulation.clock.now())
            await delivery.ack()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(adapter())
        group.create_task(pulse.run(simulation.stopping))
        await simulation.clock.sleep(40 * SECOND)
        simulation.stopping.request()
        working.cancel()

    assert [later - earlier for earlier, later in pairwise(received)] == [12 * SECOND] * 3


@simulated
async def test_polls_start_at_once_and_then_at_the_interval() -> None:
    simulation = PulseSimulation(fleet=SlowFleet(2 * SECOND))

    await simulation.run(16 * SECOND)

    assert [report.started for report in simulation.recorder.cycles] == [START + n * 5 * SECOND for n in range(4)]


@simulated
async def test_late_cycles_do_not_overlap_or_accumulate() -> None:
    simulation = PulseSimulation(fleet=SlowFleet(12 * SECOND))

    await simulation.run(40 * SECOND)

    assert [report.started for report in simulation.recorder.cycles if report.is_complete] == [
        START + n * 12 * SECOND for n in range(3)
    ]


@simulated
async def test_polls_missed_in_a_late_cycle_are_not_made_up_for() -> None:
    fleet = SlowFleet(22 * SECOND)
    simulation = PulseSimulation(fleet=fleet)

    async with simulation.running(40 * SECOND, after=SECOND):
        fleet.delay = timedelta(0)

    starts = [report.started - START for report in simulation.recorder.cycles]
    assert starts == [each * SECOND for each in (0, 22, 27, 32, 37)]


@simulated
async def test_a_failed_fetch_is_reported_and_the_next_poll_recovers() -> None:
    simulation = PulseSimulation()
    simulation.fleet.put("one")
    simulation.fleet.fail("page 1: 500 three times", walks=2)

    await simulation.run(10 * SECOND)

    assert [report.fetch_error for report in simulation.recorder.cycles] == ["page 1: 500 three times"] * 2 + [""]
    assert [report.published for report in simulation.recorder.cycles] == [0, 0, 1]


@simulated
async def test_a_failed_fetch_affects_readiness_but_not_liveness() -> None:
    simulation = PulseSimulation()
    seen = [(simulation.pulse.checks["hyperfleet_api"](), simulation.pulse.liveness["loop"]())]
    for failing_walks in (0, 1, 0):
        simulation.fleet.fail("no answer", walks=failing_walks)
        await simulation.pulse.cycle(simulation.stopping)
        seen.append((simulation.pulse.checks["hyperfleet_api"](), simulation.pulse.liveness["loop"]()))

    assert seen == [
        ("no poll has succeeded yet", None),
        (None, None),
        ("no answer", None),
        (None, None),
    ]


@simulated
async def test_an_api_that_asks_to_wait_is_not_polled_until_then() -> None:
    simulation = PulseSimulation()
    simulation.fleet.put("one")
    simulation.fleet.fail("429 Too Many Requests", retry_after=3 * MINUTE)

    seen = []
    async with simulation.running(3 * MINUTE + 7 * SECOND, after=2 * MINUTE):
        seen = [simulation.pulse.checks["hyperfleet_api"](), simulation.pulse.liveness["loop"]()]

    assert seen == ["429 Too Many Requests; nothing is requested before 2025-01-01T00:03:00Z", None]
    starts = [report.started - START for report in simulation.recorder.cycles]
    assert starts == [timedelta(0), 3 * MINUTE, 3 * MINUTE + 5 * SECOND]
    assert [report.published for report in simulation.recorder.cycles] == [0, 1, 0]
    assert simulation.pulse.checks["hyperfleet_api"]() is None


@simulated
async def test_a_wait_asked_for_on_a_later_page_counts_from_the_response() -> None:
    """The events of the pages before it are still being confirmed when the response arrives."""
    simulation = PulseSimulation(ScriptedPublisher(*[PublishOutcome.UNCONFIRMED] * 40))
    simulation.put_clusters(20)
    simulation.fleet.fail("503 Service Unavailable", after_pages=1, retry_after=MINUTE)

    await simulation.run(MINUTE)

    first, *others = simulation.recorder.cycles
    assert timedelta(0) < first.retry_after < MINUTE
    assert [report.started - START for report in others] == [MINUTE]


@simulated
async def test_a_loop_without_progress_is_not_alive() -> None:
    simulation = PulseSimulation()

    await simulation.pulse.cycle(simulation.stopping)
    await simulation.clock.sleep(10 * MINUTE)

    assert simulation.pulse.liveness["loop"]() == "no progress since 2025-01-01T00:00:00Z"


@simulated
async def test_an_unbound_exchange_gets_one_probe_per_poll() -> None:
    simulation = PulseSimulation(ScriptedPublisher(then=PublishOutcome.UNROUTABLE))
    simulation.put_clusters(100)

    async with simulation.running(20 * SECOND, after=12 * SECOND):
        simulation.publisher.then = PublishOutcome.CONFIRMED

    assert [report.unroutable for report in simulation.recorder.cycles] == [1, 1, 1, 0, 0]
    assert [report.published for report in simulation.recorder.cycles] == [0, 0, 0, 100, 0]
    assert [report.deferred for report in simulation.recorder.cycles[:3]] == [99, 99, 99]
    assert len(simulation.publisher.sent) == 103


@simulated
async def test_an_unresponsive_broker_stops_sending_for_the_cycle() -> None:
    simulation = PulseSimulation(ScriptedPublisher(PublishOutcome.CONFIRMED, then=PublishOutcome.UNCONFIRMED))
    simulation.put_clusters(50)

    report = await simulation.pulse.cycle(simulation.stopping)

    assert simulation.recorder.cycles == [report]
    assert report.broker_error == "the broker says unconfirmed"
    assert (report.published, report.failed, report.deferred) == (1, 9, 40)
    assert simulation.pulse.checks["broker"]() == "the broker says unconfirmed"
    assert {subject for _, subject in simulation.publisher.sent} == {f"cluster-{n}" for n in range(10)}


@simulated
async def test_an_event_that_is_always_refused_does_not_stop_the_others() -> None:
    class RefusesOne(ScriptedPublisher):
        async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
            receipt = await super().publish(events, deadline=deadline)
            outcomes = [
                PublishOutcome.REFUSED if event.subject == "cluster-0" else outcome
                for event, outcome in zip(events, receipt.outcomes, strict=True)
            ]
            return Receipt(outcomes, receipt.seconds, "refused by a queue")

    simulation = PulseSimulation(RefusesOne())
    simulation.put_clusters(30)

    await simulation.run(5 * SECOND)

    assert sorted(set(simulation.recorder.confirmed)) == sorted(f"cluster-{n}" for n in range(1, 30))
    assert sum(report.published for report in simulation.recorder.cycles) == 29


@simulated
async def test_a_full_queue_costs_the_others_one_event_per_poll() -> None:
    """Events that a full queue refuses still reach the other queues."""
    simulation = PulseSimulation(ScriptedPublisher(then=PublishOutcome.REFUSED))
    simulation.put_clusters(100)

    await simulation.run(60 * SECOND)

    assert len(simulation.publisher.sent) == len(simulation.recorder.cycles)
    assert len({subject for _, subject in simulation.publisher.sent}) > 1


@simulated
async def test_an_unconfirmed_event_is_due_at_the_next_poll() -> None:
    simulation = PulseSimulation(ScriptedPublisher(then=PublishOutcome.UNCONFIRMED))
    simulation.fleet.put("one")

    async with simulation.running(10 * SECOND, after=7 * SECOND):
        simulation.publisher.then = PublishOutcome.CONFIRMED

    first, second, *_ = simulation.recorder.cycles
    assert (first.published, first.failed) == (0, 1)
    assert (second.published, second.failed) == (1, 0)
    assert len({batch.pending[0].event.id for batch in simulation.recorder.batches}) == 2


@simulated
async def test_retries_keep_the_event_id() -> None:
    simulation = PulseSimulation(ScriptedPublisher(PublishOutcome.UNCONFIRMED, PublishOutcome.UNCONFIRMED))
    simulation.fleet.put("one")

    await simulation.pulse.cycle(simulation.stopping)

    assert len(simulation.publisher.sent) == 3
    assert len({event_id for _, event_id in simulation.publisher.ids}) == 1


@simulated
async def test_a_rate_limit_spreads_a_backlog_and_prefers_changed_specs() -> None:
    simulation = PulseSimulation(max_events_per_second=2.0)
    for n in range(20):
        simulation.fleet.put(
            f"old-{n}",
            observed_generation=1,
            is_ready=True,
            last_updated_time=START - 60 * MINUTE - n * SECOND,
        )
    for n in range(5):
        simulation.fleet.put(f"changed-{n}", generation=2, observed_generation=1, last_updated_time=START)

    await simulation.run(14 * SECOND)

    order = [subject for _, subject in simulation.publisher.sent]
    assert order[:5] == [f"changed-{n}" for n in range(5)]
    assert order[5:10] == [f"old-{n}" for n in (19, 18, 17, 16, 15)]
    max_per_second = max(
        sum(start <= time < start + SECOND for time, _ in simulation.publisher.sent)
        for start, _ in simulation.publisher.sent
    )
    assert max_per_second <= 3
    assert simulation.recorder.cycles[0].deferred == 15


@simulated
async def test_stopping_during_a_cycle_confirms_events_in_flight() -> None:
    class EndlessFleet(FakeFleet):
        async def walk(self) -> AsyncGenerator[FleetPage, None]:
            for n in range(1000):
                await asyncio.sleep(1)
                self.put(f"cluster-{n}")
                yield self._page([f"cluster-{n}"])

    simulation = PulseSimulation(fleet=EndlessFleet())

    await simulation.run(3 * SECOND)

    (report,) = simulation.recorder.cycles
    assert not report.is_complete
    assert report.fetch_error == ""
    assert report.published == 3
    assert len(simulation.publisher.sent) == 3


@simulated
async def test_an_unexpected_error_ends_one_cycle_and_is_reported() -> None:
    class RaisesOnce(ScriptedPublisher):
        async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
            if not self.sent:
                self.sent.append((START, "x"))
                raise ZeroDivisionError
            return await super().publish(events, deadline=deadline)

    simulation = PulseSimulation(RaisesOnce())
    simulation.fleet.put("one")

    await simulation.run(5 * SECOND)

    assert len(simulation.recorder.crashes) == 1
    assert [report.published for report in simulation.recorder.cycles] == [1]


@simulated
async def test_a_malformed_item_is_counted_and_the_others_are_published() -> None:
    simulation = PulseSimulation()
    simulation.fleet.put("one")
    simulation.fleet.put_encoded(b'{"kind":"Cluster"}')

    await simulation.pulse.cycle(simulation.stopping)

    (report,) = simulation.recorder.cycles
    assert (report.malformed, report.published, report.fetched) == (1, 1, 1)


class SilentPublisher(ScriptedPublisher):
    """A publisher whose broker never responds."""

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        await asyncio.sleep(deadline.total_seconds())
        return Receipt([PublishOutcome.UNCONFIRMED] * len(events), [], "no answer")


@pytest.mark.parametrize("seconds", [1, 5, 10, 15, 20, 30])
@simulated
async def test_a_silent_broker_delays_a_cycle_by_the_deadline_only(
    seconds: int,
) -> None:
    simulation = PulseSimulation(SilentPublisher(), poll_interval=seconds * SECOND)
    simulation.put_clusters(50)
    liveness: set[str | None] = set()

    async def probe() -> None:
        while True:
            await simulation.clock.sleep(SECOND)
            liveness.add(simulation.pulse.liveness["loop"]())

    async with asyncio.TaskGroup() as group:
        probing = group.create_task(probe())
        await simulation.run(5 * MINUTE)
        probing.cancel()

    durations, liveness = [report.seconds for report in simulation.recorder.cycles], liveness

    assert max(durations) <= 5 + 0.1  # the publish deadline of these tests
    assert liveness == {None}


@simulated
async def test_stopping_ends_the_retries() -> None:
    simulation = PulseSimulation(ScriptedPublisher(then=PublishOutcome.UNCONFIRMED))
    simulation.fleet.put("one")

    async with asyncio.TaskGroup() as group:
        group.create_task(simulation.pulse.run(simulation.stopping))
        await simulation.clock.sleep(SECOND)
        asked = simulation.clock.now()
        simulation.stopping.request()

    assert simulation.clock.now() - asked < SECOND / 10


@simulated
async def test_an_unsendable_event_does_not_delay_the_others() -> None:
    simulation = PulseSimulation(ScriptedPublisher(PublishOutcome.UNSENDABLE))
    simulation.put_clusters(30)

    await simulation.run(5 * SECOND)

    first, second = simulation.recorder.cycles
    assert (first.published, first.failed, first.deferred) == (29, 1, 0)
    assert (second.published, second.failed, second.paced) == (0, 0, 30)
    assert simulation.pulse.checks["broker"]() is None


@simulated
async def test_readiness_shows_why_an_event_failed() -> None:
    script = [PublishOutcome.CONFIRMED, PublishOutcome.UNROUTABLE, PublishOutcome.REFUSED]
    simulation = PulseSimulation(ScriptedPublisher(*script))
    simulation.put_clusters(3)

    await simulation.pulse.cycle(simulation.stopping)

    assert simulation.pulse.checks["broker"]() == "the broker says unroutable"
    assert simulation.recorder.batches[-1].error == "the broker says unroutable"


@simulated
async def test_a_broker_error_ends_a_rate_limited_cycle() -> None:
    simulation = PulseSimulation(ScriptedPublisher(then=PublishOutcome.UNROUTABLE), max_events_per_second=100.0)
    simulation.put_clusters(500)

    await simulation.pulse.cycle(simulation.stopping)

    (report,) = simulation.recorder.cycles
    assert (report.unroutable, report.deferred) == (1, 499)
    assert report.seconds < 0.1


@simulated
async def test_a_changed_spec_uses_the_saved_tokens_of_the_rate_limit() -> None:
    simulation = PulseSimulation(max_events_per_second=0.1)
    simulation.put_ready("calm")

    async with simulation.running(40 * SECOND, after=33 * SECOND):
        simulation.fleet.change_spec("calm", {}, at=simulation.clock.now())

    assert simulation.publisher.times_of("calm")[0] == START + 35 * SECOND


@simulated
async def test_a_requested_pulse_is_published_once_at_the_next_poll() -> None:
    simulation = PulseSimulation()
    simulation.put_ready("calm")

    async with simulation.running(5 * MINUTE, after=7 * SECOND):
        simulation.fleet.request_pulse("calm", at=simulation.clock.now())
        await simulation.clock.sleep(MINUTE)
        simulation.fleet.request_pulse("calm", at=simulation.clock.now())

    assert simulation.publisher.times_of("calm") == [START + 10 * SECOND, START + 70 * SECOND]
    reasons = {pending.paced.decision.reason for batch in simulation.recorder.batches for pending in batch.pending}
    assert reasons == {Reason.PULSE_REQUESTED}


@simulated
async def test_a_request_without_a_report_costs_one_event_per_max_age() -> None:
    simulation = PulseSimulation()
    simulation.put_ready("calm")
    simulation.fleet.request_pulse("calm", at=START + SECOND)

    await simulation.run(100 * MINUTE)

    assert_one_event_per_max_age(simulation.publisher.times_of("calm"), 30 * MINUTE)


@simulated
async def test_a_request_stays_open_until_the_broker_confirms() -> None:
    simulation = PulseSimulation(ScriptedPublisher(then=PublishOutcome.UNCONFIRMED))
    simulation.put_ready("calm")
    simulation.fleet.request_pulse("calm", at=START + SECOND)

    async with simulation.running(2 * MINUTE, after=MINUTE):
        simulation.publisher.then = PublishOutcome.CONFIRMED

    assert sum(report.published for report in simulation.recorder.cycles) == 1


@simulated
async def test_a_paused_resource_gets_no_events_until_resumed() -> None:
    simulation = PulseSimulation()
    simulation.fleet.put("held")
    simulation.fleet.pause("held")

    async with simulation.running(2 * MINUTE, after=20 * SECOND):
        simulation.fleet.change_spec("held", {"replicas": 5}, at=simulation.clock.now())
        simulation.fleet.request_pulse("held", at=simulation.clock.now())
        await simulation.clock.sleep(MINUTE)
        simulation.fleet.resume("held")

    assert simulation.publisher.times_of("held")[0] == START + 80 * SECOND
    assert simulation.recorder.cycles[0].skipped == 1


@simulated
async def test_requested_pulses_have_the_priority_of_changed_specs() -> None:
    simulation = PulseSimulation(max_events_per_second=2.0)
    for n in range(20):
        simulation.fleet.put(f"old-{n}", observed_generation=1, last_updated_time=START - 60 * MINUTE)
    simulation.fleet.put("changed", generation=2, observed_generation=1, last_updated_time=START)
    simulation.put_ready("asked")
    simulation.fleet.request_pulse("asked", at=START + SECOND)

    await simulation.pulse.cycle(simulation.stopping)

    assert [subject for _, subject in simulation.publisher.sent][:2] == ["changed", "asked"]
