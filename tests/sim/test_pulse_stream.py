"""A pulse that follows a stream, on virtual time: what it brings is published at once, and only once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from sentinel.core.events import Event
from sentinel.core.pulse.observation import read_resource
from sentinel.ports.fleet_stream import Changed, Disconnected, Removed, StreamEnd
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.fleet_stream import FakeFleetStream
from sentinel.testing.loop import simulated
from tests.sim.pulse_simulation import PulseSimulation, ScriptedPublisher
from tests.support.pulse_harness import MINUTE, SECOND


class NeverTwiceAtOnce(ScriptedPublisher):
    """A publisher that takes a while, and refuses a second batch meanwhile."""

    is_busy = False

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        assert not self.is_busy
        self.is_busy = True
        await asyncio.sleep(0.3)
        try:
            return await super().publish(events, deadline=deadline)
        finally:
            self.is_busy = False


class StreamSimulation(PulseSimulation):
    """A pulse over a fleet of ready clusters, and its stream."""

    def __init__(
        self,
        publisher: ScriptedPublisher | None = None,
        *,
        clusters: int = 3,
        has_stream: bool = True,
        **options: Any,
    ) -> None:
        fleet = FakeFleet(page_size=2, has_stream=has_stream)
        self.stream = FakeFleetStream(fleet)
        super().__init__(publisher, fleet=fleet, stream=self.stream, **options)
        for n in range(clusters):
            self.put_ready(f"cls-{n}")

    def change(self, *resource_ids: str) -> None:
        """Change the specs, and let the stream say so."""
        for resource_id in resource_ids:
            self.fleet.change_spec(resource_id, {"changed": True}, at=self.clock.now())
        self.stream.announce(*resource_ids)

    @asynccontextmanager
    async def running(self, duration: timedelta, *, after: timedelta = 2 * SECOND) -> AsyncIterator[None]:
        """Run the pulse for `duration`, and enter the block when `after` has passed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pulse.run(self.stopping))
            group.create_task(self.pulse.follow(self.stopping))
            group.create_task(self._stop(duration))
            await self.clock.sleep(after)
            yield

    async def _stop(self, duration: timedelta) -> None:
        await self.clock.sleep(duration)
        self.stopping.request()

    def seconds_of(self, resource_id: str) -> list[float]:
        """When events for a resource were sent, from the start."""
        return [_seconds(time) for time in self.publisher.times_of(resource_id)]


def changed(simulation: StreamSimulation, resource_id: str) -> Changed:
    """Change a spec, and return what the stream would say."""
    simulation.fleet.change_spec(resource_id, {}, at=simulation.clock.now())
    return Changed(read_resource(msgspec.Raw(simulation.fleet.encoded(resource_id))))


def _seconds(time: datetime) -> float:
    return round((time - START).total_seconds(), 1)


@simulated
async def test_a_changed_spec_is_published_when_the_stream_brings_it() -> None:
    simulation = StreamSimulation()

    async with simulation.running(9 * SECOND):
        simulation.change("cls-1")

    assert simulation.seconds_of("cls-1") == [2.0]
    assert [report.published for report in simulation.recorder.streamed_reports] == [0, 1]


@simulated
async def test_an_event_of_the_stream_is_repeated_after_the_max_age() -> None:
    simulation = StreamSimulation()

    async with simulation.running(26 * SECOND):
        simulation.change("cls-1")

    assert simulation.seconds_of("cls-1") == [2.0, 15.0, 25.0]


@simulated
async def test_a_new_resource_is_published_when_the_stream_brings_it() -> None:
    simulation = StreamSimulation()

    async with simulation.running(4 * SECOND):
        simulation.fleet.put("new")
        simulation.stream.announce("new")

    assert simulation.seconds_of("new") == [2.0]


@simulated
async def test_repeated_and_late_changes_publish_nothing() -> None:
    simulation = StreamSimulation()
    old = simulation.fleet.encoded("cls-1")

    async with simulation.running(14 * SECOND):
        simulation.change("cls-1")
        first = simulation.fleet.encoded("cls-1")
        simulation.stream.send_document(old)
        simulation.stream.send_document(first)
        await simulation.clock.sleep(4 * SECOND)
        simulation.fleet.report("cls-1", generation=2, is_ready=True, at=simulation.clock.now())
        await simulation.clock.sleep(5 * SECOND)
        simulation.stream.send_document(first)

    assert simulation.seconds_of("cls-1") == [2.0]


