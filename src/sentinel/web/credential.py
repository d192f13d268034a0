"""The token of a request, for handlers that run longer than its check at the beginning.

A stream ends when its token does, so it asks about every second whether the token is still valid:

    if not await request.credential.is_valid():
        return

Asking costs no I/O beyond what the sources of identities do at most once a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from sentinel.core.access import ANONYMOUS, Identity
from sentinel.ports.errors import Unavailable
from sentinel.runtime.bearer_tokens import digest_of

Lookup: TypeAlias = Callable[[str], Awaitable[Identity | None]]
"""Returns whose token this is now, or None. Raises `Unavailable`."""


class Credential:
    """What the caller of a request was identified by."""

    __slots__ = ("_identity", "_lookup", "_token")

    def __init__(self, token: str, *, identity: Identity, lookup: Lookup | None) -> None:
        """`identity` is what the token gave when the request was checked. Without `lookup` there was no token."""
        self._token = token
        self._identity = identity
        self._lookup = lookup

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the token, under which a database keeps it; empty without a token."""
        return digest_of(self._token) if self._lookup is not None else b""

    async def is_valid(self) -> bool:
        """Return whether the token still gives the same identity.

        False once it has expired or was revoked, its user was removed or got another role or password. True
        without a token, and while a source that might know it is unavailable: an outage must not end every stream.
        """
        if self._lookup is None:
            return True
        try:
            return await self._lookup(self._token) == self._identity
        except Unavailable:
            return True


NO_TOKEN: Final = Credential("", identity=ANONYMOUS, lookup=None)
"""Of requests to open routes, and of anonymous ones. Always valid."""
