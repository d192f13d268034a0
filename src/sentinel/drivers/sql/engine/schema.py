"""In which shape the tables are, and how they get into the one that this program expects.

There is one history for the tables of every server. Whether they are up to date is asked at every start and costs
one query; Alembic is loaded only where there is something to change.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from sqlalchemy import Connection, inspect, text

from sentinel.ports.errors import Misconfigured

REVISIONS = ("0001",)
"""Every revision of the tables, oldest first."""
HEAD = REVISIONS[-1]
VERSION_TABLE = "sentinel_schema"
LOCK_KEY = 0x534E_544C
"""Whoever changes the tables of a PostgreSQL database holds the advisory lock of this number."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Those that hold every character; SQL_ASCII keeps bytes as they come."""


class Migration(msgspec.Struct, frozen=True):
    """From which revision to which; None before the first."""

    before: str | None
    after: str | None


class Behind(Misconfigured):
    """The tables are older than this program."""


def revision_of(connection: Connection) -> str | None:
    """The revision of the tables; None where there are none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
    return revision


def require_known(revision: str | None, *, where: str) -> None:
    """Raises `Misconfigured` where the tables are of a future that this program does not know."""
    if revision is not None and revision not in REVISIONS:
        raise Misconfigured(
            f"{where}: its tables are at revision {revision}, this program knows them up to {HEAD}: "
            "use the newer program that has changed them"
        )


def require_current(revision: str | None, *, where: str) -> None:
    """Raises `Misconfigured` where the tables are not what this program expects."""
    require_known(revision, where=where)
    if revision != HEAD:
        found = "has no tables yet" if revision is None else f"has tables at revision {revision}"
        raise Behind(f"{where} {found}, this program needs {HEAD}: run `sentinel migrate`")


def prepare(connection: Connection, *, where: str, migrate: bool) -> Migration:
    """Looks at the tables, and changes them if told to `migrate`.

    The caller has a transaction open, and ends it. Of those who come at the same time one changes the tables,
    and the others wait and find that done.
    """
    _require_encoding(connection, where=where)
    before = revision_of(connection)
    require_known(before, where=where)
    if not migrate:
        require_current(before, where=where)
    if before == HEAD:
        return Migration(before, before)
    if connection.dialect.name == "postgresql":
        # A migration may take its time, and so may the one that goes before.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_KEY})"))
        before = revision_of(connection)
        require_known(before, where=where)
    if before != HEAD:
        _upgrade(connection)
    return Migration(before, HEAD)


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


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
