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
    """Raises `errors` at the first attempts to open it, one after the other."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self._errors = iter(errors)
        self.attempts = 0

    async def open(self) -> None:
        self.attempts += 1
        error = next(self._errors, None)
        if error is not None:
            raise error
        await super().open()


async def test_an_unavailable_database_is_retried_until_it_opens() -> None:
    clock, stopping = ManualClock(), Stopping()
    database = FailingDatabase(*[Unavailable("connection refused")] * 3)
    opener = DatabaseOpener(database, clock=clock, log=LOG)

    await opener.open()
    running = asyncio.create_task(opener.run(stopping))
    await clock.until_asleep()
    await clock.advance(timedelta(seconds=10))
    stopping.request()
    await running

    assert database.attempts == 4
    assert database.unavailable_reason() is None


async def test_other_errors_are_raised_at_startup() -> None:
    database = FailingDatabase(ValueError("newer than this program"))
    opener = DatabaseOpener(database, clock=ManualClock(), log=LOG)

    with pytest.raises(ValueError, match="newer"):
        await opener.open()


async def test_stopping_ends_the_retries() -> None:
    clock, stopping = ManualClock(), Stopping()
    opener = DatabaseOpener(FailingDatabase(*[Unavailable("gone")] * 9), clock=clock, log=LOG)
    await opener.open()
    running = asyncio.create_task(opener.run(stopping))
    await clock.until_asleep()

    stopping.request()

    await asyncio.wait_for(running, 60)
