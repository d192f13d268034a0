"""`sentinel up --demo` as a person starts it: in a pipe, on a terminal, with the wrong flags."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from sentinel.cli.main import main

AMPLE = 60
ANYWHERE = "--listen=127.0.0.1:0"
BUSY = ("--set=poll_interval=50ms", "--set=max_age_ready=50ms")


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said on stderr by a command that exits 2."""
    with pytest.raises(SystemExit) as exit_:
        main(["up", *arguments])
    assert exit_.value.code == 2
    return capsys.readouterr().err


@asynccontextmanager
async def running(
    *arguments: str, stdout: int = asyncio.subprocess.PIPE, stderr: int = asyncio.subprocess.PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sentinel.cli",
        "up",
        "--demo",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        # Unbuffered output would hide what a buffer does when its reader has gone.
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "PYTHONUNBUFFERED": ""},
    )
    try:
        async with asyncio.timeout(AMPLE):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def appearance(file: Path) -> bytes:
    """What is in the file, once it is there."""
    for _ in range(1_000 * AMPLE):
        try:
            return await asyncio.to_thread(file.read_bytes)
        except FileNotFoundError:
            await asyncio.sleep(0.001)  # a file gives no other signal
    raise AssertionError(f"{file} did not appear")


def test_without_demo_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sentinel up --demo" in refused([], capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "nonsense"], "nonsense"),
        (["--for", "5"], 'expected a duration such as 30s, got "5"'),
        (["--ready-file", "no/such/folder/ready"], "no/such/folder/ready"),
        (["--set", "max_age_redy=3s"], "max_age_ready"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(["--demo", *arguments], capsys)


def test_a_wrong_setting_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SENTINEL_POLL_INTERVAL", "5")

    told = refused(["--demo"], capsys)

    assert told.count("poll_interval") == 1


async def test_a_setting_that_was_probably_mistyped_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTINEL_POL_INTERVAL", "5s")

    async with running(ANYWHERE, "--for=1ms") as process:
        _, errors = await process.communicate()

    [line] = errors.splitlines()
    assert b"SENTINEL_POLL_INTERVAL" in line
    assert process.returncode == 0


async def test_it_serves_says_when_it_is_ready_and_ends_at_the_first_signal(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"

    async with running(ANYWHERE, f"--ready-file={ready_file}") as process:
        ready = msgspec.json.decode(await appearance(ready_file))
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{ready['http']}/healthz") as response:
                alive = response.status
            async with session.get(f"{ready['http']}/metrics") as response:
                metrics = await response.text()
        process.send_signal(signal.SIGINT)
        output, errors = await process.communicate()

    assert ready == {"http": ready["http"], "grpc": None, "token": None}
    assert alive == 200
    assert 'hyperfleet_sentinel_events_published_total{resource_type="clusters",shard="all"}' in metrics
    assert 'hyperfleet_sentinel_events_published_total{resource_type="nodepools",shard="all"}' in metrics
    assert (process.returncode, errors) == (0, b"")
    assert b"generation changed - new spec to reconcile" in output
    assert not ready_file.exists()


async def test_it_becomes_ready(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"

    async with running(ANYWHERE, f"--ready-file={ready_file}") as process, aiohttp.ClientSession() as session:
        address = msgspec.json.decode(await appearance(ready_file))["http"]
        for _ in range(1_000):
            async with session.get(f"{address}/readyz") as response:
                body = await response.json()
                if response.status == 200:
                    break
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        await process.communicate()

    assert body["status"] == "ok"
    assert process.returncode == 0


async def test_a_ready_file_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("stale")

    async with running("--listen=256.0.0.1:0", f"--ready-file={ready_file}") as process:
        await process.communicate()

    assert not ready_file.exists()


async def test_it_ends_by_itself_when_told_to() -> None:
    async with running(ANYWHERE, "--for=100ms") as process:
        output, errors = await process.communicate()

    assert (process.returncode, errors) == (0, b"")
    assert b"events published and 0 failed in" in output.splitlines()[-1]


async def test_a_port_that_is_taken_is_named_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async with running(f"--listen=127.0.0.1:{port}") as process:
            _, errors = await process.communicate()

    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in errors.decode()
    assert "--listen" in errors.decode()
    assert "Traceback" not in errors.decode()


async def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    reading, writing = os.pipe()

    async with running(ANYWHERE, *BUSY, stdout=writing) as process:
        os.close(writing)
        with os.fdopen(reading, "rb") as lines:
            await asyncio.to_thread(lines.readline)
        errors = await process.stderr.read() if process.stderr else b""
        await process.wait()

    assert (process.returncode, errors) == (0, b"")


async def test_on_a_terminal_it_is_a_live_view_that_gives_the_screen_back() -> None:
    ours, theirs = pty.openpty()

    async with running(ANYWHERE, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        drawn = b""
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
