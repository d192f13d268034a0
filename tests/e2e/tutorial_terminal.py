"""Run the steps of a tutorial in terminals.

Each command runs in its own shell on a pseudo-terminal, so that it prints the same as for a user. The next command
gets the folder and the environment that the shell had at its end.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, assert_never

from tests.e2e import tutorial_page
from tests.e2e.tutorial_page import Action, File, Step

TIMEOUT = 90.0

_ROWS, _COLUMNS = 32, 110
_CHUNK_SIZE = 2**16
_ENTER, _LEAVE, _HOME = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H"
_ALTERNATE = re.compile(rf"{re.escape(_ENTER)}.*?{re.escape(_LEAVE)}", re.DOTALL)
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs one command at a time. Closing it kills the command that still runs."""

    def __init__(self, *, folder: Path, environ: Mapping[str, str], environ_file: Path) -> None:
        """The shell writes its environment to `environ_file` when it ends."""
        self._folder = folder
        self._environ = dict(environ)
        self._environ_file = environ_file
        self._process: asyncio.subprocess.Process | None = None
        self._output = bytearray()
        self._has_changed = asyncio.Event()
        self._is_closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            await self._is_closed.wait()

    @property
    def folder(self) -> Path:
        """The working directory of the next command."""
        return self._folder

    @property
    def is_busy(self) -> bool:
        return self._process is not None

    def lines(self) -> list[str]:
        """Return what the terminal shows: the full screen if a command draws one, otherwise the output of the last
        command."""
        text = self._output.decode(errors="replace").replace("\r\n", "\n")
        if text.rfind(_ENTER) > text.rfind(_LEAVE):
            *_, last_complete, _ = ["", *text.split(_HOME)]
            text = last_complete
        text = _STYLE.sub("", _ALTERNATE.sub("", text))
        # Of a line that was overwritten, only the last text is visible.
        return [line.rpartition("\r")[2] for line in text.split("\n")]

    async def start(self, command: str) -> None:
        assert self._process is None, "a command is still running"
        self._output.clear()
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            f'{command}\ncode=$?; env -0 > "$0"; exit $code',
            str(self._environ_file),
            cwd=self._folder,
            env=self._environ,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._is_closed.clear()
        asyncio.get_running_loop().add_reader(controller, self._read, controller)

    async def until(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds, the command ends, or the timeout. Return whether the condition holds."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not condition() and not self._is_closed.is_set():
                    self._has_changed.clear()
                    await self._has_changed.wait()
        except TimeoutError:
            return False
        return condition()

    def interrupt(self) -> None:
        """Press Ctrl-C, which sends a signal to all processes of the terminal."""
        assert self._process is not None, "no command is running"
        os.killpg(self._process.pid, signal.SIGINT)

    async def exit_code(self) -> int | None:
        """Wait until the command ends. Return its exit code, or None after the timeout."""
        assert self._process is not None, "no command is running"
        try:
            async with asyncio.timeout(TIMEOUT):
                code = await self._process.wait()
                await self._is_closed.wait()
        except TimeoutError:
            return None
        self._process = None
        if code == 0:
            variables = self._environ_file.read_text().rstrip("\0").split("\0")
            self._environ = dict(variable.split("=", 1) for variable in variables)
            self._folder = Path(self._environ["PWD"])
        return code

    def _read(self, controller: int) -> None:
        try:
            chunk = os.read(controller, _CHUNK_SIZE)
        except OSError:  # no process has the terminal open any more
            chunk = b""
        self._output += chunk
        if not chunk:
            asyncio.get_running_loop().remove_reader(controller)
            os.close(controller)
            self._is_closed.set()
        self._has_changed.set()


class TutorialRunner:
    """Runs the steps of a page and compares the output with the page."""

    def __init__(
        self,
        terminals: Mapping[str, Terminal],
        *,
        rewrite: Callable[[str], str],
        rewrite_command: Callable[[str], str] = str,
    ) -> None:
        """`rewrite` replaces what differs on the page in a line of output, `rewrite_command` in a command."""
        self._terminals = terminals
        self._rewrite = rewrite
        self._rewrite_command = rewrite_command

    async def run(self, steps: Sequence[Step]) -> None:
        """Run all steps. Raise `AssertionError` with the line of the page that is wrong."""
        for step in steps:
            match step:
                case File():
                    (self._terminals["second"].folder / step.name).write_text(step.content)
                case Action():
                    await self._act(step, self._terminals[step.terminal])
                case _:
                    assert_never(step)
        running = [name for name, terminal in self._terminals.items() if terminal.is_busy]
        assert not running, f"the page does not end the command in the terminal {', '.join(running)}"

    async def _act(self, action: Action, terminal: Terminal) -> None:
        if action.is_query:
            await self._repeat(action, terminal)
            return
        if action.command:
            await terminal.start(self._rewrite_command(action.command))
        keeps_running = terminal.is_busy and (not action.command or action.is_background or action.is_interrupted)
        if keeps_running:
            is_shown = await terminal.until(lambda: self._is_shown(action, terminal, is_partial=True))
            self._check(is_shown, action, terminal)
        if action.is_interrupted:
            terminal.interrupt()
        if terminal.is_busy and (action.is_interrupted or not keeps_running):
            self._check(await terminal.exit_code() == 0, action, terminal, "the command failed")
        if not keeps_running:
            self._check(self._is_shown(action, terminal), action, terminal)

    async def _repeat(self, action: Action, terminal: Terminal) -> None:
        """Repeat a query until it prints the expected output: the adapters work in the background."""
        is_shown = False
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while not is_shown and asyncio.get_running_loop().time() < deadline:
            await terminal.start(self._rewrite_command(action.command))
            self._check(await terminal.exit_code() == 0, action, terminal, "the command failed")
            is_shown = self._is_shown(action, terminal)
        self._check(is_shown, action, terminal)

    def _is_shown(self, action: Action, terminal: Terminal, *, is_partial: bool = False) -> bool:
        return tutorial_page.is_expected(action.expected, self._lines(terminal), is_partial=is_partial)

    def _check(
        self, is_correct: bool, action: Action, terminal: Terminal, problem: str = "unexpected output"
    ) -> None:
        if not is_correct:
            expected = "\n".join(action.expected)
            shown = "\n".join(tutorial_page.normalize(self._lines(terminal)))
            raise AssertionError(
                f"line {action.line}: {action.command}: {problem}\n--- expected\n{expected}\n--- shown\n{shown}"
            )

    def _lines(self, terminal: Terminal) -> list[str]:
        return [self._rewrite(line) for line in terminal.lines()]
