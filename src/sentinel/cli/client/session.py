"""The options, exit codes and terminal output that the client's commands share.

Exit codes: 0 for success, 1 if the server refused or cannot be reached, 2 for wrong usage.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.fleet import FetchedDocument, FleetClient
from sentinel.cli.client.names import AmbiguousName
from sentinel.cli.options import OutputFormat
from sentinel.core import labels
from sentinel.drivers.rest.errors import ServerError
from sentinel.drivers.rest.url import InvalidSegment
from sentinel.runtime import durations, process
from sentinel.runtime.log import LogLevel, configure_logging, get_logger
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import printable, quoted

F = TypeVar("F", bound=Callable[..., object])

TOKEN = "SENTINEL_TOKEN"  # noqa: S105  # the name of a variable
DEFAULT_SERVER = "http://127.0.0.1:8080"
"""The default address of `sentinel up`."""

Work: TypeAlias = Callable[[FleetClient], Coroutine[Any, Any, int]]


class _ClientSettings(msgspec.Struct, frozen=True):
    """The settings of the client's commands."""

    log: LogSettings


class ServerOptions:
    """The server that the options of a command name."""

    def __init__(self, *, url: str, ca_file: Path | None, log: LogSettings) -> None:
        self._url = url
        self._ca_file = ca_file
        self._log = log

    def run(self, work: Work) -> int:
        """Run `work` with a client of the fleet API; return the exit code."""
        return self.run_connected(lambda connection: work(FleetClient(connection)))

    def run_connected(self, work: Callable[[ServerConnection], Coroutine[Any, Any, int]]) -> int:
        """Run `work` with a connection to the server; return the exit code."""
        token = os.environ.get(TOKEN, "").strip()
        try:
            connection = ServerConnection(server=self._url, ca_file=self._ca_file, token=token)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

        async def session() -> int:
            try:
                async with connection:
                    return await work(connection)
            except ServerError as error:
                return fail(str(error))
            except AmbiguousName as error:
                for line in error.lines():
                    fail(line)
                return ExitCode.MISCONFIGURED
            except InvalidSegment as error:
                raise click.UsageError(str(error)) from error

        logging = configure_logging(
            self._log.level, self._log.format, secrets=(token, *secrets_in_environment(os.environ))
        )
        try:
            return process.main(session(), log=get_logger("client"))
        finally:
            logging.restore()


def server_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--server`, `--ca-file` and the options of the log, as the parameter `server`, a `ServerOptions`.

    The token comes only from the environment: a flag would show it to everyone who can list processes.
    """

    @functools.wraps(command)
    def with_server(
        *args: Any, server: str, ca_file: Path | None, log_overrides: Mapping[str, str], **kwargs: Any
    ) -> int:
        loaded = loader.load(
            _ClientSettings, environ=os.environ, overrides=log_overrides, defaults={"log.level": LogLevel.WARNING}
        )
        if loaded.settings is None:
            raise click.UsageError("\n".join(map(str, loaded.problems)))
        server_options = ServerOptions(url=server, ca_file=ca_file, log=loaded.settings.log)
        return command(*args, server=server_options, **kwargs)

    url_option = click.option(
        "--server",
        metavar="URL",
        envvar="SENTINEL_SERVER",
        default=DEFAULT_SERVER,
        help=f"The server to use; or set SENTINEL_SERVER. Default: {DEFAULT_SERVER}. "
        f"If it requires a token, set {TOKEN}.",
    )
    ca_file_option = click.option(
        "--ca-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="CA certificates to trust instead of the system's, in PEM.",
    )
    return url_option(ca_file_option(options.log_options(with_server)))


def _parse_selector(context: click.Context, parameter: click.Parameter, text: str) -> str:
    try:
        labels.parse(text)
    except labels.SelectorError as error:
        raise click.BadParameter(str(error)) from error
    return text


def selector_option(command: F) -> F:
    """Add `--selector`, as the parameter `selector`, the text of a valid selector."""
    return click.option(
        "-l",
        "--selector",
        metavar="LABELS",
        default="",
        callback=_parse_selector,
        help="Only resources with these labels, as in region=us-east,tier!=test or 'env in (dev,test)'.",
    )(command)


def wait_options(*, until: str, timeout: str) -> Callable[[F], F]:
    """Add `--wait` and `--timeout`, as the parameters `is_waiting` and `timeout`.

    `until` says what is waited for, `timeout` for how long by default.
    """
    wait = click.option("--wait", "is_waiting", is_flag=True, help=f"Wait until {until}.")
    limit = click.option(
        "--timeout", callback=parse_duration, default=timeout, help=f"How long to wait. Default: {timeout}."
    )
    return lambda command: wait(limit(command))


def parse_duration(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Parse an option that is a positive duration, as its callback; None if it is not given."""
    if text is None:
        return None
    try:
        duration = durations.parse(text)
    except ValueError:
        duration = timedelta(0)
    if duration <= timedelta(0):
        raise click.BadParameter(f"expected a duration such as 30s, got {quoted(text)}")
    return duration


def fail(message: str) -> ExitCode:
    """Print the message on stderr; return the exit code of a failure."""
    click.echo(printable(mask_secret_text(message)), err=True)
    return ExitCode.FAILURE


def warn_if_paused(resource: FetchedDocument) -> None:
    """Warn that a change has no effect yet, because a paused resource gets no events."""
    if resource.document.paused is True:
        warning = f"{resource.title} is paused: no event goes out before sentinel resume {resource.document.id}"
        click.echo(printable(warning), err=True)


def print_resource(resource: FetchedDocument, message: str, output: OutputFormat) -> ExitCode:
    """Print the message for people, or the resource for scripts."""
    click.echo(message if output is OutputFormat.TABLE else options.encode(msgspec.Raw(resource.body), output))
    return ExitCode.SUCCESS


def is_terminal() -> bool:
    """Whether stdout is a terminal. Only a terminal gets colors and truncated lines."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """The columns of the terminal; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def truncate(line: str, columns: int | None) -> str:
    """Cut the line to this many columns; None means no limit."""
    return line if columns is None or len(line) <= columns else f"{line[: columns - 1]}…"
