"""A pulse as a process of the simulation, and its way to the broker: the real pulse on fakes of its ports."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.publisher import Outcome, Publisher, Receipt
from sentinel.pulse.service import Pulse
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING
from tests.sim.chance import Fate, Weather
from tests.sim.message_witness import Ledger
from tests.sim.network import Network, WalkedFleet
from tests.sim.process import Process
from tests.sim.pulse_witness import PulseWitness
from tests.sim.trace import Trace


class Exchange:
    """The way from a pulse to the broker: `ports.Publisher` for whichever life of the pulse uses it."""

    broker_type = "memory"

    def __init__(self, trace: Trace, broker: MemoryBroker, ledger: Ledger, weather: Weather) -> None:
        self.is_cut = False
        """Whether nothing gets through at present."""
        self._trace = trace
        self._publisher: Publisher = broker.publisher()
        self._ledger = ledger
        self._weather = weather
        self._on_their_way: dict[asyncio.Task[Any], None] = {}
        self._is_publishing = False

    async def open(self) -> None:
        await self._publisher.open()

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        self._trace.require(not self._is_publishing, "a pulse publishes twice at the same time")
        self._is_publishing = True
        try:
            await asyncio.sleep(min(self._weather.delay(), deadline.total_seconds()))
            outcomes = [await self._send(event, deadline) for event in events]
        finally:
            self._is_publishing = False
        bad = [outcome for outcome in outcomes if outcome is not Outcome.CONFIRMED]
        return Receipt(outcomes, [0.0] * (len(outcomes) - len(bad)), f"by chance: {bad[0]}" if bad else "")

    def trouble(self) -> str | None:
        return None

    async def close(self) -> None:
        on_their_way = list(self._on_their_way)
        for each in on_their_way:
            each.cancel()
        if on_their_way:
            await asyncio.wait(on_their_way)

    async def _send(self, event: Event, deadline: timedelta) -> Outcome:
        fate = Fate.LOST if self.is_cut else self._weather.fate()
        if fate is Fate.LOST:
            return Outcome.UNCONFIRMED
        copies = 2 if fate is Fate.TWICE else 1
        for _ in range(copies):
            delay = self._weather.delay()
            if delay < 1:
                await self._place(event, deadline)
            else:
                # The broker has it, and takes its time to deliver it; others overtake it.
                errand = asyncio.create_task(self._deliver(event, delay, deadline))
                self._on_their_way[errand] = None
                errand.add_done_callback(self._delivered)
        return Outcome.UNCONFIRMED if fate is Fate.UNANSWERED else Outcome.CONFIRMED

    async def _deliver(self, event: Event, delay: float, deadline: timedelta) -> None:
        await asyncio.sleep(delay)
        await self._place(event, deadline)

    def _delivered(self, errand: asyncio.Task[Any]) -> None:
        del self._on_their_way[errand]
        self._trace.ended("exchange", errand)

    async def _place(self, event: Event, deadline: timedelta) -> None:
        receipt = await self._publisher.publish([event], deadline=deadline)
        if receipt.outcomes[0] is Outcome.CONFIRMED:
            self._ledger.placed(event.id)


class PulseProcess(Process):
    """A pulse over several kinds."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        network: Network,
        exchange: Exchange,
        policy: Policy,
        poll_interval: timedelta,
        republish_interval: timedelta | None,
        max_events_per_second: float | None,
        plurals: Sequence[str],
        skew: timedelta,
        random: Random,
    ) -> None:
        super().__init__(name, trace, network=network, skew=skew)
        self.exchange = exchange
        self._policy = policy
        self._poll_interval = poll_interval
        self._republish_interval = republish_interval
        self._max_events_per_second = max_events_per_second
        self._plurals = plurals
        self._random = random

    def _run(self, stopping: Stopping) -> Coroutine[Any, Any, None]:
        pulse = Pulse(
            resource_type=self._plurals[0],
            poll_interval=self._poll_interval,
            policy=self._policy,
            pacer=Pacer(republish_interval=self._republish_interval),
            composer=Composer({"resource_id": ".id", "resource_type": ".kind"}),
            fleet=WalkedFleet(self.network, self._plurals, page_size=3),
            publisher=self.exchange,
            publish_deadline=timedelta(seconds=2),
            clock=self.clock,
            max_events_per_second=self._max_events_per_second,
            observer=PulseWitness(self.name, self._trace, self._policy, self.clock),
            tracer=NO_TRACING,
            randomness=self._random.randbytes,
            jitter=self._random.random,
        )
        return pulse.run(stopping)

    async def _bury(self) -> None:
        """Nobody notices: what it has sent is the broker's, and what it was about to send is due again."""
