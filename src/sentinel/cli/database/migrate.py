"""`sentinel migrate`: upgrades the tables of a database to the revision that this program needs."""

from __future__ import annotations

import asyncio

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.database.errors import exit_on_errors
from sentinel.cli.options import OutputFormat
from sentinel.runtime.database_url import parse_database_url
from sentinel.runtime.process import ExitCode


class MigrationOutput(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """The JSON or YAML output."""

    database: str
    """The URL without the password."""
    before: str | None
    after: str
    up_to_date: bool
    """Whether the tables are now at the revision that this program needs."""


@click.command()
@options.database_url_option
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a migration is needed.")
@options.output_option
def migrate(database_url: str, check: bool, output: OutputFormat) -> None:
    """Migrate the tables of a database to the current revision.

    Safe to repeat and to run concurrently. A SQLite database must not be in use. `sentinel api` migrates at
    startup unless configured not to.
    """
    with exit_on_errors("migrate"):
        migrated = asyncio.run(_check(database_url) if check else _migrate(database_url))
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(migrated, output))
    else:
        click.echo(_summary(migrated))
    if not migrated.up_to_date:
        raise click.exceptions.Exit(ExitCode.FAILURE)


async def _migrate(url: str) -> MigrationOutput:
    from sentinel.drivers.sql import engine
    from sentinel.drivers.sql.history import HISTORY

    done = await engine.migrate(url, history=HISTORY)
    return MigrationOutput(str(parse_database_url(url)), done.before, HISTORY.head, up_to_date=True)


async def _check(url: str) -> MigrationOutput:
    from sentinel.drivers.sql import engine
    from sentinel.drivers.sql.history import HISTORY

    where = str(parse_database_url(url))
    found = await engine.revision(url, history=HISTORY)
    HISTORY.require_known(found, where=where)
    return MigrationOutput(where, found, HISTORY.head, up_to_date=found == HISTORY.head)


def _summary(migrated: MigrationOutput) -> str:
    before = migrated.before or "nothing"
    if migrated.before == migrated.after:
        return f"{migrated.database}: up to date at {migrated.after}"
    if migrated.up_to_date:
        return f"{migrated.database}: {before} → {migrated.after}"
    return f"{migrated.database}: at {before}, this program needs {migrated.after}"
