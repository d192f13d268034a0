"""Keys with items, one worker per key, and what becomes of a key after its run. On virtual time."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.workqueue import Again, Crashed, Done, Never, Outcome, Result, WorkQueue
from sentinel.testing import loop
from sentinel.testing.clock import START, ManualClock
from sentinel.testing.loop import SimulatedClock

LOG = get_logger("test")
SILENT = Log(logging.Logger("silent", logging.CRITICAL), {})  # noqa: LOG001  # pytest must not listen to it
"""For what raises on purpose, and often: pytest keeps every traceback, and with it the keys."""
SECOND = timedelta(seconds=1)
BACKOFF = Backoff(initial=SECOND, maximum=4 * SECOND, jitter=0)


def on_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*fixtures: object, **named: object) -> None:
        loop.run(test(*fixtures, **named))

    return run


class Script:
    """A queue, and a process that notes what it is handed and ends each run as it was told."""

    def __init__(
        self,
        *endings: Result | BaseException,
        workers: int = 1,
        takes: float = 0,
        clock: SimulatedClock | None = None,
    ) -> None:
        """Each run takes one of the endings, and is done when none is left; it lasts `takes` seconds."""
        self.clock = clock or SimulatedClock()
        self.stopping = Stopping()
        self.handed_out: list[tuple[str, list[int]]] = []
        self.starts: list[float] = []
        """In seconds since the beginning, whatever the wall clock says."""
        self.observed: list[tuple[str, Outcome]] = []
        self.queue: WorkQueue[str, int] = WorkQueue(
            clock=self.clock,
            log=LOG,
            workers=workers,
            backoff=BACKOFF,
            jitter=lambda: 0.5,
            observe=lambda key, outcome: self.observed.append((key, outcome)),
        )
        self._endings = iter(endings)
        self._takes = takes

    async def process(self, key: str, items: Sequence[int]) -> Result:
        self.handed_out.append((key, list(items)))
        self.starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._takes)
        ending = next(self._endings, Done())
        if isinstance(ending, BaseException):
            raise ending
        return ending

    @asynccontextmanager
    async def processing(self) -> AsyncIterator[WorkQueue[str, int]]:
        """Processes keys until the end of the block, and then what is in flight."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self.process, self.stopping))
            yield self.queue
            self.stopping.request()


@on_virtual_time
async def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    script = Script()
    for number, key in enumerate("abc"):
        script.queue.add(key, number)

    async with script.processing():
        await asyncio.sleep(1)

    assert script.handed_out == [("a", [0]), ("b", [1]), ("c", [2])]


@on_virtual_time
async def test_items_of_one_key_are_handed_out_together() -> None:
    script = Script(takes=5)
    for number in range(3):
        script.queue.add("a", number)

    async with script.processing() as queue:
        await asyncio.sleep(1)

        assert script.handed_out == [("a", [0, 1, 2])]
        assert queue.in_flight == 1


@on_virtual_time
async def test_a_key_in_flight_is_not_handed_out_to_another_worker() -> None:
    script = Script(workers=2, takes=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add("a", 2)
        queue.add("b", 3)
        await asyncio.sleep(1)

        assert script.handed_out == [("a", [1]), ("b", [3])]
        assert (queue.depth, queue.in_flight) == (1, 2)


@on_virtual_time
async def test_what_is_added_during_a_run_causes_exactly_one_more() -> None:
    script = Script(workers=2, takes=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add("a", 2)
        queue.add("a", 3)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("a", [2, 3])]
    assert script.starts == [0, 5]


@on_virtual_time
async def test_a_key_that_is_done_does_not_run_again() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(60)
        queue.add("b", 2)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("b", [2])]


@on_virtual_time
async def test_a_key_needs_no_items() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(1)

    assert script.handed_out == [("a", [])]


@on_virtual_time
async def test_no_more_keys_are_in_flight_than_there_are_workers() -> None:
    script = Script(workers=3, takes=1)
    async with script.processing() as queue:
        for key in "abcdefg":
            queue.add(key)
        await asyncio.sleep(60)

    assert script.starts == [0, 0, 0, 1, 1, 1, 2]


