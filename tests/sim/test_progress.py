"""A chain of adapters that wait for each other, with wrong clocks: how long until the resource is ready.

Conditions are aggregated as in the fleet API and the pulse is the real one. Each adapter reports shortly after
each event, with the time of its own clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
import pytest

from sentinel.core.events import Event
from sentinel.core.fleet import lifecycle, reports
from sentinel.core.fleet.documents import (
    APPLIED,
    AVAILABLE,
    HEALTH,
    ConditionStatus,
    KindRules,
    Phase,
    Report,
    ReportedCondition,
    encode_document,
)
from sentinel.core.fleet.lifecycle import AggregationRules
from sentinel.core.pulse import observation
from sentinel.core.pulse.decision import Reason
from sentinel.ports.fleet import FleetPage
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.fleet.resource_state import new_resource
from tests.support.pulse_harness import MINUTE, SECOND, PulseRecorder, make_pulse

CHAIN = ("validation", "dns", "provision")
MILLISECOND = timedelta(milliseconds=1)

make_fast_pulse = partial(make_pulse, poll_interval=SECOND)


class AdapterChain:
    """A fleet of one cluster, and a publisher that makes its adapters report."""

    broker_type = "memory"

    def __init__(self, *, skews: Mapping[str, timedelta], tick: timedelta) -> None:
        """`skews` is how far each adapter's clock is ahead, `tick` the resolution of all of them."""
        self.clock = SimulatedClock()
        self._skews = skews
        self._tick = tick
        self._rules = AggregationRules(KindRules("clusters", "Cluster", "", CHAIN))
        self.state = new_resource(self._rules, now=self.clock.now())
        self.ready_time: datetime | None = None
        self._started = self.clock.now()
        self._evaluations: set[asyncio.Task[None]] = set()

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        await asyncio.sleep(0)
        yield FleetPage([observation.read_resource(msgspec.Raw(encode_document(self.state.document)))], ())

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        for n, adapter in enumerate(CHAIN):
            task = asyncio.create_task(self._evaluate(adapter, delay=(n + 1) * 20 * MILLISECOND))
            self._evaluations.add(task)
            task.add_done_callback(self._evaluations.discard)
        return Receipt([PublishOutcome.CONFIRMED] * len(events), ())

    def abandon(self) -> None: ...

    def unavailable_reason(self) -> str | None:
        return None

    async def close(self) -> None: ...

    def change_spec(self) -> None:
        changed = lifecycle.change(
            self.state, self._rules, labels={}, spec=msgspec.Raw(b"[]"), actor="", now=self.clock.now()
        )
        assert changed is not None
        self.state, self.ready_time = changed, None

    async def _evaluate(self, adapter: str, *, delay: timedelta) -> None:
        """Read the cluster at once and report after `delay`."""
        document = self.state.document
        needed = CHAIN[: CHAIN.index(adapter)]
        is_met = all(self._is_available(each) for each in needed)
        await self.clock.sleep(delay)
        observed = self.clock.now() + self._skews.get(adapter, timedelta(0))
        report = Report(
            adapter,
            document.generation,
            self._started + (observed - self._started) // self._tick * self._tick,
            tuple(
                ReportedCondition(name, ConditionStatus.TRUE if is_met else ConditionStatus.FALSE)
                for name in (APPLIED, AVAILABLE, HEALTH)
            ),
        )
        stored = {status.adapter: status for status in self.state.statuses}.get(adapter)
        verdict = reports.admit(
            report, generation=self.state.document.generation, stored=stored, now=self.clock.now()
        )
        if isinstance(verdict, reports.Accepted):
            self.state = lifecycle.with_status(self.state, self._rules, verdict.status, children=0)
        if self.ready_time is None and self.state.document.status.phase is Phase.READY:
            self.ready_time = self.clock.now()

    def _is_available(self, adapter: str) -> bool:
        return any(
            status.adapter == adapter
            and status.observed_generation == self.state.document.generation
            and status.status_of(AVAILABLE) is ConditionStatus.TRUE
            for status in self.state.statuses
        )


class ChainRun(msgspec.Struct, frozen=True):
    """The results for the creation of a cluster, and for a change of its spec after that."""

    seconds_to_ready: list[float]
    reasons: list[list[Reason]]
    """The reasons of the events."""


@simulated
async def run_chain(
    *,
    follows_progress: bool = True,
    skews: Mapping[str, timedelta] | None = None,
    tick: timedelta = timedelta(microseconds=1),
    duration: timedelta = MINUTE,
) -> ChainRun:
    stopping, recorder = Stopping(), PulseRecorder()
    chain = AdapterChain(skews=skews or {}, tick=tick)
    pulse = make_fast_pulse(
        fleet=chain, publisher=chain, clock=chain.clock, observer=recorder, follows_progress=follows_progress
    )
    seconds, reasons = [], []
    async with asyncio.TaskGroup() as group:
        group.create_task(pulse.run(stopping))
        for is_change in (False, True):
            started = chain.clock.now()
            if is_change:
                chain.change_spec()
            await chain.clock.sleep(duration)
            assert chain.ready_time is not None
            seconds.append((chain.ready_time - started).total_seconds())
            reasons.append(
                [pending.paced.decision.reason for batch in recorder.batches for pending in batch.pending]
            )
            recorder.batches.clear()
        stopping.request()
    return ChainRun(seconds, reasons)


CLOCKS: dict[str, Mapping[str, timedelta]] = {
    "exact": {},
    "first fast": {"validation": 4 * MINUTE},
    "first slow": {"validation": -2 * MINUTE},
    "second slow": {"dns": -2 * MINUTE},
    "last slow": {"provision": -2 * MINUTE},
    "all different": {"validation": 90 * SECOND, "dns": -90 * SECOND, "provision": 3 * SECOND},
    "all fast": dict.fromkeys(CHAIN, 4 * MINUTE),
}


@pytest.mark.parametrize("tick", [timedelta(microseconds=1), 10 * SECOND], ids=["exact", "coarse"])
@pytest.mark.parametrize("skews", CLOCKS.values(), ids=CLOCKS.keys())
def test_each_adapter_in_a_chain_takes_one_poll_with_any_clocks(
    skews: Mapping[str, timedelta], tick: timedelta
) -> None:
    found = run_chain(skews=skews, tick=tick)

    assert all(seconds < 4 for seconds in found.seconds_to_ready), found


def test_each_completion_gets_one_event() -> None:
    found = run_chain()

    assert found.reasons == [[Reason.GENERATION_CHANGED, *[Reason.ADAPTER_PROGRESSED] * 3]] * 2


def test_without_progress_each_adapter_in_a_chain_takes_a_max_age() -> None:
    found = run_chain(follows_progress=False)

    assert all(20 <= seconds < 23 for seconds in found.seconds_to_ready), found
    assert found.reasons == [[Reason.GENERATION_CHANGED, *[Reason.EXPIRED_NOT_READY] * 2]] * 2


@pytest.mark.parametrize("skews", CLOCKS.values(), ids=CLOCKS.keys())
def test_wrong_adapter_clocks_never_cause_a_storm(skews: Mapping[str, timedelta]) -> None:
    found = run_chain(skews=skews, duration=20 * MINUTE)

    # One for the spec and one for each completion. The next one after that is due in half an hour.
    assert all(len(reasons) <= 1 + len(CHAIN) for reasons in found.reasons), found
