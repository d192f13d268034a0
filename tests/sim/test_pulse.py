"""The whole pulse on driven time: minutes of a fleet's life, the same way every time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Reason
from sentinel.drivers.memory import MemoryBroker
from sentinel.ports.fleet import FleetPage
from sentinel.ports.publisher import Outcome, Receipt
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock
from tests.support.pulse_harness import MINUTE, SECOND, Recorder, make_pulse


class ScriptedPublisher:
    """A broker whose answers a test chooses; keeps when and what was sent."""

    broker_type = "memory"

    def __init__(self, *script: Outcome, then: Outcome = Outcome.CONFIRMED) -> None:
        self.sent: list[tuple[datetime, str]] = []
        self.ids: list[tuple[str, str]] = []
        self.then = then
        self._script = list(script)
        self._clock = SimulatedClock()

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        outcomes = []
        for event in events:
            self.sent.append((self._clock.now(), event.subject))
            self.ids.append((event.subject, event.id))
            outcomes.append(self._script.pop(0) if self._script else self.then)
        await asyncio.sleep(0.001)
        bad = [outcome for outcome in outcomes if outcome is not Outcome.CONFIRMED]
        return Receipt(outcomes, [0.001] * len(outcomes), f"the broker says {bad[0]}" if bad else "")

    def trouble(self) -> str | None:
        return None

    async def close(self) -> None: ...

    def times_of(self, resource_id: str) -> list[datetime]:
        return [time for time, subject in self.sent if subject == resource_id]


class Scene:
    """A fleet, a pulse over it, and time."""

    def __init__(
        self,
        publisher: ScriptedPublisher | None = None,
        *,
        fleet: FakeFleet | None = None,
        republish_interval: timedelta | None = None,
        max_events_per_second: float | None = None,
        poll_interval: timedelta = 5 * SECOND,
    ) -> None:
        self.clock = SimulatedClock()
        self.fleet = fleet or FakeFleet(page_size=10)
        self.publisher = publisher or ScriptedPublisher()
        self.recorder = Recorder()
        self.stopping = Stopping()
        self.pulse = make_pulse(
            fleet=self.fleet,
            publisher=self.publisher,
            clock=self.clock,
            observer=self.recorder,
            poll_interval=poll_interval,
            republish_interval=republish_interval,
            max_events_per_second=max_events_per_second,
        )

    async def run(self, duration: timedelta) -> None:
        """Runs the pulse for so long, polls at both ends included, then stops it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pulse.run(self.stopping))
            await self.clock.sleep(duration + timedelta(milliseconds=500))
            self.stopping.request()