@on_virtual_time
async def test_stopping_releases_idle_workers_and_leaves_the_rest_queued() -> None:
    script = Script(workers=5)
    async with script.processing() as queue:
        await asyncio.sleep(1)
        script.stopping.request()
        queue.add("a", 1)

    assert script.handed_out == []
    assert queue.waiting == {"a": (1,)}
    assert asyncio.get_running_loop().time() == 1


@on_virtual_time
async def test_a_key_added_just_before_stopping_is_left_for_the_next_run() -> None:
    script = Script(workers=2)
    async with script.processing() as queue:
        await asyncio.sleep(1)
        queue.add("a", 1)
        queue.add("b", 2)
        script.stopping.request()
    assert script.handed_out == []
    assert queue.waiting == {"a": (1,), "b": (2,)}
    script.stopping = Stopping()

    async with script.processing():
        await asyncio.sleep(1)

    assert script.handed_out == [("a", [1]), ("b", [2])]


@on_virtual_time
async def test_stopping_does_not_wait_for_delayed_keys() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("a", 1, delay=timedelta(hours=1))
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() == 1
    assert queue.waiting == {"a": (1,)}


@on_virtual_time
async def test_stopping_lets_keys_in_flight_finish_and_starts_no_others() -> None:
    script = Script(Again(SECOND), takes=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        queue.add("b", 2)
        queue.add_after("c", 3, delay=2 * SECOND)
        await asyncio.sleep(1)
        queue.add("a", 4)

    assert asyncio.get_running_loop().time() == 5
    assert script.handed_out == [("a", [1])]
    assert queue.waiting == {"a": (4,), "b": (2,), "c": (3,)}
    assert (queue.depth, queue.delayed, queue.in_flight) == (2, 1, 0)


@on_virtual_time
async def test_a_later_run_takes_up_what_an_earlier_one_left() -> None:
    script = Script(workers=2)
    script.stopping.request()
    async with script.processing() as queue:
        queue.add("a", 1)
        queue.add("b", 2)
        queue.add_after("c", 3, delay=SECOND)
    script.stopping = Stopping()

    async with script.processing():
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("b", [2]), ("c", [3])]
    assert script.starts == [0, 0, 1]


@on_virtual_time
async def test_a_cancelled_run_cancels_keys_in_flight_and_keeps_the_rest() -> None:
    script = Script(workers=2, takes=5)
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
    assert script.handed_out[2:] == [("c", []), ("a", [1])]


@on_virtual_time
async def test_a_delayed_key_runs_exactly_when_its_delay_is_over() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("late", delay=10 * SECOND)
        queue.add_after("early", delay=5 * SECOND)
        assert (queue.depth, queue.delayed) == (0, 2)
        await asyncio.sleep(60)

    assert script.handed_out == [("early", []), ("late", [])]
    assert script.starts == [5, 10]


async def test_delays_are_those_of_the_clock() -> None:
    clock = ManualClock()
    stopping = Stopping()
    keys: list[str] = []
    queue: WorkQueue[str, str] = WorkQueue(clock=clock, log=LOG)

    async def process(key: str, items: Sequence[str]) -> Result:
        keys.append(key)
        return Done()

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
def test_of_several_delays_the_earliest_wins(delays: tuple[int, int]) -> None:
    async def scenario() -> None:
        script = Script()
        async with script.processing() as queue:
            for delay in delays:
                queue.add_after("a", delay, delay=delay * SECOND)
            await asyncio.sleep(60)

        assert script.handed_out == [("a", list(delays))]
        assert script.starts == [2]

    loop.run(scenario())


@on_virtual_time
async def test_an_add_ends_a_delay() -> None:
    script = Script()
    async with script.processing() as queue:
        queue.add_after("a", 1, delay=10 * SECOND)
        await asyncio.sleep(3)
        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1, 2])]
    assert script.starts == [3]


@pytest.mark.parametrize("delay", [timedelta(0), -SECOND])
def test_a_delay_that_is_not_positive_is_none(delay: timedelta) -> None:
    async def scenario() -> None:
        script = Script()
        async with script.processing() as queue:
            queue.add_after("a", 1, delay=delay)
            await asyncio.sleep(60)

        assert script.starts == [0]

    loop.run(scenario())


