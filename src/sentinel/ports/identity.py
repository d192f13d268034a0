"""Identifying the sender of a request by its bearer token."""

from __future__ import annotations

from typing import Protocol

from sentinel.core.access import Identity


class Identities(Protocol):
    """A source of identities: a tokens file, a key that signs tokens, published keys, a database.

    It is called once per request, so a source that needs no I/O must not yield to the event loop. A change at the
    source (a token added or revoked, a new key) takes effect within about a second; of keys that an issuer
    publishes, within minutes.
    """

    async def identify(self, token: str) -> Identity | None:
        """Return the identity of a bearer token, or None if the token is unknown or not valid now.

        `token` is any text that a client sent; no text makes the call fail. The time it takes does not reveal how
        much of a wrong token was right. The identity has only the attributes of its role: `adapter` for the role
        adapter, optionally `instance` for the role agent. It is never anonymous.

        Raises `Unavailable` if the source cannot be reached. The token may then be valid, so a server responds
        with 503 and not 401.
        """