@simulated
async def test_a_wrong_change_costs_one_event_and_delays_no_true_one() -> None:
    simulation = StreamSimulation()
    wrong = simulation.fleet.encoded("cls-1").replace(b'"generation":1', b'"generation":9')

    async with simulation.running(31 * SECOND):
        for _ in range(4):
            simulation.stream.send_document(wrong)
            await simulation.clock.sleep(4 * SECOND)
        simulation.fleet.change_spec("cls-1", {}, at=simulation.clock.now())

    assert simulation.seconds_of("cls-1") == [2.0, 20.0, 30.0]


@simulated
async def test_the_newest_of_several_changes_counts() -> None:
    simulation = StreamSimulation()

    async with simulation.running(4 * SECOND):
        first, second = (changed(simulation, "cls-1") for _ in range(2))
        simulation.stream.send(first, second, first)

    (batch,) = simulation.recorder.batches
    assert [pending.paced.resource.generation for pending in batch.pending] == [3]


@simulated
async def test_a_change_that_is_removed_again_publishes_nothing() -> None:
    simulation = StreamSimulation()

    async with simulation.running(4 * SECOND):
        simulation.stream.send(changed(simulation, "cls-1"), Removed("cls-1"))
        simulation.fleet.remove("cls-1")

    assert simulation.publisher.sent == []


@simulated
async def test_polls_publish_what_the_stream_does_not_bring() -> None:
    simulation = StreamSimulation()

    async with simulation.running(9 * SECOND):
        lost = Disconnected(StreamEnd.CLOSED, "the server ended the stream", 5 * SECOND)
        simulation.stream.send(lost)
        simulation.fleet.change_spec("cls-1", {}, at=simulation.clock.now())

    assert simulation.seconds_of("cls-1") == [5.0]
    assert simulation.pulse.checks["hyperfleet_api"]() is None


@simulated
async def test_a_server_without_streams_is_not_asked_for_one() -> None:
    simulation = StreamSimulation(has_stream=False)

    async with simulation.running(MINUTE):
        simulation.change("cls-1")

    assert simulation.stream.connections == 0
    assert simulation.seconds_of("cls-1")[0] == 5.0


@simulated
async def test_the_stream_begins_after_the_first_complete_walk() -> None:
    simulation = StreamSimulation()
    simulation.fleet.fail(walks=2, after_pages=1)
    seen = []

    async with simulation.running(12 * SECOND, after=9 * SECOND):
        seen.append(simulation.stream.connections)

    assert (seen, simulation.stream.connections) == ([0], 1)


@simulated
async def test_an_idle_fleet_costs_no_more_polls_than_without_a_stream() -> None:
    cycles = []
    for has_stream in (False, True):
        simulation = StreamSimulation(has_stream=has_stream)
        async with simulation.running(20 * MINUTE):
            pass
        cycles.append(
            [report.started - simulation.recorder.cycles[0].started for report in simulation.recorder.cycles]
        )

    assert cycles[0] == cycles[1]
    assert simulation.stream.connections == 1


@simulated
async def test_a_broker_error_leaves_the_changes_to_the_next_poll() -> None:
    simulation = StreamSimulation(ScriptedPublisher(then=PublishOutcome.REFUSED), clusters=20)

    async with simulation.running(13 * SECOND):
        for n in range(20):
            simulation.change(f"cls-{n}")
        await simulation.clock.sleep(5 * SECOND)
        simulation.publisher.then = PublishOutcome.CONFIRMED

    times = [_seconds(time) for time, _ in simulation.publisher.sent]
    assert times[:2] == [2.0, 5.0]  # one probe by the stream, one by the poll
    assert sorted(simulation.recorder.confirmed) == sorted(f"cls-{n}" for n in range(20))
    assert set(times[2:]) == {10.0}


@simulated
async def test_an_unconfirmed_change_is_published_by_the_next_poll() -> None:
    class Silent(ScriptedPublisher):
        async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
            if self._clock.now() < START + 4 * SECOND:
                await asyncio.sleep(deadline.total_seconds())
                return Receipt([PublishOutcome.UNCONFIRMED] * len(events), [], "no answer")
            return await super().publish(events, deadline=deadline)

    simulation = StreamSimulation(Silent())

    async with simulation.running(20 * SECOND, after=3 * SECOND):
        simulation.change("cls-1")

    assert len(simulation.seconds_of("cls-1")) == 1


