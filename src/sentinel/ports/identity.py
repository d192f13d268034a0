"""How a server learns who sends a request."""

from __future__ import annotations

from typing import Protocol

from sentinel.core.access import Identity


class Identities(Protocol):
    """A source of identities: a file of tokens, a key that signs them, a store of them.

    Asked once per request, so a source that needs no I/O answers without yielding to the event loop. What changes
    at the source (a token added or revoked, another key) takes effect within about a second.
    """

    async def identify(self, token: str) -> Identity | None:
        """Return the identity behind a bearer token, or None if the token is unknown or not valid now.

        `token` is any text that a client sent; no text makes the call fail. The time it takes does not tell how
        much of a wrong token was right. The identity has what its role is about and nothing else: `adapter` with
        the role adapter, `instance` at most with the role agent. It is never anonymous.

        Raises `Unavailable` if the source cannot be asked. The token may then be valid, so a server answers 503
        and not 401.
        """
