"""The accounts of a server: what is kept in the database, and for how long."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from sentinel.cli.wiring.accounts import build_accounts
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.history import HISTORY
from sentinel.runtime.log import get_logger
from sentinel.runtime.retention import Retention
from sentinel.testing.clock import ManualClock
from sentinel.web.audit import Auditor
from tests.contract.identity_store import NAME, fail


async def test_failed_sign_ins_are_deleted_when_they_no_longer_count(tmp_path: Path) -> None:
    clock = ManualClock()
    database = engine.database(f"sqlite:///{tmp_path / 'fleet.db'}", migrate=True, history=HISTORY)
    accounts = build_accounts(database, auditor=Auditor(), clock=clock)
    retention = Retention(accounts.retention_rules, clock=clock, log=get_logger("test"))
    await database.open()
    try:
        await fail(accounts.store, {NAME: (clock.now(),)})

        await clock.advance(timedelta(seconds=59))
        early = await retention.expire()
        await clock.advance(timedelta(seconds=2))
        late = await retention.expire()

        assert (early, late) == (0, 1)
        assert not await accounts.store.failed_sign_ins([NAME])
    finally:
        await database.close()
