"""Statements that are written once, compiled once for each database, and run by the driver itself.

SQLAlchemy writes the text that both databases understand. Running it through SQLAlchemy as well costs three to
five times as much on SQLite and half as much again on PostgreSQL, a seventh of a whole report (`bench/parts.py`),
for conveniences that are not needed here. Values are plain - texts, integers, bytes - and rows are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

from sqlalchemy import ClauseElement, ColumnElement, Dialect, Integer, Table, UpdateBase, literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg

from sentinel.ports.database import Database

T = TypeVar("T")
Value: TypeAlias = str | int | bytes | None
Row: TypeAlias = Sequence[Any]
"""What a driver hands out; typed by whoever wrote the statement."""

SQLITE: Dialect = sqlite.dialect()
POSTGRESQL: Dialect = asyncpg.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves dialects untyped


class Compiled:
    """A statement in one database's own words."""

    __slots__ = ("_constants", "_names", "text")

    def __init__(self, construct: ClauseElement, dialect: Dialect, *, columns: Sequence[str] = ()) -> None:
        compiled = construct.compile(
            dialect=dialect, column_keys=columns or None, compile_kwargs={"render_postcompile": True}
        )
        self.text = str(compiled)
        self._names = tuple(getattr(compiled, "positiontup", None) or ())
        # SQLAlchemy makes parameters of constants as well: an empty text, a limit of one.
        self._constants: dict[str, Value] = {
            name: value for name, value in compiled.params.items() if value is not None
        }

    def arrange(self, values: Mapping[str, Value]) -> list[Value]:
        """The values in the order in which the text asks for them."""
        if self._constants:
            values = {**self._constants, **values}
        return [values[name] for name in self._names]


class Statement:
    """A statement in both."""

    def __init__(self, construct: ClauseElement, *columns: str) -> None:
        """`columns` are those that an insert or update writes, each from the value of its own name."""
        self._construct = construct
        self._columns = columns

    @property
    def table(self) -> Table | None:
        """The table that it writes; None where it writes none, or SQLAlchemy does not know."""
        written = self._construct.table if isinstance(self._construct, UpdateBase) else None
        return written if isinstance(written, Table) else None

    @cached_property
    def sqlite(self) -> Compiled:
        return Compiled(self._construct, SQLITE, columns=self._columns)

    @cached_property
    def postgresql(self) -> Compiled:
        return Compiled(self._construct, POSTGRESQL, columns=self._columns)


def literal(number: int) -> ColumnElement[int]:
    """A number in the text itself: a planner that does not know a limit plans for a tenth of the table."""
    return literal_column(str(number), Integer)


class Duplicate(Exception):
    """A statement would have stored twice what must be unique; `constraint` is the name of the rule."""

    def __init__(self, constraint: str) -> None:
        super().__init__(constraint)
        self.constraint = constraint


class TooLong(Exception):
    """A value would be longer than the database can make one."""


class NeedsTransaction(Exception):
    """What was tried without a transaction cannot be done so, or no longer; nothing was written."""


class Session(Protocol):
    """A connection, within a transaction where one is written in."""

    combines: bool
    """Whether one statement may write two tables."""
    is_snapshot: bool
    """Whether all that is read is of one moment, also without a transaction."""
    joins: bool
    """Whether it joins bytes, in less time than it takes to hand them out one by one."""

    def rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        """Raises `TooLong`."""

    def run(self, statement: Statement, **values: Value) -> int:
        """Says how many rows it changed. Raises `Duplicate`, and the transaction is then over."""

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, Value]]) -> None:
        """Once for each."""


class AutocommitSession(Session, Protocol):
    """A connection outside of any transaction."""

    def lock_key(self, key: str) -> None:
        """Waits until no other task of this process holds this key, and holds it while the session lasts.

        This does not lock the row: other processes know nothing of it. It avoids a race that one of two tasks
        would lose. Call it before the first statement, so that a task that waits holds no connection. Raises
        `Unavailable`.
        """


class SqlDatabase(Database, Protocol):
    """A database as stores use it. They share it, and neither open nor close it."""

    async def read(self, work: Callable[[Session], T]) -> T: ...

    async def write(
        self, work: Callable[[Session], T], *, briefly: Callable[[AutocommitSession], T] | None = None
    ) -> T:
        """Runs the work in a transaction, perhaps several times; returns when its last run is durable.

        `briefly` does the same without a transaction, and so writes with its last statement alone; or it raises
        `NeedsTransaction`. It is tried first where statements are expensive enough for that to pay.
        """
