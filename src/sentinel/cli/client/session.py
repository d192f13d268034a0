"""How a client's command reaches its server, and what it ends with.

Exit 0 where the server did it, 1 where it refused or cannot be reached, 2 where the command was not usable as it
was typed.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.fleet import FetchedDocument, FleetClient
from sentinel.core import labels
from sentinel.drivers.rest.errors import ServerError
from sentinel.drivers.rest.url import InvalidSegment
from sentinel.runtime import durations, process
from sentinel.runtime.log import get_logger
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable, quoted

F = TypeVar("F", bound=Callable[..., object])

TOKEN = "SENTINEL_TOKEN"  # noqa: S105  # the name of a variable
DEFAULT_SERVER = "http://127.0.0.1:8080"
"""Where `sentinel up` listens."""

Work: TypeAlias = Callable[[FleetClient], Coroutine[Any, Any, int]]


class ServerOptions:
    """The server that a command was told to use."""

    def __init__(self, *, server: str, ca_file: Path | None) -> None:
        self._server = server
        self._ca_file = ca_file

    def use(self, work: Work) -> int:
        """Does the work with the server; the exit code."""
        try:
            connection = ServerConnection(
                server=self._server, ca_file=self._ca_file, token=os.environ.get(TOKEN, "").strip()
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error

        async def session() -> int:
            try:
                async with connection:
                    return await work(FleetClient(connection))
            except ServerError as error:
                return fail(str(error))
            except InvalidSegment as error:
                raise click.UsageError(str(error)) from error

        return process.main(session(), log=get_logger("client"))


def fail(why: str) -> ExitCode:
    """Says why a command did not do what it was told."""
    click.echo(printable(why), err=True)
    return ExitCode.FAILURE


def mention_pause(resource: FetchedDocument) -> None:
    """Says so where nobody will hear of a change, because the resource is paused."""
    if resource.document.paused is True:
        told = f"{resource.title} is paused: no event goes out before sentinel resume {resource.document.id}"
        click.echo(printable(told), err=True)


def server_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--server` and `--ca-file`, as the parameter `target`, a `ServerOptions`.

    The token comes from the environment alone: a flag would show it to everybody who lists processes.
    """

    @functools.wraps(command)
    def with_target(*args: Any, server: str, ca_file: Path | None, **kwargs: Any) -> int:
        return command(*args, target=ServerOptions(server=server, ca_file=ca_file), **kwargs)

    server = click.option(
        "--server",
        metavar="URL",
        envvar="SENTINEL_SERVER",
        default=DEFAULT_SERVER,
        help=f"The fleet API to use; SENTINEL_SERVER says the same. Default: {DEFAULT_SERVER}. "
        f"A token, where it wants one, is taken from {TOKEN}.",
    )
    ca_file = click.option(
        "--ca-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Who vouches for the server's certificate, in place of the system's authorities.",
    )
    return server(ca_file(with_target))


def _selector(context: click.Context, parameter: click.Parameter, text: str) -> str:
    try:
        labels.parse(text)
    except labels.SelectorError as error:
        raise click.BadParameter(str(error)) from error
    return text


def selector_option(command: F) -> F:
    """`--selector`, as the parameter `selector`, a text that is one."""
    return click.option(
        "-l",
        "--selector",
        metavar="LABELS",
        default="",
        callback=_selector,
        help="Only resources with such labels, as in region=us-east,tier!=test or 'env in (dev,test)'.",
    )(command)


def duration(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Reads an option that is a positive duration, as its callback; None where it is not given."""
    if text is None:
        return None
    try:
        found = durations.parse(text)
    except ValueError:
        found = timedelta(0)
    if found <= timedelta(0):
        raise click.BadParameter(f"expected a duration such as 30s, got {quoted(text)}")
    return found


def is_on_screen() -> bool:
    """Whether what is printed is read on a terminal, which alone gets colours, and lines that fit it."""
    return sys.stdout.isatty()


def width() -> int | None:
    """How many columns a line may have; None where nothing limits it."""
    return shutil.get_terminal_size().columns if is_on_screen() else None


def fitted(line: str, columns: int | None) -> str:
    """The line, cut where it would not fit."""
    return line if columns is None or len(line) <= columns else f"{line[: columns - 1]}…"
