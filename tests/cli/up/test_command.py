"""`sentinel up` as somebody types it: with the wrong words, and on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sentinel.cli.main import main
from sentinel.cli.up import welcome
from sentinel.core.fleet.documents import KindRules


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SENTINEL_DATA_DIR", str(tmp_path / "home"))


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said on stderr by a command that exits 2."""
    with pytest.raises(SystemExit) as exit_:
        main(["up", *arguments])
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "nonsense"], "nonsense"),
        (["--listen-grpc", "nonsense"], "nonsense"),
        (["--for", "5"], 'expected a duration such as 30s, got "5"'),
        (["--ready-file", "no/such/folder/ready"], "--ready-file: no/such/folder/ready"),
        (["--ready-file", "x" * 300], "--ready-file: xxx"),
        (["--ready-file", ""], "--ready-file"),
        (["--data-dir", ""], "--data-dir"),
        (["--set", "max_age_redy=3s"], "max_age_ready"),
        (["--data-dir", __file__], "--data-dir"),
        (["--adapter", "no/such/file.yaml"], "no/such/file.yaml"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(arguments, capsys)


def test_who_is_refused_leaves_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("of one that runs")

    refused(["--ready-file", str(ready_file), "--listen", "nonsense"], capsys)
    refused(["--ready-file", str(tmp_path)], capsys)

    assert ready_file.read_text() == "of one that runs"
    assert list(tmp_path.iterdir()) == [ready_file]


def test_a_welcome_names_every_place_and_what_to_try() -> None:
    kinds = [KindRules("clusters", "Cluster", "", ("validation", "dns"))]

    text = "\n".join(
        welcome.lines(
            "http://127.0.0.1:1234",
            watched=kinds,
            broker="in this process",
            database="sqlite:///here/fleet.db",
            folder="/here",
            tries=welcome.hints("http://127.0.0.1:1234", token_file=Path("/a folder/token")),
        )
    )

    for words in (
        "http://127.0.0.1:1234/docs",
        "http://127.0.0.1:1234/readyz",
        "clusters (validation, dns)",
        "export SENTINEL_SERVER=http://127.0.0.1:1234",
        "export SENTINEL_TOKEN=$(cat '/a folder/token')",
        "sentinel create clusters",
    ):
        assert words in text, words


def test_where_clients_look_anyway_nothing_has_to_be_exported() -> None:
    hints = welcome.hints("http://127.0.0.1:8080", token_file=None)

    assert not any("export" in hint.command for hint in hints)


async def test_on_a_terminal_it_is_a_live_view_that_gives_the_screen_back(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.cli", "up", "--demo", "--listen=127.0.0.1:0"),
        *("--data-dir", str(tmp_path / "data")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(theirs)
    drawn = b""

    async with asyncio.timeout(60):
        while b"try next" not in drawn or b"generation changed" not in drawn:
            drawn += await asyncio.to_thread(os.read, ours, 65_536)
        process.send_signal(signal.SIGINT)
        while b"events published" not in drawn:
            drawn += await asyncio.to_thread(os.read, ours, 65_536)
        await process.wait()
    os.close(ours)

    enter, leave = b"\x1b[?1049h", b"\x1b[?1049l"
    assert process.returncode == 0
    assert drawn.index(enter) < drawn.index(b"try next") < drawn.index(leave) < drawn.index(b"events published")
