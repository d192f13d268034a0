"""`sentinel backup` and `sentinel restore`: a copy of a SQLite database, taken and put back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.database.database_url import failures, refuse, url_option
from sentinel.cli.options import Output
from sentinel.runtime.database_url import PostgresqlServer, parse_database_url
from sentinel.runtime.process import ExitCode

_HOW_TO = "docs/how-to/back-up-and-restore.md"


class Copied(msgspec.Struct, frozen=True):
    """A copy that was made, as it is printed for scripts."""

    database: str
    file: str
    """The copy."""
    revision: str
    bytes: int


_force = click.option("--force", is_flag=True, help="Overwrite what is there.")


@click.command()
@url_option
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write.")
@_force
@options.output_option
def backup(database_url: str, to: Path, force: bool, output: Output) -> None:
    """Copy a SQLite database, also while a server uses it.

    The copy is of one moment, is checked, and gets its name only when it is whole. For PostgreSQL use pg_dump.
    """
    with failures("backup"):
        from sentinel.drivers.sql.engine import backup as copies
        from sentinel.drivers.sql.history import HISTORY

        file = _sqlite_file(database_url, "backup")
        with _progress("copying") as progress:
            made = copies.back_up(file, to, force=force, progress=progress, history=HISTORY)
    _print(Copied(f"sqlite:///{file}", str(to), made.revision, made.bytes), output, f"{file} → {to}")


@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The copy to put back.",
)
@url_option
@_force
@options.output_option
def restore(source: Path, database_url: str, force: bool, output: Output) -> None:
    """Put a copy in the place of a SQLite database, which no server may be using.

    Until the copy is whole and checked, nothing that is there changes. For PostgreSQL use pg_restore.
    """
    with failures("restore"):
        from sentinel.drivers.sql.engine import backup as copies
        from sentinel.drivers.sql.history import HISTORY

        file = _sqlite_file(database_url, "restore")
        with _progress("copying") as progress:
            made = copies.restore(source, file, force=force, progress=progress, history=HISTORY)
    _print(Copied(f"sqlite:///{file}", str(source), made.revision, made.bytes), output, f"{source} → {file}")


def _sqlite_file(url: str, command: str) -> Path:
    address = parse_database_url(url)
    if isinstance(address, PostgresqlServer):
        refuse(
            f"sentinel {command} is for SQLite; PostgreSQL has pg_dump and pg_restore: see {_HOW_TO}",
            ExitCode.MISCONFIGURED,
        )
    return address.path


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda remaining, total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def show(remaining: int, total: int) -> None:
            bar.length = total
            bar.update(total - remaining - bar.pos)

        yield show


def _print(copied: Copied, output: Output, words: str) -> None:
    if output is Output.TABLE:
        click.echo(f"{words}: {copied.bytes / 2**20:.1f} MiB, revision {copied.revision}")
    else:
        click.echo(options.encode(copied, output))
