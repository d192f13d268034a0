"""A simulated pulse process: the real pulse on fake ports, and its link to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from sentinel.core.events import Event
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.publisher import Publisher, PublishOutcome, Receipt
from sentinel.pulse.service import Pulse
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING
from tests.sim.faults import FaultRates, Transmission
from tests.sim.message_checker import MessageLog
from tests.sim.network import Network, ServiceFleetReader, cancel_all
from tests.sim.process import SimulatedProcess
from tests.sim.pulse_checker import PulseChecker
from tests.sim.streams import SimulatedStream
from tests.sim.trace import Trace


class BrokerLink:
    """The faulty link from a pulse to the broker: a `Publisher` that outlives the pulse's processes."""

    broker_type = "memory"

    def __init__(self, trace: Trace, broker: MemoryBroker, messages: MessageLog, faults: FaultRates) -> None:
        self.is_cut = False
        """Whether the link is down."""
        self._trace = trace
        self._publisher: Publisher = broker.publisher()
        self._messages = messages
        self._faults = faults
        self._in_flight: dict[asyncio.Task[Any], None] = {}
        self._is_publishing = False

    async def open(self) -> None:
        await self._publisher.open()

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        self._trace.require(not self._is_publishing, "a pulse publishes twice at the same time")
        self._is_publishing = True
        try:
            await asyncio.sleep(min(self._faults.delay(), deadline.total_seconds()))
            outcomes = [await self._send(event, deadline) for event in events]
        finally:
            self._is_publishing = False
        bad = [outcome for outcome in outcomes if outcome is not PublishOutcome.CONFIRMED]
        return Receipt(outcomes, [0.0] * (len(outcomes) - len(bad)), f"simulated: {bad[0]}" if bad else "")

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None:
        await cancel_all(self._in_flight)

    async def _send(self, event: Event, deadline: timedelta) -> PublishOutcome:
        transmission = Transmission.LOST if self.is_cut else self._faults.transmission()
        if transmission is Transmission.LOST:
            return PublishOutcome.UNCONFIRMED
        copies = 2 if transmission is Transmission.TWICE else 1
        for _ in range(copies):
            delay = self._faults.delay()
            if delay < 1:
                await self._deliver(event, deadline)
            else:
                # Confirmed at once but delivered later, so that other events overtake it.
                delivery = asyncio.create_task(self._deliver_late(event, delay, deadline))
                self._in_flight[delivery] = None
                delivery.add_done_callback(self._delivered)
        return PublishOutcome.UNCONFIRMED if transmission is Transmission.UNANSWERED else PublishOutcome.CONFIRMED

    async def _deliver_late(self, event: Event, delay: float, deadline: timedelta) -> None:
        await asyncio.sleep(delay)
        await self._deliver(event, deadline)

    def _delivered(self, delivery: asyncio.Task[Any]) -> None:
        del self._in_flight[delivery]
        self._trace.task_ended("broker link", delivery)

    async def _deliver(self, event: Event, deadline: timedelta) -> None:
        receipt = await self._publisher.publish([event], deadline=deadline)
        if receipt.outcomes[0] is PublishOutcome.CONFIRMED:
            self._messages.published(event.id)


class SimulatedPulse(SimulatedProcess):
    """A pulse over several kinds."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        network: Network,
        link: BrokerLink,
        policy: Policy,
        poll_interval: timedelta,
        republish_interval: timedelta | None,
        max_events_per_second: float | None,
        plurals: Sequence[str],
        skew: timedelta,
        random: Random,
        make_pacer: Callable[[timedelta | None], Pacer],
        stream: SimulatedStream | None,
    ) -> None:
        super().__init__(name, trace, network=network, skew=skew)
        self.link = link
        self._stream = stream
        self._make_pacer = make_pacer
        self._fleet = ServiceFleetReader(network, plurals, page_size=3, has_stream=stream is not None)
        self._policy = policy
        self._republish_interval = republish_interval
        self._make_pulse = partial(
            Pulse,
            resource_type=plurals[0],
            poll_interval=poll_interval,
            policy=policy,
            max_events_per_second=max_events_per_second,
            randomness=random.randbytes,
            jitter=random.random,
        )

    async def _run(self, stopping: Stopping) -> None:
        checker = PulseChecker(self, self._policy)
        if self._stream is not None:
            self._stream.on_items = checker.streaming
        pulse = self._make_pulse(
            pacer=self._make_pacer(self._republish_interval),
            composer=Composer({"resource_id": ".id", "resource_type": ".kind"}),
            fleet=self._fleet,
            stream=self._stream,
            publisher=self.link,
            publish_deadline=timedelta(seconds=2),
            clock=self.clock,
            observer=checker,
            tracer=NO_TRACING,
        )
        if self._stream is None:
            await pulse.run(stopping)
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(pulse.run(stopping))
                group.create_task(pulse.follow(stopping))

    async def _disconnect(self) -> None:
        """Do nothing: the link to the broker outlives the process."""
