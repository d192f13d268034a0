"""Threads behind a queue: who is called, what they take, and how they come to an end."""

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

AMPLE = 10


class Hanging:
    """Does nothing with its work until it is let go, as on a disk that has gone."""

    is_troubled = False

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.is_closed = threading.Event()

    def serve(self, jobs: Sequence[Job]) -> None:
        self.let_go.wait(AMPLE)

    def recover(self) -> None: ...

    def close(self) -> None:
        self.is_closed.set()


class Gated:
    """Does its work, each batch when it is let go."""

    is_troubled = False

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.has_begun = threading.Event()
        self.let_go = threading.Event()

    def serve(self, jobs: Sequence[Job]) -> None:
        self.batches.append(len(jobs))
        self.has_begun.set()
        self.let_go.wait(AMPLE)

    def recover(self) -> None: ...

    def close(self) -> None: ...


class Failing:
    """Raises where it should not, once."""

    is_troubled = False

    def __init__(self) -> None:
        self._errors: list[BaseException] = [MemoryError("no room for a commit")]

    def serve(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.result = "done"
        if self._errors:
            raise self._errors.pop()

    def recover(self) -> None: ...

    def close(self) -> None: ...


class Page:
    """A result that can be seen to go."""


class Fetching:
    """Has a page for everybody."""

    is_troubled = False

    def serve(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.result = Page()

    def recover(self) -> None: ...

    def close(self) -> None: ...


@asynccontextmanager
async def threads_of(*servers: JobRunner, batch: int = 1) -> AsyncIterator[WorkerThreads]:
    threads = WorkerThreads(
        name="test", servers=servers, capacity=100, batch=batch, patience=timedelta(seconds=AMPLE)
    )
    try:
        yield threads
    finally:
        await threads.close()


async def test_the_thread_that_rested_last_is_called_first() -> None:
    servers = [Gated(), Gated(), Gated()]
    for server in servers:
        server.let_go.set()

    async with threads_of(*servers) as threads:
        for _ in range(5):
            await threads.do(lambda session: None)

    assert sorted(len(server.batches) for server in servers) == [0, 0, 5]


async def test_work_that_finds_every_thread_busy_is_taken_by_the_first_that_is_free() -> None:
    slow, quick = Gated(), Gated()
    async with threads_of(slow, quick) as threads:
        begun = [asyncio.create_task(threads.do(lambda session: None)) for _ in range(2)]
        for server in (slow, quick):
            assert await asyncio.to_thread(server.has_begun.wait, AMPLE)
        waiting = [asyncio.create_task(threads.do(lambda session: None)) for _ in range(8)]
        await asyncio.sleep(0)
        quick.let_go.set()
        async with asyncio.timeout(AMPLE):
            await asyncio.gather(*waiting)

        assert len(slow.batches) == 1
        slow.let_go.set()
        await asyncio.gather(*begun)

    assert len(quick.batches) == 9


async def test_a_thread_whose_work_raises_tells_those_who_wait_and_lives_on() -> None:
    async with threads_of(Failing()) as threads, asyncio.timeout(AMPLE):
        with pytest.raises(Unavailable, match="the database failed: MemoryError"):
            await threads.do(lambda session: None)

        assert await threads.do(lambda session: "done") == "done"


async def test_all_that_waits_is_taken_at_once_up_to_the_bound() -> None:
    server = Gated()
    async with threads_of(server, batch=4) as threads:
        works = [asyncio.create_task(threads.do(lambda session: None))]
        assert await asyncio.to_thread(server.has_begun.wait, AMPLE)
        works += [asyncio.create_task(threads.do(lambda session: None)) for _ in range(6)]
        await asyncio.sleep(0)
        server.let_go.set()
        await asyncio.gather(*works)

    assert server.batches == [1, 4, 2]


async def test_a_thread_that_rests_keeps_no_result_alive() -> None:
    is_gone, loop = asyncio.Event(), asyncio.get_running_loop()

    async with threads_of(Fetching()) as threads, asyncio.timeout(AMPLE):
        page = weakref.ref(
            await threads.do(lambda session: object()), lambda _: loop.call_soon_threadsafe(is_gone.set)
        )
        await is_gone.wait()

        assert page() is None


async def test_closing_finishes_what_waits() -> None:
    server = Gated()
    threads = WorkerThreads(name="test", servers=[server], capacity=9, batch=1, patience=timedelta(seconds=AMPLE))
    works = [asyncio.create_task(threads.do(lambda session: None)) for _ in range(5)]
    await asyncio.sleep(0)

    closing = asyncio.create_task(threads.close())
    server.let_go.set()
    async with asyncio.timeout(AMPLE):
        await asyncio.gather(*works, closing)

    assert sum(server.batches) == 5


async def test_closing_leaves_a_thread_behind_that_hangs() -> None:
    server = Hanging()
    threads = WorkerThreads(
        name="test", servers=[server], capacity=1, batch=1, patience=timedelta(milliseconds=10)
    )
    with pytest.raises(Unavailable):
        await threads.do(lambda session: None)

    async with asyncio.timeout(AMPLE):
        await threads.close()

    assert not server.is_closed.is_set()
    server.let_go.set()
    assert await asyncio.to_thread(server.is_closed.wait, AMPLE)


async def test_closing_waits_for_a_thread_that_ends() -> None:
    server = Hanging()
    server.let_go.set()
    threads = WorkerThreads(name="test", servers=[server], capacity=1, batch=1, patience=timedelta(seconds=AMPLE))
    await threads.do(lambda session: None)

    await threads.close()

    assert server.is_closed.is_set()
