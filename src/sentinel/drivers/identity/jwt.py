"""JSON web tokens, verified with one static key.

The key determines the algorithm, not the token. So a token with the algorithm `none`, or one signed with the
public key as a shared secret, is invalid.

Claims: `sub` (the name) and `role`; `adapter` for the role adapter, `instance` for the role agent; optionally
`exp` and `nbf`. An issuer should set `exp`: without it, a leaked token never expires.
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
from sentinel.core.json import DECODE_ERRORS
from sentinel.drivers.identity.file_watch import WatchedFile
from sentinel.drivers.identity.tokens_file import is_instance_id
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.log import Log, get_logger

LEEWAY: Final = timedelta(seconds=30)
"""The allowed clock skew between the issuer and this server."""

_MIN_SECRET_BYTES = 32
_MIN_RSA_BITS = 2048
_MAX_FILE_BYTES = 64 * 1024
_MAX_SUBJECT = 255
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384"}

_PublicKey: TypeAlias = "rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey"


class _Key(msgspec.Struct, frozen=True):
    key: _PublicKey | bytes
    algorithms: tuple[str, ...]

    def __repr__(self) -> str:
        return f"_Key({', '.join(self.algorithms)})"


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    role: Role
    adapter: str | None = None
    instance: str | None = None


class JwtKey:
    """`ports.identity.Identities` with a key file: a public key in PEM, or a shared secret."""

    def __init__(
        self, path: Path, *, log: Log | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `Misconfigured` if the file has no valid key. If the file becomes invalid later, the key stays in
        use."""
        log = log or get_logger("jwt")
        self._key = WatchedFile(path, _load, log=log, event="jwt.unusable", monotonic=monotonic)

    async def identify(self, token: str) -> Identity | None:
        """Return the token's identity, or None if it is not a JWT, has a wrong signature, or is not valid now."""
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
    """Whether the audit can show this name without confusing it with anonymous requests."""
    return 0 < len(subject) <= _MAX_SUBJECT and subject.isprintable() and subject != ANONYMOUS.name


def _load(path: Path) -> _Key:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {(error.strerror or '').lower()}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise Misconfigured(f"{path}: expected a key of at most {_MAX_FILE_BYTES >> 10} KiB, got more")
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
    return _Key(secret, ("HS256",))


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


def _load_public_key(path: Path, content: bytes) -> _Key:
    if b"PRIVATE KEY-----" in content:
        raise Misconfigured(f"{path}: expected a public key, got a private key; keep that off this server")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Misconfigured(
            f'{path}: expected a public key in PEM ("BEGIN PUBLIC KEY"), got something else'
        ) from error
    match key:
        case rsa.RSAPublicKey():
            if key.key_size < _MIN_RSA_BITS:
                raise Misconfigured(
                    f"{path}: expected an RSA key of {_MIN_RSA_BITS} bits or more, got {key.key_size}"
                )
            return _Key(key, ("RS256", "RS384", "RS512"))
        case ec.EllipticCurvePublicKey() if key.curve.name in _CURVES:
            return _Key(key, (_CURVES[key.curve.name],))
        case ed25519.Ed25519PublicKey():
            return _Key(key, ("EdDSA",))
        case _:
            raise Misconfigured(f"{path}: expected a key of RSA, P-256, P-384 or Ed25519, got one of another kind")
