"""Session tokens: issued by one hub, accepted by all on its database until they end, and forged by nobody."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.hub.session_token import SessionClaims
from sentinel.drivers.identity.session_tokens import JwtSessionTokens
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.signing_keys import SigningKey
from sentinel.runtime.clock import SystemClock
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.signing_keys import DEFAULT_SECRET, MemorySigningKeys

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
CLAIMS = SessionClaims(instance_id="edge-1", incarnation=2, session=7, issued=START, expires=START + HOUR)
PAYLOAD: Mapping[str, object] = {
    "iss": "sentinel-hub",
    "sub": "edge-1",
    "incarnation": 2,
    "session": 7,
    "iat": int(START.timestamp()),
    "nbf": int(START.timestamp()),
    "exp": int((START + HOUR).timestamp()),
}


class OneKey:
    """A source of one key, which may fail first."""

    def __init__(self, secret: bytes = DEFAULT_SECRET, *failures: Exception) -> None:
        self._secret = secret
        self._failures = list(failures)
        self.loads = 0

    async def load(self, now: datetime) -> SigningKey:
        self.loads += 1
        await asyncio.sleep(0)
        if self._failures:
            raise self._failures.pop(0)
        return SigningKey(self._secret)


def hub(secret: bytes = DEFAULT_SECRET, **more: int) -> JwtSessionTokens:
    return JwtSessionTokens(OneKey(secret), clock=SystemClock(), **more)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def signed(payload: object, *, key: bytes = DEFAULT_SECRET, algorithm: str = "HS256", **header: object) -> str:
    """A token that we did not issue, signed with HMAC."""
    message = f"{part({'typ': 'JWT', 'alg': algorithm, **header})}.{part(payload)}"
    signature = jwt.get_algorithm_by_name("HS256").sign(message.encode(), key)
    return f"{message}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.fixture
def tokens() -> JwtSessionTokens:
    return hub()


# --- claims ------------------------------------------------------------------------------------------------------


async def test_a_token_has_the_claims_it_was_issued_with(tokens: JwtSessionTokens) -> None:
    token = await tokens.issue(CLAIMS)

    assert await tokens.verify(token, START) == CLAIMS
    assert await tokens.read(token) == CLAIMS


async def test_a_token_has_the_registered_claims(tokens: JwtSessionTokens) -> None:
    token = await tokens.issue(CLAIMS)

    assert jwt.get_unverified_header(token) == {"typ": "JWT", "alg": "HS256"}
    assert jwt.decode(token, options={"verify_signature": False}) == PAYLOAD


@given(
    instance_id=st.text(max_size=128),
    incarnation=st.integers(0, 2**53),
    session=st.integers(0, 2**53),
    issued=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),  # Hypothesis wants them bare
    seconds=st.integers(1, 10**8),
)
def test_any_session_survives_the_way_through_a_token(
    instance_id: str, incarnation: int, session: int, issued: datetime, seconds: int
) -> None:
    start = issued.replace(tzinfo=UTC, microsecond=0)
    claims = SessionClaims(
        instance_id=instance_id,
        incarnation=incarnation,
        session=session,
        issued=start,
        expires=start + seconds * SECOND,
    )

    async def there_and_back() -> SessionClaims | None:
        return await hub().verify(await hub().issue(claims), start)

    assert asyncio.run(there_and_back()) == claims


# --- time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "is_valid"),
    [
        (START - timedelta(seconds=61), False),
        (START - timedelta(seconds=60), True),
        (START, True),
        (START + HOUR - timedelta(microseconds=1), True),
        (START + HOUR, False),
        (START + HOUR + timedelta(seconds=30), False),
    ],
)
async def test_a_token_is_valid_until_its_end_and_a_minute_early(
    tokens: JwtSessionTokens, at: datetime, is_valid: bool
) -> None:
    token = await tokens.issue(CLAIMS)

    for _ in range(2):  # at first, and when it is remembered
        assert (await tokens.verify(token, at) is not None) == is_valid


@pytest.mark.parametrize("claim", ["iat", "nbf"])
@pytest.mark.parametrize(("seconds", "is_valid"), [(60, True), (61, False)])
async def test_both_beginnings_count(tokens: JwtSessionTokens, claim: str, seconds: int, is_valid: bool) -> None:
    later = int(START.timestamp()) + seconds

    found = await tokens.verify(signed({**PAYLOAD, claim: later}), START)

    assert (found is not None) == is_valid


async def test_an_expired_token_can_still_be_read(tokens: JwtSessionTokens) -> None:
    token = await tokens.issue(CLAIMS)

    assert await tokens.verify(token, START + HOUR) is None
    assert await tokens.read(token) == CLAIMS


# --- forgery -----------------------------------------------------------------------------------------------------


async def test_hubs_with_one_key_accept_each_others_tokens() -> None:
    database = MemoryDatabase()
    await database.open()
    one, two = (JwtSessionTokens(MemorySigningKeys(database), clock=SystemClock()) for _ in range(2))

    assert await two.verify(await one.issue(CLAIMS), START) == CLAIMS


async def test_a_token_of_another_key_is_rejected(tokens: JwtSessionTokens) -> None:
    assert await tokens.verify(await hub(DEFAULT_SECRET[::-1]).issue(CLAIMS), START) is None


async def test_a_changed_token_is_rejected(tokens: JwtSessionTokens) -> None:
    token = await tokens.issue(CLAIMS)
    header, _, signature = token.split(".")
    forged = f"{header}.{part({**PAYLOAD, 'sub': 'edge-2'})}.{signature}"

    assert await tokens.verify(token, START) == CLAIMS
    assert await tokens.verify(forged, START) is None


@pytest.mark.parametrize("algorithm", ["none", "None", "HS384", "HS512", "RS256", "ES256", "EdDSA", ""])
async def test_a_token_that_names_another_algorithm_is_rejected(tokens: JwtSessionTokens, algorithm: str) -> None:
    unsigned = f"{part({'typ': 'JWT', 'alg': algorithm})}.{part(PAYLOAD)}."

    assert await tokens.verify(signed(PAYLOAD, algorithm=algorithm), START) is None
    assert await tokens.verify(unsigned, START) is None


@pytest.mark.parametrize("missing", ["iss", "sub", "incarnation", "session", "iat", "nbf", "exp"])
async def test_a_token_without_one_of_the_claims_is_rejected(tokens: JwtSessionTokens, missing: str) -> None:
    payload = {name: value for name, value in PAYLOAD.items() if name != missing}

    found = await tokens.read(signed(payload))

    assert found is None


@pytest.mark.parametrize(
    "more",
    [
        {"iss": "other"},
        {"sub": 5},
        {"sub": None},
        {"session": "7"},
        {"session": 7.5},
        {"exp": "soon"},
        {"exp": 1e300},
        {"exp": 10**18},
        {"iat": 10**18},
        {"iat": True},
    ],
)
async def test_claims_of_another_form_are_rejected(tokens: JwtSessionTokens, more: Mapping[str, object]) -> None:
    assert await tokens.read(signed({**PAYLOAD, **more})) is None


async def test_a_signed_text_that_is_no_object_is_rejected(tokens: JwtSessionTokens) -> None:
    payloads: list[object] = [[], "text", None, 5]

    for payload in payloads:
        assert await tokens.read(signed(payload)) is None


async def test_a_payload_outside_of_the_token_is_rejected(tokens: JwtSessionTokens) -> None:
    assert await tokens.read(signed(PAYLOAD, b64=False, crit=["b64"])) is None
    assert await tokens.read(signed(PAYLOAD, crit=["unknown"])) is None


@pytest.mark.parametrize(
    "token",
    [
        *("", ".", "..", "...", "a.b.c", "é.é.é", "snt_abc", "\udc80.\udc80.\udc80", "\0", " "),
        f"{base64.urlsafe_b64encode(b'[' * 1500).decode()}.e30.AAAA",
        f"{part({'alg': 'HS256'})}.{'A' * 5000}.AAAA",
    ],
)
async def test_no_text_makes_verifying_fail(tokens: JwtSessionTokens, token: str) -> None:
    assert await tokens.verify(token, START) is None


@given(token=st.text(alphabet=st.characters(codec=None), max_size=80))
def test_any_text_is_rejected(token: str) -> None:
    assert asyncio.run(hub().read(token)) is None


async def test_a_long_token_is_rejected_even_if_it_is_signed(tokens: JwtSessionTokens) -> None:
    assert await tokens.read(signed({**PAYLOAD, "sub": "x" * 2000})) is None


# --- what is remembered, and the key -----------------------------------------------------------------------------


async def test_a_bounded_number_of_tokens_is_remembered() -> None:
    tokens = hub(max_remembered=2)
    several = [await tokens.issue(msgspec.structs.replace(CLAIMS, session=number)) for number in range(3)]

    first = await tokens.read(several[0])
    remembered = await tokens.read(several[0])
    for token in several[1:]:
        await tokens.read(token)
    forgotten = await tokens.read(several[0])

    assert remembered is first
    assert forgotten is not first
    assert forgotten == first


async def test_the_key_is_loaded_once_however_many_agents_come() -> None:
    keys = OneKey()
    tokens = JwtSessionTokens(keys, clock=SystemClock())

    issued = await asyncio.gather(*(tokens.issue(CLAIMS) for _ in range(20)))
    await tokens.load()

    assert len(set(issued)) == 1
    assert keys.loads == 1


async def test_a_database_that_is_away_is_asked_again() -> None:
    tokens = JwtSessionTokens(OneKey(DEFAULT_SECRET, Unavailable("away")), clock=SystemClock())

    with pytest.raises(Unavailable):
        await tokens.read("a.b.c")

    assert await tokens.verify(await tokens.issue(CLAIMS), START) == CLAIMS


async def test_a_key_that_does_not_decrypt_is_an_error_at_the_start() -> None:
    tokens = JwtSessionTokens(OneKey(DEFAULT_SECRET, Misconfigured("wrong key")), clock=SystemClock())

    with pytest.raises(Misconfigured, match="wrong key"):
        await tokens.load()


async def test_neither_key_nor_token_is_shown(tokens: JwtSessionTokens) -> None:
    token = await tokens.issue(CLAIMS)

    shown: Any = repr(tokens) + repr(vars(tokens))

    assert token not in shown
    assert DEFAULT_SECRET.hex() not in shown
    assert repr(DEFAULT_SECRET) not in shown
