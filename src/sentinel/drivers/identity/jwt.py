"""JSON web tokens, checked with one static key.

The key decides on the algorithm, not the token: a token that claims `none`, or that was signed with a public key
as if that were a shared secret, is refused like any other wrong one.

Claims: `sub` (the name) and `role`; `adapter` for the role adapter, `instance` for the role agent; `exp` and `nbf`
where present. An issuer should set `exp`: without it, a token that leaks is valid for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

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
from sentinel.core.pulse.observation import UNREADABLE
from sentinel.drivers.identity.file_watch import WatchedFile
from sentinel.drivers.identity.tokens_file import is_instance_id
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.log import Log, get_logger

LEEWAY: Final = timedelta(seconds=30)
"""How far the clocks of whoever issues tokens and ours may be apart."""

_SHORTEST_SECRET = 32
_SHORTEST_RSA = 2048
_LARGEST_FILE = 64 * 1024
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384"}

_PublicKey: TypeAlias = "rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey"


class _Key(msgspec.Struct, frozen=True):
    key: _PublicKey | bytes
    algorithms: tuple[str, ...]

    def __repr__(self) -> str:
        return f"_Key({', '.join(self.algorithms)})"


_LONGEST_SUBJECT = 255


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    role: Role
    adapter: str | None = None
    instance: str | None = None


class JwtKey:
    """`ports.identity.Identities` by a key in a file: a public one in PEM, or a shared secret of 32 bytes or
    more."""

    def __init__(
        self, path: Path, *, log: Log | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `Misconfigured` if the file has no such key. If it has none later, the last key stays valid."""
        log = log or get_logger("jwt")
        self._key = WatchedFile(
            path,
            _load,
            on_trouble=lambda problem: log.warning("jwt.unusable", problem=problem),
            monotonic=monotonic,
        )

    async def identify(self, token: str) -> Identity | None:
        """Return who this token belongs to; None if it is not a JWT, signed by another key, or not valid now."""
        if token.count(".") != 2:
            return None
        key = self._key.get()
        try:
            claims = msgspec.convert(
                jwt.decode(
                    token,
                    key.key,
                    algorithms=list(key.algorithms),
                    leeway=LEEWAY,
                    options={"require": ["sub"], "verify_aud": False},
                ),
                _Claims,
            )
        except (jwt.PyJWTError, msgspec.ValidationError):
            return None
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
    """Whether the audit can show this name, and nobody takes it for nobody's."""
    return 0 < len(subject) <= _LONGEST_SUBJECT and subject.isprintable() and subject != ANONYMOUS.name


def _load(path: Path) -> _Key:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {(error.strerror or '').lower()}") from error
    if len(content) > _LARGEST_FILE:
        raise Misconfigured(f"{path}: expected a key of at most {_LARGEST_FILE >> 10} KiB, got more")
    if b"-----BEGIN" in content:
        return _public(path, content)
    if _is_public_key(content):
        raise Misconfigured(
            f'{path}: expected a public key in PEM ("BEGIN PUBLIC KEY"), got a key in another form'
        )
    secret = content.strip(b"\r\n")
    if len(secret) < _SHORTEST_SECRET:
        raise Misconfigured(
            f"{path}: expected a public key in PEM, or a shared secret of {_SHORTEST_SECRET} bytes or more"
        )
    return _Key(secret, ("HS256",))


def _is_public_key(content: bytes) -> bool:
    """Whether this is a public key as other programs write it. Everybody knows such a key: taken for a shared
    secret, it would let everybody sign."""
    try:
        if isinstance(web_key := msgspec.json.decode(content), dict):
            return "kty" in web_key or "keys" in web_key
    except UNREADABLE:
        pass
    for load in (load_der_public_key, load_ssh_public_key):
        try:
            load(content)
        except (ValueError, UnsupportedAlgorithm):
            continue
        return True
    return False


def _public(path: Path, content: bytes) -> _Key:
    if b"PRIVATE KEY-----" in content:
        raise Misconfigured(f"{path}: expected a public key, got a private one; it should not be here at all")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Misconfigured(
            f'{path}: expected a public key in PEM ("BEGIN PUBLIC KEY"), got something else'
        ) from error
    match key:
        case rsa.RSAPublicKey():
            if key.key_size < _SHORTEST_RSA:
                raise Misconfigured(
                    f"{path}: expected an RSA key of {_SHORTEST_RSA} bits or more, got {key.key_size}"
                )
            return _Key(key, ("RS256", "RS384", "RS512"))
        case ec.EllipticCurvePublicKey() if key.curve.name in _CURVES:
            return _Key(key, (_CURVES[key.curve.name],))
        case ed25519.Ed25519PublicKey():
            return _Key(key, ("EdDSA",))
        case _:
            raise Misconfigured(f"{path}: expected a key of RSA, P-256, P-384 or Ed25519, got one of another kind")
