"""How `sentinel up` shows itself: a greeting, lines or a screen, a file that says when it is ready, a last word.

It is the last part to start, so that by then everything has been tried once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import click
import msgspec

from sentinel.cli.client.connection import Connection
from sentinel.cli.up import welcome
from sentinel.cli.up.board import Board
from sentinel.cli.up.home import Kept
from sentinel.cli.up.lines import Lines
from sentinel.cli.up.narration import Happening
from sentinel.cli.up.overview import Overview
from sentinel.cli.up.plan import Plan
from sentinel.ports import Clock
from sentinel.runtime import durations
from sentinel.runtime.health import Health
from sentinel.runtime.parts import Loop, Part
from sentinel.runtime.stopping import Stopping
from sentinel.runtime.telemetry import Log

_LOOK_AGAIN = timedelta(milliseconds=50)


class Showing(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about it."""

    is_live: bool = False
    """A screen in place of lines."""
    ready_file: Path | None = None
    lasts: timedelta | None = None
    """After which everything ends by itself."""


class _Ready(msgspec.Struct, frozen=True):
    """What the ready file says."""

    http: str
    grpc: str | None = None
    token: str | None = None


class View:
    """Everything that is shown, and nothing that works."""

    def __init__(
        self,
        *,
        showing: Showing,
        plan: Plan,
        folder: Path,
        admin: Kept | None,
        health: Health,
        clock: Clock,
        log: Log,
        stopping: Stopping,
    ) -> None:
        """`admin` is the token that people need, where they need one."""
        self.board = Board(started=clock.now())
        self._showing = showing
        self._plan = plan
        self._folder = folder
        self._admin = admin
        self._health = health
        self._clock = clock
        self._log = log
        self._stopping = stopping
        self._lines = Lines(stream=sys.stdout, on_broken_pipe=self._end_quietly)

    def tell(self, happening: Happening) -> None:
        """Shows a happening."""
        self.board.tell(happening)
        if not self._showing.is_live:
            name = happening.name or self.board.name_of(happening.resource_id)
            self._lines.tell(msgspec.structs.replace(happening, name=name))

    def part(self, url: str, *, connect: Callable[[], Connection]) -> Part:
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
            from sentinel.cli.up.live import LiveView

            live = LiveView(board=self.board, clock=self._clock, title=url, hints=tries, health=self._health)
            loops.append(live.run)
        if self._showing.lasts is not None:
            loops.append(self._end_in_time)
        return Part(name="view", loops=loops, start=greet, close=self._withdraw)

    def summary(self) -> str:
        """The last word, when the screen is the terminal's again."""
        totals = self.board.totals
        lasted = timedelta(seconds=int((self._clock.now() - self.board.started).total_seconds()))
        return (
            f"{totals.published:,} events published, {totals.failed:,} failed, "
            f"{totals.evaluations:,} evaluations in {durations.render(lasted)}"
        )

    def _greet(self, url: str, tries: list[welcome.Hint]) -> None:
        if self._admin is not None and self._admin.is_new:
            click.echo(f"admin token, printed this once and kept in {self._admin.file}: {self._admin.token}")
        if self._showing.is_live:
            return
        broker = self._plan.broker
        for line in welcome.lines(
            url,
            watched=self._plan.watched,
            broker="in this process"
            if broker is None
            else str(broker.url or f"{broker.project_id}/{broker.topic}"),
            database=str(self._plan.server.database_url),
            folder=str(self._folder),
            tries=tries,
        ):
            self._lines.write(line)

    def _announce(self, url: str) -> None:
        if self._showing.ready_file is not None:
            token = None if self._admin is None else self._admin.token
            _write(self._showing.ready_file, _Ready(url, token=token))
        self._log.info("up.ready", http=url)

    async def _withdraw(self) -> None:
        if self._showing.ready_file is not None:
            self._showing.ready_file.unlink(missing_ok=True)

    async def _end_in_time(self, stopping: Stopping) -> None:
        lasts = self._showing.lasts
        if lasts is not None and not await stopping.interrupts(self._clock.sleep(lasts)):
            stopping.request()

    def _end_quietly(self) -> None:
        """Whoever read our lines has gone; what could not be written would be tried again at exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        self._stopping.request()


def _write(file: Path, ready: _Ready) -> None:
    """At once, and for the owner's eyes only where there is a token in it."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    mode = 0o644 if ready.token is None else 0o600
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as writing:
        writing.write(msgspec.json.encode(ready) + b"\n")
    unfinished.replace(file)
