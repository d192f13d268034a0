"""Who registers: the owner of a certificate, or of a registration token.

An id belongs to what first registered it, `certificate:<CN>` or `token:<name>`, until the instance is removed.
Without authentication, on a loopback address, anybody may register any id, and owns nothing.
"""

from __future__ import annotations

import msgspec

from sentinel.core.access import ANONYMOUS, Identity, Role
from sentinel.hub.refusals import denied, unauthenticated
from sentinel.hub.sessions import AgentCall, Sessions
from sentinel.ports.identity import Identities

_MAX_TOKEN_LENGTH = 8192


class Registrant(msgspec.Struct, frozen=True):
    """What an agent registers with."""

    identity: Identity
    owner: str
    """Stored with the instance; empty for an anonymous one."""

    def may_take(self, owner: str) -> bool:
        """Whether it may register an instance that has this owner."""
        return self.identity.is_anonymous or owner in ("", self.owner)


class Registrants:
    """Identifies agents that register."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        identities: Identities,
        is_insecure: bool = False,
        ignores_unknown_tokens: bool = False,
    ) -> None:
        """With `is_insecure`, an agent needs no token.

        With `ignores_unknown_tokens`, an unknown token is like none.
        """
        self._sessions = sessions
        self._identities = identities
        self._is_insecure = is_insecure
        self._ignores_unknown_tokens = is_insecure and ignores_unknown_tokens

    async def identify(self, call: AgentCall) -> Registrant:
        """Return who registers. Raises `CallRefused`, `Unavailable`."""
        self._sessions.check_certificate(call)
        if self._sessions.needs_certificate:
            identity = Identity(call.instance_id, Role.AGENT, instance=call.instance_id)
            return Registrant(identity, f"certificate:{call.instance_id}")
        identity = await self._bearer(call.token)
        if identity.is_anonymous:
            return Registrant(identity, "")
        if identity.role is not Role.AGENT:
            raise denied(f"expected a registration token of the role agent, got one of the role {identity.role}")
        if identity.instance not in ("", call.instance_id):
            raise denied("the registration token is for another instance")
        return Registrant(identity, f"token:{identity.name}")

    async def _bearer(self, token: str) -> Identity:
        if not token:
            if self._is_insecure:
                return ANONYMOUS
            raise unauthenticated("expected a registration token, got none")
        identity = await self._identities.identify(token) if len(token) <= _MAX_TOKEN_LENGTH else None
        if identity is not None:
            return identity
        if self._ignores_unknown_tokens:
            return ANONYMOUS
        raise unauthenticated("the registration token is not valid")