@on_virtual_time
async def test_a_delayed_add_joins_a_key_that_is_due() -> None:
    script = Script(takes=5)
    async with script.processing() as queue:
        queue.add("first")
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add_after("a", 2, delay=10 * SECOND)
        await asyncio.sleep(60)

    assert script.handed_out == [("first", []), ("a", [1, 2])]


@pytest.mark.parametrize(("delay", "start"), [(2, 5), (7, 8)])
def test_a_delayed_add_during_a_run_waits_for_both(delay: int, start: int) -> None:
    async def scenario() -> None:
        script = Script(workers=2, takes=5)
        async with script.processing() as queue:
            queue.add("a", 1)
            await asyncio.sleep(1)
            queue.add_after("a", 2, delay=delay * SECOND)
            await asyncio.sleep(60)

        assert script.handed_out == [("a", [1]), ("a", [2])]
        assert script.starts == [0, start]

    loop.run(scenario())


@on_virtual_time
async def test_a_delay_beyond_the_calendar_counts_as_a_year() -> None:
    script = Script(Again(timedelta.max), Done())
    async with script.processing() as queue:
        queue.add_after("a", delay=timedelta.max)
        queue.add("a")
        await asyncio.sleep(1)
        assert (queue.depth, queue.delayed) == (0, 1)
        await asyncio.sleep(timedelta(days=366).total_seconds())

    assert script.starts == [0, timedelta(days=365).total_seconds()]


@on_virtual_time
async def test_again_runs_a_key_after_exactly_that_delay() -> None:
    script = Script(Again(10 * SECOND), Again(timedelta(0)), takes=1)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("a", []), ("a", [])]
    assert script.starts == [0, 11, 12]


@on_virtual_time
async def test_an_add_makes_a_key_that_runs_again_later_due_at_once() -> None:
    script = Script(Again(10 * SECOND))
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(3)
        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("a", [2])]
    assert script.starts == [0, 3]


@on_virtual_time
async def test_an_add_during_the_run_wins_over_again() -> None:
    script = Script(Again(10 * SECOND), takes=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(3)
        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.starts == [0, 5]


@on_virtual_time
async def test_never_drops_the_key_until_it_is_added() -> None:
    script = Script(Never("the spec is invalid"))
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(60)
        assert queue.waiting == {}

        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("a", [2])]
    assert script.observed == [("a", Never("the spec is invalid")), ("a", Done())]


@on_virtual_time
async def test_an_add_during_a_run_survives_never() -> None:
    script = Script(Never("the spec is invalid"), takes=5)
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(1)
        queue.add("a", 2)
        await asyncio.sleep(60)

    assert script.handed_out == [("a", [1]), ("a", [2])]


@on_virtual_time
async def test_runs_that_raise_are_repeated_with_growing_waits() -> None:
    script = Script(*(RuntimeError() for _ in range(5)))
    async with script.processing() as queue:
        queue.add("a", 1)
        await asyncio.sleep(60)

    assert script.starts == [0, 1, 3, 7, 11, 15]
    assert [items for _, items in script.handed_out] == [[1], [], [], [], [], []]


@on_virtual_time
async def test_each_key_has_a_backoff_of_its_own() -> None:
    script = Script(RuntimeError(), RuntimeError(), RuntimeError())
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(2)
        queue.add("b")
        await asyncio.sleep(60)

    assert script.handed_out == [("a", []), ("a", []), ("b", []), ("a", []), ("b", [])]
    assert script.starts == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("result", [Done(), Never("it is gone"), Again(20 * SECOND)])
def test_a_result_forgets_the_backoff(result: Result) -> None:
    async def scenario() -> None:
        script = Script(RuntimeError(), RuntimeError(), result, RuntimeError())
        async with script.processing() as queue:
            queue.add("a")
            await asyncio.sleep(10)
            queue.add("a")
            await asyncio.sleep(5)

        assert script.starts == [0, 1, 3, 10, 11]

    loop.run(scenario())


@on_virtual_time
async def test_an_add_ends_a_backoff_without_forgetting_it() -> None:
    script = Script(RuntimeError(), RuntimeError(), RuntimeError())
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(1.5)
        queue.add("a", 1)
        await asyncio.sleep(60)

    assert script.starts == [0, 1, 1.5, 5.5]


