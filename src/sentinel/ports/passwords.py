"""Hashing passwords."""

from __future__ import annotations

from typing import Protocol


class PasswordHasher(Protocol):
    """Hashes passwords slowly, so that they cannot be guessed from a stolen database.

    A call takes tens of milliseconds and does not block the event loop. Only a few run at a time; others wait.
    """

    async def hash(self, password: str) -> str:
        """Return a hash with its own salt and parameters."""

    async def verify(self, password: str, hashed: str | None) -> bool:
        """Return whether the hash was made from this password.

        None, for an unknown user, is never right and takes as long as a wrong password.
        """
