"""Worker threads: which thread is woken, how many jobs it takes, and how closing ends it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sentinel.drivers.sql.engine.worker_threads import Job, JobRunner, WorkerThreads
from sentinel.ports.errors import Unavailable

TIMEOUT = 60


class GatedRunner:
    """Blocks each batch until the test opens the gate."""

    is_failing = False

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.has_begun = threading.Event()
        self.gate = threading.Event()
        self.is_closed = threading.Event()

    def run(self, jobs: Sequence[Job]) -> None:
        self.batches.append(len(jobs))
        self.has_begun.set()
        self.gate.wait(TIMEOUT)

    def recover(self) -> None: ...

    def close(self) -> None:
        self.is_closed.set()


class OpenRunner(GatedRunner):
    """Does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.gate.set()


class RaisesOnce(OpenRunner):
    """Raises after its first batch, as a commit without memory would."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: list[BaseException] = [MemoryError("no room for a commit")]

    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.result = "done"
        if self._errors:
            raise self._errors.pop()


class Page:
    """A result that supports weak references."""


class ReturnsPages(OpenRunner):
    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.result = Page()


def start(*runners: JobRunner, max_batch: int = 1, timeout: timedelta | None = None) -> WorkerThreads:
    return WorkerThreads(
        name="test",
        runners=runners,
        max_waiting=100,
        max_batch=max_batch,
        timeout=timeout or timedelta(seconds=TIMEOUT),
    )


@asynccontextmanager
async def running(*runners: JobRunner, max_batch: int = 1) -> AsyncIterator[WorkerThreads]:
    threads = start(*runners, max_batch=max_batch)
    try:
        yield threads
    finally:
        await threads.close()


def submit(threads: WorkerThreads, count: int) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(threads.run(lambda session: None)) for _ in range(count)]


async def test_the_most_recently_idle_thread_is_woken_first() -> None:
    runners = [OpenRunner(), OpenRunner(), OpenRunner()]

    async with running(*runners) as threads:
        for _ in range(5):
            await threads.run(lambda session: None)

    assert sorted(len(runner.batches) for runner in runners) == [0, 0, 5]


async def test_waiting_jobs_go_to_the_first_thread_that_becomes_free() -> None:
    slow, quick = GatedRunner(), GatedRunner()
    async with running(slow, quick) as threads:
        begun = submit(threads, 2)
        for runner in (slow, quick):
            assert await asyncio.to_thread(runner.has_begun.wait, TIMEOUT)
        waiting = submit(threads, 8)
        await asyncio.sleep(0)

        quick.gate.set()
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*waiting)

        assert len(slow.batches) == 1
        slow.gate.set()
        await asyncio.gather(*begun)

    assert len(quick.batches) == 9


async def test_a_runner_that_raises_fails_its_jobs_but_not_the_thread() -> None:
    async with running(RaisesOnce()) as threads, asyncio.timeout(TIMEOUT):
        with pytest.raises(Unavailable, match="the database failed: MemoryError"):
            await threads.run(lambda session: None)

        assert await threads.run(lambda session: "done") == "done"


async def test_a_thread_takes_all_waiting_jobs_up_to_the_maximum() -> None:
    runner = GatedRunner()
    async with running(runner, max_batch=4) as threads:
        jobs = submit(threads, 1)
        assert await asyncio.to_thread(runner.has_begun.wait, TIMEOUT)
        jobs += submit(threads, 6)
        await asyncio.sleep(0)

        runner.gate.set()
        await asyncio.gather(*jobs)

    assert runner.batches == [1, 4, 2]


async def test_an_idle_thread_keeps_no_result_alive() -> None:
    is_collected, loop = asyncio.Event(), asyncio.get_running_loop()

    async with running(ReturnsPages()) as threads, asyncio.timeout(TIMEOUT):
        page = weakref.ref(
            await threads.run(lambda session: object()), lambda _: loop.call_soon_threadsafe(is_collected.set)
        )
        await is_collected.wait()

        assert page() is None


async def test_closing_finishes_waiting_jobs() -> None:
    runner = GatedRunner()
    threads = start(runner)
    jobs = submit(threads, 5)
    await asyncio.sleep(0)

    closing = asyncio.create_task(threads.close())
    runner.gate.set()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*jobs, closing)

    assert sum(runner.batches) == 5


async def test_closing_leaves_a_hanging_thread_behind() -> None:
    runner = GatedRunner()
    threads = start(runner, timeout=timedelta(milliseconds=10))
    with pytest.raises(Unavailable):
        await threads.run(lambda session: None)

    async with asyncio.timeout(TIMEOUT):
        await threads.close()

    assert not runner.is_closed.is_set()
    runner.gate.set()
    assert await asyncio.to_thread(runner.is_closed.wait, TIMEOUT)


async def test_closing_waits_for_a_thread_that_ends() -> None:
    runner = OpenRunner()
    threads = start(runner)
    await threads.run(lambda session: None)

    await threads.close()

    assert runner.is_closed.is_set()
