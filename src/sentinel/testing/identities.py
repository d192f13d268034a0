"""Identities in memory, for tests of servers.

A test can add and remove tokens, or make the source unavailable:

    identities = MemoryIdentities({"ops-token": Identity("ops", Role.OPERATOR)})
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sentinel.core.access import Identity
from sentinel.ports.errors import Unavailable
from sentinel.ports.identity import Identities


class MemoryIdentities(Identities):
    """A verified fake of `ports.identity.Identities`."""

    def __init__(self, known: Mapping[str, Identity] | None = None) -> None:
        self.known = dict(known or {})
        """Identities by token. A test may change them at any time."""
        self.unavailable_reason = ""
        """While not empty, `identify` raises `Unavailable` with this text."""
        self.hanging: set[str] = set()
        """Tokens for which `identify` never returns, as if the source did not respond."""
        self.calls = 0
        """How often `identify` was called."""

    async def identify(self, token: str) -> Identity | None:
        self.calls += 1
        if self.unavailable_reason:
            raise Unavailable(self.unavailable_reason)
        if token in self.hanging:
            await asyncio.Event().wait()
        return self.known.get(token)
