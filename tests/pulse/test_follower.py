"""A pulse that follows a leader: it does everything but publish."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sentinel.core.events import Event
from sentinel.core.pulse.pacing import Pacer
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.pulse.service import Pulse
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START, ManualClock
from sentinel.testing.fleet import FakeFleet
from tests.support.pulse_harness import PulseRecorder, make_pulse

HOUR = timedelta(hours=1)


class _Publisher:
    """Confirms everything, and may take leadership away meanwhile."""

    broker_type = "memory"

    def __init__(self, replica: _Replica) -> None:
        self._replica = replica
        self.outcome = PublishOutcome.CONFIRMED

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        await asyncio.sleep(0)
        self._replica.sent += [event.subject for event in events]
        if self._replica.loses_leadership_after <= len(self._replica.sent):
            self._replica.is_leader = False
        return Receipt([self.outcome] * len(events), ())

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None: ...


class _Replica:
    """A pulse over three stale clusters."""

    def __init__(self, *, is_leader: bool, max_events_per_second: float | None = None) -> None:
        self.is_leader = is_leader
        self.sent: list[str] = []
        self.loses_leadership_after = 1_000
        self.clock = ManualClock()
        self.pacer = Pacer()
        self.publisher = _Publisher(self)
        self.recorder = PulseRecorder()
        fleet = FakeFleet()
        for name in ("cls-1", "cls-2", "cls-3"):
            fleet.put(name, at=START - HOUR, is_ready=False, observed_generation=1)
        self.pulse: Pulse = make_pulse(
            fleet=fleet,
            publisher=self.publisher,
            clock=self.clock,
            observer=self.recorder,
            pacer=self.pacer,
            may_publish=lambda: self.is_leader,
            max_events_per_second=max_events_per_second,
        )


async def test_a_follower_publishes_nothing() -> None:
    replica = _Replica(is_leader=False)

    report = await replica.pulse.cycle(Stopping())

    assert replica.sent == []
    assert (report.fetched, report.withheld, report.published, report.deferred) == (3, 3, 0, 0)


async def test_a_follower_paces_what_the_leader_publishes() -> None:
    replica = _Replica(is_leader=False)
    await replica.pulse.cycle(Stopping())

    replica.is_leader = True
    report = await replica.pulse.cycle(Stopping())

    assert replica.sent == []
    assert (report.paced, report.withheld) == (3, 0)


async def test_a_follower_keeps_to_the_rate_limit_of_the_leader() -> None:
    replica = _Replica(is_leader=False, max_events_per_second=0.2)

    report = await replica.pulse.cycle(Stopping())

    assert (report.withheld, report.deferred) == (1, 2)


async def test_a_new_leader_publishes_what_no_leader_has_published() -> None:
    replica = _Replica(is_leader=False)
    await replica.pulse.cycle(Stopping())

    replica.is_leader = True
    replica.pacer.forget_published()
    await replica.pulse.cycle(Stopping())

    assert sorted(replica.sent) == ["cls-1", "cls-2", "cls-3"]


async def test_a_pulse_that_loses_leadership_sends_nothing_more() -> None:
    replica = _Replica(is_leader=True)
    replica.loses_leadership_after = 1

    report = await replica.pulse.cycle(Stopping())

    assert len(replica.sent) == 1  # the probe
    assert (report.published, report.deferred) == (1, 2)


async def test_a_pulse_that_loses_leadership_retries_nothing() -> None:
    replica = _Replica(is_leader=True)
    replica.loses_leadership_after = 1
    replica.publisher.outcome = PublishOutcome.UNCONFIRMED

    report = await replica.pulse.cycle(Stopping())

    assert len(replica.sent) == 1
    assert (report.published, report.failed) == (0, 1)


async def test_a_follower_is_ready_whatever_happened_while_it_led() -> None:
    replica = _Replica(is_leader=True)
    replica.publisher.outcome = PublishOutcome.REFUSED
    await replica.pulse.cycle(Stopping())
    assert replica.pulse.checks["broker"]() is not None

    replica.is_leader = False

    assert replica.pulse.checks["broker"]() is None
