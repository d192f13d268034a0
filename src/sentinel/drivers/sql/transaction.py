"""The transaction that every component's store shares: it writes audit entries and idempotency keys.

A component subclasses it, adds methods for its own tables, and maps its unique constraints to errors. The first
violation ends the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self, TypeVar

from sentinel.drivers.sql import audit, idempotency
from sentinel.drivers.sql.engine.statements import Duplicate, Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.ports.audit import AuditEntry
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import KeyTaken, StoredResponse

T = TypeVar("T")

_SHARED_ERRORS: Mapping[str, type[AlreadyExists]] = {idempotency.KEY_CONSTRAINT: KeyTaken}


class SqlTransaction:
    """A transaction, given to one run of the work."""

    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {}
    """The error to raise for each unique constraint of the component that a caller may violate."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._entries: list[AuditEntry] = []
        """Written at the end, so that a component can write one of them in the same statement as its last row."""
        self._violation: AlreadyExists | None = None
        self._is_over = False

    def perform(self, work: Callable[[Self], T]) -> T:
        """Run the work, then write what was deferred. The database commits afterwards.

        Raises the `AlreadyExists` of a statement even if the work suppressed it.
        """
        result = work(self)
        if self._violation is not None:
            raise self._violation
        self._before_commit()
        self._is_over = True
        return result

    def record(self, entry: AuditEntry) -> None:
        self._require_open()
        self._entries.append(entry)

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        found = self._rows(idempotency.RECALL, actor=actor, key=key)
        return idempotency.response(found[0]) if found else None

    def remember(self, response: StoredResponse) -> None:
        self._run(idempotency.REMEMBER, idempotency.values(response))

    def _before_commit(self) -> None:
        for entry in self._entries:
            self._run(audit.RECORD, audit.values(entry))

    def _write_deferred(self) -> None:
        """Called before every statement. A component that defers a statement overrides it."""

    def _run(self, statement: Statement, values: Mapping[str, SqlValue]) -> None:
        self._require_open()
        self._write_deferred()
        try:
            self._session.run(statement, **values)
        except Duplicate as error:
            self._is_over = True
            kind = self.errors_by_constraint.get(error.constraint) or _SHARED_ERRORS.get(error.constraint)
            if kind is None:
                raise
            self._violation = kind(f"{error.constraint} is taken")
            raise self._violation from error

    def _rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        self._require_open()
        self._write_deferred()
        return self._session.rows(statement, **values)

    def _require_open(self) -> None:
        if self._is_over:
            raise RuntimeError("the transaction is over") from self._violation


Tx = TypeVar("Tx", bound=SqlTransaction)


async def transact(database: SqlDatabase, begin: Callable[[Session], Tx], work: Callable[[Tx], T]) -> T:
    """Run the work in a transaction, and return its result once that is durable."""
    return await database.write(lambda session: begin(session).perform(work))
