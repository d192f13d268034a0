"""Lists that are printed once, or with `--watch` again whenever they have changed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import click

from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.list_output import print_list, print_update
from sentinel.cli.options import OutputFormat
from sentinel.drivers.rest.errors import ServerError
from sentinel.runtime.process import ExitCode

_INTERRUPTED: Final = 128 + signal.SIGINT
_CLEAR: Final = "\x1b[H\x1b[2J"

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")


def watch_options(command: F) -> F:
    """Add `--watch` and `--interval`."""
    watch = click.option(
        "--watch", is_flag=True, help="Print the list again whenever it has changed, until Ctrl-C."
    )
    interval = click.option(
        "--interval", callback=session.parse_duration, default="1s", help="How often --watch looks. Default: 1s."
    )
    return watch(interval(command))


def show(
    server: ServerOptions,
    read: Callable[[HubApiClient], Awaitable[Sequence[T]]],
    *,
    render: Callable[[Sequence[T], datetime], Iterable[str]],
    compared: Callable[[T], object] = lambda item: item,
    output: OutputFormat,
    interval: timedelta | None,
) -> int:
    """Print a list, and with an `interval` again whenever it has changed. Returns the exit code.

    `render` returns the lines of its table, and `compared` the part of an item that makes a change.
    """
    is_screen = interval is not None and output is OutputFormat.TABLE and session.is_terminal()

    async def work(hub: HubApiClient) -> int:
        printed: Sequence[object] | None = None
        is_failing = False
        while True:
            try:
                found = await read(hub)
            except ServerError as error:
                if printed is None or not error.is_retryable:
                    raise
                if not is_failing:
                    session.fail(f"{error} – trying again until Ctrl-C")
                is_failing = True
            else:
                lines = [*render(found, datetime.now(UTC))]
                # Only a screen, which is drawn again, shows how the time passes.
                shown = lines if is_screen else [compared(each) for each in found]
                if shown != printed or is_failing:
                    if is_screen:
                        click.echo(_CLEAR, nl=False)
                    if interval is None or output is OutputFormat.TABLE:
                        print_list(found, lines, output)
                    else:
                        print_update(found, output)
                printed, is_failing = shown, False
            if interval is None:
                return ExitCode.SUCCESS
            await asyncio.sleep(interval.total_seconds())

    code = run(server, work)
    return ExitCode.SUCCESS if interval is not None and code == _INTERRUPTED else code
