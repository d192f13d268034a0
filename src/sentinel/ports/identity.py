"""How a server learns who is asking."""

from __future__ import annotations

from typing import Protocol

from sentinel.core.access import Identity


class Identities(Protocol):
    """Who stands behind a bearer token."""

    def identify(self, token: str) -> Identity | None:
        """Who presents this token; None where nobody does. Takes the same time for every wrong token."""