@on_virtual_time
async def test_a_run_that_raises_is_logged_and_observed(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("a bug")
    script = Script(error, error)
    async with script.processing() as queue:
        queue.add("a")
        await asyncio.sleep(60)

    assert [outcome for _, outcome in script.observed] == [
        Crashed(error, failures=1, retry_in=SECOND),
        Crashed(error, failures=2, retry_in=2 * SECOND),
        Done(),
    ]
    first, second = caplog.records
    assert first.getMessage() == "workqueue.crashed"
    assert first.__dict__["fields"] == {"key": "a", "error": error, "failures": 1, "retry_in": SECOND}
    assert second.exc_info is not None
    assert second.exc_info[1] is error


@on_virtual_time
async def test_waits_are_spread_by_the_given_source_of_jitter() -> None:
    stopping = Stopping()
    starts: list[float] = []
    randoms = iter([0.0, 1.0])
    queue: WorkQueue[str, str] = WorkQueue(
        clock=SimulatedClock(),
        log=LOG,
        backoff=Backoff(initial=4 * SECOND, maximum=60 * SECOND, jitter=0.5),
        jitter=lambda: next(randoms),
    )

    async def process(key: str, items: Sequence[str]) -> Result:
        starts.append(asyncio.get_running_loop().time())
        if len(starts) < 3:
            raise RuntimeError("not yet")
        stopping.request()
        return Done()

    queue.add("a")
    await queue.run(process, stopping)

    assert starts == [0, 2, 14]


@on_virtual_time
async def test_a_cancellation_from_within_a_run_is_a_failure_of_that_run() -> None:
    script = Script(asyncio.CancelledError())
    async with script.processing() as queue:
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(60)

    assert script.handed_out == [("a", []), ("b", []), ("a", [])]
    assert script.starts == [0, 0, 1]
    assert isinstance(script.observed[0][1], Crashed)


@on_virtual_time
async def test_runs_that_never_wait_leave_others_their_turn() -> None:
    stopping = Stopping()
    queue: WorkQueue[str, str] = WorkQueue(clock=SimulatedClock(), log=LOG)
    runs = 0

    async def process(key: str, items: Sequence[str]) -> Result:
        nonlocal runs
        runs += 1
        return Done() if runs == 1000 else Again(timedelta(0))

    async def other() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        stopping.request()

    queue.add("a")
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(process, stopping))
        group.create_task(other())

    assert runs < 1000


class AdjustedClock(SimulatedClock):
    """A wall clock that is adjusted while sleeps go on undisturbed."""

    def __init__(self) -> None:
        self.adjustment = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.adjustment


@on_virtual_time
async def test_a_wall_clock_that_is_set_back_delays_nothing() -> None:
    clock = AdjustedClock()
    script = Script(clock=clock)
    async with script.processing() as queue:
        queue.add_after("a", delay=10 * SECOND)
        queue.add_after("b", delay=20 * SECOND)
        await asyncio.sleep(5)
        clock.adjustment = -timedelta(hours=1)
        await asyncio.sleep(10)
        queue.add_after("c", delay=10 * SECOND)
        await asyncio.sleep(60)

    assert script.starts == [10, 20, 25]


@on_virtual_time
async def test_a_set_back_is_noticed_when_a_key_is_delayed() -> None:
    clock = AdjustedClock()
    script = Script(clock=clock)
    async with script.processing() as queue:
        queue.add_after("a", delay=10 * SECOND)
        await asyncio.sleep(5)
        clock.adjustment = -timedelta(hours=1)
        queue.add_after("b", delay=SECOND)
        await asyncio.sleep(60)

    assert script.handed_out == [("b", []), ("a", [])]
    assert script.starts == [6, 15]  # the five seconds before the set-back are lost, the hour is not