@simulated
async def test_batches_of_stream_and_polls_do_not_overlap() -> None:
    simulation = StreamSimulation(NeverTwiceAtOnce(), clusters=10)

    async with simulation.running(31 * SECOND, after=SECOND):
        for n in range(100):
            await simulation.clock.sleep(SECOND / 4)
            simulation.change(f"cls-{n % 10}")

    assert simulation.recorder.crashes == []
    versions = {
        (pending.paced.resource.id, pending.paced.resource.generation)
        for batch in simulation.recorder.batches
        for pending in batch.pending
    }
    assert versions == {(f"cls-{n}", generation) for n in range(10) for generation in range(2, 12)}


@simulated
async def test_the_rate_limit_holds_for_stream_and_polls_together() -> None:
    simulation = StreamSimulation(clusters=15, max_events_per_second=2.0)

    async with simulation.running(40 * SECOND):
        for n in range(15):
            simulation.change(f"cls-{n}")

    times = [time for time, _ in simulation.publisher.sent]
    busiest = max(sum(start <= time < start + SECOND for time in times) for start in times)
    assert busiest <= 3
    assert simulation.seconds_of("cls-0")[0] == 2.0
    assert len({subject for _, subject in simulation.publisher.sent}) == 15


@simulated
async def test_a_stream_does_not_send_beside_a_rate_limited_cycle() -> None:
    simulation = StreamSimulation(clusters=8, max_events_per_second=2.0)
    for n in range(30):
        simulation.fleet.put(f"old-{n}", observed_generation=1, last_updated_time=START - 60 * MINUTE)

    async with simulation.running(30 * SECOND, after=6 * SECOND):
        for n in range(8):
            simulation.change(f"cls-{n}")
            await simulation.clock.sleep(SECOND / 4)

    times = [time for time, _ in simulation.publisher.sent]
    assert max(sum(start <= time < start + SECOND for time in times) for start in times) <= 4


@simulated
async def test_a_fleet_that_shrinks_is_walked_again_for_the_stream() -> None:
    simulation = StreamSimulation(clusters=1500)
    seen = simulation.fleet.encoded("cls-1").replace(b'"observed_generation":1', b'"observed_generation":0')

    async with simulation.running(19 * SECOND):
        for n in range(2, 1500):
            simulation.fleet.remove(f"cls-{n}")
        await simulation.clock.sleep(14 * SECOND)
        simulation.stream.send_document(seen)
        simulation.change("cls-0")

    assert [subject for _, subject in simulation.publisher.sent] == ["cls-0"]
    assert simulation.seconds_of("cls-0") == [16.0]


@simulated
async def test_a_follower_publishes_nothing_from_the_stream() -> None:
    simulation = StreamSimulation(may_publish=lambda: False)

    async with simulation.running(20 * SECOND):
        simulation.change("cls-1")

    assert simulation.publisher.sent == []
    assert not any(report.decided for report in simulation.recorder.streamed_reports)
    assert sum(report.withheld for report in simulation.recorder.cycles) == 2


@simulated
async def test_stopping_confirms_changes_in_flight() -> None:
    simulation = StreamSimulation(NeverTwiceAtOnce())

    async with simulation.running(2.1 * SECOND):
        simulation.change("cls-1")

    assert simulation.recorder.confirmed == ["cls-1"]


@simulated
async def test_a_malformed_change_is_counted_and_the_others_are_published() -> None:
    simulation = StreamSimulation(message_data={"name": ".spec.name"})

    async with simulation.running(4 * SECOND):
        bad = simulation.fleet.encoded("cls-1").replace(b'"generation":1', b'"generation":2,"bad":"\xff"')
        simulation.stream.send_document(bad)
        simulation.change("cls-2")

    assert [len(report.malformed) for report in simulation.recorder.streamed_reports] == [0, 1, 0]
    assert [subject for _, subject in simulation.publisher.sent] == ["cls-2"]


@simulated
async def test_an_unexpected_error_is_reported_and_the_stream_goes_on() -> None:
    simulation = StreamSimulation()

    async with simulation.running(30 * SECOND):
        simulation.stream.crash(ZeroDivisionError())
        await simulation.clock.sleep(16 * SECOND)
        simulation.change("cls-1")

    assert len(simulation.recorder.crashes) == 1
    assert simulation.seconds_of("cls-1")[0] == 18.0
