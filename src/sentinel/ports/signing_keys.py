"""The key with which hubs sign the session tokens of agents."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec


class SigningKey(msgspec.Struct, frozen=True):
    """A key for signing and for verifying."""

    secret: bytes
    """32 random bytes."""

    def __repr__(self) -> str:
        return "SigningKey()"


class SigningKeys(Protocol):
    """Keeps the key, so that tokens outlive a restart, and hubs on one database accept each other's tokens."""

    async def load(self, now: datetime) -> SigningKey:
        """Return the key. The first call ever makes it; all others, also concurrent ones, return the same.

        Raises `Misconfigured` if the key is stored encrypted and cannot be decrypted, and `Unavailable`.
        """
