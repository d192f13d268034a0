"""The key that signs session tokens, in memory.

It passes the same contract suite as SQLite and PostgreSQL.
"""

from __future__ import annotations

from datetime import datetime

from sentinel.ports.signing_keys import SigningKey
from sentinel.testing.database import MemoryDatabase

DEFAULT_SECRET = bytes(range(32))


class _Keys:
    def __init__(self) -> None:
        self.by_name: dict[str, SigningKey] = {}


class MemorySigningKeys:
    """A verified fake of `ports.signing_keys.SigningKeys`. The key is not random: all databases have the same."""

    def __init__(self, database: MemoryDatabase, *, secret: bytes = DEFAULT_SECRET) -> None:
        """`secret` is the key if the database has none yet."""
        self._database = database
        self._keys = database.tables(_Keys)
        self._new = SigningKey(secret)

    async def load(self, now: datetime) -> SigningKey:
        return await self._database.call(
            "load_signing_key", lambda: self._keys.by_name.setdefault("sessions", self._new)
        )
