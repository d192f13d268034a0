"""Old rows are deleted in batches, even if some stores fail."""

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

TIMEOUT = 60


class Rows:
    """Expired rows. The first calls raise `errors`."""

    def __init__(self, count: int = 0, *, errors: Sequence[Exception] = ()) -> None:
        self.count = count
        self.errors = list(errors)
        self.calls: list[datetime] = []

    async def expire(self, before: datetime, *, limit: int) -> int:
        self.calls.append(before)
        if self.errors:
            raise self.errors.pop(0)
        deleted = min(self.count, limit)
        self.count -= deleted
        return deleted


def retention(clock: ManualClock, *rows: Rows) -> Retention:
    rules = [RetentionRule(f"rows {n}", timedelta(days=n + 1), each.expire) for n, each in enumerate(rows)]
    return Retention(rules, clock=clock, log=get_logger("test"))


async def run_for(clock: ManualClock, subject: Retention, time: timedelta = timedelta(0)) -> None:
    stopping = Stopping()
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        tasks.create_task(subject.run(stopping))
        await clock.until_asleep()
        await clock.advance(time)
        await clock.until_asleep()
        stopping.request()


async def test_each_rule_has_its_own_age() -> None:
    clock, young, old = ManualClock(), Rows(), Rows()

    await retention(clock, young, old).expire()

    assert young.calls == [clock.now() - timedelta(days=1)]
    assert old.calls == [clock.now() - timedelta(days=2)]


async def test_batches_follow_each_other_until_none_is_full() -> None:
    clock, many, few = ManualClock(), Rows(3 * BATCH_SIZE), Rows(1)

    await run_for(clock, retention(clock, many, few))

    assert (many.count, few.count) == (0, 0)


async def test_it_runs_again_after_the_interval() -> None:
    clock, rows = ManualClock(), Rows(1)

    await run_for(clock, retention(clock, rows), INTERVAL)

    assert len(rows.calls) == 2


async def test_a_bug_in_one_store_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, broken, working = ManualClock(), Rows(1, errors=[ArithmeticError("a bug")]), Rows(1)

    await run_for(clock, retention(clock, broken, working))

    assert (broken.count, working.count) == (1, 0)
    (failure,) = [record for record in caplog.records if record.getMessage() == "retention.failed"]
    assert failure.__dict__["fields"]["rows"] == "rows 0"


async def test_an_unavailable_database_is_retried_after_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock, first, second = ManualClock(), Rows(1, errors=[Unavailable("gone")]), Rows(1)

    await run_for(clock, retention(clock, first, second), INTERVAL)

    assert (first.count, second.count) == (0, 0)
    assert len(second.calls) == 1
    assert [record.getMessage() for record in caplog.records].count("retention.failed") == 1
