"""The demonstration on driven time: ten minutes of it, with the real pulses."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from random import Random

from sentinel.cli.build import build_pulse
from sentinel.cli.demo import DEFAULTS, KINDS, Demo
from sentinel.core.decision import Reason
from sentinel.ports import Outcome
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.report import Answer, CycleReport, Observer, PageReport
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import lifecycle, telemetry
from sentinel.runtime.lifecycle import PartFactory, opened
from sentinel.runtime.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock

LASTS = timedelta(minutes=10)


class Tally:
    """An observer that counts."""

    def __init__(self) -> None:
        self.reasons: Counter[Reason] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.cycles: list[CycleReport] = []
        self.crashes: list[BaseException] = []

    def judged(self, page: PageReport) -> None:
        """Counted when the cycle is finished."""

    def answered(self, answer: Answer) -> None:
        self.reasons.update(pending.judgement.decision.reason for pending in answer.pending)
        self.outcomes.update(answer.outcomes)

    def finished(self, report: CycleReport) -> None:
        self.cycles.append(report)

    def crashed(self, error: BaseException) -> None:
        self.crashes.append(error)


def load(resource_type: str) -> PulseSettings:
    loaded = pulse_settings.load(
        file=None,
        environ={},
        overrides={"resource_type": resource_type, "hyperfleet_api.endpoint": "http://in-process.invalid"},
        defaults=DEFAULTS,
    )
    assert loaded.settings is not None, loaded.problems
    return loaded.settings


def watch_the_demo(seed: int) -> Tally:
    """All of the demonstration but its view."""
    tally = Tally()

    def observe(telemetry: Observer) -> Observer:
        return tally

    async def scenario() -> None:
        clock = SimulatedClock()
        settings = [load(resource_type) for resource_type in KINDS]
        demo = Demo(settings=settings, clock=clock, random=Random(seed))  # noqa: S311 - repeatable on purpose
        publishers = {each.resource_type: demo.broker.publisher() for each in settings}
        stopping = Stopping()
        pulses: list[PartFactory] = [
            partial(
                build_pulse,
                each,
                fleet=demo.fleets[each.resource_type],
                publisher=publishers[each.resource_type],
                clock=clock,
                tracer=NO_TRACING,
                watch=observe,
            )
            for each in settings
        ]
        asyncio.get_running_loop().call_later(LASTS.total_seconds(), stopping.request)
        code = await lifecycle.run(
            parts=[*demo.parts(), *pulses],
            shared=[opened(f"broker for {plural}", publisher) for plural, publisher in publishers.items()],
            log=telemetry.get_logger("test"),
            stopping=stopping,
            signals=(),
        )
        assert code == 0

    loop.run(scenario())
    return tally


def test_every_reason_occurs_and_nothing_goes_wrong() -> None:
    tally = watch_the_demo(seed=1)

    assert set(tally.reasons) >= {
        Reason.GENERATION_CHANGED,
        Reason.EXPIRED_READY,
        Reason.EXPIRED_NOT_READY,
    }
    assert set(tally.outcomes) == {Outcome.CONFIRMED}
    assert tally.crashes == []
    assert all(cycle.is_complete for cycle in tally.cycles)


def test_something_happens_every_few_seconds_and_pacing_shows() -> None:
    tally = watch_the_demo(seed=1)

    assert 0.5 < tally.outcomes[Outcome.CONFIRMED] / LASTS.total_seconds() < 5
    assert any(cycle.paced for cycle in tally.cycles)


def test_the_same_seed_is_the_same_demonstration() -> None:
    assert watch_the_demo(seed=2).reasons == watch_the_demo(seed=2).reasons
    assert watch_the_demo(seed=2).reasons != watch_the_demo(seed=3).reasons
