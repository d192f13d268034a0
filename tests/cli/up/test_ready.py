"""The file that says that everything serves."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sentinel.cli.up.ready import Ready, ReadyFile


def test_trying_a_place_out_leaves_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("another run's")

    ReadyFile(file).try_out()

    assert file.read_text() == "another run's"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["", "no/such/folder", "x" * 300])
def test_an_impossible_place_is_found_out_before_it_is_needed(name: str, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ReadyFile(tmp_path / name).try_out()


async def test_it_is_there_from_the_announcement_to_the_end_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("of an earlier run, which was killed")
    ready = ReadyFile(file)

    async with ready.kept():
        is_stale = file.exists()
        ready.announce(Ready("http://127.0.0.1:1"))
        content, mode = file.read_text(), stat.S_IMODE(file.stat().st_mode)

    assert not is_stale
    assert content == '{"http":"http://127.0.0.1:1","grpc":null,"token":null}\n'
    assert mode & 0o077 == 0o044
    assert not file.exists()


def test_with_a_token_in_it_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"

    ReadyFile(file).announce(Ready("http://here", token="secret"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
