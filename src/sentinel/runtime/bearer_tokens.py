"""The bearer tokens that this program makes.

A token has 256 random bits, so one round of SHA-256 is enough: it cannot be guessed from its hash.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

PREFIX: Final = "snt_"
"""Lets scanners for leaked secrets recognize a token."""

_BYTES = 32
LENGTH: Final = len(PREFIX) + 43
"""Of every token: 43 characters of base64 are 32 bytes."""


def new_token() -> str:
    """Generate a random token."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode()).digest()
