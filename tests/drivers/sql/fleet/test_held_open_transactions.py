"""A transaction that is held open while a later one commits is not lost to a reader that goes on.

Nor does a reader miss anything after a restored backup: its position is lost instead.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from sentinel.core.fleet import change_position
from sentinel.core.fleet.change_position import PositionLost
from sentinel.ports.change_log import ChangeLog
from sentinel.ports.fleet_store import FleetTransaction
from tests.contract.change_log import LATER, ids, read_all
from tests.support.databases import backends, postgresql
from tests.support.fleet.store_records import TIMEOUT, inserting, stored


async def read_and_go_on(log: ChangeLog, text: str) -> tuple[list[str], str]:
    """Read on like a client that reconnects. Return the ids of the changes and the text to go on with."""
    changes = await read_all(log, change_position.parse(text))
    return ids(changes), str(changes[-1].position) if changes else text


async def test_on_postgresql_the_held_transaction_arrives_after_the_later_one(
    fresh_postgresql_database: str,
) -> None:
    url = fresh_postgresql_database
    backend, other = backends.sql(url), backends.sql(url)
    await backend.database.open()
    await other.database.open()
    await backend.fleet.transact(inserting(stored("gate")))
    start = str(await backend.changes.newest())
    blocker = await postgresql.connect(url)
    gate = blocker.transaction()
    await gate.start()
    await blocker.execute("SELECT 1 FROM fleet_resources WHERE id = 'gate' FOR UPDATE")

    def held(fleet: FleetTransaction) -> None:
        fleet.insert(stored("held"))
        fleet.lock("gate")

    async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
        tasks.create_task(backend.fleet.transact(held))
        await postgresql.wait_for_blocked(url)
        await other.fleet.transact(inserting(stored("later")))
        during, text = await read_and_go_on(backend.changes, start)
        again, _ = await read_and_go_on(other.changes, text)
        await gate.rollback()
    after, text = await read_and_go_on(other.changes, text)
    end, _ = await read_and_go_on(backend.changes, text)

    assert (during, again, after, end) == (["later"], [], ["held"], [])
    await blocker.close()
    await other.database.close()
    await backend.database.close()


async def test_on_postgresql_an_open_transaction_elsewhere_delays_nothing(
    fresh_postgresql_database: str, postgresql_database: str
) -> None:
    backend = backends.sql(fresh_postgresql_database)
    await backend.database.open()
    for url in (fresh_postgresql_database, postgresql_database):
        foreign = await postgresql.connect(url)
        transaction = foreign.transaction()
        await transaction.start()
        await foreign.execute("CREATE TEMPORARY TABLE things (id INTEGER)")
        start = str(await backend.changes.newest())

        await backend.fleet.transact(inserting(stored(f"cls-{len(url)}-{url[-4:]}")))
        found, text = await read_and_go_on(backend.changes, start)
        await backend.changes.expire(LATER, limit=100)
        await transaction.rollback()
        nothing, _ = await read_and_go_on(backend.changes, text)

        assert (len(found), nothing) == (1, [])
        await foreign.close()
    await backend.database.close()


async def test_on_sqlite_later_transactions_wait_for_the_held_one(tmp_path: Path) -> None:
    backend = backends.sql(f"sqlite:///{tmp_path / 'fleet.db'}")
    await backend.database.open()
    start = str(await backend.changes.newest())
    is_held, may_commit = threading.Event(), threading.Event()

    def held(fleet: FleetTransaction) -> None:
        fleet.insert(stored("held"))
        is_held.set()
        may_commit.wait(TIMEOUT.total_seconds())

    async with asyncio.timeout(TIMEOUT.total_seconds()), asyncio.TaskGroup() as tasks:
        tasks.create_task(backend.fleet.transact(held))
        await asyncio.to_thread(is_held.wait)
        later = tasks.create_task(backend.fleet.transact(inserting(stored("later"))))
        during, text = await read_and_go_on(backend.changes, start)
        assert not later.done()
        may_commit.set()
    after, _ = await read_and_go_on(backend.changes, text)

    assert (during, after) == ([], ["held", "later"])
    await backend.database.close()


async def test_on_postgresql_changes_restored_from_another_server_are_skipped(
    fresh_postgresql_database: str,
) -> None:
    backend = backends.sql(fresh_postgresql_database)
    await backend.database.open()
    start = str(await backend.changes.newest())
    await postgresql.execute(
        fresh_postgresql_database,
        "INSERT INTO fleet_changes (number, resource_id, plural, parent, may_leave, time) "
        "VALUES (1000000000000, 'restored', 'clusters', '', false, 0)",
    )

    await backend.fleet.transact(inserting(stored("cls-1")))

    assert (await read_and_go_on(backend.changes, start))[0] == ["cls-1"]
    await backend.database.close()


async def test_on_sqlite_a_position_from_after_the_restored_backup_is_lost(tmp_path: Path) -> None:
    backend = backends.sql(f"sqlite:///{tmp_path / 'fleet.db'}")
    await backend.database.open()
    await backend.fleet.transact(inserting(stored("cls-1")))
    await backend.database.close()
    copy = (tmp_path / "fleet.db").read_bytes()
    backend = backends.sql(f"sqlite:///{tmp_path / 'fleet.db'}")
    await backend.database.open()
    await backend.fleet.transact(inserting(stored("lost")))
    position = await backend.changes.newest()
    await backend.database.close()

    (tmp_path / "fleet.db").write_bytes(copy)
    backend = backends.sql(f"sqlite:///{tmp_path / 'fleet.db'}")
    await backend.database.open()
    await backend.fleet.transact(inserting(stored("cls-2")))

    with pytest.raises(PositionLost):
        await backend.changes.read(position, limit=1)
    await backend.database.close()
