"""Worker threads that take jobs from an event loop through a bounded queue.

A thread takes all waiting jobs at once, so that it can share an expensive step such as a commit: writes that share
one cost a fifth of what they cost in an executor (`bench/parts_sqlite.py`). Most of the remaining cost is waking
threads, so each thread has its own wake-up queue; a shared queue would wake the next thread for nothing. The most
recently idle thread is woken first, because its caches are warm. Unlike an executor's, all threads are daemons: a
process can exit even if one of them hangs.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from sentinel.drivers.sql.engine.statements import Session
from sentinel.ports.errors import Unavailable

T = TypeVar("T")

_RECOVERY_INTERVAL = timedelta(seconds=1)


class Job:
    """A piece of work and its outcome. The thread sets the outcome, the event loop passes it to the caller."""

    __slots__ = ("_future", "error", "result", "work")

    def __init__(self, work: Callable[[Session], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self._future = future

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        return self._future.cancelled()

    def complete(self) -> None:
        """Pass the outcome to the caller. Called on the event loop's thread."""
        if self._future.done():
            return
        if isinstance(self.error, StopIteration):
            # A future accepts any exception but this one.
            self._future.set_exception(RuntimeError("the work raised StopIteration"))
        elif self.error is not None:
            self._future.set_exception(self.error)
        else:
            self._future.set_result(self.result)


class JobRunner(Protocol):
    """Runs the jobs of one thread."""

    def run(self, jobs: Sequence[Job]) -> None:
        """Set a result or an error on every job. If this raises, all of them have failed."""

    @property
    def is_failing(self) -> bool:
        """Whether to call `recover` now and then while idle."""

    def recover(self) -> None:
        """Find out whether jobs can run again. Does not raise."""

    def close(self) -> None: ...


class _Worker:
    """A thread's job runner and its wake-up queue."""

    def __init__(self, runner: JobRunner) -> None:
        self.runner = runner
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def wake(self, *, is_last: bool = False) -> None:
        """Make the thread look for jobs. After the last wake-up it ends."""
        self._wakeups.put(is_last)

    def wait(self) -> bool:
        """Wait for a wake-up, and return whether it is the last."""
        while True:
            try:
                return self._wakeups.get(
                    timeout=_RECOVERY_INTERVAL.total_seconds() if self.runner.is_failing else None
                )
            except queue.Empty:
                self.runner.recover()


class WorkerThreads:
    """Worker threads that share one queue."""

    def __init__(
        self, *, name: str, runners: Sequence[JobRunner], max_waiting: int, max_batch: int, timeout: timedelta
    ) -> None:
        """Start one thread per runner. `max_batch` is how many jobs a thread takes at once, `timeout` how long a
        caller waits for its result."""
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Job] = deque()
        """Appended to by the event loop, popped from by the threads."""
        self._slots = asyncio.Semaphore(max_waiting)
        self._max_batch = max_batch
        self._timeout = timeout.total_seconds()
        self._is_open = True
        self._workers = [_Worker(runner) for runner in runners]
        self._idle = [*self._workers]
        """Used only on the event loop, where it is certain that a thread is idle and no job waits."""
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"{name}-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Session], T]) -> T:
        """Run the work in a thread. If the caller is cancelled, the work is done completely or not at all."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
                if not self._is_open:
                    self._slots.release()
                    raise Unavailable("the database is closed")
                future: asyncio.Future[T] = self._loop.create_future()
                self._waiting.append(Job(work, future))
                if self._idle:
                    self._idle.pop().wake()
                return await future
        except TimeoutError as error:
            raise Unavailable(f"the database did not respond within {self._timeout:g} s") from error

    async def close(self) -> None:
        """Finish waiting jobs and end the threads. A thread that hangs longer than the timeout is abandoned."""
        self._is_open = False
        for worker in self._workers:
            worker.wake(is_last=True)
        deadline = self._loop.time() + self._timeout
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, deadline - self._loop.time()))

    def _run(self, worker: _Worker) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = worker.wait()
                self._run_waiting(worker)
        finally:
            worker.runner.close()

    def _run_waiting(self, worker: _Worker) -> None:
        """Run jobs until none waits. A separate function, so that an idle thread keeps no result alive."""
        finished: Sequence[Job] = ()
        while jobs := self._take_batch():
            if finished:
                self._call_on_loop(self._complete, finished)
            _run_batch(worker.runner, jobs)
            finished = jobs
        self._call_on_loop(self._become_idle, worker, finished)

    def _take_batch(self) -> list[Job]:
        jobs: list[Job] = []
        with suppress(IndexError):  # checking the length first would race with the other threads
            while len(jobs) < self._max_batch:
                jobs.append(self._waiting.popleft())
        return jobs

    def _call_on_loop(self, callback: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it every caller
            self._loop.call_soon_threadsafe(callback, *args)

    def _complete(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._slots.release()
            job.complete()

    def _become_idle(self, worker: _Worker, finished: Sequence[Job]) -> None:
        """Mark a thread as idle, or wake it for jobs that arrived after it last looked."""
        self._complete(finished)
        if self._waiting:
            worker.wake()
        else:
            self._idle.append(worker)


def _run_batch(runner: JobRunner, jobs: Sequence[Job]) -> None:
    """Run jobs and turn any exception into their failure: the thread must survive, because no other thread does
    its work."""
    try:
        runner.run(jobs)
    except BaseException as error:  # for example a MemoryError at a commit
        for job in jobs:
            job.result = None
            job.error = Unavailable(f"the database failed: {type(error).__name__}")
            job.error.__cause__ = error
