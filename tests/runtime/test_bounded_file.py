"""Files that an operator names are read up to a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import bounded_file


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"x" * 1024)

    assert bounded_file.read(tmp_path / "key", max_bytes=1024) == b"x" * 1024


@pytest.mark.parametrize(("limit", "shown"), [(1024, "1 KiB"), (2 << 20, "2 MiB")])
def test_a_larger_file_is_an_error(tmp_path: Path, limit: int, shown: str) -> None:
    with (tmp_path / "key").open("wb") as file:
        file.truncate(limit + 1)

    with pytest.raises(Misconfigured, match=f"key: expected at most {shown}, got more"):
        bounded_file.read(tmp_path / "key", max_bytes=limit)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="absent: cannot be read: no such file or directory") as caught:
        bounded_file.read(tmp_path / "absent", max_bytes=1)
    with pytest.raises(Misconfigured, match="cannot be read: is a directory"):
        bounded_file.read(tmp_path, max_bytes=1)

    assert isinstance(caught.value.__cause__, OSError)  # by which others know that trying again may help
