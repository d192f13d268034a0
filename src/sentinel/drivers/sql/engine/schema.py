"""Which revision the tables are at, and how they get to the one that this program needs.

There is one history for the tables of all components. Every start asks whether they are up to date, which costs
one query; Alembic is loaded only where there is something to change.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from sqlalchemy import Connection, inspect, text

from sentinel.ports.errors import Misconfigured

VERSION_TABLE = "sentinel_schema"
LOCK_KEY = 0x534E_544C
"""Whoever changes the tables of a PostgreSQL database holds the advisory lock of this number."""

_ENVIRONMENT = Path(__file__).parent / "alembic_environment"
_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Those that hold every character; SQL_ASCII keeps bytes as they come."""


class Migration(msgspec.Struct, frozen=True):
    """From which revision to which; None before the first."""

    before: str | None
    after: str | None


class TablesOutdated(Misconfigured):
    """The tables are older than this program."""


class History(msgspec.Struct, frozen=True):
    """The revisions of the tables, and where their Alembic modules are."""

    revisions: tuple[str, ...]
    """Oldest first."""
    folders: tuple[Path, ...]

    @property
    def head(self) -> str:
        return self.revisions[-1]

    def followed_by(self, *revisions: str, folder: Path) -> History:
        """This history, and after it the revisions of a component whose modules are in a folder of its own."""
        return History((*self.revisions, *revisions), (*self.folders, folder))

    def require_known(self, revision: str | None, *, where: str) -> None:
        """Raises `Misconfigured` where the tables are newer than this program."""
        if revision is not None and revision not in self.revisions:
            raise Misconfigured(
                f"{where}: its tables are at revision {revision}, this program knows them up to {self.head}: "
                "use the newer program that has changed them"
            )

    def require_current(self, revision: str | None, *, where: str) -> None:
        """Raises `Misconfigured` where the tables are not what this program needs."""
        self.require_known(revision, where=where)
        if revision != self.head:
            found = "has no tables yet" if revision is None else f"has tables at revision {revision}"
            raise TablesOutdated(f"{where} {found}, this program needs {self.head}: run `sentinel migrate`")


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables; None where there are none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
    return revision


def prepare(connection: Connection, *, where: str, migrate: bool, history: History) -> Migration:
    """Looks at the tables, and changes them if told to `migrate`.

    The caller has a transaction open, and ends it. Of those who come at the same time one changes the tables,
    and the others wait and find that done.
    """
    _require_encoding(connection, where=where)
    before = revision_of(connection)
    history.require_known(before, where=where)
    if not migrate:
        history.require_current(before, where=where)
    if before == history.head:
        return Migration(before, before)
    if connection.dialect.name == "postgresql":
        # A migration may take its time, and so may the one that goes before.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_KEY})"))
        before = revision_of(connection)
        history.require_known(before, where=where)
    if before != history.head:
        _upgrade(connection, history)
    return Migration(before, history.head)


def _require_encoding(connection: Connection, *, where: str) -> None:
    """Names and labels may have any character; a database that cannot hold some of them would fail on those."""
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.execute(text("SHOW server_encoding")).scalar()
    if encoding not in _ENCODINGS:
        raise Misconfigured(
            f"{where}: expected a database with the encoding UTF8, got {encoding}: "
            "create another with ENCODING 'UTF8' TEMPLATE template0"
        )


def _upgrade(connection: Connection, history: History) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    folders = os.pathsep.join(map(str, history.folders))
    config.set_main_option("script_location", str(_ENVIRONMENT).replace("%", "%%"))
    config.set_main_option("version_locations", folders.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, history.head)
