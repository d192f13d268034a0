"""Threads behind a queue: how they come to an end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from sentinel.drivers.sql.lane import Job, Lane
from sentinel.ports.fleet_store import Unavailable

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


async def test_closing_leaves_a_thread_behind_that_hangs() -> None:
    server = Hanging()
    lane = Lane(name="test", servers=[server], capacity=1, batch=1, patience=timedelta(milliseconds=10))
    with pytest.raises(Unavailable):
        await lane.do(lambda session: None)

    async with asyncio.timeout(AMPLE):
        await lane.close()

    assert not server.is_closed.is_set()
    server.let_go.set()
    assert await asyncio.to_thread(server.is_closed.wait, AMPLE)


async def test_closing_waits_for_a_thread_that_ends() -> None:
    server = Hanging()
    server.let_go.set()
    lane = Lane(name="test", servers=[server], capacity=1, batch=1, patience=timedelta(seconds=AMPLE))
    await lane.do(lambda session: None)

    await lane.close()

    assert server.is_closed.is_set()
