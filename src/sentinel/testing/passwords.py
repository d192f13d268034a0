"""Hashing passwords quickly, for tests of servers."""

from __future__ import annotations

import asyncio
import hashlib
import itertools


class MemoryPasswordHasher:
    """A verified fake of `ports.passwords.PasswordHasher`. Its hashes are not safe outside of tests."""

    def __init__(self) -> None:
        self._salts = itertools.count()
        self.verified = 0
        """How often a password was compared, including those of unknown users."""

    async def hash(self, password: str) -> str:
        await asyncio.sleep(0)
        return _hash(password, str(next(self._salts)))

    async def verify(self, password: str, hashed: str | None) -> bool:
        self.verified += 1
        await asyncio.sleep(0)
        return hashed is not None and _hash(password, hashed.split("$")[2]) == hashed


def _hash(password: str, salt: str) -> str:
    digest = hashlib.sha256(f"{salt}:{password}".encode()).hexdigest()
    return f"$test${salt}${digest}"
