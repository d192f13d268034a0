"""A queue of keys and the workers that process them: the loop of every level-triggered component.

A key names a resource that may have changed. It says nothing about the change: each run reads the state again. The
model is client-go's workqueue with controller-runtime's reconcile loop.

* A key is in the queue once, however often it is added. One run covers everything added before it started.
* One worker per key. Adds during a run cause exactly one more run, because the run may have read the state before
  the change.
* A run returns `Completed`, `Again` after a delay, or `Never`. A run that raises is repeated with backoff.
* If a key has several times to run, the earliest wins. So `add` ends every delay, including backoff.

Keys may carry items, such as the deliveries to acknowledge or the reasons to log. Each item is passed to exactly
one run. A run that is repeated after an exception does not get its items again, so a `Process` that has to
settle its items does so before it raises.

The queue holds at most one entry per key, so the code that adds keys has to bound their number: a broker by its
prefetch limit, a watch by the objects it watches. A key with nothing left to do uses no memory.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeAlias, TypeVar, assert_never

import msgspec

from sentinel.ports.clock import Clock
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

BACKOFF = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(minutes=5), jitter=0.2)
"""The delays between failing runs of one key."""
_NOW = timedelta(0)
_MAX_DELAY = timedelta(days=365)
"""A server may ask for a longer delay than `datetime` can represent."""


class Completed(msgspec.Struct, frozen=True):
    """The key has nothing to do until it is added again."""


class Again(msgspec.Struct, frozen=True):
    """The key runs again after this delay, or as soon as it is added."""

    after: timedelta


class Never(msgspec.Struct, frozen=True):
    """Another run would not help until something else changes. The key runs again when it is added."""

    reason: str


class Crashed(msgspec.Struct, frozen=True):
    """The run raised and will be repeated."""

    error: BaseException
    failures: int
    """Consecutive failed runs of this key, including this one."""
    retry_in: timedelta


RunResult: TypeAlias = Completed | Again | Never
"""The result of a run."""
RunOutcome: TypeAlias = RunResult | Crashed
"""The outcome of a run, which the observer gets."""
Process: TypeAlias = Callable[[K, Sequence[T]], Awaitable[RunResult]]
"""Processes a key and the items that were added since its last run started."""


class WorkQueue(Generic[K, T]):
    """Keys to process, with their items. Keys can be added at any time; `run` processes them."""

    def __init__(
        self,
        *,
        clock: Clock,
        log: Log,
        workers: int = 1,
        backoff: Backoff = BACKOFF,
        jitter: Callable[[], float] = random.random,
        observe: Callable[[K, RunOutcome], None] = lambda key, outcome: None,
    ) -> None:
        """At most `workers` keys are processed at the same time. `observe` gets the outcome of each run and must
        not raise. `log` gets the tracebacks of failed runs."""
        self._clock = clock
        self._log = log
        self._workers = workers
        self._backoff = backoff
        self._jitter = jitter
        self._observe = observe
        self._waiting: dict[K, list[T]] = {}
        """Keys that have to run, with the items for that run. Each is in `_ready` or in `_delayed`, or it is due
        but in flight and becomes ready when its current run ends."""
        self._ready: deque[K] = deque()
        self._ready_count = asyncio.Semaphore(0)
        self._delayed: list[tuple[datetime, int, K]] = []
        """Sorted by time. Not a heap: when a key becomes due early, its entry has to be deleted, or a key that is
        often added would leave entries behind."""
        self._delays: dict[K, tuple[datetime, int, K]] = {}
        self._numbers = itertools.count()  # a tie-breaker: keys may not be comparable
        self._timer_is_due = asyncio.Event()
        self._latest = datetime.min.replace(tzinfo=UTC)
        self._set_back = timedelta(0)
        self._in_flight: set[K] = set()
        self._failures: dict[K, int] = {}

    @property
    def depth(self) -> int:
        """The number of keys that are due and wait for a worker, or for their current run to end."""
        return len(self._waiting) - len(self._delayed)

    @property
    def delayed(self) -> int:
        """The number of delayed keys."""
        return len(self._delayed)

    @property
    def in_flight(self) -> int:
        """The number of keys that are being processed."""
        return len(self._in_flight)

    @property
    def waiting(self) -> Mapping[K, Sequence[T]]:
        """A copy of the waiting keys, due or delayed, with the items that no run has got yet."""
        return {key: tuple(items) for key, items in self._waiting.items()}

    def add(self, key: K, *items: T) -> None:
        """Request a run as soon as a worker is free."""
        self._request(key, items, _NOW)

    def add_after(self, key: K, *items: T, delay: timedelta) -> None:
        """Request a run after `delay`. If the key is due earlier, it runs then, with these items."""
        self._request(key, items, delay)

    async def run(self, process: Process[K, T], stopping: Stopping) -> None:
        """Process keys until stopped. Returns when the keys in flight are finished.

        Keys that still wait then stay in the queue for the next `run`. `waiting` shows them.
        """
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._release_delayed(group))
            for _ in range(self._workers):
                group.create_task(self._work(process, stopping))
            await stopping.wait()
            timer.cancel()

    async def _work(self, process: Process[K, T], stopping: Stopping) -> None:
        while not await stopping.interrupts(self._ready_count.acquire()):
            if stopping.requested:
                self._ready_count.release()  # no key was taken
                return
            await self._process(self._ready.popleft(), process)
            await asyncio.sleep(0)  # keys that need no I/O must not block the event loop

    async def _process(self, key: K, process: Process[K, T]) -> None:
        items = self._waiting.pop(key)
        self._in_flight.add(key)
        outcome: RunOutcome
        try:
            outcome = await process(key, items)
        except (Exception, asyncio.CancelledError) as error:  # one failed run must not end its worker
            if is_cancelled(error):
                raise
            outcome = self._crashed(key, error)
        finally:
            self._in_flight.discard(key)
            if key in self._waiting and key not in self._delays:
                self._make_ready(key)
        match outcome:
            case Completed() | Never():
                self._failures.pop(key, None)
            case Again(after=delay):
                self._failures.pop(key, None)
                self._request(key, (), delay)
            case Crashed(retry_in=delay):
                self._request(key, (), delay)
            case _:
                assert_never(outcome)
        self._observe(key, outcome)

    def _crashed(self, key: K, error: BaseException) -> Crashed:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures - 1, self._jitter())
        self._log.exception("workqueue.crashed", key=str(key), error=error, failures=failures, retry_in=delay)
        return Crashed(error, failures, delay)

    def _request(self, key: K, items: Iterable[T], delay: timedelta) -> None:
        is_due = key in self._waiting and key not in self._delays
        self._waiting.setdefault(key, []).extend(items)
        if is_due:
            return
        if delay > _NOW:
            self._delay(key, self._now() + min(delay, _MAX_DELAY))
            return
        self._end_delay(key)
        self._make_ready(key)

    def _make_ready(self, key: K) -> None:
        if key not in self._in_flight:
            self._ready.append(key)
            self._ready_count.release()

    def _delay(self, key: K, until: datetime) -> None:
        entry = self._delays.get(key)
        if entry is not None and entry[0] <= until:
            return
        self._end_delay(key)
        entry = self._delays[key] = (until, next(self._numbers), key)
        insort(self._delayed, entry)
        if self._delayed[0] is entry:
            self._timer_is_due.set()

    def _end_delay(self, key: K) -> None:
        entry = self._delays.pop(key, None)
        if entry is not None:
            del self._delayed[bisect_left(self._delayed, entry)]

    async def _release_delayed(self, group: asyncio.TaskGroup) -> None:
        """Make delayed keys ready when they are due."""
        while True:
            self._timer_is_due.clear()
            now = self._now()
            while self._delayed and self._delayed[0][0] <= now:
                key = self._delayed[0][2]
                self._end_delay(key)
                self._make_ready(key)
            sleep = group.create_task(self._sleep_until(self._delayed[0][0])) if self._delayed else None
            try:
                await self._timer_is_due.wait()
            finally:
                if sleep is not None:
                    sleep.cancel()

    async def _sleep_until(self, time: datetime) -> None:
        await self._clock.sleep(time - self._now())
        # A sleep never ends early. If time is left, the wall clock was set back during the sleep.
        missing = time - self._now()
        self._set_back += max(missing, timedelta(0))
        self._timer_is_due.set()

    def _now(self) -> datetime:
        """Return the time for delays. It never goes back, unlike the wall clock. Otherwise a key would be
        delayed by as much as the clock is set back."""
        now = self._clock.now() + self._set_back
        if now < self._latest:
            self._set_back += self._latest - now
            return self._latest
        self._latest = now
        return now


def is_cancelled(error: BaseException) -> bool:
    """Whether `error` is the cancellation of the current task, which has to be raised again.

    Any other `CancelledError` comes from something that the task awaited, such as a future that its owner
    cancelled. That is an ordinary failure. Raised again, it would end the worker unnoticed.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
