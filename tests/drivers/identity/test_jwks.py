"""JSON web tokens verified with published keys, and with an issuer and an audience."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.jwks import MAX_AGE, MIN_INTERVAL, JwtKeySet
from sentinel.drivers.identity.jwt import ExpectedClaims, JwtKey
from sentinel.ports.errors import Unavailable
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer

OPS = Identity("ops", Role.OPERATOR)
SECRET = b"0123456789abcdef0123456789abcdef"
EXPECTED = ExpectedClaims(issuer="https://issuer.example", audience="fleet")


class Issuer:
    """Publishes keys. A test may change them, or make the server fail."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.others: list[object] = []
        self.body: bytes | None = None
        self.requests = 0
        self.is_down = False
        self.seconds = 0.0

    def add(self, key_id: str, key: Any = None) -> None:
        self.keys[key_id] = key or ed25519.Ed25519PrivateKey.generate()

    def published(self) -> bytes:
        if self.body is not None:
            return self.body
        algorithms = {
            rsa.RSAPrivateKey: "RS256",
            ec.EllipticCurvePrivateKey: "ES256",
            ed25519.Ed25519PrivateKey: "EdDSA",
        }
        keys = []
        for key_id, key in self.keys.items():
            name = next(algorithm for kind, algorithm in algorithms.items() if isinstance(key, kind))
            keys.append(json.loads(jwt.get_algorithm_by_name(name).to_jwk(key.public_key())) | {"kid": key_id})
        return json.dumps({"keys": [*keys, *self.others]}).encode()

    def token(self, key_id: str, *, algorithm: str = "EdDSA", names_key: bool = True, **claims: Any) -> str:
        content = {"sub": "ops", "role": "operator", "exp": int(time.time()) + 60, **claims}
        headers = {"kid": key_id} if names_key else None
        return jwt.encode(content, self.keys[key_id], algorithm=algorithm, headers=headers)


@pytest.fixture
async def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def url(issuer: Issuer) -> AsyncIterator[str]:
    def respond(request: ReceivedRequest) -> ScriptedResponse:
        issuer.requests += 1
        return ScriptedResponse(500) if issuer.is_down else ScriptedResponse(200, issuer.published())

    async with ScriptedServer(respond) as server:
        yield f"{server.url}/keys?v=1"


def key_set(issuer: Issuer, url: str, expected: ExpectedClaims | None = None) -> JwtKeySet:
    return JwtKeySet(url, expected=expected or ExpectedClaims(), monotonic=lambda: issuer.seconds, environ={})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256"),
    ],
)
async def test_a_token_of_a_published_key_is_accepted(issuer: Issuer, url: str, key: Any, algorithm: str) -> None:
    issuer.add("one", key)
    issuer.add("two")
    identities = key_set(issuer, url)

    for names_key in (True, False):
        token = issuer.token("one", algorithm=algorithm, names_key=names_key)
        assert await identities.identify(token) == OPS
    assert issuer.requests == 1


async def test_a_token_of_another_key_is_unknown(issuer: Issuer, url: str) -> None:
    issuer.add("one")
    identities = key_set(issuer, url)
    other = Issuer()
    other.add("one")

    assert await identities.identify(other.token("one")) is None
    assert await identities.identify(issuer.token("one")) == OPS


async def test_a_new_key_is_fetched_when_a_token_names_it(issuer: Issuer, url: str) -> None:
    issuer.add("old")
    identities = key_set(issuer, url)
    assert await identities.identify(issuer.token("old")) == OPS

    issuer.add("new")
    at_once = await identities.identify(issuer.token("new"))
    issuer.seconds += MIN_INTERVAL.total_seconds()

    assert at_once is None  # anyone could make the server fetch at every request
    assert await identities.identify(issuer.token("new")) == OPS
    assert await identities.identify(issuer.token("old")) == OPS
    assert issuer.requests == 2


async def test_a_withdrawn_key_is_unknown_after_the_next_fetch(issuer: Issuer, url: str) -> None:
    issuer.add("old")
    issuer.add("new")
    identities = key_set(issuer, url)
    token = issuer.token("old")
    assert await identities.identify(token) == OPS

    del issuer.keys["old"]
    issuer.seconds += MAX_AGE.total_seconds()

    assert await identities.identify(token) is None
    assert await identities.identify(issuer.token("new")) == OPS


