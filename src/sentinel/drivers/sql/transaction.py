"""The transaction of every component: it writes the audit and idempotency keys beside the component's own rows.

A component derives its own, adds methods for its tables, and names the unique constraints that a caller may
violate. The first violation ends the transaction. `transact` runs a piece of work in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

from sentinel.drivers.sql import audit, idempotency
from sentinel.drivers.sql.engine.statements import (
    AutocommitSession,
    Duplicate,
    Row,
    Session,
    SqlDatabase,
    Statement,
    Value,
)
from sentinel.ports.audit import AuditEntry
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import KeyTaken, StoredResponse

T = TypeVar("T")

_SHARED: Mapping[str, type[AlreadyExists]] = {idempotency.KEY_CONSTRAINT: KeyTaken}


class SqlTransaction:
    """One run of a piece of work."""

    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {}
    """What to raise where a statement would violate a unique constraint of the component's, by its name."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._entries: list[AuditEntry] = []
        """Written last, so that a component can write one of them together with its own last row."""
        self._taken: AlreadyExists | None = None
        self._is_over = False

    def record(self, entry: AuditEntry) -> None:
        self._require_open()
        self._entries.append(entry)

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        found = self._rows(idempotency.RECALL, actor=actor, key=key)
        return idempotency.response(found[0]) if found else None

    def remember(self, response: StoredResponse) -> None:
        self._run(idempotency.REMEMBER, idempotency.values(response))

    def finish(self) -> None:
        """Write the audit entries. Raises the `AlreadyExists` of an earlier statement that the work suppressed."""
        if self._taken is not None:
            raise self._taken
        self._write_last()
        self._is_over = True

    def _write_last(self) -> None:
        for entry in self._entries:
            self._run(audit.RECORD, audit.values(entry))

    def _write_pending(self) -> None:
        """Called before every statement; a component that delays a statement overrides it."""

    def _run(self, statement: Statement, values: Mapping[str, Value]) -> None:
        self._require_open()
        self._write_pending()
        try:
            self._session.run(statement, **values)
        except Duplicate as error:
            self._is_over = True
            taken = self.errors_by_constraint.get(error.constraint) or _SHARED.get(error.constraint)
            if taken is None:
                raise
            self._taken = taken(f"{error.constraint} is taken")
            raise self._taken from error

    def _rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        self._require_open()
        self._write_pending()
        return self._session.rows(statement, **values)

    def _require_open(self) -> None:
        if self._is_over:
            raise RuntimeError("the transaction is over") from self._taken


Tx = TypeVar("Tx", bound=SqlTransaction)


async def transact(
    database: SqlDatabase,
    begin: Callable[[Session], Tx],
    work: Callable[[Tx], T],
    *,
    briefly: Callable[[AutocommitSession], T] | None = None,
) -> T:
    """Runs the work in a transaction, and returns its result once that is durable.

    `briefly` is what `SqlDatabase.write` may try first.
    """

    def perform(session: Session) -> T:
        transaction = begin(session)
        result = work(transaction)
        transaction.finish()
        return result

    return await database.write(perform, briefly=briefly)
