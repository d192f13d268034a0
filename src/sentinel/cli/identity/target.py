"""Where a command finds accounts: `--server`, or `--database-url`, or for tokens a file.

Exit codes: 0 for success, 1 if the change was refused or the server or database cannot be reached, 2 for wrong
usage and for values that no server would accept.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.core import ParameterSource

from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions, fail
from sentinel.cli.identity.accounts import Accounts, ServerAccounts, open_database
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime import process
from sentinel.runtime.log import get_logger
from sentinel.runtime.process import ExitCode
from sentinel.web.errors import Conflict, Invalid, NotFound

Work: TypeAlias = Callable[[Accounts], Awaitable[int]]


class AccountsTarget:
    """The server or the database that a command's options name."""

    def __init__(self, *, server: ServerOptions, database_url: str | None) -> None:
        self._server = server
        self._database_url = database_url

    def run(self, work: Work) -> int:
        """Run `work` with the accounts; return the exit code."""
        try:
            if self._database_url is None:
                return self._server.run_connected(lambda connection: _on(work, ServerAccounts(connection)))
            return process.main(_in_database(self._database_url, work), log=get_logger("accounts"))
        except Invalid as error:
            raise click.UsageError(str(error)) from error


def accounts_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--server`, `--database-url` and what a connection needs, as the parameter `target`."""

    @functools.wraps(command)
    def with_target(*args: Any, server: ServerOptions, database_url: str | None, **kwargs: Any) -> int:
        given = [name for name in ("server", "database_url") if is_on_command_line(name)]
        if len(given) > 1:
            raise click.UsageError("expected --server or --database-url, got both")
        if given == ["server"]:
            database_url = None
        return command(*args, target=AccountsTarget(server=server, database_url=database_url), **kwargs)

    database = click.option(
        "--database-url",
        metavar="URL",
        envvar="SENTINEL_DATABASE_URL",
        help="Change the database instead of asking a server: sqlite:///FILE, while no server uses it, or"
        " postgresql://…; or set SENTINEL_DATABASE_URL.",
    )
    return database(session.server_options(with_target))


def is_on_command_line(name: str) -> bool:
    """Whether the option of this parameter was given, not taken from the environment or its default."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def is_given(name: str) -> bool:
    """Whether the option of this parameter was given, or a variable of the environment instead of it."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def tokens_file_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--tokens-file`, as the parameter `file`, a path or None."""
    return click.option(
        "--tokens-file",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The tokens file that the server reads.",
    )(command)


async def _on(work: Work, accounts: Accounts) -> int:
    return await work(accounts)


async def _in_database(url: str, work: Work) -> int:
    try:
        async with open_database(url, who="--database-url") as accounts:
            return await work(accounts)
    except Misconfigured as error:
        is_in_use = "is in use" in str(error)
        fail(f"{error}; or ask the server that uses it, with --server" if is_in_use else str(error))
        return ExitCode.MISCONFIGURED
    except Unavailable as error:
        return fail(str(error))
    except (Conflict, NotFound) as error:
        return fail(f"refused: {error}")