async def test_guessed_key_names_cause_few_fetches(issuer: Issuer, url: str) -> None:
    issuer.add("one")
    identities = key_set(issuer, url)
    other = Issuer()
    for number in range(50):
        other.add(f"guess-{number}")
        assert await identities.identify(other.token(f"guess-{number}")) is None

    assert issuer.requests == 1


async def test_the_last_keys_stay_in_use_during_an_outage(
    issuer: Issuer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.add("one")
    identities = key_set(issuer, url)
    token = issuer.token("one")
    assert await identities.identify(token) == OPS

    issuer.is_down = True
    for _ in range(3):
        issuer.seconds += MAX_AGE.total_seconds()
        assert await identities.identify(token) == OPS

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in warnings] == ["jwks.unusable"]


async def test_without_keys_a_token_may_be_valid(issuer: Issuer, url: str) -> None:
    issuer.add("one")
    issuer.is_down = True
    identities = key_set(issuer, url)
    token = issuer.token("one")

    for _ in range(5):
        with pytest.raises(Unavailable):
            await identities.identify(token)
    asked = issuer.requests
    issuer.is_down = False
    issuer.seconds += MIN_INTERVAL.total_seconds()

    assert asked == 1
    assert await identities.identify(token) == OPS
    assert await identities.identify("snt_not-a-jwt") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"keys": 5}', b'{"keys": [5]}', b"x" * 300_000])
async def test_what_is_not_a_key_set_is_reported_as_unavailable(issuer: Issuer, url: str, body: bytes) -> None:
    issuer.add("one")
    issuer.body = body

    with pytest.raises(Unavailable):
        await key_set(issuer, url).identify(issuer.token("one"))


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_unusable_keys_are_skipped(issuer: Issuer, url: str) -> None:
    secret = {"kty": "oct", "kid": "secret", "k": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}
    issuer.others = [secret, {"kty": "RSA", "kid": "broken"}, {"kty": "OKP", "kid": 5}, {"use": "enc", "kid": "e"}]
    issuer.add("weak", rsa.generate_private_key(public_exponent=65537, key_size=1024))  # noqa: S505  # to be skipped
    issuer.add("one")
    identities = key_set(issuer, url)
    claims = {"sub": "ops", "role": "operator"}

    assert await identities.identify(issuer.token("one")) == OPS
    assert await identities.identify(issuer.token("weak", algorithm="RS256")) is None
    signed = jwt.encode(claims, SECRET, algorithm="HS256", headers={"kid": "secret"})
    assert await identities.identify(signed) is None


@pytest.mark.parametrize("source", ["file", "published"])
@pytest.mark.parametrize(
    ("claims", "is_accepted"),
    [
        ({"iss": "https://issuer.example", "aud": "fleet"}, True),
        ({"iss": "https://issuer.example", "aud": ["other", "fleet"]}, True),
        ({"iss": "https://issuer.example", "aud": "other"}, False),
        ({"iss": "https://issuer.example", "aud": []}, False),
        ({"iss": "https://issuer.example"}, False),
        ({"iss": "https://other.example", "aud": "fleet"}, False),
        ({"aud": "fleet"}, False),
        ({}, False),
    ],
)
async def test_issuer_and_audience_are_checked_where_given(
    issuer: Issuer, url: str, tmp_path: Path, source: str, claims: dict[str, Any], is_accepted: bool
) -> None:
    if source == "file":
        file = tmp_path / "key"
        file.write_bytes(SECRET)
        content = {"sub": "ops", "role": "operator", **claims}
        token = jwt.encode(content, SECRET, algorithm="HS256")
        found = await JwtKey(file, expected=EXPECTED).identify(token)
        unchecked = await JwtKey(file).identify(token)
    else:
        issuer.add("one")
        token = issuer.token("one", **claims)
        found = await key_set(issuer, url, EXPECTED).identify(token)
        unchecked = await key_set(issuer, url).identify(token)

    assert found == (OPS if is_accepted else None)
    assert unchecked == OPS


async def test_a_remembered_token_still_expires(issuer: Issuer, url: str) -> None:
    issuer.add("one")
    now = 1_000.0
    identities = JwtKeySet(url, monotonic=lambda: issuer.seconds, now=lambda: now, environ={})
    token = issuer.token("one", exp=1_010)

    found = await identities.identify(token)
    now = 1_009.9
    late = await identities.identify(token)
    now = 1_010.0

    assert found == late == OPS
    assert await identities.identify(token) is None
