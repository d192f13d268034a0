"""`sentinel backup` and `sentinel restore` for SQLite databases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.database.errors import exit_on_errors, exit_with
from sentinel.cli.options import OutputFormat
from sentinel.runtime.database_url import PostgresqlServer, parse_database_url
from sentinel.runtime.process import ExitCode


class CopyOutput(msgspec.Struct, frozen=True):
    """The JSON or YAML output of both commands."""

    database: str
    file: str
    revision: str
    bytes: int


_force = click.option("--force", is_flag=True, help="Overwrite an existing file.")


@click.command()
@options.database_url_option
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write.")
@_force
@options.output_option
def backup(database_url: str, to: Path, force: bool, output: OutputFormat) -> None:
    """Back up a SQLite database, even while a server uses it.

    The backup is a consistent snapshot. It is checked before the file gets its name. For PostgreSQL use pg_dump.
    """
    with exit_on_errors("backup"):
        from sentinel.drivers.sql.engine import backup as sqlite_backup
        from sentinel.drivers.sql.history import HISTORY

        file = _sqlite_file(database_url, "backup")
        with _progress("copying") as progress:
            made = sqlite_backup.back_up(file, to, force=force, progress=progress, history=HISTORY)
    _print(CopyOutput(f"sqlite:///{file}", str(to), made.revision, made.bytes), output, f"{file} → {to}")


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The backup to restore.",
)
@options.database_url_option
@_force
@options.output_option
def restore(source: Path, database_url: str, force: bool, output: OutputFormat) -> None:
    """Replace a SQLite database by a backup. No server may be using it.

    The database is not changed until the backup is completely copied and checked. For PostgreSQL use pg_restore.
    """
    with exit_on_errors("restore"):
        from sentinel.drivers.sql.engine import backup as sqlite_backup
        from sentinel.drivers.sql.history import HISTORY

        file = _sqlite_file(database_url, "restore")
        with _progress("copying") as progress:
            made = sqlite_backup.restore(source, file, force=force, progress=progress, history=HISTORY)
    _print(CopyOutput(f"sqlite:///{file}", str(source), made.revision, made.bytes), output, f"{source} → {file}")


def _sqlite_file(url: str, command: str) -> Path:
    address = parse_database_url(url)
    if isinstance(address, PostgresqlServer):
        exit_with(
            f"sentinel {command} is for SQLite; PostgreSQL has pg_dump and pg_restore: "
            "see docs/how-to/back-up-and-restore.md",
            ExitCode.MISCONFIGURED,
        )
    return address.path


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda remaining, total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def show(remaining: int, total: int) -> None:
            bar.length = total
            bar.update(total - remaining - bar.pos)

        yield show


def _print(copy: CopyOutput, output: OutputFormat, summary: str) -> None:
    if output is OutputFormat.TABLE:
        click.echo(f"{summary}: {copy.bytes / 2**20:.1f} MiB, revision {copy.revision}")
    else:
        click.echo(options.encode(copy, output))
