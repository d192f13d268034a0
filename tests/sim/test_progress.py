"""A chain of adapters, each waiting for the one before it: what a link costs, on driven time and by any clock.

The conditions are those that the fleet API aggregates, the pulse is the real one; the adapters answer each event a
moment later, each by a clock of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta

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
from sentinel.ports.publisher import Outcome, Receipt
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock
from tests.support.pulse_harness import MINUTE, SECOND, Recorder, make_pulse

CHAIN = ("validation", "dns", "provision")
MILLISECOND = timedelta(milliseconds=1)


class Chained:
    """One cluster, served as the fleet API does, and a broker that has its adapters look at it."""

    broker_type = "memory"

    def __init__(self, *, skews: Mapping[str, timedelta], ticks: timedelta) -> None:
        """`skews` says how far adapters' clocks are ahead; `ticks`, in which steps their clocks go."""
        self._clock = SimulatedClock()
        self._skews = skews
        self._ticks = ticks
        self._rules = AggregationRules(KindRules("clusters", "Cluster", "", CHAIN))
        self.state = lifecycle.create(
            self._rules,
            resource_id="one",
            name="one",
            labels={},
            spec=msgspec.Raw(b"{}"),
            owner=None,
            actor="",
            now=self._clock.now(),
        )
        self.ready_at: datetime | None = None
        self._started = self._clock.now()
        self._looking: set[asyncio.Task[None]] = set()

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        await asyncio.sleep(0)
        yield FleetPage([observation.read_resource(msgspec.Raw(encode_document(self.state.document)))], ())

    async def open(self) -> None: ...

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        for n, adapter in enumerate(CHAIN):
            task = asyncio.create_task(self._look(adapter, wait=(n + 1) * 20 * MILLISECOND))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
        return Receipt([Outcome.CONFIRMED] * len(events), ())

    def trouble(self) -> str | None:
        return None

    async def close(self) -> None: ...

    def change(self) -> None:
        """Somebody asks for something else."""
        changed = lifecycle.change(
            self.state, self._rules, labels={}, spec=msgspec.Raw(b"[]"), actor="", now=self._clock.now()
        )
        assert changed is not None
        self.state, self.ready_at = changed, None

    async def _look(self, adapter: str, *, wait: timedelta) -> None:
        """Reads what there is at once, as everybody does who has the same event, and reports after a while."""
        document = self.state.document
        needed = CHAIN[: CHAIN.index(adapter)]
        met = all(self._is_available(each) for each in needed)
        await self._clock.sleep(wait)
        observed = self._clock.now() + self._skews.get(adapter, timedelta(0))
        report = Report(
            adapter,
            document.generation,
            self._started + (observed - self._started) // self._ticks * self._ticks,
            tuple(
                ReportedCondition(name, ConditionStatus.TRUE if met else ConditionStatus.FALSE)
                for name in (APPLIED, AVAILABLE, HEALTH)
            ),
        )
        stored = {status.adapter: status for status in self.state.statuses}.get(adapter)
        verdict = reports.judge(
            report, generation=self.state.document.generation, stored=stored, now=self._clock.now()
        )
        if isinstance(verdict, reports.Accepted):
            self.state = lifecycle.with_status(self.state, self._rules, verdict.status, children=0)
        if self.ready_at is None and self.state.document.status.phase is Phase.READY:
            self.ready_at = self._clock.now()

    def _is_available(self, adapter: str) -> bool:
        return any(
            status.adapter == adapter
            and status.observed_generation == self.state.document.generation
            and status.status_of(AVAILABLE) is ConditionStatus.TRUE
            for status in self.state.statuses
        )


class Course(msgspec.Struct, frozen=True):
    """How one life of a cluster went: for its creation, and for a change of its spec a minute later."""

    seconds_to_ready: list[float]
    reasons: list[list[Reason]]
    """Of the events of either."""


def course(
    *,
    follows_progress: bool = True,
    skews: Mapping[str, timedelta] | None = None,
    ticks: timedelta = timedelta(microseconds=1),
    lasting: timedelta = MINUTE,
) -> Course:
    async def scenario() -> Course:
        clock, stopping, recorder = SimulatedClock(), Stopping(), Recorder()
        cluster = Chained(skews=skews or {}, ticks=ticks)
        pulse = make_pulse(
            fleet=cluster,
            publisher=cluster,
            clock=clock,
            observer=recorder,
            poll_interval=SECOND,
            follows_progress=follows_progress,
        )
        seconds, reasons = [], []
        async with asyncio.TaskGroup() as group:
            group.create_task(pulse.run(stopping))
            for is_change in (False, True):
                begun = clock.now()
                if is_change:
                    cluster.change()
                await clock.sleep(lasting)
                assert cluster.ready_at is not None
                seconds.append((cluster.ready_at - begun).total_seconds())
                reasons.append(
                    [each.judgement.decision.reason for answer in recorder.batches for each in answer.pending]
                )
                recorder.batches.clear()
            stopping.request()
        return Course(seconds, reasons)

    return loop.run(scenario())


CLOCKS: dict[str, Mapping[str, timedelta]] = {
    "all right": {},
    "the first one fast": {"validation": 4 * MINUTE},
    "the first one slow": {"validation": -2 * MINUTE},
    "the second one slow": {"dns": -2 * MINUTE},
    "the last one slow": {"provision": -2 * MINUTE},
    "all different": {"validation": 90 * SECOND, "dns": -90 * SECOND, "provision": 3 * SECOND},
    "all fast": dict.fromkeys(CHAIN, 4 * MINUTE),
}


@pytest.mark.parametrize("ticks", [timedelta(microseconds=1), 10 * SECOND], ids=["exact", "coarse"])
@pytest.mark.parametrize("skews", CLOCKS.values(), ids=CLOCKS.keys())
def test_a_link_costs_a_poll_whatever_the_adapters_clocks_say(
    skews: Mapping[str, timedelta], ticks: timedelta
) -> None:
    found = course(skews=skews, ticks=ticks)

    assert all(seconds < 4 for seconds in found.seconds_to_ready), found


def test_each_completion_has_one_event() -> None:
    found = course()

    assert found.reasons == [[Reason.GENERATION_CHANGED, *[Reason.ADAPTER_PROGRESSED] * 3]] * 2


def test_without_it_a_link_costs_a_max_age() -> None:
    found = course(follows_progress=False)

    assert all(20 <= seconds < 23 for seconds in found.seconds_to_ready), found
    assert found.reasons == [[Reason.GENERATION_CHANGED, *[Reason.EXPIRED_NOT_READY] * 2]] * 2


@pytest.mark.parametrize("skews", CLOCKS.values(), ids=CLOCKS.keys())
def test_it_is_never_a_storm_whatever_the_adapters_clocks_say(skews: Mapping[str, timedelta]) -> None:
    found = course(skews=skews, lasting=20 * MINUTE)

    # One for the spec, one for each completion; once it is ready, the next is half an hour away.
    assert all(len(reasons) <= 1 + len(CHAIN) for reasons in found.reasons), found
