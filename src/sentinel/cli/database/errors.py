"""The `--database-url` option and the error handling of all database commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import click

from sentinel.cli.wiring.extras import extra
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.database_url import InvalidDatabaseUrl
from sentinel.runtime.process import ExitCode

F = TypeVar("F", bound=Callable[..., object])


def exit_with(message: str, code: ExitCode) -> NoReturn:
    """Print an error and exit."""
    click.echo(f"error: {message}", err=True)
    raise click.exceptions.Exit(code)


def url_option(command: F) -> F:
    """`--database-url`, as the parameter `database_url`."""
    return click.option(
        "--database-url",
        metavar="URL",
        envvar="SENTINEL_DATABASE_URL",
        required=True,
        help="sqlite:///FILE or postgresql://USER@HOST/NAME; or set SENTINEL_DATABASE_URL.",
    )(command)


@contextmanager
def exit_on_errors(command: str) -> Iterator[None]:
    """Print database errors and exit: with 2 for a bad URL or a missing extra, else with 1."""
    try:
        with extra("api", who=f"sentinel {command}"):
            import sentinel.drivers.sql.engine.statements  # noqa: F401  # needs the extra
    except Misconfigured as error:
        exit_with(str(error), ExitCode.MISCONFIGURED)
    try:
        yield
    except InvalidDatabaseUrl as error:
        exit_with(f"--database-url: {error}", ExitCode.MISCONFIGURED)
    except (Misconfigured, Unavailable) as error:
        exit_with(str(error), ExitCode.FAILURE)
