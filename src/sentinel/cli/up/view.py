"""How `sentinel up` shows itself: a greeting, lines or a screen, a file that says when it is ready, a last word.

It is the last part to start, so that by then everything has been tried once. All that it says goes through one
outlet, which nobody waits for.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up import welcome
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.data_dir import DataDir, Kept, UnusableDataDir
from sentinel.cli.up.lines import Lines
from sentinel.cli.up.narration import Activity
from sentinel.cli.up.overview import Overview
from sentinel.cli.up.plan import UpPlan
from sentinel.cli.up.ready import Ready, ReadyFile
from sentinel.cli.up.stdout_queue import StdoutQueue
from sentinel.ports.clock import Clock
from sentinel.runtime import durations
from sentinel.runtime.lifecycle.part import Loop, Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import Health

_LOOK_AGAIN = timedelta(milliseconds=50)
_FAREWELL = timedelta(milliseconds=500)
"""For the last words to be taken, by a reader who may have stopped reading."""


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about it."""

    is_live: bool = False
    """A screen in place of lines."""
    ready_file: Path | None = None
    lasts: timedelta | None = None
    """After which everything ends by itself."""


class View:
    """Everything that is shown, and nothing that works."""

    def __init__(
        self,
        *,
        showing: Showing,
        plan: UpPlan,
        home: DataDir,
        admin: Kept | None,
        health: Health,
        clock: Clock,
        log: Log,
        stopping: Stopping,
    ) -> None:
        """`admin` is the token that people need, where they need one."""
        self.board = DashboardState(started=clock.now())
        self.ready_file = None if showing.ready_file is None else ReadyFile(showing.ready_file)
        self._showing = showing
        self._plan = plan
        self._home = home
        self._admin = admin
        self._health = health
        self._clock = clock
        self._log = log
        self._stopping = stopping
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_greeted = self._has_announced = False
        self._outlet = StdoutQueue(
            *_standard_output(),
            on_gone=self._end_quietly,
            on_failure=lambda error: log.warning("output.failed", error=error),
        )
        self._lines = Lines(self._outlet)

    @asynccontextmanager
    async def on_loop(self) -> AsyncIterator[None]:
        """Entered before anything else runs, on the event loop that everything else runs on."""
        self._loop = asyncio.get_running_loop()
        yield

    def tell(self, happening: Activity) -> None:
        """Shows a happening."""
        self.board.tell(happening)
        if not self._showing.is_live:
            name = happening.name or self.board.name_of(happening.resource_id)
            self._lines.tell(msgspec.structs.replace(happening, name=name))

    def part(self, url: str, *, connect: Callable[[], ServerConnection]) -> Part:
        """As a part, now that everything is at this address."""
        overview = Overview(
            kinds=self._plan.watched, board=self.board, tell=self.tell, clock=self._clock, connect=connect
        )
        tries = welcome.hints(url, token_file=None if self._admin is None else self._admin.file)

        async def greet() -> None:
            self._greet(url, tries)

        async def say_when_ready(stopping: Stopping) -> None:
            while not self._health.readiness().is_ok:
                if await stopping.interrupts(self._clock.sleep(_LOOK_AGAIN)):
                    return
            self._announce(url)
            await stopping.wait()

        loops: list[Loop] = [overview.run, say_when_ready]
        if self._showing.is_live:
            from sentinel.cli.up.live import LiveView, console_on

            live = LiveView(
                board=self.board,
                clock=self._clock,
                title=url,
                hints=tries,
                health=self._health,
                console=console_on(self._outlet),
                has_room=lambda: self._outlet.is_idle,
            )
            loops.append(live.run)
        if self._showing.lasts is not None:
            loops.append(self._end_in_time)
        return Part(name="view", loops=loops, start=greet)

    def leave_screen(self) -> bool:
        """Waits until the terminal is as it was, for what others want to write there; whether it is."""
        return self._outlet.flush(within=_FAREWELL)

    def say_goodbye(self) -> None:
        """The last word, when the screen is the terminal's again."""
        totals = self.board.totals
        lasted = timedelta(seconds=int((self._clock.now() - self.board.started).total_seconds()))
        self._lines.write(
            f"{totals.published:,} events published, {totals.failed:,} failed, "
            f"{totals.evaluations:,} evaluations in {durations.render(lasted)}"
        )
        self._outlet.flush(within=_FAREWELL)

    def _greet(self, url: str, tries: list[welcome.Hint]) -> None:
        """Once, however often the view is built anew."""
        if self._has_greeted:
            return
        self._has_greeted = True
        if self._admin is not None and not self._home.was_shown(self._admin):
            self._lines.write(
                f"admin token, printed this once and kept in {self._admin.file}: {self._admin.token}"
            )
            with suppress(
                UnusableDataDir
            ):  # then it is shown once more at the next start, which is better than never
                self._home.mark_shown(self._admin)
        broker = self._plan.broker
        for line in welcome.lines(
            url,
            watched=self._plan.watched,
            broker="in this process"
            if broker is None
            else str(broker.url or f"{broker.project_id}/{broker.topic}"),
            database=str(self._plan.server.database_url),
            folder=str(self._home.folder),
            # The screen has them at its foot, and when that is over there is nothing to try them on.
            tries=[] if self._showing.is_live else tries,
        ):
            self._lines.write(line)

    def _announce(self, url: str) -> None:
        if self.ready_file is not None:
            token = None if self._admin is None else self._admin.token
            self.ready_file.announce(Ready(url, token=token))
        if not self._has_announced and not self._showing.is_live:
            self._lines.write(f"sentinel is up at {url}")
        self._has_announced = True
        self._log.info("up.ready", http=url)

    async def _end_in_time(self, stopping: Stopping) -> None:
        lasts = self._showing.lasts
        if lasts is not None and not await stopping.interrupts(self._clock.sleep(lasts)):
            self._stopping.request()

    def _end_quietly(self) -> None:
        """Whoever read our lines has gone; told by the thread that writes them."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is over already
                self._loop.call_soon_threadsafe(self._stopping.request)


def _standard_output() -> tuple[int, str]:
    """Its descriptor and its encoding. Where it was closed, its number may be that of another file by now."""
    if sys.stdout is None:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), "utf-8"
    return sys.stdout.fileno(), sys.stdout.encoding
