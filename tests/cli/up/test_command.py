"""The command `sentinel up`: wrong usage, the banner, and the live view on a terminal."""

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
from sentinel.runtime.listening import Address


@pytest.fixture(autouse=True)
def _temporary_data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SENTINEL_DATA_DIR", str(tmp_path / "data"))


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that exits 2; return its stderr."""
    with pytest.raises(SystemExit) as exit_:
        main(["up", *arguments])
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "nonsense"], "nonsense"),
        (["--listen-grpc", "nonsense"], "nonsense"),
        (["--listen", "token=hunter2"], 'got "token=***"'),
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
def test_wrong_usage_is_refused_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(arguments, capsys)


def test_a_refused_command_leaves_files_untouched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("of another process")

    refused(["--ready-file", str(ready_file), "--listen", "nonsense"], capsys)
    refused(["--ready-file", str(tmp_path)], capsys)

    assert ready_file.read_text() == "of another process"
    assert list(tmp_path.iterdir()) == [ready_file]


def test_the_banner_has_every_address_and_example_commands() -> None:
    kinds = [KindRules("clusters", "Cluster", "", ("validation", "dns"))]

    text = "\n".join(
        welcome.banner(
            "http://127.0.0.1:1234",
            agents_address=Address("127.0.0.1", 5678),
            watched=kinds,
            ignored=[KindRules("manifests", "Manifest"), KindRules("workloads", "Workload")],
            broker="in this process",
            database="sqlite:///here/fleet.db",
            folder="/here",
            examples=welcome.example_commands("http://127.0.0.1:1234", token_file=Path("/a folder/token")),
        )
    )

    for words in (
        "http://127.0.0.1:1234/docs",
        "http://127.0.0.1:1234/api/v1; agents register at 127.0.0.1:5678",
        "http://127.0.0.1:1234/readyz",
        "clusters (validation, dns)",
        "manifests, workloads: no adapter is required",
        "export SENTINEL_SERVER=http://127.0.0.1:1234",
        "export SENTINEL_TOKEN=$(cat '/a folder/token')",
        "sentinel create clusters",
    ):
        assert words in text, words


def test_at_the_default_address_no_export_is_suggested() -> None:
    examples = welcome.example_commands("http://127.0.0.1:8080", token_file=None)

    assert not any("export" in example.command for example in examples)


async def test_the_live_view_restores_the_screen_on_exit(tmp_path: Path) -> None:
    terminal, command_side = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.cli", "up", "--demo", "--listen=127.0.0.1:0"),
        *("--listen-grpc=127.0.0.1:0", "--agents=0"),
        *("--data-dir", str(tmp_path / "data")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=command_side,
        stderr=command_side,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(command_side)
    output = b""

    async with asyncio.timeout(60):
        while b"try next" not in output or b"generation changed" not in output:
            output += await asyncio.to_thread(os.read, terminal, 65_536)
        process.send_signal(signal.SIGINT)
        while b"events published" not in output:
            output += await asyncio.to_thread(os.read, terminal, 65_536)
        await process.wait()
    os.close(terminal)

    enter, leave = b"\x1b[?1049h", b"\x1b[?1049l"
    assert process.returncode == 0
    assert (
        output.index(enter) < output.index(b"try next") < output.index(leave) < output.index(b"events published")
    )
