"""SQLite: one process, one writer, and no confirmed write is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.sqlite import SqliteDatabase, SqliteSession
from sentinel.drivers.sql.engine.sqlite_file import connect
from sentinel.drivers.sql.fleet import lists
from sentinel.drivers.sql.history import HISTORY
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.fleet_store import FleetTransaction, ListQuery, NameTaken
from sentinel.runtime.database_url import InvalidDatabaseUrl
from tests.support.databases.backends import SqlFleet
from tests.support.fleet.store_records import inserting, stored

TIMEOUT = 30.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqlFleet]:
    database = SqliteDatabase(file, migrate=True, busy_timeout=timedelta(milliseconds=20), history=HISTORY)
    async with SqlFleet(database) as store:
        yield store


def fleet_at(file: Path) -> SqlFleet:
    return SqlFleet.at(f"sqlite:///{file}")


class Gate:
    """Work that blocks the writer until the gate is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._opened = threading.Event()

    def __call__(self, fleet: FleetTransaction) -> None:
        self.entered.set()
        assert self._opened.wait(TIMEOUT)

    def open(self) -> None:
        self._opened.set()


@asynccontextmanager
async def busy_writer(store: SqlFleet) -> AsyncIterator[None]:
    """Keeps the writer thread busy."""
    gate = Gate()
    busy = asyncio.create_task(store.transact(gate))
    await asyncio.to_thread(gate.entered.wait, TIMEOUT)
    yield
    gate.open()
    await busy


async def test_a_second_process_is_told_which_process_uses_the_file(store: SqlFleet, file: Path) -> None:
    script = (
        "import asyncio; from tests.drivers.sql.engine.test_sqlite import *; "
        f"asyncio.run(fleet_at(Path({str(file)!r})).open())"
    )

    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert second.returncode == 1
    assert f"{file} is in use by process {os.getpid()}" in second.stderr


async def test_a_second_open_in_one_process_fails_and_leaves_the_first_alone(store: SqlFleet, file: Path) -> None:
    with pytest.raises(Misconfigured, match="is in use"):
        await fleet_at(file).open()

    await store.transact(inserting(stored("cls-1")))
    assert await store.get("cls-1") is not None


async def test_a_closed_file_can_be_opened_again(file: Path) -> None:
    for _ in range(3):
        store = fleet_at(file)
        await store.open()
        await store.close()
        await store.close()

    assert sorted(each.name for each in file.parent.iterdir()) == ["fleet.db", "fleet.db.lock"]


async def test_only_its_owner_can_read_the_file(store: SqlFleet, file: Path) -> None:
    await store.transact(inserting(stored("cls-1")))

    assert {each.name: oct(each.stat().st_mode & 0o777) for each in file.parent.iterdir()} == dict.fromkeys(
        ("fleet.db", "fleet.db-shm", "fleet.db-wal", "fleet.db.lock"), "0o600"
    )


@pytest.fixture
def text_file(file: Path) -> Path:
    file.write_text("These are not the pages you are looking for. " * 100)
    return file


async def test_a_file_that_is_not_a_database_is_refused(text_file: Path) -> None:
    with pytest.raises(Misconfigured, match=r"fleet.db: file is not a database"):
        await fleet_at(text_file).open()


async def test_a_database_of_another_program_is_refused_and_left_alone(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA application_id = 252006673")
        other.execute("CREATE TABLE theirs (id)")

    with pytest.raises(Misconfigured, match="is a database of another program"):
        await fleet_at(file).open()

    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


async def test_the_error_names_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"nowhere/fleet.db: cannot lock it: No such file or directory"):
        await fleet_at(tmp_path / "nowhere" / "fleet.db").open()


async def test_nothing_is_created_without_migrate(file: Path) -> None:
    with pytest.raises(Misconfigured, match=r"has no tables yet, this program needs .*: run `sentinel migrate`"):
        await SqlFleet(SqliteDatabase(file, migrate=False, history=HISTORY)).open()

    assert [each.name for each in file.parent.iterdir()] == ["fleet.db.lock"]


async def test_work_in_one_batch_shares_a_commit_but_not_a_failure(store: SqlFleet) -> None:
    def fail(fleet: FleetTransaction) -> None:
        fleet.insert(stored("cls-lost"))
        raise LookupError("changed its mind")

    works = [inserting(stored("cls-1")), fail, inserting(stored("cls-2", name="name-of-cls-1"))]
    works += [inserting(stored(f"cls-{number}")) for number in range(3, 40)]

    async with busy_writer(store):
        together = asyncio.gather(*(store.transact(work) for work in works), return_exceptions=True)
        await asyncio.sleep(0)
    outcomes = await together

    assert [type(each) for each in outcomes[:3]] == [type(None), LookupError, NameTaken]
    assert set(outcomes[3:]) == {None}
    found = await store.find(ListQuery(plural="clusters", limit=100))
    assert found.total == len(found.documents) == 38
    assert await store.get("cls-lost") is None


async def test_documents_too_long_to_be_joined_are_fetched_one_by_one(store: SqlFleet, file: Path) -> None:
    documents = [b'"%s"' % (b"x" * 1000) for _ in range(6)]
    await store.transact(
        inserting(*(stored(f"cls-{number}", document=each) for number, each in enumerate(documents)))
    )
    query = ListQuery(plural="clusters", limit=5, may_join=True)

    with closing(connect(file, is_reader=True)) as connection:
        default_limit = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        joined = lists.find(SqliteSession(connection), query)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4000)
        apart = lists.find(SqliteSession(connection), query)

    assert default_limit == 64 * 1024 * 1024
    assert joined.documents == (b",".join(documents[:5]),)
    assert apart.documents == documents[:5]
    assert (apart.count, apart.last) == (joined.count, joined.last)