def one_event_per_max_age(times: Sequence[datetime], max_age: timedelta) -> None:
    """What the storm tests claim: never sooner than the max age, and never forgotten either."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps
    assert all(max_age <= gap <= max_age + 5 * SECOND for gap in gaps), Counter(gaps)


async def a_status_that_stands_still(republish_interval: timedelta | None = None) -> list[datetime]:
    scene = Scene(republish_interval=republish_interval)
    scene.fleet.put("stuck", observed_generation=1, last_updated_time=START - MINUTE)
    await scene.run(5 * MINUTE)
    return scene.publisher.times_of("stuck")


async def a_new_generation_that_one_adapter_ignores(republish_interval: timedelta | None = None) -> list[datetime]:
    """Two adapters, one silent: the other reports every event, and observed_generation stays behind."""
    scene = Scene(republish_interval=republish_interval)
    scene.fleet.put("half", generation=2, observed_generation=1, is_ready=True, last_updated_time=START)

    async def the_other_adapter() -> None:
        while True:
            await scene.clock.sleep(3 * SECOND)
            scene.fleet.report("half", generation=1, is_ready=True, at=scene.clock.now())

    async with asyncio.TaskGroup() as group:
        adapter = group.create_task(the_other_adapter())
        await scene.run(5 * MINUTE)
        adapter.cancel()
    return scene.publisher.times_of("half")


@pytest.mark.parametrize("storm", [a_status_that_stands_still, a_new_generation_that_one_adapter_ignores])
def test_a_timestamp_that_cannot_advance_costs_one_event_per_max_age(storm: object) -> None:
    assert callable(storm)

    times = loop.run(storm())

    one_event_per_max_age(times, 10 * SECOND)
    assert len(times) == 31


@pytest.mark.parametrize("storm", [a_status_that_stands_still, a_new_generation_that_one_adapter_ignores])
def test_the_storm_tests_fail_where_pacing_is_off(storm: object) -> None:
    assert callable(storm)

    times = loop.run(storm(timedelta(0)))

    with pytest.raises(AssertionError):
        one_event_per_max_age(times, 10 * SECOND)


def test_an_adapter_clock_four_minutes_fast_delays_nothing() -> None:
    async def scenario() -> list[datetime]:
        scene = Scene()
        scene.fleet.put("fast", observed_generation=1, last_updated_time=START + 4 * MINUTE)
        await scene.run(2 * MINUTE)
        return scene.publisher.times_of("fast")

    times = loop.run(scenario())

    assert times[0] == START + 10 * SECOND
    one_event_per_max_age(times, 10 * SECOND)


def test_a_changed_spec_is_published_at_the_next_poll_whatever_its_age() -> None:
    async def scenario() -> Scene:
        scene = Scene()
        scene.fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(20 * SECOND))
            await scene.clock.sleep(7 * SECOND)
            scene.fleet.change_spec("calm", {"replicas": 5}, at=scene.clock.now())
        return scene

    scene = loop.run(scenario())

    assert scene.publisher.times_of("calm") == [START + 10 * SECOND, START + 20 * SECOND]
    reasons = {judgement.decision.reason for page in scene.recorder.pages for judgement in page.judgements[:1]}
    assert reasons == {Reason.NOT_EXPIRED, Reason.GENERATION_CHANGED}


def test_adapters_that_report_get_one_event_per_max_age_counted_from_their_report() -> None:
    async def scenario() -> list[datetime]:
        scene = Scene(poll_interval=SECOND)
        scene.fleet.put("busy")
        broker = MemoryBroker()
        subscriber = broker.subscribe("adapter")
        publisher = broker.publisher()
        await publisher.open()
        pulse = make_pulse(
            fleet=scene.fleet,
            publisher=publisher,
            clock=scene.clock,
            observer=scene.recorder,
            poll_interval=SECOND,
        )
        received: list[datetime] = []

        async def adapter() -> None:
            async for delivery in subscriber.deliveries():
                received.append(scene.clock.now())
                await scene.clock.sleep(2 * SECOND)
                scene.fleet.report("busy", generation=1, is_ready=False, at=scene.clock.now())
                await delivery.ack()

        async with asyncio.TaskGroup() as group:
            working = group.create_task(adapter())
            group.create_task(pulse.run(scene.stopping))
            await scene.clock.sleep(40 * SECOND)
            scene.stopping.request()
            working.cancel()
        return received

    received = loop.run(scenario())

    assert [later - earlier for earlier, later in pairwise(received)] == [12 * SECOND] * 3


def test_the_first_poll_is_at_once_and_the_next_counts_from_start_to_start() -> None:
    class SlowFleet(FakeFleet):
        async def walk(self) -> AsyncGenerator[FleetPage, None]:
            await asyncio.sleep(2)
            async for page in super().walk():
                yield page

    async def scenario() -> list[datetime]:
        scene = Scene(fleet=SlowFleet())
        await scene.run(16 * SECOND)
        return [report.started for report in scene.recorder.cycles]

    assert loop.run(scenario()) == [START + n * 5 * SECOND for n in range(4)]


def test_a_late_cycle_neither_overlaps_nor_piles_up() -> None:
    class SlowFleet(FakeFleet):
        async def walk(self) -> AsyncGenerator[FleetPage, None]:
            await asyncio.sleep(12)
            async for page in super().walk():
                yield page

    async def scenario() -> list[datetime]:
        scene = Scene(fleet=SlowFleet())
        await scene.run(40 * SECOND)
        return [report.started for report in scene.recorder.cycles if report.is_complete]

    assert loop.run(scenario()) == [START + n * 12 * SECOND for n in range(3)]


def test_a_failed_fetch_is_reported_and_the_next_poll_recovers() -> None:
    async def scenario() -> Scene:
        scene = Scene()
        scene.fleet.put("one")
        scene.fleet.fail("page 1: 500 three times", walks=2)
        await scene.run(10 * SECOND)
        return scene

    scene = loop.run(scenario())

    assert [report.fetch_error for report in scene.recorder.cycles] == ["page 1: 500 three times"] * 2 + [""]
    assert [report.published for report in scene.recorder.cycles] == [0, 0, 1]


def test_readiness_follows_the_fetch_and_liveness_does_not() -> None:
    async def scenario() -> list[tuple[str | None, str | None]]:
        scene = Scene()
        seen = [(scene.pulse.checks["hyperfleet_api"](), scene.pulse.liveness["loop"]())]
        for failing_walks in (0, 1, 0):
            scene.fleet.fail("no answer", walks=failing_walks)
            await scene.pulse.cycle(scene.stopping)
            seen.append((scene.pulse.checks["hyperfleet_api"](), scene.pulse.liveness["loop"]()))
        return seen

    assert loop.run(scenario()) == [
        ("no poll has succeeded yet", None),
        (None, None),
        ("no answer", None),
        (None, None),
    ]


def test_a_loop_that_stands_still_is_not_alive() -> None:
    async def scenario() -> str | None:
        scene = Scene()
        await scene.pulse.cycle(scene.stopping)
        await scene.clock.sleep(10 * MINUTE)
        return scene.pulse.liveness["loop"]()

    assert loop.run(scenario()) == "no progress since 2025-01-01T00:00:00Z"


def test_with_nothing_bound_there_is_one_probe_per_poll_until_one_is_routed() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(then=Outcome.UNROUTABLE))
        for n in range(100):
            scene.fleet.put(f"cluster-{n}")
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(20 * SECOND))
            await scene.clock.sleep(12 * SECOND)
            scene.publisher.then = Outcome.CONFIRMED
        return scene

    scene = loop.run(scenario())

    assert [report.unroutable for report in scene.recorder.cycles] == [1, 1, 1, 0, 0]
    assert [report.published for report in scene.recorder.cycles] == [0, 0, 0, 100, 0]
    assert [report.deferred for report in scene.recorder.cycles[:3]] == [99, 99, 99]
    assert len(scene.publisher.sent) == 103


def test_where_the_broker_does_not_answer_sending_stops_for_the_cycle() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(Outcome.CONFIRMED, then=Outcome.UNCONFIRMED))
        for n in range(50):
            scene.fleet.put(f"cluster-{n}")
        report = await scene.pulse.cycle(scene.stopping)
        assert report.broker_error == "the broker says unconfirmed"
        return scene

    scene = loop.run(scenario())

    (report,) = scene.recorder.cycles
    assert (report.published, report.failed, report.deferred) == (1, 9, 40)
    assert scene.pulse.checks["broker"]() == "the broker says unconfirmed"
    assert {subject for _, subject in scene.publisher.sent} == {f"cluster-{n}" for n in range(10)}


def test_an_event_refused_for_ever_does_not_stop_the_rest() -> None:
    class Picky(ScriptedPublisher):
        async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
            receipt = await super().publish(events, deadline=deadline)
            outcomes = [
                Outcome.REFUSED if event.subject == "cluster-0" else outcome
                for event, outcome in zip(events, receipt.outcomes, strict=True)
            ]
            return Receipt(outcomes, receipt.seconds, "refused by a queue")

    async def scenario() -> Scene:
        scene = Scene(Picky())
        for n in range(30):
            scene.fleet.put(f"cluster-{n}")
        await scene.run(5 * SECOND)
        return scene

    scene = loop.run(scenario())

    assert sorted(set(scene.recorder.confirmed)) == sorted(f"cluster-{n}" for n in range(1, 30))
    assert sum(report.published for report in scene.recorder.cycles) == 29


def test_a_queue_that_refuses_everything_costs_the_others_one_event_a_poll() -> None:
    """What a full queue refuses still reaches the queues beside it."""

    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(then=Outcome.REFUSED))
        for n in range(100):
            scene.fleet.put(f"cluster-{n}")
        await scene.run(60 * SECOND)
        return scene

    scene = loop.run(scenario())

    assert len(scene.publisher.sent) == len(scene.recorder.cycles)
    assert len({subject for _, subject in scene.publisher.sent}) > 1


def test_what_was_not_confirmed_is_due_at_the_next_poll() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(then=Outcome.UNCONFIRMED))
        scene.fleet.put("one")
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(10 * SECOND))
            await scene.clock.sleep(7 * SECOND)
            scene.publisher.then = Outcome.CONFIRMED
        return scene

    scene = loop.run(scenario())

    first, second, *_ = scene.recorder.cycles
    assert (first.published, first.failed) == (0, 1)
    assert (second.published, second.failed) == (1, 0)
    assert len({answer.pending[0].event.id for answer in scene.recorder.batches}) == 2


def test_retries_keep_the_event_id_so_that_a_consumer_can_tell() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(Outcome.UNCONFIRMED, Outcome.UNCONFIRMED))
        scene.fleet.put("one")
        await scene.pulse.cycle(scene.stopping)
        return scene

    scene = loop.run(scenario())

    assert len(scene.publisher.sent) == 3
    assert len({event_id for _, event_id in scene.publisher.ids}) == 1


def test_a_ceiling_spreads_a_backlog_and_lets_changed_specs_go_first() -> None:
    async def scenario() -> Scene:
        scene = Scene(max_events_per_second=2.0)
        for n in range(20):
            scene.fleet.put(
                f"old-{n}",
                observed_generation=1,
                is_ready=True,
                last_updated_time=START - 60 * MINUTE - n * SECOND,
            )
        for n in range(5):
            scene.fleet.put(f"changed-{n}", generation=2, observed_generation=1, last_updated_time=START)
        await scene.run(14 * SECOND)
        return scene

    scene = loop.run(scenario())

    order = [subject for _, subject in scene.publisher.sent]
    assert order[:5] == [f"changed-{n}" for n in range(5)]
    assert order[5:10] == [f"old-{n}" for n in (19, 18, 17, 16, 15)]
    in_a_second = max(
        sum(start <= time < start + SECOND for time, _ in scene.publisher.sent)
        for start, _ in scene.publisher.sent
    )
    assert in_a_second <= 3
    assert scene.recorder.cycles[0].deferred == 15


def test_stopping_in_mid_cycle_confirms_what_is_in_flight_and_fetches_no_more() -> None:
    class EndlessFleet(FakeFleet):
        async def walk(self) -> AsyncGenerator[FleetPage, None]:
            for n in range(1000):
                await asyncio.sleep(1)
                self.put(f"cluster-{n}")
                yield self._page([f"cluster-{n}"])

    async def scenario() -> Scene:
        scene = Scene(fleet=EndlessFleet())
        await scene.run(3 * SECOND)
        return scene

    scene = loop.run(scenario())

    (report,) = scene.recorder.cycles
    assert not report.is_complete
    assert report.fetch_error == ""
    assert report.published == 3
    assert len(scene.publisher.sent) == 3


def test_a_fault_of_our_own_costs_one_cycle_and_is_told() -> None:
    class BrokenPublisher(ScriptedPublisher):
        async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
            if not self.sent:
                self.sent.append((START, "x"))
                raise ZeroDivisionError
            return await super().publish(events, deadline=deadline)

    async def scenario() -> Scene:
        scene = Scene(BrokenPublisher())
        scene.fleet.put("one")
        await scene.run(5 * SECOND)
        return scene

    scene = loop.run(scenario())

    assert len(scene.recorder.crashes) == 1
    assert [report.published for report in scene.recorder.cycles] == [1]


def test_a_malformed_item_is_counted_and_the_rest_goes_out() -> None:
    async def scenario() -> Scene:
        scene = Scene()
        scene.fleet.put("one")
        scene.fleet.put_encoded(b'{"kind":"Cluster"}')
        await scene.pulse.cycle(scene.stopping)
        return scene

    scene = loop.run(scenario())

    (report,) = scene.recorder.cycles
    assert (report.malformed, report.published, report.fetched) == (1, 1, 1)


class SilentPublisher(ScriptedPublisher):
    """A broker that accepts and never answers."""

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        await asyncio.sleep(deadline.total_seconds())
        return Receipt([Outcome.UNCONFIRMED] * len(events), [], "no answer")


@pytest.mark.parametrize("seconds", [1, 5, 10, 15, 20, 30])
def test_a_broker_that_never_answers_costs_no_cycle_more_than_a_poll_and_never_the_process(seconds: int) -> None:
    async def scenario() -> tuple[list[float], set[str | None]]:
        scene = Scene(SilentPublisher(), poll_interval=seconds * SECOND)
        for n in range(50):
            scene.fleet.put(f"cluster-{n}")
        liveness: set[str | None] = set()

        async def probe() -> None:
            while True:
                await scene.clock.sleep(SECOND)
                liveness.add(scene.pulse.liveness["loop"]())

        async with asyncio.TaskGroup() as group:
            probing = group.create_task(probe())
            await scene.run(5 * MINUTE)
            probing.cancel()
        return [report.seconds for report in scene.recorder.cycles], liveness

    durations, liveness = loop.run(scenario())

    assert max(durations) <= 5 + 0.1  # the publish deadline of these tests
    assert liveness == {None}


def test_stopping_ends_the_retries() -> None:
    async def scenario() -> timedelta:
        scene = Scene(ScriptedPublisher(then=Outcome.UNCONFIRMED))
        scene.fleet.put("one")
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.pulse.run(scene.stopping))
            await scene.clock.sleep(SECOND)
            asked = scene.clock.now()
            scene.stopping.request()
        return scene.clock.now() - asked

    assert loop.run(scenario()) < SECOND / 10


def test_an_event_that_cannot_be_sent_holds_up_nobody() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(Outcome.UNSENDABLE))
        for n in range(30):
            scene.fleet.put(f"cluster-{n}")
        await scene.run(5 * SECOND)
        return scene

    scene = loop.run(scenario())

    first, second = scene.recorder.cycles
    assert (first.published, first.failed, first.deferred) == (29, 1, 0)
    assert (second.published, second.failed, second.paced) == (0, 0, 30)
    assert scene.pulse.checks["broker"]() is None


def test_readiness_names_the_reason_of_what_did_not_get_through() -> None:
    async def scenario() -> Scene:
        script = [Outcome.CONFIRMED, Outcome.UNROUTABLE, Outcome.REFUSED]
        scene = Scene(ScriptedPublisher(*script))
        for n in range(3):
            scene.fleet.put(f"cluster-{n}")
        await scene.pulse.cycle(scene.stopping)
        return scene

    scene = loop.run(scenario())

    assert scene.pulse.checks["broker"]() == "the broker says unroutable"
    assert scene.recorder.batches[-1].error == "the broker says unroutable"


def test_under_a_ceiling_trouble_at_the_broker_ends_the_cycle_too() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(then=Outcome.UNROUTABLE), max_events_per_second=100.0)
        for n in range(500):
            scene.fleet.put(f"cluster-{n}")
        await scene.pulse.cycle(scene.stopping)
        return scene

    scene = loop.run(scenario())

    (report,) = scene.recorder.cycles
    assert (report.unroutable, report.deferred) == (1, 499)
    assert report.seconds < 0.1


def test_a_changed_spec_does_not_wait_for_an_allowance_that_nobody_used() -> None:
    async def scenario() -> Scene:
        scene = Scene(max_events_per_second=0.1)
        scene.fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(40 * SECOND))
            await scene.clock.sleep(33 * SECOND)
            scene.fleet.change_spec("calm", {}, at=scene.clock.now())
        return scene

    scene = loop.run(scenario())

    assert scene.publisher.times_of("calm")[0] == START + 35 * SECOND


def test_a_requested_pulse_goes_out_at_the_next_poll_and_once() -> None:
    async def scenario() -> Scene:
        scene = Scene()
        scene.fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(5 * MINUTE))
            await scene.clock.sleep(7 * SECOND)
            scene.fleet.request_pulse("calm", at=scene.clock.now())
            await scene.clock.sleep(MINUTE)
            scene.fleet.request_pulse("calm", at=scene.clock.now())
        return scene

    scene = loop.run(scenario())

    assert scene.publisher.times_of("calm") == [START + 10 * SECOND, START + 70 * SECOND]
    reasons = {
        pending.judgement.decision.reason for answer in scene.recorder.batches for pending in answer.pending
    }
    assert reasons == {Reason.PULSE_REQUESTED}


def test_a_request_that_no_adapter_answers_costs_one_event_per_max_age() -> None:
    async def scenario() -> list[datetime]:
        scene = Scene()
        scene.fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)
        scene.fleet.request_pulse("calm", at=START + SECOND)
        await scene.run(100 * MINUTE)
        return scene.publisher.times_of("calm")

    one_event_per_max_age(loop.run(scenario()), 30 * MINUTE)


def test_a_request_that_the_broker_did_not_take_stays() -> None:
    async def scenario() -> Scene:
        scene = Scene(ScriptedPublisher(then=Outcome.UNCONFIRMED))
        scene.fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)
        scene.fleet.request_pulse("calm", at=START + SECOND)
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(2 * MINUTE))
            await scene.clock.sleep(MINUTE)
            scene.publisher.then = Outcome.CONFIRMED
        return scene

    scene = loop.run(scenario())

    assert sum(report.published for report in scene.recorder.cycles) == 1


def test_a_paused_resource_is_left_alone_until_it_is_resumed() -> None:
    async def scenario() -> Scene:
        scene = Scene()
        scene.fleet.put("held")
        scene.fleet.pause("held")
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.run(2 * MINUTE))
            await scene.clock.sleep(20 * SECOND)
            scene.fleet.change_spec("held", {"replicas": 5}, at=scene.clock.now())
            scene.fleet.request_pulse("held", at=scene.clock.now())
            await scene.clock.sleep(MINUTE)
            scene.fleet.resume("held")
        return scene

    scene = loop.run(scenario())

    assert scene.publisher.times_of("held")[0] == START + 80 * SECOND
    assert scene.recorder.cycles[0].skipped == 1


def test_under_a_ceiling_requested_pulses_go_with_the_changed_specs() -> None:
    async def scenario() -> Scene:
        scene = Scene(max_events_per_second=2.0)
        for n in range(20):
            scene.fleet.put(f"old-{n}", observed_generation=1, last_updated_time=START - 60 * MINUTE)
        scene.fleet.put("changed", generation=2, observed_generation=1, last_updated_time=START)
        scene.fleet.put("asked", observed_generation=1, is_ready=True, last_updated_time=START)
        scene.fleet.request_pulse("asked", at=START + SECOND)
        await scene.pulse.cycle(scene.stopping)
        return scene

    scene = loop.run(scenario())

    assert [subject for _, subject in scene.publisher.sent][:2] == ["changed", "asked"]
