"""Threads that take work from an event loop, through a queue that is bounded.

A thread takes everything that waits at once. It can then do once for many what is expensive to do for each, such
as a commit: writes that share one cost a fifth of what they cost in an executor (`bench/parts_sqlite.py`). Most of
a hop is waking threads, so each has a bell of its own: a queue that threads share would wake the next one for
nothing. The thread that was idle last is woken first; its caches are warm. All threads are daemons, unlike an
executor's: a process can end although one of them hangs.
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

_RECOVERY = timedelta(seconds=1)


class Job:
    """A piece of work, and what became of it. The thread writes the outcome, the loop hands it on."""

    __slots__ = ("_answer", "error", "result", "work")

    def __init__(self, work: Callable[[Session], Any], answer: asyncio.Future[Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self._answer = answer

    @property
    def is_abandoned(self) -> bool:
        """Nobody waits for it any more."""
        return self._answer.cancelled()

    def settle(self) -> None:
        """On the loop's own thread."""
        if self._answer.done():
            return
        if isinstance(self.error, StopIteration):
            # A future takes any error but this one.
            self._answer.set_exception(RuntimeError("the work raised StopIteration"))
        elif self.error is not None:
            self._answer.set_exception(self.error)
        else:
            self._answer.set_result(self.result)


class JobRunner(Protocol):
    """What a thread does with its work."""

    def serve(self, jobs: Sequence[Job]) -> None:
        """Gives every job a result or an error; where it raises instead, all of them have failed."""

    @property
    def is_troubled(self) -> bool:
        """Whether to let it `recover` once in a while when nothing is to be done."""

    def recover(self) -> None:
        """Finds out whether work could be done again; raises nothing."""

    def close(self) -> None: ...


class _Worker:
    """A thread's part: what serves the work, and the bell that calls for it."""

    def __init__(self, server: JobRunner) -> None:
        self.server = server
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def ring(self, *, is_last: bool = False) -> None:
        """There is work, or perhaps was; `is_last`: and afterwards there will be none."""
        self._bell.put(is_last)

    def listen(self) -> bool:
        """Waits for the bell; whether it was the last."""
        while True:
            try:
                return self._bell.get(timeout=_RECOVERY.total_seconds() if self.server.is_troubled else None)
            except queue.Empty:
                self.server.recover()


class WorkerThreads:
    """Some threads behind one queue."""

    def __init__(
        self, *, name: str, servers: Sequence[JobRunner], capacity: int, batch: int, patience: timedelta
    ) -> None:
        """`capacity` is how much may wait, `batch` how much a thread takes at once, `patience` how long a caller
        waits for an answer."""
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Job] = deque()
        """Filled by the loop, emptied by the threads."""
        self._room = asyncio.Semaphore(capacity)
        self._batch = batch
        self._patience = patience.total_seconds()
        self._is_open = True
        self._workers = [_Worker(server) for server in servers]
        self._idle = [*self._workers]
        """Only the loop looks at these: it alone can tell that a thread rests and nothing waits."""
        self._threads = [
            # Daemons: a process that ends without closing its database must still end.
            threading.Thread(target=self._run, args=(worker,), name=f"{name}-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]
        for thread in self._threads:
            thread.start()

    async def do(self, work: Callable[[Session], T]) -> T:
        """The result of the work. A caller who is cancelled leaves it to be done, or not, as a whole."""
        try:
            async with asyncio.timeout(self._patience):
                await self._room.acquire()
                if not self._is_open:
                    self._room.release()
                    raise Unavailable("the database is closed")
                answer: asyncio.Future[T] = self._loop.create_future()
                self._waiting.append(Job(work, answer))
                if self._idle:
                    self._idle.pop().ring()
                return await answer
        except TimeoutError as error:
            raise Unavailable(f"the database did not answer within {self._patience:g} s") from error

    async def close(self) -> None:
        """Finishes what waits, and ends the threads.

        One that hangs longer than anybody waits for an answer is left behind: it keeps no process from ending.
        """
        self._is_open = False
        for worker in self._workers:
            worker.ring(is_last=True)
        end = self._loop.time() + self._patience
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, end - self._loop.time()))

    def _run(self, worker: _Worker) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = worker.listen()
                self._work_off(worker)
        finally:
            worker.server.close()

    def _work_off(self, worker: _Worker) -> None:
        """Does what waits, until nothing does. By itself, so that a thread which rests keeps no result alive."""
        served: Sequence[Job] = ()
        while jobs := self._take():
            if served:
                self._call(self._settle, served)
            _serve(worker.server, jobs)
            served = jobs
        self._call(self._rest, worker, served)

    def _take(self) -> list[Job]:
        """What waits, as much as may be taken at once."""
        jobs: list[Job] = []
        with suppress(IndexError):  # not asked for its length: another thread may be faster
            while len(jobs) < self._batch:
                jobs.append(self._waiting.popleft())
        return jobs

    def _call(self, tell: Callable[..., None], *told: Any) -> None:
        with suppress(RuntimeError):  # a loop that is closed has nobody left to tell
            self._loop.call_soon_threadsafe(tell, *told)

    def _settle(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._room.release()
            job.settle()

    def _rest(self, worker: _Worker, jobs: Sequence[Job]) -> None:
        """A thread listens for its bell; what came after it had looked for work is called for here."""
        self._settle(jobs)
        if self._waiting:
            worker.ring()
        else:
            self._idle.append(worker)


def _serve(server: JobRunner, jobs: Sequence[Job]) -> None:
    """Whatever happens, those who wait are told, and the thread lives on: nobody else would do its work."""
    try:
        server.serve(jobs)
    except BaseException as error:  # a MemoryError at a commit, say; the thread has nobody above it to tell
        for job in jobs:
            job.result = None
            job.error = Unavailable(f"the database failed: {type(error).__name__}")
            job.error.__cause__ = error
