"""A database that is not there yet."""

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


class Late(MemoryDatabase):
    """A database that cannot be reached at the first tries."""

    def __init__(self, *, failures: int, error: Exception) -> None:
        super().__init__()
        self._failures = failures
        self._error = error
        self.tries = 0

    async def open(self) -> None:
        self.tries += 1
        if self.tries <= self._failures:
            raise self._error
        await super().open()


async def test_a_database_that_cannot_be_reached_is_tried_until_it_can() -> None:
    clock, stopping = ManualClock(), Stopping()
    database = Late(failures=3, error=Unavailable("nobody listens"))
    opener = DatabaseOpener(database, clock=clock, log=LOG)

    await opener.open()
    running = asyncio.create_task(opener.run(stopping))
    await clock.until_asleep()
    await clock.advance(timedelta(seconds=10))
    stopping.request()
    await running

    assert database.tries == 4
    assert database.trouble() is None


async def test_what_a_person_has_to_mend_is_raised_at_once() -> None:
    opener = DatabaseOpener(
        Late(failures=1, error=ValueError("newer than this program")), clock=ManualClock(), log=LOG
    )

    with pytest.raises(ValueError, match="newer"):
        await opener.open()


async def test_being_told_to_stop_ends_the_trying() -> None:
    clock, stopping = ManualClock(), Stopping()
    opener = DatabaseOpener(Late(failures=9, error=Unavailable("gone")), clock=clock, log=LOG)
    await opener.open()
    running = asyncio.create_task(opener.run(stopping))
    await clock.until_asleep()

    stopping.request()

    await asyncio.wait_for(running, 5)
