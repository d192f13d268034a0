"""Passwords, hashed with Argon2id.

Hashes are in the PHC format, so they carry their salt and parameters, and other libraries can read them. The
parameters are OWASP's. cryptography releases the GIL meanwhile, so hashing in a thread keeps the event loop free.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

MEMORY_KIB: Final = 19 * 1024
_ITERATIONS = 2
_LANES = 1
_SALT_BYTES = 16
_HASH_BYTES = 32
_MAX_CONCURRENT = 2
"""Bounds the memory and the cores that sign-ins can take from everything else."""


class Argon2Passwords:
    """`ports.passwords.PasswordHasher` with Argon2id."""

    def __init__(self, *, memory_kib: int = MEMORY_KIB) -> None:
        self._memory_kib = memory_kib
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._decoy = ""

    async def hash(self, password: str) -> str:
        async with self._slots:
            return await asyncio.to_thread(self._hash, password)

    async def verify(self, password: str, hashed: str | None) -> bool:
        async with self._slots:
            if hashed is not None:
                return await asyncio.to_thread(_verify, password, hashed)
            if not self._decoy:
                self._decoy = await asyncio.to_thread(self._hash, os.urandom(_SALT_BYTES).hex())
            await asyncio.to_thread(_verify, password, self._decoy)
            return False

    def _hash(self, password: str) -> str:
        derivation = Argon2id(
            salt=os.urandom(_SALT_BYTES),
            length=_HASH_BYTES,
            iterations=_ITERATIONS,
            lanes=_LANES,
            memory_cost=self._memory_kib,
        )
        return derivation.derive_phc_encoded(password.encode())


def _verify(password: str, hashed: str) -> bool:
    try:
        Argon2id.verify_phc_encoded(password.encode(), hashed)
    except (InvalidKey, ValueError):
        return False
    return True
