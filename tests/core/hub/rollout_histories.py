"""Histories of rollouts, recorded in tests/golden/rollouts.

`python -m tests.core.hub.rollout_histories` records them again. A difference is a change that deployments in
progress at an upgrade of the hub would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from sentinel.core.hub.analysis import Outcome
from sentinel.core.hub.deployment import Canary, Count, OfflinePolicy, Rolling, Strategy
from sentinel.core.hub.rollout_state import (
    Abort,
    Command,
    Event,
    Pause,
    Promote,
    ReportedState,
    Resume,
    Rollback,
    Rollout,
)
from sentinel.core.hub.states import State
from tests.core.hub.rollout_driver import (
    MINUTE,
    NEW,
    NO_DELAY,
    SECOND,
    TIMEOUT,
    Driver,
    batches_of,
    facts,
    request,
    version,
)

FOLDER = Path(__file__).parents[2] / "golden" / "rollouts"


class RecordedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event, and what it caused."""

    time: datetime
    event: Event
    commands: tuple[Command, ...] = ()


class History(msgspec.Struct, frozen=True):
    """A rollout from its creation to its end."""

    begin: Rollout
    steps: tuple[RecordedStep, ...]
    end: Rollout


class Recorder(Driver):
    """A driver that writes down what happens."""

    steps: tuple[RecordedStep, ...] = ()

    def do(self, *events: Event) -> Sequence[Command]:
        caused: list[Command] = []
        for event in events:
            commands = super().do(event)
            self.steps += (RecordedStep(self.now, event, tuple(commands)),)
            caused += commands
        return caused


def seven_by_three() -> Recorder:
    recorder = Recorder(request(*"abcdefg", rolling=batches_of(3, delay=30 * SECOND)))
    recorder.start()
    for batch in ("abc", "def", "g"):
        recorder.accept(*batch)
        recorder.now += SECOND
        recorder.do(Pause(), Resume())
        recorder.complete(*batch)
        recorder.wait(30 * SECOND)
    return recorder


def failure_is_rolled_back() -> Recorder:
    known = [facts("a"), facts("b", assigned=version(7)), facts("c", assigned=None), facts("d")]
    recorder = Recorder(request(*"abcd", rolling=batches_of(3, threshold=2)), known)
    recorder.start()
    recorder.accept("a", "b", "c")
    recorder.complete("a")
    recorder.fail("c", "health check failed after 3 attempts")
    recorder.now += SECOND
    recorder.fail("b", "unknown key")
    recorder.accept("b", is_rollback=True)
    recorder.complete("b")
    recorder.go_back("b")
    recorder.go_back("a")
    return recorder


def canary_in_steps() -> Recorder:
    canary = Canary(instances=Count(1), steps=(Count(50, is_percent=True),), duration=MINUTE)
    recorder = Recorder(request(*"abcd", strategy=Strategy.CANARY, canary=canary, rolling=batches_of(2)))
    recorder.start()
    recorder.complete("a")
    for _ in range(3):
        recorder.wait(MINUTE)
        recorder.answer(Outcome.INCONCLUSIVE, "3 requests, at least 100 needed")
    recorder.do(Promote())
    recorder.complete("b")
    recorder.wait(30 * SECOND)
    recorder.answer(Outcome.SUCCESS)
    recorder.wait(30 * SECOND)
    recorder.answer(Outcome.SUCCESS)
    recorder.complete("c", "d")
    return recorder


def canary_violates_its_limit() -> Recorder:
    recorder = Recorder(request(*"abc", strategy=Strategy.CANARY, canary=Canary(instances=Count(2))))
    recorder.start()
    recorder.complete("a", "b")
    recorder.wait(30 * SECOND)
    recorder.answer(Outcome.FAILED, "error_rate 0.2 is above 0.05")
    recorder.go_back("a")
    recorder.wait(TIMEOUT)
    recorder.do(Rollback())
    recorder.go_back("b")
    return recorder


def all_at_once_and_back_by_hand() -> Recorder:
    recorder = Recorder(request(*"abc", strategy=Strategy.ALL_AT_ONCE))
    recorder.start()
    recorder.reject("a", "not now")
    recorder.complete("b")
    recorder.wait(TIMEOUT)
    recorder.complete("c")
    recorder.do(Rollback(), Rollback())
    recorder.go_back("c")
    recorder.go_back("b")
    return recorder


def offline_and_lost() -> Recorder:
    settings = Rolling(
        batch_size=Count(2), batch_delay=NO_DELAY, failure_threshold=Count(3), min_healthy_time=MINUTE
    )
    known = [facts("a", State.OFFLINE), facts("b"), facts("c"), facts("d")]
    recorder = Recorder(request(*"abcd", rolling=settings, offline=OfflinePolicy.LATER), known)
    recorder.start()
    recorder.complete("b")
    recorder.observe("b", State.DEGRADED, assigned=NEW)
    recorder.wait(MINUTE)
    recorder.observe("b", State.ONLINE, assigned=NEW)
    recorder.wait(MINUTE)
    recorder.report("c", ReportedState.VALIDATING, "checking")
    recorder.observe("c", State.OFFLINE)
    recorder.observe("d", State.DRAINING)
    return recorder


def too_few_are_online_until_the_deadline() -> Recorder:
    settings = Rolling(batch_size=Count(34, is_percent=True), batch_delay=NO_DELAY, max_unavailable=Count(1))
    recorder = Recorder(request(*"abcd", rolling=settings, progress_deadline=10 * MINUTE))
    recorder.start()
    recorder.accept("a", "b")
    recorder.do(Pause())
    recorder.complete("a", "b")
    recorder.observe("b", State.DEGRADED, assigned=NEW)
    recorder.wait(30 * MINUTE)
    recorder.do(Resume())
    recorder.wait(10 * MINUTE)
    recorder.go_back("b")
    recorder.report("a", ReportedState.FAILED, "disk full", is_rollback=True)
    return recorder


def aborted_in_mid_batch() -> Recorder:
    recorder = Recorder(request(*"abc", rolling=batches_of(2)))
    recorder.start()
    recorder.complete("a")
    recorder.do(Abort())
    recorder.fail("b", "too late")
    return recorder


STORIES: Mapping[str, Callable[[], Recorder]] = {
    story.__name__: story
    for story in (
        seven_by_three,
        failure_is_rolled_back,
        canary_in_steps,
        canary_violates_its_limit,
        all_at_once_and_back_by_hand,
        offline_and_lost,
        too_few_are_online_until_the_deadline,
        aborted_in_mid_batch,
    )
}


def record() -> None:
    """Write all histories."""
    for name, story in STORIES.items():
        recorder = story()
        history = History(begin=recorder.created, steps=recorder.steps, end=recorder.rollout)
        text = msgspec.json.format(msgspec.json.encode(history), indent=1)
        (FOLDER / f"{name}.json").write_bytes(text + b"\n")


def read(name: str) -> History:
    """Read a recorded history."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=History)


if __name__ == "__main__":
    record()
