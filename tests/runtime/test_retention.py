"""Retention: what is too old is deleted, in batches, whatever goes wrong with some of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from sentinel.ports.errors import Unavailable
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.retention import BATCH_SIZE, INTERVAL, Retention, RetentionRule
from sentinel.testing.clock import ManualClock

AMPLE = 10


class Rows:
    """Some rows that are all too old, and errors that come first."""

    def __init__(self, count: int = 0, *, errors: Sequence[Exception] = ()) -> None:
        self.count = count
        self.errors = list(errors)
        self.asked: list[datetime] = []

    async def expire(self, before: datetime, *, limit: int) -> int:
        self.asked.append(before)
        if self.errors:
            raise self.errors.pop(0)
        deleted = min(self.count, limit)
        self.count -= deleted
        return deleted


def retention(clock: ManualClock, *rows: Rows) -> Retention:
    retained = [RetentionRule(f"rows {n}", timedelta(days=n + 1), each.expire) for n, each in enumerate(rows)]
    return Retention(retained, clock=clock, log=get_logger("test"))


async def run_for(clock: ManualClock, subject: Retention, time: timedelta = timedelta(0)) -> None:
    stopping = Stopping()
    async with asyncio.timeout(AMPLE), asyncio.TaskGroup() as tasks:
        tasks.create_task(subject.run(stopping))
        await clock.until_asleep()
        await clock.advance(time)
        await clock.until_asleep()
        stopping.request()


async def test_each_sort_of_rows_has_an_age_of_its_own() -> None:
    clock, young, old = ManualClock(), Rows(), Rows()

    await retention(clock, young, old).expire()

    assert young.asked == [clock.now() - timedelta(days=1)]
    assert old.asked == [clock.now() - timedelta(days=2)]


async def test_batches_follow_each_other_until_little_is_left() -> None:
    clock, many, few = ManualClock(), Rows(3 * BATCH_SIZE), Rows(1)

    await run_for(clock, retention(clock, many, few))

    assert (many.count, few.count) == (0, 0)


async def test_it_looks_again_after_a_while() -> None:
    clock, rows = ManualClock(), Rows(1)

    await run_for(clock, retention(clock, rows), INTERVAL)

    assert len(rows.asked) == 2


async def test_a_bug_in_one_store_keeps_no_other_from_shrinking(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, broken, sound = ManualClock(), Rows(1, errors=[ArithmeticError("nobody expects this")]), Rows(1)

    await run_for(clock, retention(clock, broken, sound))

    assert (broken.count, sound.count) == (1, 0)
    (failure,) = [record for record in caplog.records if record.getMessage() == "upkeep.failed"]
    assert failure.__dict__["fields"]["rows"] == "rows 0"


async def test_a_database_that_does_not_answer_is_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
    clock, first, second = ManualClock(), Rows(1, errors=[Unavailable("gone")]), Rows(1)

    await run_for(clock, retention(clock, first, second), INTERVAL)

    assert (first.count, second.count) == (0, 0)
    assert len(second.asked) == 1
    assert [record.getMessage() for record in caplog.records].count("upkeep.failed") == 1
