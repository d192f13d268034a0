"""Copies of a SQLite database: taken beside a running server, and put back in its place.

A copy is made by SQLite itself, from one snapshot, into a file beside the one it is to become. Only when it is
whole, checked and on the disk does it get its name; until then, whatever goes wrong, nothing has changed.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from sentinel.drivers.sql.engine.schema import History
from sentinel.drivers.sql.engine.sqlite_file import APPLICATION_ID, FileLock, connect, revision
from sentinel.ports.errors import Misconfigured

Progress = Callable[[int, int], None]
"""Told how many pages are left, of how many."""

_PAGES = 512
"""How many pages are copied between two looks at the terminal."""


class Copy(msgspec.Struct, frozen=True):
    """A copy that was made."""

    revision: str
    """In which shape its tables are."""
    bytes: int


class TargetExists(Misconfigured):
    """Something is there that was not to be overwritten."""


def back_up(database: Path, to: Path, *, force: bool, progress: Progress, history: History) -> Copy:
    """Copies a database, which may be in use. Raises `Misconfigured`; `TargetExists` without `force`."""
    return _copy(database, to, force=force, progress=progress, history=history)


def restore(copy: Path, database: Path, *, force: bool, progress: Progress, history: History) -> Copy:
    """Puts a copy in the place of a database, which nobody may use. Raises like `back_up`."""
    lock = FileLock(database.absolute())
    lock.take()
    try:
        return _copy(copy, database, force=force, progress=progress, history=history)
    finally:
        lock.release()


def _copy(source: Path, target: Path, *, force: bool, progress: Progress, history: History) -> Copy:
    source, target = source.absolute(), target.resolve()  # a link stays one
    found = _require_usable(source, history)
    if target.exists():
        if target.samefile(source):
            raise Misconfigured(f"{target}: expected another file than the one that is copied")
        if not force:
            raise TargetExists(f"{target} exists: give --force to overwrite it")
    with _partial(target) as partial:
        try:
            _copy_pages(source, partial, progress)
            _require_integrity(partial)
        except sqlite3.Error as error:
            raise Misconfigured(f"{partial}: {error}") from error
        size = partial.stat().st_size
        _sync(partial)
        _replace(partial, target, force=force)
    return Copy(found, size)


def _require_usable(file: Path, history: History) -> str:
    """The revision of its tables. Raises `Misconfigured` unless it is a whole database of ours, and not newer."""
    if not file.is_file():
        raise Misconfigured(f"{file} does not exist")
    found = revision(file)
    with closing(connect(file, is_reader=True)) as connection:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
    if found is None or application != APPLICATION_ID:
        raise Misconfigured(f"{file} is not a database of Sentinel")
    history.require_known(found, where=str(file))
    return found


def _copy_pages(source: Path, target: Path, progress: Progress) -> None:
    def told(status: int, remaining: int, total: int) -> None:
        progress(remaining, total)

    with closing(connect(source, is_reader=True)) as reading, closing(sqlite3.connect(target)) as writing:
        # Within one transaction the source stands still; otherwise every commit of a server would begin the copy
        # anew.
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        reading.backup(writing, pages=_PAGES, progress=told, sleep=0)
        # One file that needs no other beside it. Whoever opens it as a server chooses again.
        writing.execute("PRAGMA journal_mode = DELETE")


def _require_integrity(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise Misconfigured(f"the copy is damaged, and so is what was copied: {'; '.join(found)}")
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise Misconfigured(
                f"the copy is damaged, and so is what was copied: rows of {broken[0]} belong to nothing"
            )


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A file beside the target, which is gone in the end unless it got the target's name."""
    # Not named after the process: in a container every process has the same number, and one that was killed would
    # stand in the way of the next.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Misconfigured(f"{target}: {error.strerror}") from error
    try:
        yield partial
    finally:
        for each in (partial, *_beside(partial)):
            each.unlink(missing_ok=True)


def _replace(partial: Path, target: Path, *, force: bool) -> None:
    try:
        if not force:
            # Unlike a rename, this fails where somebody was faster.
            target.hardlink_to(partial)
        else:
            # What a server wrote last may still stand beside the database; SQLite would apply it to any file of
            # this name. Of a whole one it is taken in first, in case we fail between the two.
            with suppress(sqlite3.Error, Misconfigured), closing(connect(target)) as old:
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for each in _beside(target):
                each.unlink(missing_ok=True)
            _keep_access(partial, target)
            partial.replace(target)
    except FileExistsError as error:
        raise TargetExists(f"{target} exists: give --force to overwrite it") from error
    except OSError as error:
        raise Misconfigured(f"{target}: {error.strerror}") from error
    _sync(target.parent)


def _keep_access(partial: Path, target: Path) -> None:
    """An administrator who puts a copy back must not take the database away from the service."""
    with suppress(FileNotFoundError, PermissionError):
        before = target.stat()
        os.chown(partial, before.st_uid, before.st_gid)
        partial.chmod(before.st_mode & 0o660)  # for owner and group, as it was; specs are for nobody else


def _beside(file: Path) -> tuple[Path, ...]:
    return tuple(file.with_name(file.name + suffix) for suffix in ("-wal", "-shm", "-journal"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
