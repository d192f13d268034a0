"""Backup and restore of a SQLite database; a server may run during a backup.

SQLite itself makes the copy, from one snapshot, in a temporary file beside the target. The file is renamed only
after it is complete, checked and synced, so a failure changes nothing.
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

OnProgress = Callable[[int, int], None]
"""Called with the number of remaining pages and of all pages."""

_PAGES_PER_STEP = 512
"""How many pages are copied between two calls of the progress callback."""


class Copy(msgspec.Struct, frozen=True):
    """A finished copy."""

    revision: str
    """The revision of its tables."""
    bytes: int


class TargetExists(Misconfigured):
    """The target exists and overwriting it was not allowed."""


def back_up(database: Path, to: Path, *, force: bool, progress: OnProgress, history: History) -> Copy:
    """Copy a database, which may be in use. Raises `Misconfigured`, and `TargetExists` without `force`."""
    return _copy(database, to, force=force, progress=progress, history=history)


def restore(copy: Path, database: Path, *, force: bool, progress: OnProgress, history: History) -> Copy:
    """Replace a database, which must not be in use, by a copy. Raises like `back_up`."""
    lock = FileLock(database.absolute())
    lock.acquire()
    try:
        return _copy(copy, database, force=force, progress=progress, history=history)
    finally:
        lock.release()


def _copy(source: Path, target: Path, *, force: bool, progress: OnProgress, history: History) -> Copy:
    source, target = source.absolute(), target.resolve()  # keeps a symbolic link in place
    found = _require_usable(source, history)
    if target.exists():
        if target.samefile(source):
            raise Misconfigured(f"{target}: expected another file than the source of the copy")
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
    """Return the revision of its tables. Raises `Misconfigured` if it is not a Sentinel database or too new."""
    if not file.is_file():
        raise Misconfigured(f"{file} does not exist")
    found = revision(file)
    with closing(connect(file, is_reader=True)) as connection:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
    if found is None or application != APPLICATION_ID:
        raise Misconfigured(f"{file} is not a database of Sentinel")
    history.require_known(found, where=str(file))
    return found


def _copy_pages(source: Path, target: Path, progress: OnProgress) -> None:
    def on_progress(status: int, remaining: int, total: int) -> None:
        progress(remaining, total)

    with closing(connect(source, is_reader=True)) as reading, closing(sqlite3.connect(target)) as writing:
        # A transaction pins the snapshot; without it every commit of a server would restart the copy.
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        reading.backup(writing, pages=_PAGES_PER_STEP, progress=on_progress, sleep=0)
        # Makes the copy a single file. A server that opens it switches back to WAL.
        writing.execute("PRAGMA journal_mode = DELETE")


def _require_integrity(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise Misconfigured(f"the copy is damaged, and so is its source: {'; '.join(found)}")
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise Misconfigured(
                f"the copy is damaged, and so is its source: rows of {broken[0]} refer to missing rows"
            )


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A temporary file beside the target, deleted at the end unless it was renamed."""
    # Not named after the process id: in a container every process has the same one, and the file of a killed
    # process would block the next.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Misconfigured(f"{target}: {error.strerror}") from error
    try:
        yield partial
    finally:
        for each in (partial, *_side_files(partial)):
            each.unlink(missing_ok=True)


def _replace(partial: Path, target: Path, *, force: bool) -> None:
    try:
        if not force:
            # Unlike a rename, this fails if the target was created in the meantime.
            target.hardlink_to(partial)
        else:
            # A server's last writes may still be in the WAL, which SQLite would apply to any file of this name.
            # Checkpoint it first, so that the old database stays complete if the next steps fail.
            with suppress(sqlite3.Error, Misconfigured), closing(connect(target)) as old:
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for each in _side_files(target):
                each.unlink(missing_ok=True)
            _keep_access(partial, target)
            partial.replace(target)
    except FileExistsError as error:
        raise TargetExists(f"{target} exists: give --force to overwrite it") from error
    except OSError as error:
        raise Misconfigured(f"{target}: {error.strerror}") from error
    _sync(target.parent)


def _keep_access(partial: Path, target: Path) -> None:
    """Keep owner and mode, so that a service can still open a database that an administrator restored."""
    with suppress(FileNotFoundError, PermissionError):
        before = target.stat()
        os.chown(partial, before.st_uid, before.st_gid)
        partial.chmod(before.st_mode & 0o660)  # others must not read specs


def _side_files(file: Path) -> tuple[Path, ...]:
    return tuple(file.with_name(file.name + suffix) for suffix in ("-wal", "-shm", "-journal"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
