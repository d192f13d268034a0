"""The guard: authentication, permissions, and what web pages cannot do to an insecure server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from sentinel.core.access import ANONYMOUS, Action, Identity, Role
from sentinel.core.problem_codes import Code
from sentinel.runtime.listening import is_loopback
from sentinel.testing.identities import MemoryIdentities
from sentinel.web.identity import UNAUTHENTICATED, Guard
from sentinel.web.problem import Problem
from sentinel.web.routing import OPEN, Open
from tests.web.asgi_client import FORCE_DELETE, PERMISSIONS, READ, WRITE

OPS = Identity("ops", Role.OPERATOR)
VIEWER = Identity("eve", Role.VIEWER)
LOCAL = {"host": "localhost:8000"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def admit(guard: Guard, action: Action | Open, headers: Mapping[str, str]) -> Identity:
    identity = await guard.identify(action, headers)
    guard.authorize(identity, action)
    return identity


async def rejection(guard: Guard, action: Action, headers: Mapping[str, str]) -> Problem:
    with pytest.raises(Problem) as rejected:
        await admit(guard, action, headers)
    return rejected.value


@pytest.fixture
def guard() -> Guard:
    return Guard(
        identities=[MemoryIdentities({"ops-token": OPS}), MemoryIdentities({"eve-token": VIEWER})],
        permissions=PERMISSIONS,
    )


@pytest.fixture
def insecure_guard() -> Guard:
    return Guard(identities=[], permissions=PERMISSIONS, is_insecure=True)


def test_a_guard_without_identities_must_be_insecure() -> None:
    with pytest.raises(ValueError, match="expected identities"):
        Guard(identities=[])


@pytest.mark.parametrize(("token", "identity"), [("ops-token", OPS), ("eve-token", VIEWER)])
async def test_a_token_may_be_known_to_any_source(guard: Guard, token: str, identity: Identity) -> None:
    assert await admit(guard, READ, bearer(token)) == identity


@pytest.mark.parametrize("authorization", ["bearer ops-token", "BEARER  ops-token", "Bearer ops-token "])
async def test_the_scheme_is_parsed_as_leniently_as_rfc_9110_allows(guard: Guard, authorization: str) -> None:
    assert await admit(guard, READ, {"authorization": authorization}) == OPS


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Basic b3BzOng=", "ops-token", "Bearer a b"])
async def test_no_bearer_token_is_a_401_with_a_challenge(guard: Guard, authorization: str) -> None:
    rejected = await rejection(guard, READ, {"authorization": authorization} if authorization else {})

    assert (rejected.status, rejected.code) == (401, Code.NO_CREDENTIALS)
    assert rejected.headers == {"WWW-Authenticate": "Bearer"}


@pytest.mark.parametrize("token", ["wrong", "ops-tokeN", "a" * 9000])
async def test_a_wrong_token_is_a_401_that_does_not_repeat_it(guard: Guard, token: str) -> None:
    rejected = await rejection(guard, READ, bearer(token))

    assert (rejected.status, rejected.code) == (401, Code.WRONG_CREDENTIALS)
    assert rejected.headers == {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    assert token not in rejected.encode().decode()


async def test_every_source_is_queried_even_after_a_match() -> None:
    first, second = MemoryIdentities({"ops-token": OPS}), MemoryIdentities({})

    await admit(Guard(identities=[first, second], permissions=PERMISSIONS), READ, bearer("ops-token"))

    assert (first.calls, second.calls) == (1, 1)


async def test_an_unavailable_source_makes_an_unknown_token_a_503() -> None:
    away = MemoryIdentities()
    away.unavailable_reason = "connection to 10.0.0.5 refused"
    guard = Guard(identities=[MemoryIdentities({"ops-token": OPS}), away], permissions=PERMISSIONS)

    rejected = await rejection(guard, READ, bearer("eve-token"))

    assert (rejected.status, rejected.code) == (503, Code.UNAVAILABLE)
    assert rejected.headers == {"Retry-After": "1"}
    assert "10.0.0.5" not in rejected.detail


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_known_token_works_while_another_source_is_down(is_first: bool) -> None:
    known, away = MemoryIdentities({"ops-token": OPS}), MemoryIdentities()
    away.unavailable_reason = "connection refused"
    guard = Guard(identities=[known, away] if is_first else [away, known], permissions=PERMISSIONS)

    assert await admit(guard, READ, bearer("ops-token")) == OPS


async def test_the_first_source_that_knows_a_token_wins() -> None:
    guard = Guard(
        identities=[MemoryIdentities({"token": OPS}), MemoryIdentities({"token": VIEWER})], permissions=PERMISSIONS
    )

    assert await admit(guard, READ, bearer("token")) == OPS


@pytest.mark.parametrize(("role", "action"), list(itertools.product(Role, sorted(PERMISSIONS.actions))))
async def test_a_role_may_do_exactly_what_its_permissions_say(role: Role, action: Action) -> None:
    identity = Identity("someone", role)
    guard = Guard(identities=[MemoryIdentities({"token": identity})], permissions=PERMISSIONS)

    if PERMISSIONS.permits(identity, action):
        assert await admit(guard, action, bearer("token")) == identity
    else:
        rejected = await rejection(guard, action, bearer("token"))
        assert rejected.status == 403
        assert rejected.detail == f"the role {role} of someone may not {action.removeprefix('things.')}"


async def test_an_open_route_needs_no_token_and_grants_nothing(guard: Guard) -> None:
    assert await admit(guard, OPEN, {}) == UNAUTHENTICATED
    assert not any(PERMISSIONS.permits(UNAUTHENTICATED, action) for action in PERMISSIONS.actions)


async def test_an_insecure_server_treats_no_token_as_anonymous(insecure_guard: Guard) -> None:
    assert await admit(insecure_guard, FORCE_DELETE, LOCAL) == ANONYMOUS
    assert await admit(insecure_guard, READ, {**LOCAL, **bearer("whatever")}) == ANONYMOUS


async def test_an_insecure_server_with_tokens_rejects_a_wrong_one() -> None:
    guard = Guard(identities=[MemoryIdentities({"ops-token": OPS})], permissions=PERMISSIONS, is_insecure=True)

    assert await admit(guard, READ, {**LOCAL, **bearer("ops-token")}) == OPS
    assert await admit(guard, READ, LOCAL) == ANONYMOUS
    assert (await rejection(guard, READ, {**LOCAL, **bearer("wrong")})).status == 401


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "127.9.9.9", "[::1]", "[::1]:8000"]
)
async def test_an_insecure_server_accepts_the_names_of_its_machine(insecure_guard: Guard, host: str) -> None:
    assert await admit(insecure_guard, READ, {"host": host}) == ANONYMOUS


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "[::2]:80",
        "a b",
        "localhost@x",
    ],
)
async def test_an_insecure_server_rejects_other_names(insecure_guard: Guard, host: str) -> None:
    assert (await rejection(insecure_guard, READ, {"host": host})).status == 421


@pytest.mark.parametrize("host", ["localhost:3000", "127.0.0.1", "[::1]:8080", "LocalHost:80"])
async def test_an_insecure_server_accepts_its_own_origin(insecure_guard: Guard, host: str) -> None:
    assert await admit(insecure_guard, WRITE, {"host": host, "origin": f"http://{host.lower()}"}) == ANONYMOUS


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "file://",
        "http://[bad",
        "http://localhost.evil",
        "http://localhost:8000.evil.example",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:8000",
        "http://evil.example@localhost:8000",
    ],
)
async def test_an_insecure_server_rejects_other_origins(insecure_guard: Guard, origin: str) -> None:
    rejected = await rejection(insecure_guard, WRITE, {"host": "localhost:8000", "origin": origin})

    assert (rejected.status, rejected.code) == (403, Code.FOREIGN)


async def test_an_insecure_server_guards_its_open_routes_too(insecure_guard: Guard) -> None:
    with pytest.raises(Problem):
        await admit(insecure_guard, OPEN, {"host": "evil.example"})


async def test_a_secure_server_accepts_any_host_and_origin(guard: Guard) -> None:
    headers = {"host": "api.example", "origin": "https://console.example", **bearer("ops-token")}

    assert await admit(guard, WRITE, headers) == OPS


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost.", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("", False), ("::", False)],
)
def test_only_loopback_is_local(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
