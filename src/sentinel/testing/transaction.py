"""A transaction in memory, with the part that the stores of all components share.

The transaction of a store derives from it and adds what can be done to its own tables.
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
    """Writes at once, and notes how to undo it: no other task runs before the work has ended."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._audit = database.tables(AuditTable)
        self._responses = database.tables(ResponseTable)
        self._is_over = False
        self._taken: AlreadyExists | None = None
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
            raise self._over(KeyTaken(f"the key {response.key} of {response.actor} is taken"))
        self._assign(self._responses, key, response)

    def end(self) -> None:
        """Ends it. Raises the `AlreadyExists` of an earlier call if the work has suppressed it."""
        self._is_over = True
        if self._taken is not None:
            raise self._taken

    def committed(self) -> None:
        """Called once, when everything has taken effect and before any other task can act."""

    def undo(self) -> None:
        """Takes everything back, the last first."""
        self._is_over = True
        while self._undo:
            self._undo.pop()()

    def _require_open(self) -> None:
        if self._is_over:
            raise RuntimeError("the transaction is over") from self._taken

    def _over(self, taken: AlreadyExists) -> AlreadyExists:
        self._is_over, self._taken = True, taken
        return taken

    def _assign(self, table: dict[K, V], key: K, value: V | None) -> None:
        before = table.get(key)
        assign(table, key, value)
        self._undo.append(lambda: assign(table, key, before))


Tx = TypeVar("Tx", bound=MemoryTransaction)


async def transact(database: MemoryDatabase, begin: Callable[[], Tx], work: Callable[[Tx], T]) -> T:
    """Runs the work in a transaction; where it raises, nothing it did remains."""

    def run() -> T:
        transaction = begin()
        try:
            result = work(transaction)
            transaction.end()
        except BaseException:
            transaction.undo()
            raise
        transaction.committed()
        return result

    def run_in_vain() -> None:
        transaction = begin()
        try:
            work(transaction)
        finally:
            transaction.undo()

    return await database.call("transact", run, lose_race=run_in_vain)


def assign(table: dict[K, V], key: K, value: V | None) -> None:
    """Puts a value under a key; None removes the key."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
