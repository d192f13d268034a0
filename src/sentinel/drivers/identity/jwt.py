"""JSON web tokens, verified with one static key; `jwks.py` verifies them with published keys.

The key determines the algorithm, not the token. So a token with the algorithm `none`, or one signed with the
public key as a shared secret, is invalid.

Claims: `sub` (the name) and `role`; `adapter` for the role adapter, `instance` for the role agent; optionally
`exp`, `nbf` and `iat`. An issuer should set `exp`: without it, a leaked token never expires.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    load_der_public_key,
    load_pem_public_key,
    load_ssh_public_key,
)

from sentinel.core.access import ANONYMOUS, Identity, Role
from sentinel.core.fleet.reports import is_adapter_name
from sentinel.core.identity_names import is_instance_id
from sentinel.core.json import DECODE_ERRORS
from sentinel.drivers.identity.file_watch import WatchedFile
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import bounded_file
from sentinel.runtime.log import Log, get_logger

CLOCK_SKEW: Final = timedelta(minutes=1)
"""How far the issuer's clock may be ahead, for `nbf` and `iat`. A token ends exactly at its `exp`: clock skew must
not make it live longer than its issuer allows."""

_MIN_SECRET_BYTES = 32
_MIN_RSA_BITS = 2048
_MAX_FILE_BYTES = 64 * 1024
_MAX_SUBJECT = 255
_MAX_REMEMBERED = 4096
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384"}

_PublicKey: TypeAlias = "rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey"


class Key(msgspec.Struct, frozen=True):
    """A key that verifies tokens, with the algorithms it is used for."""

    key: _PublicKey | bytes
    algorithms: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Key({', '.join(self.algorithms)})"


class ExpectedClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What tokens must say besides whose they are. None accepts anything."""

    issuer: str | None = None
    audience: str | None = None


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    role: Role
    adapter: str | None = None
    instance: str | None = None
    exp: float | None = None
    nbf: float | None = None
    iat: float | None = None

    def are_valid_at(self, now: float) -> bool:
        """Whether the token has begun and has not ended. NaN is never valid."""
        latest_start = now + CLOCK_SKEW.total_seconds()
        return (self.exp is None or now < self.exp) and all(
            start is None or start <= latest_start for start in (self.nbf, self.iat)
        )


class _Verified(NamedTuple):
    key: Key
    identity: Identity
    expires_at: float


