"""Keys with items, one worker per key, and what happens after a run. On virtual time."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.workqueue import Again, Completed, Crashed, Never, RunOutcome, RunResult, WorkQueue
from sentinel.testing import loop
from sentinel.testing.clock import START, ManualClock
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.clocks import AdjustedClock

LOG = get_logger("test")
SILENT = Log(logging.Logger("silent", logging.CRITICAL), {})  # noqa: LOG001  # pytest must not capture it
"""For runs that raise on purpose: pytest keeps every traceback, and with it the keys."""
SECOND = timedelta(seconds=1)
BACKOFF = Backoff(initial=SECOND, maximum=4 * SECOND, jitter=0)


async def sleep_until(time: float) -> None:
    remaining = time - asyncio.get_running_loop().time()
    if remaining > 0:
        await asyncio.sleep(remaining)


class Script:
    """A queue with a process that records its arguments and returns scripted results."""

    def __init__(
        self,
        *results: RunResult | BaseException,
        workers: int = 1,
        duration: float = 0,
        clock: SimulatedClock | None = None,
    ) -> None:
        """Each run returns or raises the next of `results`, then `Completed`. It takes `duration` seconds."""
        self.clock = clock or SimulatedClock()
        self.stopping = Stopping()
        self.processed: list[tuple[str, list[int]]] = []
        self.starts: list[float] = []
        """In seconds of the event loop, which the wall clock does not affect."""
        self.observed: list[tuple[str, RunOutcome]] = []
        self.queue: WorkQueue[str, int] = WorkQueue(
            clock=self.clock,
            log=LOG,
            workers=workers,
            backoff=BACKOFF,
            jitter=lambda: 0.5,
            observe=lambda key, outcome: self.observed.append((key, outcome)),
        )
        self._results = iter(results)
        self._duration = duration

    async def process(self, key: str, items: Sequence[int]) -> RunResult:
        self.processed.append((key, list(items)))
        self.starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._duration)
        result = next(self._results, Completed())
        if isinstance(result, BaseException):
            raise result
        return result

    @asynccontextmanager
    async def processing(self) -> AsyncIterator[WorkQueue[str, int]]:
        """Process keys until the end of the context, and finish those in flight."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self.process, self.stopping))
            yield self.queue
            self.stopping.request()

    async def run(self, *adds: tuple[float, str, int]) -> None:
        """Add keys and items at their times, in seconds from now, and process them for a minute."""
        async with self.processing() as queue:
            start = asyncio.get_running_loop().time()
            for time, key, item in adds:
                await sleep_until(start + time)
                queue.add(key, item)
            await asyncio.sleep(60)


@simulated
async def test_keys_are_processed_in_the_order_of_addition() -> None:
    script = Script()
    for number, key in enumerate("abc"):
        script.queue.add(key, number)

    async with script.processing():
        await asyncio.sleep(1)

    assert script.processed == [("a", [0]), ("b", [1]), ("c", [2])]


@simulated
async def test_items_of_one_key_are_processed_together() -> None:
    script = Script(duration=5)
    for number in range(3):
        script.queue.add("a", number)

    async with script.processing() as queue:
        await asyncio.sleep(1)

        assert script.processed == [("a", [0, 1, 2])]
        assert queue.in_flight == 1


