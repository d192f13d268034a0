"""Session tokens of agents as JSON web tokens, signed with HMAC-SHA256.

The hubs that verify a token are those that issue it, so a shared secret is enough. The algorithm is fixed: a token
that names another is invalid, whatever its signature.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, Literal

import jwt
import msgspec

from sentinel.core.hub import session_token
from sentinel.core.hub.session_token import SessionClaims
from sentinel.core.json import DECODE_ERRORS
from sentinel.ports.clock import Clock
from sentinel.ports.signing_keys import SigningKey, SigningKeys

_ALGORITHM: Final = "HS256"
_MAX_LENGTH: Final = 2048
"""Characters. Ours have fewer than 500, and nobody may make us decode megabytes."""
_MAX_REMEMBERED: Final = 32_768
"""Verified tokens. An agent sends the same one with every call, and verifying it costs a tenth of a call."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    """The claims by their registered names, in whole seconds since 1970."""

    iss: Literal["sentinel-hub"]
    sub: str
    incarnation: int
    session: int
    iat: int
    nbf: int
    exp: int


class JwtSessionTokens:
    """`ports.session_tokens.SessionTokens` with the key of a database."""

    def __init__(self, keys: SigningKeys, *, clock: Clock, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._keys = keys
        self._clock = clock
        self._max_remembered = max_remembered
        self._signatures: _Signatures | None = None
        self._loading = asyncio.Lock()

    async def load(self) -> None:
        """Load the key. A hub calls it when it starts, so that a wrong key file ends it at once.

        Raises `Misconfigured`, `Unavailable`.
        """
        async with self._loading:
            if self._signatures is None:
                self._signatures = _Signatures(await self._keys.load(self._clock.now()), self._max_remembered)

    async def issue(self, claims: SessionClaims) -> str:
        return (await self._loaded()).sign(claims)

    async def read(self, token: str) -> SessionClaims | None:
        return (await self._loaded()).claims(token)

    async def verify(self, token: str, now: datetime) -> SessionClaims | None:
        claims = await self.read(token)
        return claims if claims is not None and session_token.is_current(claims, now) else None

    async def _loaded(self) -> _Signatures:
        while self._signatures is None:
            await self.load()
        return self._signatures


class _Signatures:
    """Signs and verifies with one key, and remembers what it has verified."""

    def __init__(self, key: SigningKey, max_remembered: int) -> None:
        self._secret = key.secret
        self._signer = jwt.PyJWS(algorithms=[_ALGORITHM])
        self._payloads = msgspec.json.Decoder(_Payload)
        self._max_remembered = max_remembered
        self._verified: dict[str, SessionClaims] = {}

    def sign(self, claims: SessionClaims) -> str:
        issued = int(claims.issued.timestamp())
        payload = _Payload(
            iss="sentinel-hub",
            sub=claims.instance_id,
            incarnation=claims.incarnation,
            session=claims.session,
            iat=issued,
            nbf=issued,
            exp=int(claims.expires.timestamp()),
        )
        return self._signer.encode(msgspec.json.encode(payload), self._secret, algorithm=_ALGORITHM)

    def claims(self, token: str) -> SessionClaims | None:
        known = self._verified.get(token)
        if known is not None or len(token) > _MAX_LENGTH:
            return known
        try:
            payload = self._payloads.decode(self._signer.decode(token, self._secret, algorithms=[_ALGORITHM]))
            claims = _claims(payload)
        except (jwt.PyJWTError, *DECODE_ERRORS, ValueError, OverflowError, OSError):
            return None
        if len(self._verified) >= self._max_remembered:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = claims
        return claims


def _claims(payload: _Payload) -> SessionClaims:
    return SessionClaims(
        instance_id=payload.sub,
        incarnation=payload.incarnation,
        session=payload.session,
        # A token may be used from both times on, and claims have one.
        issued=datetime.fromtimestamp(max(payload.iat, payload.nbf), UTC),
        expires=datetime.fromtimestamp(payload.exp, UTC),
    )