class TokenVerifier:
    """Verifies tokens, and remembers those that are valid: a signature costs more than the rest of a request."""

    def __init__(self, expected: ExpectedClaims, *, now: Callable[[], float]) -> None:
        self._expected = expected
        self._now = now
        self._verified: dict[str, _Verified] = {}

    def identity(self, token: str, key: Key) -> Identity | None:
        """Return the token's identity, or None if it has a wrong signature, or is not valid now."""
        verified = self._verified.get(token)
        if verified is None or verified.key is not key or self._now() >= verified.expires_at:
            verified = self._verify(token, key)
            if verified is None:
                return None
            if len(self._verified) >= _MAX_REMEMBERED:
                del self._verified[next(iter(self._verified))]
            self._verified[token] = verified
        return verified.identity

    def _verify(self, token: str, key: Key) -> _Verified | None:
        try:
            claims = msgspec.convert(
                jwt.decode(
                    token,
                    key.key,
                    algorithms=list(key.algorithms),
                    issuer=self._expected.issuer,
                    audience=self._expected.audience,
                    options={
                        "require": ["sub"],
                        "verify_aud": self._expected.audience is not None,
                        # Checked by `are_valid_at`: the library has one leeway for all of them.
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                ),
                _Claims,
            )
        except (jwt.PyJWTError, msgspec.ValidationError):
            return None
        identity = _identity(claims)
        if identity is None or not claims.are_valid_at(self._now()):
            return None
        return _Verified(key, identity, math.inf if claims.exp is None else claims.exp)


ANY_CLAIMS: Final = ExpectedClaims()


class JwtKey:
    """`ports.identity.Identities` with a key file: a public key in PEM, or a shared secret."""

    def __init__(
        self,
        path: Path,
        *,
        expected: ExpectedClaims = ANY_CLAIMS,
        log: Log | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises `Misconfigured` if the file has no valid key. If the file becomes invalid later, the key stays in
        use."""
        log = log or get_logger("jwt")
        self._key = WatchedFile(path, _load, log=log, event="jwt.unusable", monotonic=monotonic)
        self._verifier = TokenVerifier(expected, now=now)

    async def identify(self, token: str) -> Identity | None:
        """Return the token's identity, or None if it is not a JWT, has a wrong signature, or is not valid now."""
        return self._verifier.identity(token, self._key.get()) if is_jwt(token) else None


def is_jwt(token: str) -> bool:
    """Whether this looks like a JSON web token, so that verifying it is worth the time."""
    return token.count(".") == 2


def _identity(claims: _Claims) -> Identity | None:
    if not _is_name(claims.sub):
        return None
    match claims.role:
        case Role.ADAPTER:
            adapter = claims.adapter or ""
            return Identity(claims.sub, claims.role, adapter=adapter) if is_adapter_name(adapter) else None
        case Role.AGENT if claims.instance is not None:
            instance = claims.instance
            return Identity(claims.sub, claims.role, instance=instance) if is_instance_id(instance) else None
        case _:
            return Identity(claims.sub, claims.role)


def _is_name(subject: str) -> bool:
    """Whether the audit can show this name without confusing it with anonymous requests."""
    return 0 < len(subject) <= _MAX_SUBJECT and subject.isprintable() and subject != ANONYMOUS.name


def _load(path: Path) -> Key:
    content = bounded_file.read(path, max_bytes=_MAX_FILE_BYTES)
    if b"-----BEGIN" in content:
        return _load_public_key(path, content)
    if _is_other_public_key(content):
        raise Misconfigured(
            f'{path}: expected a public key in PEM ("BEGIN PUBLIC KEY"), got a key in another form'
        )
    secret = content.strip(b"\r\n")
    if len(secret) < _MIN_SECRET_BYTES:
        raise Misconfigured(
            f"{path}: expected a public key in PEM, or a shared secret of {_MIN_SECRET_BYTES} bytes or more"
        )
    return Key(secret, ("HS256",))


def _is_other_public_key(content: bytes) -> bool:
    """Whether this is a public key in another format than PEM. As a shared secret, it would let anyone sign
    tokens, since anyone may know it."""
    try:
        if isinstance(web_key := msgspec.json.decode(content), dict):
            return "kty" in web_key or "keys" in web_key
    except DECODE_ERRORS:
        pass
    for load in (load_der_public_key, load_ssh_public_key):
        try:
            load(content)
        except (ValueError, UnsupportedAlgorithm):
            continue
        return True
    return False


def _load_public_key(path: Path, content: bytes) -> Key:
    if b"PRIVATE KEY-----" in content:
        raise Misconfigured(f"{path}: expected a public key, got a private key; keep that off this server")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Misconfigured(
            f'{path}: expected a public key in PEM ("BEGIN PUBLIC KEY"), got something else'
        ) from error
    return usable_key(key, where=str(path))


def usable_key(key: object, *, where: str) -> Key:
    """Return a public key with the algorithms it is used for. Raises `Misconfigured` for a weak or unknown one."""
    match key:
        case rsa.RSAPublicKey():
            if key.key_size < _MIN_RSA_BITS:
                raise Misconfigured(
                    f"{where}: expected an RSA key of {_MIN_RSA_BITS} bits or more, got {key.key_size}"
                )
            return Key(key, ("RS256", "RS384", "RS512"))
        case ec.EllipticCurvePublicKey() if key.curve.name in _CURVES:
            return Key(key, (_CURVES[key.curve.name],))
        case ed25519.Ed25519PublicKey():
            return Key(key, ("EdDSA",))
        case _:
            raise Misconfigured(
                f"{where}: expected a key of RSA, P-256, P-384 or Ed25519, got one of another kind"
            )
