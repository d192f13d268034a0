"""JSON web tokens: which are accepted and which are rejected."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.jwt import JwtKey
from sentinel.ports.errors import Misconfigured

SECRET = b"0123456789abcdef0123456789abcdef"
OPS = Identity("ops", Role.OPERATOR)
NOW = 1_767_225_600
WEAK_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505  # weak, to be rejected


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def private_pem(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def claims(**more: object) -> dict[str, object]:
    return {"sub": "ops", "role": "operator", "exp": int(time.time()) + 3600, **more}


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def key_file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "jwt.key"
    path.write_bytes(content)
    return path


@pytest.fixture
def secret_key(tmp_path: Path) -> JwtKey:
    return JwtKey(key_file(tmp_path, SECRET + b"\n"))


def signed_by_hand(header: dict[str, str], payload: dict[str, object], key: bytes = SECRET) -> str:
    """A token that the library refuses to create."""
    message = f"{part(header)}.{part(payload)}"
    signature = jwt.get_algorithm_by_name("HS256").sign(message.encode(), key)
    return f"{message}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def signed(payload: dict[str, object], *, key: Any = SECRET, algorithm: str = "HS256", **headers: object) -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers=headers or None)


async def test_a_token_signed_with_the_shared_secret_is_accepted(secret_key: JwtKey) -> None:
    assert await secret_key.identify(signed(claims())) == OPS


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512"])
async def test_an_rsa_key_accepts_its_algorithms(
    tmp_path: Path, rsa_key: rsa.RSAPrivateKey, algorithm: str
) -> None:
    identities = JwtKey(key_file(tmp_path, public_pem(rsa_key)))

    assert await identities.identify(signed(claims(), key=rsa_key, algorithm=algorithm)) == OPS


@pytest.mark.parametrize(("curve", "algorithm"), [(ec.SECP256R1(), "ES256"), (ec.SECP384R1(), "ES384")])
async def test_an_elliptic_curve_key_accepts_its_algorithm(
    tmp_path: Path, curve: ec.EllipticCurve, algorithm: str
) -> None:
    key = ec.generate_private_key(curve)
    identities = JwtKey(key_file(tmp_path, public_pem(key)))

    assert await identities.identify(signed(claims(), key=key, algorithm=algorithm)) == OPS


async def test_an_ed25519_key_is_accepted(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    identities = JwtKey(key_file(tmp_path, public_pem(key)))

    assert await identities.identify(signed(claims(), key=key, algorithm="EdDSA")) == OPS


async def test_the_adapter_comes_from_its_claim(secret_key: JwtKey) -> None:
    token = signed(claims(sub="dns-1", role="adapter", adapter="dns"))

    assert await secret_key.identify(token) == Identity("dns-1", Role.ADAPTER, "dns")


@pytest.mark.parametrize("more", [{}, {"instance": None}])
async def test_an_agent_need_not_be_bound_to_an_instance(secret_key: JwtKey, more: dict[str, object]) -> None:
    token = signed(claims(sub="edge", role="agent", **more))

    assert await secret_key.identify(token) == Identity("edge", Role.AGENT)


async def test_the_instance_of_an_agent_comes_from_its_claim(secret_key: JwtKey) -> None:
    token = signed(claims(sub="edge", role="agent", instance="edge-1", adapter="dns"))

    assert await secret_key.identify(token) == Identity("edge", Role.AGENT, instance="edge-1")


@pytest.mark.parametrize(
    "more",
    [
        {"role": "root"},
        {"role": 1},
        {"role": None},
        {"sub": 5},
        {"sub": ""},
        {"sub": "anonymous"},
        {"sub": "a\nb"},
        {"role": "adapter"},
        {"role": "adapter", "adapter": ""},
        {"role": "adapter", "adapter": "../x"},
        {"role": "adapter", "adapter": ["dns"]},
        {"role": "agent", "instance": ""},
        {"role": "agent", "instance": "../x"},
        {"role": "agent", "instance": ["edge-1"]},
        {"exp": "soon"},
        pytest.param({"exp": int(time.time()) - 60}, id="expired"),
        pytest.param({"nbf": int(time.time()) + 3600}, id="not valid yet"),
    ],
)
async def test_invalid_claims_are_rejected(secret_key: JwtKey, more: dict[str, object]) -> None:
    token = signed_by_hand({"alg": "HS256", "typ": "JWT"}, claims(**more))

    assert await secret_key.identify(token) is None


@pytest.mark.parametrize("missing", ["sub", "role"])
async def test_a_missing_claim_is_rejected(secret_key: JwtKey, missing: str) -> None:
    payload = claims()
    del payload[missing]

    assert await secret_key.identify(signed(payload)) is None


async def test_a_token_may_have_no_expiry(secret_key: JwtKey) -> None:
    payload = claims()
    del payload["exp"]

    assert await secret_key.identify(signed(payload)) == OPS


@pytest.mark.parametrize("adapter", [None, "", "dns"])
async def test_the_adapter_of_another_role_is_ignored(secret_key: JwtKey, adapter: str | None) -> None:
    assert await secret_key.identify(signed(claims(adapter=adapter))) == OPS


@pytest.mark.parametrize("instance", [None, "", "edge-1", "../x"])
async def test_the_instance_of_another_role_is_ignored(secret_key: JwtKey, instance: str | None) -> None:
    assert await secret_key.identify(signed(claims(instance=instance))) == OPS


@pytest.mark.parametrize("subject", ["auth0|123", "Jo Doe", "system:serviceaccount:fleet:ops"])
async def test_names_of_any_issuer_are_accepted(secret_key: JwtKey, subject: str) -> None:
    identity = await secret_key.identify(signed(claims(sub=subject)))

    assert identity is not None
    assert identity.name == subject


@pytest.mark.parametrize(
    ("more", "is_valid"),
    [
        ({"exp": NOW + 1}, True),
        ({"exp": NOW + 0.5}, True),
        ({"exp": NOW}, False),
        ({"exp": NOW - 1}, False),
        ({"nbf": NOW + 60}, True),
        ({"nbf": NOW + 61}, False),
        ({"iat": NOW + 60}, True),
        ({"iat": NOW + 61}, False),
        ({"iat": NOW - 10**6, "nbf": NOW - 10**6}, True),
        ({"exp": 2**70}, True),
        ({"exp": -1}, False),
        ({"exp": float("nan")}, False),
        ({"nbf": float("nan")}, False),
        ({"iat": float("nan")}, False),
        ({"nbf": 10**400}, False),
        ({"iat": "now"}, False),
        ({"nbf": True}, False),
        ({"exp": str(NOW + 60)}, False),
    ],
)
async def test_a_token_ends_at_its_exp_and_may_begin_a_minute_early(
    tmp_path: Path, more: dict[str, object], is_valid: bool
) -> None:
    identities = JwtKey(key_file(tmp_path, SECRET), now=lambda: NOW)
    token = signed_by_hand({"alg": "HS256", "typ": "JWT"}, claims(**({"exp": NOW + 1} | more)))

    assert await identities.identify(token) == (OPS if is_valid else None)


async def test_a_remembered_token_ends_at_its_exp(tmp_path: Path) -> None:
    now = float(NOW)
    identities = JwtKey(key_file(tmp_path, SECRET), now=lambda: now)
    token = signed(claims(exp=NOW + 10))

    found = await identities.identify(token)
    now = NOW + 9.9
    late = await identities.identify(token)
    now = NOW + 10

    assert found == late == OPS
    assert await identities.identify(token) is None


async def test_the_audience_is_not_checked(secret_key: JwtKey) -> None:
    assert await secret_key.identify(signed(claims(aud="fleet"))) == OPS


async def test_a_token_of_another_key_is_rejected(secret_key: JwtKey) -> None:
    assert await secret_key.identify(signed(claims(), key=SECRET[::-1])) is None


async def test_a_token_without_a_signature_is_rejected(secret_key: JwtKey) -> None:
    for algorithm in ("none", "None", "NONE"):
        assert await secret_key.identify(f"{part({'alg': algorithm})}.{part(claims())}.") is None


async def test_a_token_signed_with_the_public_key_is_rejected(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    pem = public_pem(rsa_key)
    identities = JwtKey(key_file(tmp_path, pem))
    forged = signed_by_hand({"alg": "HS256", "typ": "JWT"}, claims(), key=pem)

    assert await identities.identify(forged) is None


@pytest.mark.parametrize("form", ["JWK", "JWKS", "DER", "OpenSSH"])
def test_a_public_key_in_another_format_is_not_used_as_a_secret(
    tmp_path: Path, rsa_key: rsa.RSAPrivateKey, form: str
) -> None:
    public = rsa_key.public_key()
    web_key = json.dumps(jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True))
    forms = {
        "JWK": f"{web_key}\n".encode(),
        "JWKS": f'{{"keys": [{web_key}]}}'.encode(),
        "DER": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "OpenSSH": public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" ops@example.com\n",
    }

    with pytest.raises(Misconfigured, match="expected a public key in PEM"):
        JwtKey(key_file(tmp_path, forms[form]))


@pytest.mark.parametrize("secret", [b'"0123456789abcdef0123456789abcdef"', b'"\xff' + b"0" * 31, b"1" * 4096])
async def test_a_shared_secret_may_be_any_bytes(tmp_path: Path, secret: bytes) -> None:
    assert await JwtKey(key_file(tmp_path, secret)).identify(signed(claims(), key=secret)) == OPS


async def test_the_token_does_not_choose_the_algorithm(secret_key: JwtKey) -> None:
    assert await secret_key.identify(signed(claims(), key=SECRET * 2, algorithm="HS512")) is None


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "..", "é.é.é", "snt_abc", "a.b.c.d.e"])
async def test_a_malformed_token_is_rejected(secret_key: JwtKey, token: str) -> None:
    assert await secret_key.identify(token) is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "shared secret of 32 bytes or more"),
        (b"too-short", "shared secret of 32 bytes or more"),
        (b"-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n", "expected a public key in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "expected a public key in PEM"),
        (public_pem(WEAK_KEY), "RSA key of 2048 bits"),
        (public_pem(ec.generate_private_key(ec.SECP521R1())), "expected a key of RSA, P-256, P-384 or Ed25519"),
        (private_pem(ec.generate_private_key(ec.SECP256R1())), "got a private key"),
        (b"x" * 70_000, "at most 64 KiB"),
    ],
)
def test_the_error_of_an_invalid_key_does_not_quote_it(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        JwtKey(key_file(tmp_path, content))

    assert problem in str(caught.value)
    assert "too-short" not in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no such file"):
        JwtKey(tmp_path / "absent")


async def test_a_changed_key_is_used_unless_it_is_invalid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = key_file(tmp_path, SECRET), 100.0
    identities = JwtKey(path, monotonic=lambda: now)
    other = SECRET[::-1]

    path.write_bytes(other)
    os.utime(path, ns=(1, 1))
    now += 1
    assert await identities.identify(signed(claims(), key=other)) == OPS

    path.write_bytes(b"short")
    now += 1
    assert await identities.identify(signed(claims(), key=other)) == OPS
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "jwt.unusable")