@simulated
async def test_a_key_in_flight_is_not_given_to_another_worker() -> None:
    script = Script(workers=2, duration=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add("a", 2)
        queue.add("b", 3)
        await asyncio.sleep(1)

        assert script.processed == [("a", [1]), ("b", [3])]
        assert (queue.depth, queue.in_flight) == (1, 2)


@simulated
async def test_adds_during_a_run_cause_exactly_one_more() -> None:
    script = Script(workers=2, duration=5)
    await script.run((0, "a", 1), (1, "a", 2), (1, "a", 3))

    assert script.processed == [("a", [1]), ("a", [2, 3])]
    assert script.starts == [0, 5]


@simulated
async def test_a_key_that_is_done_does_not_run_again() -> None:
    script = Script()
    await script.run((0, "a", 1), (60, "b", 2))

    assert script.processed == [("a", [1]), ("b", [2])]


@simulated
async def test_a_key_needs_no_items() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(1)

    assert script.processed == [("a", [])]


@simulated
async def test_the_number_of_workers_limits_keys_in_flight() -> None:
    script = Script(workers=3, duration=1)
    async with script.processing() as queue:
        for key in "abcdefg":
            queue.add(key)
        await asyncio.sleep(60)

    assert script.starts == [0, 0, 0, 1, 1, 1, 2]


@simulated
async def test_stopping_releases_idle_workers_and_leaves_the_rest_queued() -> None:
    script = Script(workers=5)
    async with script.processing() as queue:
        await asyncio.sleep(1)
        script.stopping.request()
        queue.add("a", 1)

    assert script.processed == []
    assert queue.waiting == {"a": (1,)}
    assert asyncio.get_running_loop().time() == 1


@simulated
async def test_a_key_added_just_before_stopping_is_left_for_the_next_run() -> None:
    script = Script(workers=2)
    async with script.processing() as queue:
        await asyncio.sleep(1)
        queue.add("a", 1)
        queue.add("b", 2)
        script.stopping.request()
    assert script.processed == []
    assert queue.waiting == {"a": (1,), "b": (2,)}
    script.stopping = Stopping()

    async with script.processing():
        await asyncio.sleep(1)

    assert script.processed == [("a", [1]), ("b", [2])]


@simulated
async def test_stopping_does_not_wait_for_delayed_keys() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("a", 1, delay=timedelta(hours=1))
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() == 1
    assert queue.waiting == {"a": (1,)}


@simulated
async def test_stopping_lets_keys_in_flight_finish_and_starts_no_others() -> None:
    script = Script(Again(SECOND), duration=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        queue.add("b", 2)
        queue.add_after("c", 3, delay=2 * SECOND)
        await asyncio.sleep(1)
        queue.add("a", 4)

    assert asyncio.get_running_loop().time() == 5
    assert script.processed == [("a", [1])]
    assert queue.waiting == {"a": (4,), "b": (2,), "c": (3,)}
    assert (queue.depth, queue.delayed, queue.in_flight) == (2, 1, 0)


@simulated
async def test_a_later_run_continues_with_the_keys_of_an_earlier_one() -> None:
    script = Script(workers=2)
    script.stopping.request()
    async with script.processing() as queue:
        queue.add("a", 1)
        queue.add("b", 2)
        queue.add_after("c", 3, delay=SECOND)
    script.stopping = Stopping()

    async with script.processing():
        await asyncio.sleep(60)

    assert script.processed == [("a", [1]), ("b", [2]), ("c", [3])]
    assert script.starts == [0, 0, 1]


@simulated
async def test_a_cancelled_run_cancels_keys_in_flight_and_keeps_the_rest() -> None:
    script = Script(workers=2, duration=5)
    running = asyncio.create_task(script.queue.run(script.process, script.stopping))
    for key in "abc":
        script.queue.add(key)
    await asyncio.sleep(1)
    script.queue.add("a", 1)

    running.cancel()
    await asyncio.wait({running})

    assert running.cancelled()
    assert script.observed == []
    assert script.queue.in_flight == 0
    assert script.queue.waiting == {"a": (1,), "c": ()}
    async with script.processing():
        await asyncio.sleep(60)
    assert script.processed[2:] == [("c", []), ("a", [1])]


@simulated
async def test_a_delayed_key_runs_exactly_after_its_delay() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("late", delay=10 * SECOND)
        queue.add_after("early", delay=5 * SECOND)
        assert (queue.depth, queue.delayed) == (0, 2)
        await asyncio.sleep(60)

    assert script.processed == [("early", []), ("late", [])]
    assert script.starts == [5, 10]


async def test_delays_use_the_clock() -> None:
    clock = ManualClock()
    stopping = Stopping()
    keys: list[str] = []
    queue: WorkQueue[str, str] = WorkQueue(clock=clock, log=LOG)

    async def process(key: str, items: Sequence[str]) -> RunResult:
        keys.append(key)
        return Completed()

    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(process, stopping))
        queue.add_after("a", delay=timedelta(hours=1))
        await clock.until_asleep()
        await clock.advance(timedelta(minutes=59))
        assert keys == []

        await clock.advance(timedelta(minutes=1))
        assert keys == ["a"]

        stopping.request()


@pytest.mark.parametrize("delays", [(2, 7), (7, 2)])
@simulated
async def test_of_several_delays_the_earliest_wins(delays: tuple[int, int]) -> None:
    script = Script()
    async with script.processing() as queue:
        for delay in delays:
            queue.add_after("a", delay, delay=delay * SECOND)
        await asyncio.sleep(60)

    assert script.processed == [("a", list(delays))]
    assert script.starts == [2]


@simulated
async def test_an_add_ends_a_delay() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("a", 1, delay=10 * SECOND)
        await asyncio.sleep(3)
        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.processed == [("a", [1, 2])]
    assert script.starts == [3]


@pytest.mark.parametrize("delay", [timedelta(0), -SECOND])
@simulated
async def test_a_delay_that_is_not_positive_is_ignored(delay: timedelta) -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("a", 1, delay=delay)
        await asyncio.sleep(60)

    assert script.starts == [0]


@simulated
async def test_a_delayed_add_joins_a_key_that_is_due() -> None:
    script = Script(duration=5)
    async with script.processing() as queue:
        queue.add("first")
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add_after("a", 2, delay=10 * SECOND)
        await asyncio.sleep(60)

    assert script.processed == [("first", []), ("a", [1, 2])]


@pytest.mark.parametrize(("delay", "start"), [(2, 5), (7, 8)])
@simulated
async def test_a_delayed_add_during_a_run_waits_for_both(delay: int, start: int) -> None:
    script = Script(workers=2, duration=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add_after("a", 2, delay=delay * SECOND)
        await asyncio.sleep(60)

    assert script.processed == [("a", [1]), ("a", [2])]
    assert script.starts == [0, start]


@simulated
async def test_a_delay_is_limited_to_a_year() -> None:
    script = Script(Again(timedelta.max), Completed())
    async with script.processing() as queue:
        queue.add_after("a", delay=timedelta.max)
        queue.add("a")
        await asyncio.sleep(1)
        assert (queue.depth, queue.delayed) == (0, 1)
        await asyncio.sleep(timedelta(days=366).total_seconds())

    assert script.starts == [0, timedelta(days=365).total_seconds()]


@simulated
async def test_again_runs_a_key_after_exactly_that_delay() -> None:
    script = Script(Again(10 * SECOND), Again(timedelta(0)), duration=1)
    await script.run((0, "a", 1))

    assert script.processed == [("a", [1]), ("a", []), ("a", [])]
    assert script.starts == [0, 11, 12]


@simulated
async def test_an_add_ends_the_delay_of_again() -> None:
    script = Script(Again(10 * SECOND))
    await script.run((0, "a", 1), (3, "a", 2))

    assert script.processed == [("a", [1]), ("a", [2])]
    assert script.starts == [0, 3]


@simulated
async def test_an_add_during_the_run_overrides_again() -> None:
    script = Script(Again(10 * SECOND), duration=5)
    await script.run((0, "a", 1), (3, "a", 2))

    assert script.starts == [0, 5]


@simulated
async def test_never_drops_the_key_until_it_is_added() -> None:
    script = Script(Never("the spec is invalid"))
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(60)
        assert queue.waiting == {}

        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.processed == [("a", [1]), ("a", [2])]
    assert script.observed == [("a", Never("the spec is invalid")), ("a", Completed())]


@simulated
async def test_an_add_during_a_run_survives_never() -> None:
    script = Script(Never("the spec is invalid"), duration=5)
    await script.run((0, "a", 1), (1, "a", 2))

    assert script.processed == [("a", [1]), ("a", [2])]


@simulated
async def test_runs_that_raise_are_repeated_with_growing_delays() -> None:
    script = Script(*(RuntimeError() for _ in range(5)))
    await script.run((0, "a", 1))

    assert script.starts == [0, 1, 3, 7, 11, 15]
    assert [items for _, items in script.processed] == [[1], [], [], [], [], []]


@simulated
async def test_each_key_has_its_own_backoff() -> None:
    script = Script(RuntimeError(), RuntimeError(), RuntimeError())
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(2)
        queue.add("b")
        await asyncio.sleep(60)

    assert script.processed == [("a", []), ("a", []), ("b", []), ("a", []), ("b", [])]
    assert script.starts == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("result", [Completed(), Never("it is gone"), Again(20 * SECOND)])
@simulated
async def test_a_result_resets_the_backoff(result: RunResult) -> None:
    script = Script(RuntimeError(), RuntimeError(), result, RuntimeError())
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(10)
        queue.add("a")
        await asyncio.sleep(5)

    assert script.starts == [0, 1, 3, 10, 11]


@simulated
async def test_an_add_ends_a_delay_without_resetting_the_backoff() -> None:
    script = Script(RuntimeError(), RuntimeError(), RuntimeError())
    await script.run((0, "a", 1), (1.5, "a", 2))

    assert script.starts == [0, 1, 1.5, 5.5]


@simulated
async def test_a_run_that_raises_is_logged_and_observed(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("a bug")
    script = Script(error, error)
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(60)

    assert [outcome for _, outcome in script.observed] == [
        Crashed(error, failures=1, retry_in=SECOND),
        Crashed(error, failures=2, retry_in=2 * SECOND),
        Completed(),
    ]
    first, second = caplog.records
    assert first.getMessage() == "workqueue.crashed"
    assert first.__dict__["fields"] == {"key": "a", "error": error, "failures": 1, "retry_in": SECOND}
    assert second.exc_info is not None
    assert second.exc_info[1] is error


@simulated
async def test_delays_use_the_given_jitter() -> None:
    stopping = Stopping()
    starts: list[float] = []
    randoms = iter([0.0, 1.0])
    queue: WorkQueue[str, str] = WorkQueue(
        clock=SimulatedClock(),
        log=LOG,
        backoff=Backoff(initial=4 * SECOND, maximum=60 * SECOND, jitter=0.5),
        jitter=lambda: next(randoms),
    )

    async def process(key: str, items: Sequence[str]) -> RunResult:
        starts.append(asyncio.get_running_loop().time())
        if len(starts) < 3:
            raise RuntimeError("not yet")
        stopping.request()
        return Completed()

    queue.add("a")
    await queue.run(process, stopping)

    assert starts == [0, 2, 14]


@simulated
async def test_a_cancellation_inside_a_run_is_a_failure_of_that_run() -> None:
    script = Script(asyncio.CancelledError())
    async with script.processing() as queue:
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(60)

    assert script.processed == [("a", []), ("b", []), ("a", [])]
    assert script.starts == [0, 0, 1]
    assert isinstance(script.observed[0][1], Crashed)


@simulated
async def test_runs_that_never_wait_do_not_block_the_event_loop() -> None:
    stopping = Stopping()
    queue: WorkQueue[str, str] = WorkQueue(clock=SimulatedClock(), log=LOG)
    runs = 0

    async def process(key: str, items: Sequence[str]) -> RunResult:
        nonlocal runs
        runs += 1
        return Completed() if runs == 1000 else Again(timedelta(0))

    async def other() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        stopping.request()

    queue.add("a")
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(process, stopping))
        group.create_task(other())

    assert runs < 1000


@pytest.fixture
def clock() -> AdjustedClock:
    return AdjustedClock()


@simulated
async def test_setting_the_wall_clock_back_delays_nothing(clock: AdjustedClock) -> None:
    script = Script(clock=clock)
    async with script.processing() as queue:
        queue.add_after("a", delay=10 * SECOND)
        queue.add_after("b", delay=20 * SECOND)
        await asyncio.sleep(5)
        clock.offset = -timedelta(hours=1)
        await asyncio.sleep(10)
        queue.add_after("c", delay=10 * SECOND)
        await asyncio.sleep(60)

    assert script.starts == [10, 20, 25]


@simulated
async def test_a_set_back_is_detected_when_a_key_is_delayed(clock: AdjustedClock) -> None:
    script = Script(clock=clock)
    async with script.processing() as queue:
        queue.add_after("a", delay=10 * SECOND)
        await asyncio.sleep(5)
        clock.offset = -timedelta(hours=1)
        queue.add_after("b", delay=SECOND)
        await asyncio.sleep(60)

    assert script.processed == [("b", []), ("a", [])]
    assert script.starts == [6, 15]  # the five seconds before the set-back are lost, but not the hour


class Name:
    """A key that can be weakly referenced."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


Ending = Literal["done", "never", "crash"] | timedelta
"""How a run ends. A delay means `Again`."""


class Add(msgspec.Struct, frozen=True):
    pause: timedelta
    key: str
    delay: timedelta | None


PLAN_TIMEOUT = timedelta(hours=1)


class Plan(msgspec.Struct, frozen=True):
    adds: list[Add]
    runs: dict[str, list[tuple[timedelta, Ending]]]
    """The duration and the end of each run of a key. Later runs are done immediately."""
    workers: int
    order: int


# Quarters of a second, because their sums are exact in floating point.
quarters = st.integers(0, 12).map(lambda count: count * SECOND / 4)
immediate_endings: list[Ending] = ["done", "never", "crash"]
endings = st.sampled_from(immediate_endings) | quarters
names = st.sampled_from("abc")
plans = st.builds(
    Plan,
    adds=st.lists(st.builds(Add, pause=quarters, key=names, delay=st.none() | quarters), min_size=1, max_size=20),
    runs=st.dictionaries(names, st.lists(st.tuples(quarters, endings), max_size=8)),
    workers=st.integers(1, 4),
    order=st.integers(0, 2**32),
)


class RunChecker:
    """Checks every run against the requests that caused it. Violations are collected, because the queue would
    handle an assertion error inside a run like any other exception."""

    def __init__(self, *, is_worker_free: bool) -> None:
        self._is_worker_free = is_worker_free
        self._requests: dict[str, list[datetime]] = {}
        self._items: dict[str, list[int]] = {}
        self._ends: dict[str, datetime] = {}
        self._failures: Counter[str] = Counter()
        self._running: set[str] = set()
        self._max_running = 0
        self._violations: list[str] = []

    def requested(self, key: str, due: datetime, *items: int) -> None:
        self._requests.setdefault(key, []).append(due)
        self._items.setdefault(key, []).extend(items)

    def started(self, key: str, now: datetime, items: Sequence[int]) -> None:
        requests, added = self._requests.pop(key, []), self._items.pop(key, [])
        self._check(bool(requests), f"{key} runs without a request")
        expected = max(min(requests, default=START), self._ends.get(key, START))
        self._check(key not in self._running, f"{key} is processed by two workers")
        self._check(now >= expected, f"{key} runs at {now}, expected {expected}")
        self._check(now == expected or not self._is_worker_free, f"{key} runs late, expected {expected}")
        self._check(list(items) == added, f"{key} was added with {added}, and gets {items}")
        self._running.add(key)
        self._max_running = max(self._max_running, len(self._running))

    def ended(self, key: str, now: datetime, ending: Ending) -> None:
        self._running.discard(key)
        self._ends[key] = now
        if ending == "crash":
            self.requested(key, now + BACKOFF.delay(self._failures[key], 0))
            self._failures[key] += 1
            return
        self._failures[key] = 0
        if isinstance(ending, timedelta):
            self.requested(key, now + ending)

    def close(self, *, workers: int) -> None:
        assert self._violations == []
        assert self._requests == {}, "some requests were not followed by a run"
        assert self._max_running <= workers

    def _check(self, is_valid: bool, violation: str) -> None:
        if not is_valid:
            self._violations.append(violation)


async def play(plan: Plan) -> None:
    clock = SimulatedClock()
    stopping = Stopping()
    keys = {name: Name(name) for name in "abc"}
    endings = {name: iter(plan.runs.get(name, [])) for name in keys}
    checker = RunChecker(is_worker_free=plan.workers >= len(keys))
    queue: WorkQueue[Name, int] = WorkQueue(
        clock=clock, log=SILENT, workers=plan.workers, backoff=BACKOFF, jitter=lambda: 0.5
    )

    async def process(key: Name, items: Sequence[int]) -> RunResult:
        checker.started(key.name, clock.now(), items)
        duration, ending = next(endings[key.name], (timedelta(0), "done"))
        if duration:
            await clock.sleep(duration)
        checker.ended(key.name, clock.now(), ending)
        match ending:
            case "done":
                return Completed()
            case "never":
                return Never("planned")
            case "crash":
                raise RuntimeError("planned")
            case timedelta():
                return Again(ending)

    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(process, stopping))
        for number, step in enumerate(plan.adds):
            await clock.sleep(step.pause)
            checker.requested(step.key, clock.now() + (step.delay or timedelta(0)), number)
            if step.delay is None:
                queue.add(keys[step.key], number)
            else:
                queue.add_after(keys[step.key], number, delay=step.delay)
        await clock.sleep(PLAN_TIMEOUT)
        stopping.request()

    checker.close(workers=plan.workers)
    assert (queue.depth, queue.delayed, queue.in_flight) == (0, 0, 0)
    references = [weakref.ref(key) for key in keys.values()]
    del keys
    gc.collect()
    assert all(reference() is None for reference in references), "the queue keeps keys that are done"


@given(plans)
def test_every_run_has_a_request_and_every_request_a_run(plan: Plan) -> None:
    loop.run(play(plan), order=Random(plan.order))  # noqa: S311  # reproducible
