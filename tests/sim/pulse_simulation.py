"""A pulse over a fake fleet on virtual time, and a publisher with chosen outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from sentinel.core.events import Event
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock
from tests.support.pulse_harness import PulseRecorder, make_pulse


class ScriptedPublisher:
    """A publisher with chosen outcomes that records what was sent and when."""

    broker_type = "memory"

    def __init__(self, *script: PublishOutcome, then: PublishOutcome = PublishOutcome.CONFIRMED) -> None:
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
        bad = [outcome for outcome in outcomes if outcome is not PublishOutcome.CONFIRMED]
        return Receipt(outcomes, [0.001] * len(outcomes), f"the broker says {bad[0]}" if bad else "")

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None: ...

    def times_of(self, resource_id: str) -> list[datetime]:
        return [time for time, subject in self.sent if subject == resource_id]


class PulseSimulation:
    """A pulse over a fake fleet, on virtual time."""

    def __init__(
        self, publisher: ScriptedPublisher | None = None, *, fleet: FakeFleet | None = None, **options: Any
    ) -> None:
        """The options are those of `make_pulse`."""
        self.clock = SimulatedClock()
        self.fleet = fleet or FakeFleet(page_size=10)
        self.publisher = publisher or ScriptedPublisher()
        self.recorder = PulseRecorder()
        self.stopping = Stopping()
        self.pulse = make_pulse(
            fleet=self.fleet, publisher=self.publisher, clock=self.clock, observer=self.recorder, **options
        )

    def put_clusters(self, count: int) -> None:
        """Add `cluster-0`, `cluster-1` and so on; no adapter has reported on them."""
        for n in range(count):
            self.fleet.put(f"cluster-{n}")

    def put_ready(self, resource_id: str) -> None:
        """Add a resource that is ready, with a status of now."""
        self.fleet.put(resource_id, observed_generation=1, is_ready=True, last_updated_time=START)

    async def run(self, duration: timedelta) -> None:
        """Run the pulse for `duration`, including the polls at both ends, then stop it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pulse.run(self.stopping))
            await self.clock.sleep(duration + timedelta(milliseconds=500))
            self.stopping.request()

    @asynccontextmanager
    async def running(self, duration: timedelta, *, after: timedelta) -> AsyncIterator[None]:
        """Run the pulse for `duration`, and enter the block when `after` has passed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.run(duration))
            await self.clock.sleep(after)
            yield
