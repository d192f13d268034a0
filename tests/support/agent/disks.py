"""Disks that are full or read-only, also for root."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.missing_service import skip_or_fail


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of 64 kB on a new folder. Without root, the test is skipped, or fails in CI."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no space in the file system of a folder. Returns the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make the file system that is mounted on a folder read-only."""
    _mount("-o", "remount,ro", str(folder))
    try:
        yield
    finally:
        _mount("-o", "remount,rw", str(folder))


@contextmanager
def no_space_for_files() -> Iterator[None]:
    """Let every write of this process fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _mount(*arguments: str) -> None:
    program = shutil.which("mount")
    if program is None or subprocess.run([program, *arguments], capture_output=True, check=False).returncode:
        skip_or_fail("mounting file systems needs root")