async def test_work_cancelled_before_it_began_is_not_done(store: SqlFleet) -> None:
    async with busy_writer(store):
        abandoned = asyncio.create_task(store.transact(inserting(stored("cls-1"))))
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.wait([abandoned])
    await store.transact(inserting(stored("cls-2")))

    assert abandoned.cancelled()
    assert await store.get("cls-1") is None


async def test_readers_do_not_wait_for_a_writer(store: SqlFleet) -> None:
    await store.transact(inserting(stored("cls-1")))

    async with busy_writer(store), asyncio.timeout(TIMEOUT):
        assert await store.get("cls-1") == stored("cls-1")


async def test_closing_finishes_waiting_writes(file: Path) -> None:
    store = fleet_at(file)
    await store.open()
    writes = [asyncio.create_task(store.transact(inserting(stored(f"cls-{number}")))) for number in range(20)]
    await asyncio.sleep(0)

    await store.close()

    await asyncio.gather(*writes)
    await store.open()
    assert (await store.find(ListQuery(plural="clusters", limit=1))).total == 20
    await store.close()


async def test_a_database_that_is_not_open_is_unavailable(file: Path) -> None:
    store = fleet_at(file)

    with pytest.raises(Unavailable, match="is closed"):
        await store.get("cls-1")

    assert store.unavailable_reason() == f"{file} is not open"


async def test_another_process_with_sqlites_lock_fails_writes_but_not_reads(store: SqlFleet, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="database is locked"):
            await store.transact(inserting(stored("cls-1")))
        assert store.unavailable_reason() == f"{file}: database is locked"
        assert await store.get("cls-1") is None

    await store.transact(inserting(stored("cls-1")))

    assert store.unavailable_reason() is None


async def test_the_database_recovers_without_a_write(store: SqlFleet, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await store.transact(inserting(stored("cls-1")))

    async with asyncio.timeout(TIMEOUT):
        while store.unavailable_reason() is not None:  # noqa: ASYNC110 - readiness polls it, too
            await asyncio.sleep(0.05)


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from sentinel.ports.errors import Unavailable
from tests.drivers.sql.engine.test_sqlite import fleet_at
from tests.support.fleet.store_records import inserting, stored

async def main():
    store = fleet_at(Path(sys.argv[1]))
    await store.open()
    await store.transact(inserting(stored("before")))
    largest = Path(sys.argv[1] + "-wal").stat().st_size + 20_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    many = [store.transact(inserting(stored(f"r-{n}", document=b"x" * 20_000))) for n in range(5)]
    outcomes = await asyncio.gather(*many, return_exceptions=True)
    assert any(isinstance(each, Unavailable) for each in outcomes), outcomes
    assert all(each is None or isinstance(each, Unavailable) for each in outcomes), outcomes
    assert store.unavailable_reason() is not None
    kept = [n for n in range(5) if await store.get(f"r-{n}") is not None]
    assert kept == [n for n in range(5) if outcomes[n] is None], (kept, outcomes)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.transact(inserting(stored("after")))
    assert store.unavailable_reason() is None
    assert await store.get("before") is not None
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_fails_only_the_writes_that_do_not_fit(file: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(file)], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )

    assert child.returncode == 0, child.stderr


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.drivers.sql.engine.test_sqlite import fleet_at
from tests.support.fleet.store_records import entry, inserting, stored

async def main():
    store = fleet_at(Path(sys.argv[1]))
    await store.open()
    first = int(sys.argv[2])

    async def write(writer):
        for number in range(first + writer, first + 100_000, 8):
            def work(fleet):
                fleet.insert(stored(f"cls-{number}", labels={"writer": str(writer)}))
                fleet.record(entry(number))
            await store.transact(work)
            print(number, flush=True)

    await asyncio.gather(*(write(writer) for writer in range(8)))

asyncio.run(main())
"""


def write_until_killed(file: Path) -> list[int]:
    """Return the numbers of all resources whose insertion was confirmed to one of three killed processes."""
    confirmed: list[int] = []
    for turn in range(3):
        command = [sys.executable, "-c", WRITER, str(file), str(turn * 100_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line, _ in zip(child.stdout, range(40 + 13 * turn), strict=False):
                confirmed.append(int(line))
            child.send_signal(signal.SIGKILL)
            confirmed += [int(line) for line in child.stdout if line.endswith("\n")]
    return confirmed


async def test_kill_9_loses_no_confirmed_write(file: Path) -> None:
    confirmed = await asyncio.to_thread(write_until_killed, file)

    store = fleet_at(file)
    await store.open()
    missing = [number for number in confirmed if await store.get(f"cls-{number}") is None]
    found = await store.find(ListQuery(plural="clusters", limit=1))
    populations = await store.populations()
    await store.close()

    assert len(confirmed) > 100
    assert missing == []
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = connection.execute(
            "SELECT (SELECT count(*) FROM fleet_resources), (SELECT count(*) FROM fleet_labels), "
            "(SELECT count(*) FROM audit_entries)"
        ).fetchone()
    assert set(counted) == {found.total} == {sum(each.count for each in populations)}


@pytest.mark.parametrize(
    "url", ["sqlite:///", "sqlite:///:memory:", "sqlite://fleet.db", "sqlite:///a.db?mode=ro"]
)
def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidDatabaseUrl, match=r"sqlite:///fleet\.db"):
        engine.database(url, migrate=True, history=HISTORY)