class Name:
    """A key that can be watched: whether anything still refers to it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


Ending = Literal["done", "never", "crash"] | timedelta
"""How a run ends; a delay means again after it."""


class Add(msgspec.Struct, frozen=True):
    pause: timedelta
    key: str
    delay: timedelta | None


AMPLE = timedelta(hours=1)
"""More than all runs of a plan and the waits between them can take."""


class Plan(msgspec.Struct, frozen=True):
    adds: list[Add]
    runs: dict[str, list[tuple[timedelta, Ending]]]
    """How long each run of a key takes, and how it ends; after the last, all are done at once."""
    workers: int
    order: int


# Quarters of a second, because sums of them are exact: what is due at 0.75 starts at 0.75.
quarters = st.integers(0, 12).map(lambda count: count * SECOND / 4)
at_once: list[Ending] = ["done", "never", "crash"]
endings = st.sampled_from(at_once) | quarters
names = st.sampled_from("abc")
plans = st.builds(
    Plan,
    adds=st.lists(st.builds(Add, pause=quarters, key=names, delay=st.none() | quarters), min_size=1, max_size=20),
    runs=st.dictionaries(names, st.lists(st.tuples(quarters, endings), max_size=8)),
    workers=st.integers(1, 4),
    order=st.integers(0, 2**32),
)


class Account:
    """Accounts for every run by the requests that led to it, each with its time. Violations are collected: an
    assertion that fails inside a run would be one more exception for the queue to deal with."""

    def __init__(self, *, is_worker_free: bool) -> None:
        self._is_worker_free = is_worker_free
        self._requests: dict[str, list[datetime]] = {}
        self._items: dict[str, list[int]] = {}
        self._ends: dict[str, datetime] = {}
        self._failures: Counter[str] = Counter()
        self._running: set[str] = set()
        self._most_running = 0
        self._violations: list[str] = []

    def requested(self, key: str, due: datetime, *items: int) -> None:
        self._requests.setdefault(key, []).append(due)
        self._items.setdefault(key, []).extend(items)

    def started(self, key: str, now: datetime, items: Sequence[int]) -> None:
        requests, added = self._requests.pop(key, []), self._items.pop(key, [])
        self._check(bool(requests), f"{key} runs although nothing asked for it")
        expected = max(min(requests, default=START), self._ends.get(key, START))
        self._check(key not in self._running, f"{key} is processed by two workers")
        self._check(now >= expected, f"{key} runs at {now}, expected {expected}")
        self._check(now == expected or not self._is_worker_free, f"{key} runs late, expected {expected}")
        self._check(list(items) == added, f"{key} was added with {added}, and gets {items}")
        self._running.add(key)
        self._most_running = max(self._most_running, len(self._running))

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
        assert self._most_running <= workers

    def _check(self, is_right: bool, violation: str) -> None:
        if not is_right:
            self._violations.append(violation)


async def play(plan: Plan) -> None:
    clock = SimulatedClock()
    stopping = Stopping()
    keys = {name: Name(name) for name in "abc"}
    endings = {name: iter(plan.runs.get(name, [])) for name in keys}
    account = Account(is_worker_free=plan.workers >= len(keys))
    queue: WorkQueue[Name, int] = WorkQueue(
        clock=clock, log=SILENT, workers=plan.workers, backoff=BACKOFF, jitter=lambda: 0.5
    )

    async def process(key: Name, items: Sequence[int]) -> Result:
        account.started(key.name, clock.now(), items)
        duration, ending = next(endings[key.name], (timedelta(0), "done"))
        if duration:
            await clock.sleep(duration)
        account.ended(key.name, clock.now(), ending)
        match ending:
            case "done":
                return Done()
            case "never":
                return Never("so it was planned")
            case "crash":
                raise RuntimeError("so it was planned")
            case timedelta():
                return Again(ending)

    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(process, stopping))
        for number, step in enumerate(plan.adds):
            await clock.sleep(step.pause)
            account.requested(step.key, clock.now() + (step.delay or timedelta(0)), number)
            if step.delay is None:
                queue.add(keys[step.key], number)
            else:
                queue.add_after(keys[step.key], number, delay=step.delay)
        await clock.sleep(AMPLE)
        stopping.request()

    account.close(workers=plan.workers)
    assert (queue.depth, queue.delayed, queue.in_flight) == (0, 0, 0)
    references = [weakref.ref(key) for key in keys.values()]
    del keys
    gc.collect()
    assert all(reference() is None for reference in references), "the queue keeps keys that are done"


@given(plans)
def test_every_request_is_followed_by_a_run_and_no_run_is_without_one(plan: Plan) -> None:
    loop.run(play(plan), order=Random(plan.order))  # noqa: S311  # chance that repeats itself is the point
