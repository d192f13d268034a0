"""Waiting for an unavailable database at startup."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.ports.errors import Unavailable
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.wait_for_database import DatabaseOpener
from sentinel.testing.clock import ManualClock
from sentinel.testing.database import MemoryDatabase

LOG = get_logger("test")


class FailingDatabase(MemoryDatabase):
    """Fails at the first attempts to open it."""

    def __init__(self, *, failures: int, error: Exception) -> None:
        super().__init__()
        self._failures = failures
        self._error = error
        self.attempts = 0

    async def open(self) -> None:
        self.attempts += 1
        if self.attempts <= self._failures:
            raise self._error
        await super().open()


async def test_an_unavailable_database_is_retried_until_it_opens() -> None:
    clock, stopping = ManualClock(), Stopping()
    database = FailingDatabase(failures=3, error=Unavailable("connection refused"))
    opener = DatabaseOpener(database, clock=clock, log=LOG)

    await opener.open()
    running = asyncio.create_task(opener.run(stopping))
    await clock.until_asleep()
    await clock.advance(timedelta(seconds=10))
    stopping.request()
    await running

    assert database.attempts == 4
    assert database.trouble() is None


async def test_other_errors_are_raised_at_startup() -> None:
    opener = DatabaseOpener(
        FailingDatabase(failures=1, error=ValueError("newer than this program")), clock=ManualClock(), log=LOG
    )

    with pytest.raises(ValueError, match="newer"):
        await opener.open()


async def test_stopping_ends_the_retries() -> None:
    clock, stopping = ManualClock(), Stopping()
    opener = DatabaseOpener(FailingDatabase(failures=9, error=Unavailable("gone")), clock=clock, log=LOG)
    await opener.open()
    running = asyncio.create_task(opener.run(stopping))
    await clock.until_asleep()

    stopping.request()

    await asyncio.wait_for(running, 5)
