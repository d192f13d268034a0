"""The certificates by which a server recognizes its clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from sentinel.core.identity_names import AGENT_UNIT

AuthContext: TypeAlias = "Mapping[str, Iterable[bytes]]"
"""What gRPC knows of a connection: the result of `auth_context()`."""


class PeerCertificate(msgspec.Struct, frozen=True):
    """A certificate that a client has proved to own, signed by an authority that the server trusts."""

    common_name: str
    """Empty if the certificate does not have exactly one."""
    units: tuple[str, ...]
    serial: int

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent's, whose instance has the id `common_name`."""
        return bool(self.common_name) and AGENT_UNIT in self.units


class PeerCertificates(Protocol):
    """Tells the certificates of clients, and which of them are revoked. Its methods neither wait nor fail."""

    def peer(self, auth_context: AuthContext) -> PeerCertificate | None:
        """Return the certificate of the client, or None if the connection has none."""

    def is_revoked(self, serial: int) -> bool:
        """Whether a certificate is revoked. Ask at every call: one may be revoked while its connection is open."""

    def revoked(self) -> frozenset[int]:
        """Return all revoked serials, the same object as long as they do not change.

        A loop that looks at it once a second can end the streams of clients that were revoked meanwhile.
        """
