"""Checks who calls: the certificate of the connection, the token of the session, and the instance it is about.

Register begins a session. All other calls carry its token. A call that names another instance than its session is
refused in the same way whether or not that instance exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, assert_never

import msgspec

from sentinel.core.hub import session_token
from sentinel.core.hub.instance import Instance
from sentinel.core.hub.session_token import SessionClaims, TokenStatus
from sentinel.hub.refusals import denied, exhausted, invalid, precondition, unauthenticated
from sentinel.hub.registry import KnownInstance, Registry
from sentinel.ports.clock import Clock
from sentinel.ports.peer_certificates import PeerCertificate, PeerCertificates
from sentinel.ports.session_tokens import SessionTokens

MAX_CALLS: Final = 32
"""How many calls one instance may have in progress."""


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """What every call of an agent carries."""

    instance_id: str
    token: str
    """The session token, or the registration token in Register. Empty if there is none."""
    certificate: PeerCertificate | None = None
    address: str = ""
    """The peer's, for the audit."""


class Session(msgspec.Struct, frozen=True):
    """An authenticated call."""

    known: KnownInstance
    claims: SessionClaims


class Sessions:
    """Authenticates calls, and issues the tokens of sessions."""

    def __init__(
        self,
        *,
        registry: Registry,
        tokens: SessionTokens,
        certificates: PeerCertificates | None,
        clock: Clock,
        ttl: timedelta,
    ) -> None:
        """With `certificates`, every agent needs a certificate with the name of its instance."""
        self._registry = registry
        self._tokens = tokens
        self._certificates = certificates
        self._clock = clock
        self._ttl = ttl

    @property
    def needs_certificate(self) -> bool:
        return self._certificates is not None

    def check_certificate(self, call: AgentCall) -> None:
        """Raise `CallRefused` unless the connection's certificate is that of the instance, if one is needed."""
        if not call.instance_id:
            raise invalid("instance_id: expected the id of the instance, got an empty text")
        certificates, certificate = self._certificates, call.certificate
        if certificates is None:
            return
        if certificate is None:
            raise unauthenticated("expected a client certificate")
        if certificates.is_revoked(certificate.serial):
            raise unauthenticated("the client certificate is revoked")
        if not certificate.is_agent:
            raise denied("the client certificate is not that of an agent")
        if certificate.common_name != call.instance_id:
            raise denied("the client certificate is that of another instance")

    async def authenticate(self, call: AgentCall) -> Session:
        """Return the session of a call. Raises `CallRefused`, `Unavailable`."""
        self.check_certificate(call)
        if not call.token:
            raise unauthenticated("expected a session token, got none")
        claims = await self._tokens.read(call.token)
        if claims is None:
            raise unauthenticated("the session token is not valid")
        known = await self._registry.find(claims.instance_id)
        status = self._judge(claims, known, call)
        if status is TokenStatus.ENDED and _is_ahead(claims, known):
            # Begun at another hub, whose change has not arrived here yet.
            known = await self._registry.refresh(claims.instance_id)
            status = self._judge(claims, known, call)
        _check(status)
        if known is None:
            raise RuntimeError("expected an instance, because the session is valid")
        known.session_expires = max(known.session_expires, claims.expires)
        return Session(known, claims)

    @contextmanager
    def counted(self, session: Session) -> Iterator[None]:
        """Count a call as long as it runs, so that one agent cannot use up what all share."""
        known = session.known
        if known.calls >= MAX_CALLS:
            raise exhausted(f"expected at most {MAX_CALLS} calls of an instance at the same time")
        known.calls += 1
        try:
            yield
        finally:
            known.calls -= 1

    async def issue(self, instance_id: str, life: Instance) -> tuple[str, SessionClaims]:
        """Return a new token for the current session of an instance. Raises `Unavailable`."""
        claims = session_token.issue(instance_id, life, self._clock.now(), self._ttl)
        return await self._tokens.issue(claims), claims

    async def renew(self, session: Session) -> tuple[str, SessionClaims] | None:
        """Return a new token if the one of this call is due for renewal. Raises `Unavailable`."""
        if not session_token.is_due_for_renewal(session.claims, self._clock.now()):
            return None
        token, claims = await self.issue(session.known.id, session.known.life)
        session.known.session_expires = max(session.known.session_expires, claims.expires)
        return token, claims

    def _judge(self, claims: SessionClaims, known: KnownInstance | None, call: AgentCall) -> TokenStatus:
        life = Instance() if known is None else known.life
        return session_token.judge(claims, life, called_id=call.instance_id, now=self._clock.now())


def _is_ahead(claims: SessionClaims, known: KnownInstance | None) -> bool:
    return known is not None and (claims.incarnation, claims.session) > known.session


def _check(status: TokenStatus) -> None:
    match status:
        case TokenStatus.VALID:
            return
        case TokenStatus.EXPIRED:
            raise unauthenticated("the session token has expired")
        case TokenStatus.NOT_YET_VALID:
            raise unauthenticated("the session token is not valid yet; the clocks of the hubs differ")
        case TokenStatus.ENDED:
            raise unauthenticated("the session has ended")
        case TokenStatus.OTHER_INSTANCE:
            raise denied("the session is that of another instance")
        case TokenStatus.REMOVED:
            raise precondition("the instance was removed")
        case _:
            assert_never(status)
