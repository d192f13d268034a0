"""Files that are replaced while others read them."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from sentinel.runtime import atomic_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_new_file_has_the_mode_and_nothing_else_is_left(tmp_path: Path) -> None:
    atomic_file.write(tmp_path / "key", b"secret", mode=0o600)

    assert (tmp_path / "key").read_bytes() == b"secret"
    assert mode_of(tmp_path / "key") == 0o600
    assert names_in(tmp_path) == ["key"]


@pytest.mark.parametrize(("keeps_mode", "expected"), [(False, 0o600), (True, 0o640)])
def test_a_replaced_file_keeps_its_mode_only_if_asked(tmp_path: Path, keeps_mode: bool, expected: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)

    atomic_file.write(path, b"new", mode=0o600, keeps_mode=keeps_mode)

    assert path.read_bytes() == b"new"
    assert mode_of(path) == expected


def test_a_reader_of_the_old_file_reads_it_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes(b"old content")

    with path.open("rb") as reader:
        begun = reader.read(3)
        atomic_file.write(path, b"new", mode=0o600)
        rest = reader.read()

    assert begun + rest == b"old content"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list"
    path.write_bytes(b"old")

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        atomic_file.write(path, b"new", mode=0o600)
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["list"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("target")

    atomic_file.write(link, b"new", mode=0o600)

    assert link.is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_a_folder_is_locked_by_one_at_a_time(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with atomic_file.locked_folder(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)

    assert names_in(tmp_path) == []


def test_the_only_writer_removes_what_killed_ones_left(tmp_path: Path) -> None:
    (tmp_path / ".key.0123abcd").write_bytes(b"left")
    others = (".key.bak", ".key.0123abcde", "key.0123abcd", ".other.0123abcd")
    for name in others:
        (tmp_path / name).write_bytes(b"")

    atomic_file.write(tmp_path / "key", b"new", mode=0o600)
    before = names_in(tmp_path)
    atomic_file.write(tmp_path / "key", b"newer", mode=0o600, is_only_writer=True)

    assert ".key.0123abcd" in before
    assert names_in(tmp_path) == sorted((*others, "key"))


def test_a_moved_file_replaces_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(b"copy")
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")

    atomic_file.move(tmp_path / "copy", tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"copy"
    assert names_in(tmp_path) == ["link", "real"]
