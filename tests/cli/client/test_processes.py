"""The client's commands as processes, some on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from pathlib import Path

from tests.cli.client.serving import ServedFleet, decoded
from tests.support.processes.service import ServiceProcess


class Terminal:
    """A command on a terminal of 60 columns."""

    def __init__(self, *command: str, server: str) -> None:
        self._command = command
        self._environ = {"PATH": os.environ["PATH"], "SENTINEL_SERVER": server, "COLUMNS": "60", "TERM": "xterm"}
        self._changed = asyncio.Condition()
        self.text = ""
        """Its output so far, with escape sequences."""

    async def run(self, *answers: tuple[str, str]) -> int:
        """Run it to its end, typing each answer when its question appears; return the exit code."""
        terminal, command_side = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sentinel.cli", *self._command),
            stdin=command_side,
            stdout=command_side,
            stderr=command_side,
            env=self._environ,
        )
        os.close(command_side)
        validation = asyncio.create_task(asyncio.to_thread(self._read, terminal, asyncio.get_running_loop()))
        try:
            async with asyncio.timeout(90):
                for question, answer in answers:
                    async with self._changed:
                        await self._changed.wait_for(lambda question=question: question in self.text)  # type: ignore[misc]  # bound at once
                    os.write(terminal, answer.encode())
                return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await validation
            os.close(terminal)

    def _read(self, terminal: int, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(10_000):
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the command has exited
                return
            if not data:
                return
            asyncio.run_coroutine_threadsafe(self._append(data), loop).result(10)

    async def _append(self, data: bytes) -> None:
        async with self._changed:
            self.text += data.decode(errors="replace")
            self._changed.notify_all()


async def test_watch_prints_changed_rows_until_ctrl_c_and_exits_0(fleet: ServedFleet) -> None:
    await fleet.create(name="first", id="a")
    await fleet.create(name="second", id="b")

    async with ServiceProcess(("watch", "clusters"), environ={"SENTINEL_SERVER": fleet.url}) as watching:
        await watching.until_output(lambda text: "second" in text)
        await fleet.reports("clusters/a", "validation", "dns")
        await watching.until_output(lambda text: " yes " in text)
        await fleet.create(name="third", id="c")
        await watching.until_output(lambda text: "third" in text)
        code = await watching.stop(signal.SIGINT)

    rows = [line.split() for line in watching.stdout.decode().splitlines()]
    assert code == 0
    assert watching.stderr == b""
    assert [(row[0], row[2]) for row in rows[1:3]] == [("first", "no"), ("second", "no")]
    assert ["first", "yes"] in [[row[0], row[2]] for row in rows[3:]]
    assert [row[0] for row in rows].count("second") == 1
    assert rows[-1][0] == "third"


async def test_get_watch_exits_0_on_ctrl_c(fleet: ServedFleet) -> None:
    await fleet.create(id="a")

    async with ServiceProcess(
        ("get", "clusters", "--watch", "--output", "json"), environ={"SENTINEL_SERVER": fleet.url}
    ) as watching:
        await fleet.until("GET /api/hyperfleet/v1/kinds 200")
        code = await watching.stop(signal.SIGINT)

    assert code == 0
    assert all(decoded(line)["change"] == "added" for line in watching.stdout.decode().splitlines())


async def test_on_a_terminal_apply_asks_for_confirmation(fleet: ServedFleet, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    await asyncio.to_thread(file.write_text, "{kind: Cluster, name: one, spec: {a: 1}}")

    refusing = Terminal("apply", "-f", str(file), server=fleet.url)
    refused = await refusing.run(("[y/N]", "n\n"))
    agreeing = Terminal("apply", "-f", str(file), server=fleet.url)
    agreed = await agreeing.run(("[y/N]", "y\n"))
    with_yes = Terminal("apply", "-f", str(file), "--yes", server=fleet.url)
    again = await with_yes.run()

    assert (refused, agreed, again) == (1, 0, 0)
    assert "nothing was changed" in refusing.text
    assert "\x1b[32m+  a: 1\x1b[0m" in agreeing.text
    assert "created clusters/" in agreeing.text
    assert "unchanged" in with_yes.text
    assert sum(each.startswith("POST") for each in fleet.requests) == 1


async def test_on_a_terminal_rows_are_colored_and_truncated(fleet: ServedFleet) -> None:
    await fleet.create(name="a-rather-long-name-for-a-cluster", id="an-id-that-is-not-short-either")
    screen = Terminal("get", "clusters", server=fleet.url)

    code = await screen.run()

    header, row = screen.text.replace("\r", "").splitlines()
    assert code == 0
    assert len(header) == 60
    assert row.startswith("\x1b[33m")
    assert len(row.removeprefix("\x1b[33m").removesuffix("\x1b[0m")) == 60
    assert "…" in row


async def test_exit_codes_reach_the_shell(fleet: ServedFleet) -> None:
    async def exit_code(*command: str) -> int:
        async with ServiceProcess(command, environ={"SENTINEL_SERVER": fleet.url}) as process:
            return await process.exit_code()

    codes = await asyncio.gather(
        exit_code("get", "clusters", "missing"), exit_code("get", "clusters", "--output", "xml")
    )

    assert list(codes) == [1, 2], "the other tests show 0"
