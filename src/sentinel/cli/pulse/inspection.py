"""What the commands have in common that look at a live fleet and send nothing: `explain`, `coverage`, `forecast`.

Each reads a configuration as `run` would, walks the fleet it names, and prints what it found. Bad configuration
ends them with 2 before any request is made, a fleet that cannot be read with 1 and without output: half an answer
looks like a whole one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import click

from sentinel.cli import options
from sentinel.cli.wiring.pulse import build_fleet
from sentinel.ports.errors import Misconfigured
from sentinel.ports.fleet import FetchError, FleetReader
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import process
from sentinel.runtime.log import Log, configure_logging, get_logger
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secrets import Redactor
from sentinel.runtime.settings.report import Loaded, printable

_LONG = 1.0
"""A walk of so many seconds is worth a word about its progress."""
_PAUSE = 0.2
_MALFORMED_SHOWN = 10

config_option = click.option(
    "--config", required=True, type=click.Path(path_type=Path), help="The settings file of a Sentinel."
)


class WalkProgress:
    """Says how far a long walk has come, on a terminal and nowhere else."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._now = now
        self._due = now() + _LONG
        self._width = 0

    def __call__(self, fetched: int) -> None:
        now = self._now()
        if self._is_shown and now >= self._due:
            self._due = now + _PAUSE
            self._write(f"{fetched:,} resources read")

    def clear(self) -> None:
        """Makes room for what is said next."""
        if self._width:
            self._write("")
            self._stream.write("\r")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text.ljust(self._width)}")
        self._stream.flush()
        self._width = len(text)


class InspectionSession:
    """One look at a fleet: what it is done with, and where it tells what it meets."""

    def __init__(self, *, log: Log, redactor: Redactor, progress: WalkProgress) -> None:
        self.log = log
        self.progress = progress
        self.redactor = redactor

    @asynccontextmanager
    async def fleet(self, settings: PulseSettings) -> AsyncIterator[FleetReader]:
        """The fleet that the settings name, closed in the end."""
        fleet = build_fleet(settings, on_token=self.redactor.add)
        try:
            yield fleet
        finally:
            await fleet.close()

    def warn_of_malformed(self, malformed: Sequence[str]) -> None:
        """Says which items could not be read: the first few, and how many there are."""
        for problem in malformed[:_MALFORMED_SHOWN]:
            self.log.warning("resource.malformed", problem=problem)
        if len(malformed) > _MALFORMED_SHOWN:
            more = len(malformed) - _MALFORMED_SHOWN
            self.log.warning("resource.malformed", problem="and more", resources=more)

    def refuse(self, why: str, code: ExitCode = ExitCode.FAILURE) -> ExitCode:
        """Says why there is no answer."""
        self.progress.clear()
        click.echo(printable(self.redactor.redact(why)), err=True)
        return code


Look: TypeAlias = Callable[[InspectionSession], Coroutine[Any, Any, int]]


def load(
    config: Path, *, sets: Sequence[str], log_level: str | None, log_format: str | None
) -> Loaded[PulseSettings]:
    """The settings as `run` would read them; every problem is on stderr where there are any."""
    loaded = pulse_settings.load(
        file=config,
        environ=os.environ,
        sets=sets,
        overrides=options.log_overrides(log_level=log_level, log_format=log_format),
    )
    for problem in loaded.problems:
        click.echo(str(problem), err=True)
    return loaded


def look(at: Look, *, settings: PulseSettings, loaded: Sequence[Loaded[PulseSettings]]) -> int:
    """Runs `at` with logging as the settings want it; the exit code."""
    secrets = [secret.reveal() for each in loaded for secret in each.secrets]
    logging = configure_logging(settings.log.level, settings.log.format, secrets=secrets)
    log = get_logger("inspection")
    session = InspectionSession(log=log, redactor=logging.redactor, progress=WalkProgress(sys.stderr))
    try:
        for warning in dict.fromkeys(warning for each in loaded for warning in each.warnings):
            log.warning("settings.warning", problem=warning)
        return process.main(_answer(at, session), log=log)
    finally:
        session.progress.clear()
        logging.restore()


async def _answer(at: Look, session: InspectionSession) -> int:
    try:
        return await at(session)
    except FetchError as error:
        return session.refuse(f"the fleet could not be read: {error}")
    except Misconfigured as error:
        return session.refuse(str(error), ExitCode.MISCONFIGURED)
