"""What `explain`, `coverage` and `forecast` share: they read a live fleet and publish nothing.

Each loads a configuration as `run` does, walks the fleet that it names, and prints a result. A bad configuration
exits with 2 before any request. A fleet that cannot be read exits with 1 and prints no data, because a partial
result would look like a complete one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import click

from sentinel.cli import options
from sentinel.cli.options import OutputFormat
from sentinel.cli.wiring.pulse import build_fleet
from sentinel.core.pulse.observation import MalformedItem
from sentinel.ports.errors import Misconfigured
from sentinel.ports.fleet import FetchError, FleetReader
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.definition import PulseDefinition
from sentinel.pulse.explain import UnknownResource
from sentinel.pulse.forecast.calibration import EmptyFleet
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import process
from sentinel.runtime.log import Log, configure_logging, get_logger
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.secrets import Redactor, Secret
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import printable

_PROGRESS_AFTER = 1.0
"""Seconds after which a walk shows its progress."""
_PROGRESS_INTERVAL = 0.2
_MAX_MALFORMED_SHOWN = 10

config_option = click.option(
    "--config", required=True, type=click.Path(path_type=Path), help="The settings file of a Sentinel."
)


class WalkProgress:
    """Shows the progress of a long walk, on a terminal only."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()
        self._now = now
        self._due = now() + _PROGRESS_AFTER
        self._width = 0

    def __call__(self, fetched: int) -> None:
        now = self._now()
        if self._is_shown and now >= self._due:
            self._due = now + _PROGRESS_INTERVAL
            self._write(f"{fetched:,} resources read")

    def clear(self) -> None:
        """Erase the progress line before other output."""
        if self._width:
            self._write("")
            self._stream.write("\r")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text.ljust(self._width)}")
        self._stream.flush()
        self._width = len(text)


class InspectionSession:
    """What an inspection needs: its fleet, its log, and its output."""

    def __init__(self, *, log: Log, redactor: Redactor, progress: WalkProgress) -> None:
        self.log = log
        self.progress = progress
        self._redactor = redactor

    @asynccontextmanager
    async def open_fleet(self, definition: PulseDefinition) -> AsyncIterator[FleetReader]:
        """The fleet that the pulse watches, closed at the end."""
        fleet = build_fleet(definition, on_token=self._redactor.add)
        try:
            yield fleet
        finally:
            await fleet.close()

    def warn_about_malformed(self, malformed: Sequence[MalformedItem]) -> None:
        """Log the first items that could not be read, and how many more there are."""
        self.progress.clear()
        for item in malformed[:_MAX_MALFORMED_SHOWN]:
            self.log.warning(
                "resource.malformed", resource_id=item.id, problem=item.message, position=item.position
            )
        if len(malformed) > _MAX_MALFORMED_SHOWN:
            more = len(malformed) - _MAX_MALFORMED_SHOWN
            self.log.warning("resource.malformed", problem="and more", resources=more)

    def fail(self, reason: str, code: ExitCode = ExitCode.FAILURE) -> ExitCode:
        """Print why there is no result, and return the exit code."""
        self.progress.clear()
        click.echo(printable(self._redactor.redact(reason)), err=True)
        return code


Inspect: TypeAlias = Callable[[InspectionSession], Coroutine[Any, Any, int]]


def print_result(result: object, output: OutputFormat, *, lines: Iterable[str]) -> None:
    """Print a result for scripts, or `lines` as its table."""
    for line in lines if output is OutputFormat.TABLE else [options.encode(result, output)]:
        click.echo(line)


def print_problems(problems: Iterable[str]) -> None:
    """Print why a configuration cannot be used."""
    for problem in problems:
        click.echo(mask_secret_text(problem), err=True)


def inspect_config(
    inspect: Callable[[InspectionSession, PulseSettings], Coroutine[Any, Any, int]],
    config: Path,
    *,
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Load one configuration, run `inspect` with it, and return the exit code."""
    loaded = pulse_settings.load(file=config, environ=os.environ, sets=sets, overrides=log_overrides)
    print_problems(map(str, loaded.problems))
    settings = loaded.settings
    if settings is None:
        return ExitCode.MISCONFIGURED
    return run_inspection(
        lambda session: inspect(session, settings),
        log_settings=settings.log,
        secrets=loaded.secrets,
        warnings=loaded.warnings,
    )


def run_inspection(
    inspect: Inspect, *, log_settings: LogSettings, secrets: Sequence[Secret], warnings: Sequence[str]
) -> int:
    """Run `inspect` with logging as the settings say, and return the exit code."""
    logging = configure_logging(
        log_settings.level, log_settings.format, secrets=[secret.reveal() for secret in secrets]
    )
    log = get_logger("inspection")
    session = InspectionSession(log=log, redactor=logging.redactor, progress=WalkProgress(sys.stderr))
    try:
        for warning in warnings:
            log.warning("settings.warning", problem=warning)
        return process.main(_with_errors_printed(inspect, session), log=log)
    finally:
        session.progress.clear()
        logging.restore()


async def _with_errors_printed(inspect: Inspect, session: InspectionSession) -> int:
    try:
        return await inspect(session)
    except FetchError as error:
        return session.fail(f"the fleet could not be read: {error}")
    except (UnknownResource, EmptyFleet) as error:
        return session.fail(str(error))
    except Misconfigured as error:
        return session.fail(str(error), ExitCode.MISCONFIGURED)
