"""Statements that SQLAlchemy compiles once per database and the driver runs directly.

SQLAlchemy writes SQL for both databases. Running it through SQLAlchemy as well would cost three to five times as
much on SQLite and 1.5 times on PostgreSQL, a seventh of a whole report (`bench/parts.py`), for features that are
not used here. Values are plain texts, numbers and bytes; rows are tuples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

from sqlalchemy import ClauseElement, ColumnElement, Dialect, Integer, Table, UpdateBase, literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg

from sentinel.ports.database import Database

T = TypeVar("T")
SqlValue: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = Sequence[Any]
"""A row from the driver. The code that wrote the statement knows its types."""

SQLITE: Dialect = sqlite.dialect()
POSTGRESQL: Dialect = asyncpg.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves dialects untyped


class Compiled:
    """A statement in one database's dialect."""

    __slots__ = ("_constants", "_names", "text")

    def __init__(self, construct: ClauseElement, dialect: Dialect, *, columns: Sequence[str] = ()) -> None:
        compiled = construct.compile(
            dialect=dialect, column_keys=columns or None, compile_kwargs={"render_postcompile": True}
        )
        self.text = str(compiled)
        self._names = tuple(getattr(compiled, "positiontup", None) or ())
        # SQLAlchemy turns constants into parameters as well: an empty text, a limit of one.
        self._constants: dict[str, SqlValue] = {
            name: value for name, value in compiled.params.items() if value is not None
        }

    def bind(self, values: Mapping[str, SqlValue]) -> list[SqlValue]:
        """Return the values in the order of the placeholders in the text."""
        if self._constants:
            values = {**self._constants, **values}
        return [values[name] for name in self._names]


class Statement:
    """A statement, compiled for each database when it is first run there."""

    def __init__(self, construct: ClauseElement, *columns: str) -> None:
        """`columns` are those that an insert or update writes, each from the value of the same name."""
        self._construct = construct
        self._columns = columns

    @property
    def table(self) -> Table | None:
        """The table it writes to, or None if it only reads or SQLAlchemy does not know."""
        written = self._construct.table if isinstance(self._construct, UpdateBase) else None
        return written if isinstance(written, Table) else None

    @cached_property
    def sqlite(self) -> Compiled:
        return Compiled(self._construct, SQLITE, columns=self._columns)

    @cached_property
    def postgresql(self) -> Compiled:
        return Compiled(self._construct, POSTGRESQL, columns=self._columns)


def literal(number: int) -> ColumnElement[int]:
    """A number in the SQL text: with a parameter as its limit, PostgreSQL plans for a tenth of the table."""
    return literal_column(str(number), Integer)


class Duplicate(Exception):
    """A statement violated the unique constraint named `constraint`."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint


class TooLong(Exception):
    """A result would exceed the database's limit for one value."""


class NeedsTransaction(Exception):
    """An optimistic attempt cannot do this work, or lost a race. Nothing was written."""


class Session(Protocol):
    """A connection, inside a transaction if it is used for writing."""

    can_write_two_tables: bool
    """Whether one statement may write two tables."""
    has_snapshot: bool
    """Whether all reads see one snapshot, even without a transaction."""
    joins_bytes: bool
    """Whether joining byte values in SQL is faster than fetching them one by one."""
    can_stop_reading: bool
    """Whether a query can end after any row. Otherwise all rows arrive at once."""
    numbers_transactions: bool
    """Whether the database itself numbers transactions, in another order than that of their commits."""

    def rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        """Return the rows of a query. Raises `TooLong`."""

    def rows_of_short_values(self, statement: Statement, max_length: int, **values: SqlValue) -> Sequence[Row]:
        """Return the rows of a query. Raises `TooLong` before a value of more than `max_length` bytes is complete.

        A database that does not join bytes does not limit them.
        """

    def rows_within(self, statement: Statement, max_bytes: int, /, **values: SqlValue) -> Sequence[Row]:
        """Return the first rows of a query whose first column has at most `max_bytes` in total, at least one row.

        If more follow, there is one more row, with None in the first column. Where rows arrive all at once, the
        statement itself has to replace documents by null, by its parameter `max_bytes`.
        """

    def run(self, statement: Statement, **values: SqlValue) -> int:
        """Run a write and return how many rows it changed. Raises `Duplicate`, which aborts the transaction."""

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, SqlValue]]) -> None:
        """Run a write once per set of values."""


class AutocommitSession(Session, Protocol):
    """A connection outside any transaction: each statement is committed immediately."""

    def lock_key(self, key: str) -> None:
        """Wait until no other task of this process holds the key, then hold it until the session ends.

        This does not lock a row, and other processes ignore it. It only avoids a race that one of two tasks would
        lose. Call it before the first statement, so that a waiting task holds no connection. Raises `Unavailable`.
        """


class SqlDatabase(Database, Protocol):
    """The database that stores share. They neither open nor close it."""

    async def read(self, work: Callable[[Session], T]) -> T: ...

    async def write(self, work: Callable[[Session], T]) -> T:
        """Run the work in a transaction and return its result once that is durable.

        The work may run several times; only its last run takes effect.
        """

    async def write_optimistically(self, work: Callable[[AutocommitSession], T]) -> T:
        """Run the work without a transaction: it reads, then writes with one conditional statement.

        Saves the round trips for BEGIN, the row lock and COMMIT. Raises `NeedsTransaction` if the work does,
        and always on SQLite, which has no round trips to save.
        """

    def announce(self, channel: str) -> None:
        """Wake everyone who listens to this channel, in all processes, soon and without waiting."""

    def listening(self, channel: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set when something is announced on this channel.

        An announcement of a process that is killed, or while the connection is lost, may be missed.
        """
