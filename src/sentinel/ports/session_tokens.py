"""Tokens that prove to every hub on one database which session an agent has."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from sentinel.core.hub.session_token import SessionClaims


class SessionTokens(Protocol):
    """Issues and verifies tokens.

    The first call may wait for the database, which has the key; it raises `Unavailable`, or `Misconfigured` if the
    key cannot be decrypted. Later calls neither wait nor fail.
    """

    async def issue(self, claims: SessionClaims) -> str:
        """Return a token with these claims, whose times are whole seconds."""

    async def read(self, token: str) -> SessionClaims | None:
        """Return the claims of a token, or None if no hub on this database has issued it.

        `token` is any text that a client sent; no text makes the call fail. The token may have expired, and the
        session may have ended: `session_token.judge` decides that.
        """

    async def verify(self, token: str, now: datetime) -> SessionClaims | None:
        """Return the claims of a token as `read`, or None if its time has not come yet or is over."""
