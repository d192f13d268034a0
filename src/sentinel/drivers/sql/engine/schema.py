"""The revision of the tables, and the migration to the one that this program needs.

The tables of all components share one history. Every start checks the revision with one query; Alembic is loaded
only if there is something to migrate.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from sqlalchemy import Connection, inspect, text

from sentinel.ports.errors import Misconfigured

VERSION_TABLE = "sentinel_schema"
LOCK_KEY = 0x534E_544C
"""The advisory lock in PostgreSQL that a migration holds."""

_ENVIRONMENT = Path(__file__).parent / "alembic_environment"
_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Encodings that can store every character; SQL_ASCII stores bytes unchanged."""


class Migration(msgspec.Struct, frozen=True):
    """The revisions before and after a migration; None means no tables."""

    before: str | None
    after: str | None


class TablesOutdated(Misconfigured):
    """The tables are older than this program."""


class History(msgspec.Struct, frozen=True):
    """The revisions of the tables, and the folders of their Alembic modules."""

    revisions: tuple[str, ...]
    """Oldest first."""
    folders: tuple[Path, ...]

    @property
    def head(self) -> str:
        return self.revisions[-1]

    def followed_by(self, *revisions: str, folder: Path) -> History:
        """Return this history extended by the revisions of a component with its own folder of modules."""
        return History((*self.revisions, *revisions), (*self.folders, folder))

    def require_known(self, revision: str | None, *, where: str) -> None:
        """Raise `Misconfigured` if the tables are newer than this program."""
        if revision is not None and revision not in self.revisions:
            raise Misconfigured(
                f"{where}: its tables are at revision {revision}, this program knows them up to {self.head}: "
                "use the newer version that migrated them"
            )

    def require_current(self, revision: str | None, *, where: str) -> None:
        """Raise `Misconfigured` if the tables are not at the revision that this program needs."""
        self.require_known(revision, where=where)
        if revision != self.head:
            found = "has no tables yet" if revision is None else f"has tables at revision {revision}"
            raise TablesOutdated(f"{where} {found}, this program needs {self.head}: run `sentinel migrate`")


def revision_of(connection: Connection) -> str | None:
    """Return the revision of the tables, or None if there are none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
    return revision


def prepare(connection: Connection, *, where: str, migrate: bool, history: History) -> Migration:
    """Check the tables, and with `migrate` upgrade them.

    Runs in the caller's transaction. If several processes migrate at the same time, one of them does it and the
    others wait.
    """
    _require_encoding(connection, where=where)
    before = revision_of(connection)
    history.require_known(before, where=where)
    if not migrate:
        history.require_current(before, where=where)
    if before == history.head:
        return Migration(before, before)
    if connection.dialect.name == "postgresql":
        # A migration may take long, and so may waiting for another process's.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_KEY})"))
        before = revision_of(connection)
        history.require_known(before, where=where)
    if before != history.head:
        _upgrade(connection, history)
    return Migration(before, history.head)


def _require_encoding(connection: Connection, *, where: str) -> None:
    """Names and labels may contain any character, so the encoding must be able to store all of them."""
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
    from alembic.script import ScriptDirectory

    config = Config()
    folders = os.pathsep.join(map(str, history.folders))
    config.set_main_option("script_location", str(_ENVIRONMENT).replace("%", "%%"))
    config.set_main_option("version_locations", folders.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    found = tuple(script.revision for script in scripts.walk_revisions("base", history.head))[::-1]
    if found != history.revisions:
        # Otherwise Alembic would skip the revisions that the modules pass over.
        raise Misconfigured(
            f"expected the migrations {', '.join(history.revisions)} one after the other, "
            f"got {', '.join(found)}: check the down_revision of each module"
        )
    command.upgrade(config, history.head)
