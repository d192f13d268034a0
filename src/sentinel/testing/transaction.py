"""The transaction in memory that every component's store shares: it writes audit entries and idempotency keys.

A component's store subclasses it and adds methods for its own tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sentinel.ports.audit import AuditEntry
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import KeyTaken, StoredResponse
from sentinel.testing.audit import AuditTable
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.idempotency import ResponseTable

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class MemoryTransaction:
    """Writes immediately and keeps an undo log. No other task runs before the work ends."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._audit = database.tables(AuditTable)
        self._responses = database.tables(ResponseTable)
        self._is_over = False
        self._violation: AlreadyExists | None = None
        self._undo: list[Callable[[], None]] = []

    def record(self, entry: AuditEntry) -> None:
        self._require_open()
        self._audit.add(entry)
        self._undo.append(lambda: self._audit.remove(entry))

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        self._require_open()
        return self._responses.get((actor, key))

    def remember(self, response: StoredResponse) -> None:
        self._require_open()
        key = (response.actor, response.key)
        if key in self._responses:
            raise self._abort(KeyTaken(f"the key {response.key} of {response.actor} is taken"))
        self._assign(self._responses, key, response)

    def finish(self) -> None:
        """End the transaction. Raises the `AlreadyExists` of an earlier call even if the work suppressed it."""
        self._is_over = True
        if self._violation is not None:
            raise self._violation

    def committed(self) -> None:
        """Called once after the commit, before any other task runs."""

    def undo(self) -> None:
        """Undo all writes in reverse order."""
        self._is_over = True
        while self._undo:
            self._undo.pop()()

    def _require_open(self) -> None:
        if self._is_over:
            raise RuntimeError("the transaction is over") from self._violation

    def _abort(self, violation: AlreadyExists) -> AlreadyExists:
        self._is_over, self._violation = True, violation
        return violation

    def _assign(self, table: dict[K, V], key: K, value: V | None) -> None:
        before = table.get(key)
        assign(table, key, value)
        self._undo.append(lambda: assign(table, key, before))


Tx = TypeVar("Tx", bound=MemoryTransaction)


async def transact(database: MemoryDatabase, begin: Callable[[], Tx], work: Callable[[Tx], T]) -> T:
    """Run the work in a transaction. If it raises, its writes are undone."""

    def run() -> T:
        transaction = begin()
        try:
            result = work(transaction)
            transaction.finish()
        except BaseException:
            transaction.undo()
            raise
        transaction.committed()
        return result

    def run_and_undo() -> None:
        transaction = begin()
        try:
            work(transaction)
        finally:
            transaction.undo()

    return await database.call("transact", run, on_lost_race=run_and_undo)


def assign(table: dict[K, V], key: K, value: V | None) -> None:
    """Set the value of a key. None removes the key."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
