"""Several sources of identities as one."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.core.access import Identity
from sentinel.ports.errors import Unavailable
from sentinel.ports.identity import Identities


class CombinedIdentities(Identities):
    """Looks up tokens in each of several sources.

    All sources are queried, so that the response time does not reveal which of them knows a token. An unavailable
    source matters only if no other knows the token: an administrator's token from a file works while the database
    is down.
    """

    def __init__(self, sources: Sequence[Identities]) -> None:
        self.sources = tuple(sources)

    def __bool__(self) -> bool:
        return bool(self.sources)

    async def identify(self, token: str) -> Identity | None:
        """Return the identity from the first source that knows the token."""
        found: Identity | None = None
        outage: Unavailable | None = None
        for source in self.sources:
            try:
                identity = await source.identify(token)
            except Unavailable as error:
                outage = error
            else:
                found = found or identity
        if found is None and outage is not None:
            raise outage
        return found
