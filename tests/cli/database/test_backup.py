"""`sentinel backup` and `sentinel restore`: complete copies or none, and nothing overwritten by accident."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from sentinel.cli.database.backup import backup, restore
from sentinel.drivers.sql.history import HISTORY
from sentinel.ports.errors import Misconfigured
from sentinel.ports.fleet_store import ListQuery
from tests.support.databases.backends import SqlFleet
from tests.support.fleet.store_records import inserting, stored


def fleet_at(file: Path) -> SqlFleet:
    return SqlFleet.at(f"sqlite:///{file}")


def fill(file: Path, *names: str) -> None:
    async def work() -> None:
        async with fleet_at(file) as store:
            await store.transact(inserting(*(stored(name, document=b"x" * 5_000) for name in names)))

    asyncio.run(work())


def names_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [name for (name,) in connection.execute("SELECT id FROM fleet_resources ORDER BY id")]


def run_backup(file: Path, to: Path, *more: str) -> Result:
    return CliRunner().invoke(backup, ["--database-url", f"sqlite:///{file}", "--to", str(to), *more])


def run_restore(copy: Path, file: Path, *more: str) -> Result:
    return CliRunner().invoke(restore, ["--from", str(copy), "--database-url", f"sqlite:///{file}", *more])


def files_in(directory: Path) -> Sequence[str]:
    return sorted(each.name for each in directory.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "server" / "fleet.db"
    made.parent.mkdir()
    fill(made, "cls-1", "cls-2")
    return made


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    made = tmp_path / "safe" / "copy.db"
    made.parent.mkdir()
    return made


def test_a_restored_backup_is_the_database_again(file: Path, copy: Path) -> None:
    made = run_backup(file, copy)
    fill(file, "cls-3")
    lost = run_restore(copy, file)
    back = run_restore(copy, file, "--force")

    assert (made.exit_code, lost.exit_code, back.exit_code) == (0, 1, 0), (made.stderr, back.stderr)
    assert "exists: give --force to overwrite it" in lost.stderr
    assert names_in(file) == ["cls-1", "cls-2"]
    assert files_in(file.parent) == ["fleet.db", "fleet.db.lock"]
    assert files_in(copy.parent) == ["copy.db"]
    assert oct(copy.stat().st_mode & 0o777) == oct(file.stat().st_mode & 0o777) == "0o600"


def test_a_server_opens_a_restored_database(file: Path, copy: Path, tmp_path: Path) -> None:
    run_backup(file, copy)
    run_restore(copy, tmp_path / "elsewhere.db")

    async def count() -> int | None:
        async with fleet_at(tmp_path / "elsewhere.db") as store:
            found = await store.find(ListQuery(plural="clusters", limit=10))
            await store.transact(inserting(stored("cls-3")))
            return found.total

    assert asyncio.run(count()) == 2


async def test_a_backup_runs_beside_a_server_that_writes(file: Path, copy: Path) -> None:
    is_done = asyncio.Event()
    written: list[str] = []

    async def write(store: SqlFleet) -> None:
        while not is_done.is_set():
            written.append(f"more-{len(written):05}")
            await store.transact(inserting(stored(written[-1], document=b"x" * 20_000)))

    async with fleet_at(file) as store:
        writing = asyncio.create_task(write(store))
        results = [await asyncio.to_thread(run_backup, file, copy, "--force") for _ in range(3)]
        is_done.set()
        await writing
        refused = await asyncio.to_thread(run_restore, copy, file, "--force")

    assert [result.exit_code for result in results] == [0, 0, 0], results[-1].stderr
    found = names_in(copy)
    assert found == ["cls-1", "cls-2", *written[: len(found) - 2]]
    assert refused.exit_code == 1
    assert "is in use by process" in refused.stderr


async def test_a_database_in_use_is_recognized_through_a_link(file: Path, copy: Path, tmp_path: Path) -> None:
    run_backup(file, copy)
    link = tmp_path / "link.db"
    link.symlink_to(file)

    async with fleet_at(file):
        refused = run_restore(copy, link, "--force")
        with pytest.raises(Misconfigured, match="is in use by process"):
            await fleet_at(link).open()

    assert refused.exit_code == 1
    assert "is in use by process" in refused.stderr


def test_restoring_through_a_link_keeps_the_link(file: Path, copy: Path, tmp_path: Path) -> None:
    run_backup(file, copy)
    fill(file, "cls-3")
    link = tmp_path / "link.db"
    link.symlink_to(file)

    result = run_restore(copy, link, "--force")

    assert result.exit_code == 0, result.stderr
    assert link.is_symlink()
    assert names_in(file) == ["cls-1", "cls-2"]


def test_a_restored_database_keeps_its_owner_and_mode(file: Path, copy: Path) -> None:
    run_backup(file, copy)
    if os.geteuid() == 0:
        os.chown(file, 4321, 4321)
    file.chmod(0o640)
    before = file.stat()

    result = run_restore(copy, file, "--force")

    after = file.stat()
    assert result.exit_code == 0, result.stderr
    assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_the_file_of_a_killed_process_with_the_same_id_is_ignored(file: Path, copy: Path) -> None:
    left = copy.with_name(f".{copy.name}.{os.getpid()}.partial")
    left.touch()

    result = run_backup(file, copy)

    assert result.exit_code == 0, result.stderr
    assert names_in(copy) == ["cls-1", "cls-2"]


def test_nothing_is_overwritten_without_force(file: Path, copy: Path) -> None:
    copy.write_text("precious")

    refused = run_backup(file, copy)
    kept = copy.read_text()
    forced = run_backup(file, copy, "--force")

    assert refused.exit_code == 1
    assert kept == "precious"
    assert "exists: give --force" in refused.stderr
    assert forced.exit_code == 0
    assert names_in(copy) == ["cls-1", "cls-2"]


def test_a_damaged_backup_is_not_restored(file: Path, copy: Path) -> None:
    run_backup(file, copy)
    with copy.open("r+b") as damaged:
        damaged.seek(5 * 8192)
        damaged.write(b"\xff" * 8192 * 3)

    result = run_restore(copy, file, "--force")

    assert result.exit_code == 1
    assert "damaged" in result.stderr or "malformed" in result.stderr
    assert names_in(file) == ["cls-1", "cls-2"]
    assert files_in(file.parent) == ["fleet.db", "fleet.db.lock"]


def test_a_file_that_is_not_a_sentinel_database_is_not_restored(file: Path, tmp_path: Path) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text("not a database at all " * 500)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (id)")

    results = [run_restore(each, file, "--force") for each in (prose, foreign, tmp_path / "nothing.db")]

    assert [result.exit_code for result in results] == [1, 1, 1]
    assert "not a database" in results[0].stderr
    assert "is not a database of Sentinel" in results[1].stderr
    assert "does not exist" in results[2].stderr
    assert names_in(file) == ["cls-1", "cls-2"]


def test_a_backup_of_a_newer_version_is_not_restored(file: Path, copy: Path) -> None:
    run_backup(file, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("UPDATE sentinel_schema SET version_num = '9999'")

    result = run_restore(copy, file, "--force")

    assert result.exit_code == 1
    assert "at revision 9999" in result.stderr
    assert names_in(file) == ["cls-1", "cls-2"]


def test_the_wal_of_a_crashed_server_does_not_change_the_backup(file: Path, copy: Path) -> None:
    run_backup(file, copy)
    with closing(sqlite3.connect(file, isolation_level=None)) as crashing:
        crashing.execute("UPDATE fleet_resources SET adapters = 'later'")
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{file}{suffix}", f"{copy.parent}/crashed.db{suffix}")
    crashed = copy.parent / "crashed.db"

    result = run_restore(copy, crashed, "--force")

    assert result.exit_code == 0, result.stderr
    with closing(sqlite3.connect(crashed)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM fleet_resources WHERE adapters = 'later'").fetchone() == (
            0,
        )


def test_the_json_output_describes_the_backup(file: Path, copy: Path) -> None:
    result = run_backup(file, copy, "--output", "json")

    assert json.loads(result.stdout) == {
        "database": f"sqlite:///{file}",
        "file": str(copy),
        "revision": HISTORY.head,
        "bytes": copy.stat().st_size,
    }


@pytest.mark.parametrize(("command", "option"), [(backup, "--to"), (restore, "--from")])
def test_postgresql_is_refused_in_favour_of_its_own_tools(
    tmp_path: Path, command: click.Command, option: str
) -> None:
    result = CliRunner().invoke(
        command, [option, str(tmp_path / "copy"), "--database-url", "postgresql://ops:geheim@host/fleet"]
    )

    assert result.exit_code == 2
    assert "pg_dump" in result.stderr
    assert "back-up-and-restore.md" in result.stderr
    assert "geheim" not in result.output
