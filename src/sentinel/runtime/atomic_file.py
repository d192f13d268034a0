"""Files that are replaced while others read them: a reader sees the old or the new content, never a part of it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write(
    path: Path,
    content: bytes,
    *,
    mode: int,
    keeps_mode: bool = False,
    is_exact_mode: bool = False,
    is_only_writer: bool = False,
    owner_of: Path | None = None,
) -> None:
    """Write or replace the file atomically and durably.

    A file that is replaced keeps its owner, so that a service can still read what an administrator has changed.
    With `owner_of`, the owner is that of another file. With `keeps_mode` it keeps its mode, too, without access
    for others. With `is_exact_mode`, the umask takes nothing from `mode`. A symbolic link stays in place. With
    `is_only_writer`, what earlier writers left beside it when they were killed is removed.

    Raises `OSError`; the old content is unchanged then.
    """
    target = path.resolve()
    if is_only_writer:
        _remove_drafts(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(file, "wb") as output:
            _keep_owner(file, target if owner_of is None else owner_of, keeps_mode=keeps_mode)
            if is_exact_mode:
                os.fchmod(file, mode)
            output.write(content)
            output.flush()
            os.fsync(file)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target)


def move(source: Path, target: Path) -> None:
    """Replace a file by another one of the same file system, durably. It needs no space. Raises `OSError`."""
    target = target.resolve()
    source.replace(target)
    _sync_folder(target)


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Hold a lock on a folder, so that only one process edits its files. It leaves no lock file behind."""
    with _opened_folder(path) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened_folder(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def _sync_folder(file: Path) -> None:
    with _opened_folder(file.parent) as folder:
        os.fsync(folder)


def _remove_drafts(target: Path) -> None:
    draft = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}")
    with suppress(OSError):
        for each in target.parent.iterdir():
            if draft.fullmatch(each.name):
                each.unlink(missing_ok=True)


def _keep_owner(file: int, target: Path, *, keeps_mode: bool) -> None:
    with suppress(FileNotFoundError, PermissionError):
        before = target.stat()
        os.fchown(file, before.st_uid, before.st_gid)
        if keeps_mode:
            os.fchmod(file, before.st_mode & 0o660)
