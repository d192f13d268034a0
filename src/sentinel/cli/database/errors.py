"""How database commands print an error and exit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from sentinel.cli.wiring.extras import extra
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.database_url import InvalidDatabaseUrl
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secret_text import mask_secret_text


def exit_with(message: str, code: ExitCode) -> NoReturn:
    """Print an error and exit."""
    click.echo(f"error: {mask_secret_text(message)}", err=True)
    raise click.exceptions.Exit(code)


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
