"""A terminal at which a reader types, and whoever follows a tutorial at two of them.

Commands run under a shell on a pseudo-terminal, so that they draw what they would draw for a person. What a shell
would remember from one command to the next, the folder and the environment, is carried over.
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
from types import TracebackType
from typing import Self, assert_never

from tests.e2e import tutorial_page
from tests.e2e.tutorial_page import Action, File, Step

PATIENCE = 30.0

_ROWS, _COLUMNS = 32, 110
_MOST_READ = 2**16
_ENTER, _LEAVE, _HOME = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H"
_ALTERNATE = re.compile(rf"{re.escape(_ENTER)}.*?{re.escape(_LEAVE)}", re.DOTALL)
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """One command at a time; what it still runs when it is closed is killed."""

    def __init__(self, *, folder: Path, environ: Mapping[str, str], memory: Path) -> None:
        """`memory` is a file in which the shell leaves its environment."""
        self._folder = folder
        self._environ = dict(environ)
        self._memory = memory
        self._process: asyncio.subprocess.Process | None = None
        self._output = bytearray()
        self._has_changed = asyncio.Event()
        self._is_silent = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            await self._is_silent.wait()

    @property
    def folder(self) -> Path:
        """Where the next command runs."""
        return self._folder

    @property
    def is_busy(self) -> bool:
        return self._process is not None

    def lines(self) -> list[str]:
        """What it shows: the whole picture while a command draws one, otherwise what was printed since the last
        command was typed."""
        text = self._output.decode(errors="replace").replace("\r\n", "\n")
        if text.rfind(_ENTER) > text.rfind(_LEAVE):
            *_, complete, _ = ["", *text.split(_HOME)]
            text = complete
        text = _STYLE.sub("", _ALTERNATE.sub("", text))
        # A line that was written over is what was written last.
        return [line.rpartition("\r")[2] for line in text.split("\n")]

    async def start(self, command: str) -> None:
        """Types a command."""
        assert self._process is None, "something still runs there"
        self._output.clear()
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            f'{command}\ncode=$?; env -0 > "$0"; exit $code',
            str(self._memory),
            cwd=self._folder,
            env=self._environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._is_silent.clear()
        asyncio.get_running_loop().add_reader(ours, self._read, ours)

    async def until(self, holds: Callable[[], bool]) -> bool:
        """Waits for what is shown; whether it came, before the command ended or patience did."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds() and not self._is_silent.is_set():
                    self._has_changed.clear()
                    await self._has_changed.wait()
        except TimeoutError:
            return False
        return holds()

    def interrupt(self) -> None:
        """Presses Ctrl-C, which is a signal to everything that runs there."""
        assert self._process is not None, "nothing runs there"
        os.killpg(self._process.pid, signal.SIGINT)

    async def end(self) -> int | None:
        """Waits for the command to end; its exit code, or None where it goes on."""
        assert self._process is not None, "nothing runs there"
        try:
            async with asyncio.timeout(PATIENCE):
                code = await self._process.wait()
                await self._is_silent.wait()
        except TimeoutError:
            return None
        self._process = None
        if code == 0:
            kept = self._memory.read_text().rstrip("\0").split("\0")
            self._environ = dict(variable.split("=", 1) for variable in kept)
            self._folder = Path(self._environ["PWD"])
        return code

    def _read(self, ours: int) -> None:
        try:
            read = os.read(ours, _MOST_READ)
        except OSError:  # which is how a pseudo-terminal says that nobody has it open any more
            read = b""
        self._output += read
        if not read:
            asyncio.get_running_loop().remove_reader(ours)
            os.close(ours)
            self._is_silent.set()
        self._has_changed.set()


class Reader:
    """Does what a page says, and objects where something else comes of it."""

    def __init__(
        self, terminals: Mapping[str, Terminal], *, as_printed: Callable[[str], str] = lambda line: line
    ) -> None:
        """`as_printed` makes of a line what the page would have."""
        self._terminals = terminals
        self._as_printed = as_printed

    async def follow(self, steps: Sequence[Step]) -> None:
        """Step by step; raises `AssertionError` with the line of the page that does not hold."""
        for step in steps:
            match step:
                case File():
                    (self._terminals["second"].folder / step.name).write_text(step.content)
                case Action():
                    await self._act(step, self._terminals[step.terminal])
                case _:
                    assert_never(step)
        running = [name for name, terminal in self._terminals.items() if terminal.is_busy]
        assert not running, f"the page leaves something running in the terminal {', '.join(running)}"

    async def _act(self, action: Action, terminal: Terminal) -> None:
        if action.is_question:
            await self._ask(action, terminal)
            return
        if action.command:
            await terminal.start(action.command)
        goes_on = terminal.is_busy and (not action.command or action.stays or action.is_interrupted)
        if goes_on:
            is_seen = await terminal.until(lambda: self._is_seen(action, terminal, so_far=True))
            self._insist(is_seen, action, terminal)
        if action.is_interrupted:
            terminal.interrupt()
        if terminal.is_busy and (action.is_interrupted or not goes_on):
            self._insist(await terminal.end() == 0, action, terminal, "it fails")
        if not goes_on:
            self._insist(self._is_seen(action, terminal), action, terminal)

    async def _ask(self, action: Action, terminal: Terminal) -> None:
        """Asks until the answer is the promised one. Others work meanwhile, and nobody announces what they did."""
        is_seen = False
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not is_seen and asyncio.get_running_loop().time() < deadline:
            await terminal.start(action.command)
            self._insist(await terminal.end() == 0, action, terminal, "it fails")
            is_seen = self._is_seen(action, terminal)
        self._insist(is_seen, action, terminal)

    def _is_seen(self, action: Action, terminal: Terminal, *, so_far: bool = False) -> bool:
        return tutorial_page.is_shown(action.shown, self._lines(terminal), so_far=so_far)

    def _insist(
        self, holds: bool, action: Action, terminal: Terminal, what: str = "it shows something else"
    ) -> None:
        if not holds:
            promised, shown = "\n".join(action.shown), "\n".join(tutorial_page.picture(self._lines(terminal)))
            raise AssertionError(
                f"line {action.line}: {action.command}: {what}\n--- promised\n{promised}\n--- shown\n{shown}"
            )

    def _lines(self, terminal: Terminal) -> list[str]:
        return [self._as_printed(line) for line in terminal.lines()]
