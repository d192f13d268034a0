"""Signing in and out: tokens, failures, throttling, and the audit."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from sentinel.testing.database import Fault
from sentinel.testing.passwords import MemoryPasswordHasher
from tests.support.databases import backends
from tests.web.accounts.accounts_client import PASSWORD, AccountsClient, described


async def test_a_sign_in_gives_a_token_that_stands_for_the_user(accounts: AccountsClient) -> None:
    await accounts.add_user("ann", "operator")

    response = await accounts.log_in("ann")

    assert response.status == 200
    assert response.json.keys() == {"token", "expires_time"}
    assert datetime.fromisoformat(response.json["expires_time"]) == accounts.clock.now() + timedelta(hours=12)
    assert response.headers["cache-control"] == "no-store"
    me = await accounts.call("GET", "auth/me", token=response.json["token"])
    assert me.json == {"name": "ann", "role": "operator"}


async def test_a_sign_in_expires(accounts: AccountsClient) -> None:
    token = await accounts.signed_in("ann")

    await accounts.later(12 * 3600 - 1)
    before = await accounts.me(token)
    await accounts.later(1)

    assert (before, await accounts.me(token)) == (200, 401)


async def test_signing_out_ends_only_this_sign_in(accounts: AccountsClient) -> None:
    one = await accounts.signed_in("ann")
    two = (await accounts.log_in("ann")).json["token"]

    response = await accounts.call("POST", "auth/logout", token=one)

    assert (response.status, response.body) == (204, b"")
    assert (await accounts.me(one), await accounts.me(two)) == (401, 200)


async def test_signing_out_leaves_other_tokens_as_they_are(accounts: AccountsClient) -> None:
    issued = await accounts.issue(name="ci", role="viewer")

    response = await accounts.call("POST", "auth/logout", token=issued["token"])

    assert response.status == 204
    assert await accounts.me(issued["token"]) == 200


async def test_a_wrong_name_and_a_wrong_password_look_the_same(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")

    wrong, unknown = await accounts.log_in("ann", "wrong horse"), await accounts.log_in("eve")

    assert wrong.status == unknown.status == 401
    assert wrong.json == unknown.json
    assert wrong.json["code"] == "HYPERFLEET-AUT-002"
    assert wrong.headers["www-authenticate"] == "Bearer"
    assert accounts.passwords.verified == 2  # both cost a comparison


@pytest.mark.parametrize("name", ["", "Ann", "ann ", "x" * 128, "粒"])
async def test_names_that_no_user_has_are_refused(accounts: AccountsClient, name: str) -> None:
    await accounts.add_user("ann")

    assert (await accounts.log_in(name)).status == 401


@pytest.mark.parametrize("password", ["", "x" * 5000, PASSWORD.upper(), f"{PASSWORD} "])
async def test_other_passwords_are_refused(accounts: AccountsClient, password: str) -> None:
    await accounts.add_user("ann")

    assert (await accounts.log_in("ann", password)).status == 401


async def test_after_five_failures_a_name_has_to_wait(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")
    failed = []
    for _ in range(5):
        failed.append((await accounts.log_in("ann", "wrong horse")).status)
        await accounts.later(5)

    throttled = await accounts.log_in("ann")
    await accounts.later(34)
    still = await accounts.log_in("ann")
    await accounts.later(1)

    assert failed == [401] * 5
    assert (throttled.status, throttled.headers["retry-after"]) == (429, "35")
    assert throttled.json["code"] == "HYPERFLEET-LMT-003"
    assert (still.status, still.headers["retry-after"]) == (429, "1")
    assert (await accounts.log_in("ann")).status == 200


async def test_one_name_has_to_wait_whatever_the_addresses(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")
    await accounts.add_user("ben")
    for number in range(5):
        wrong = await accounts.log_in("ann", "wrong horse", address=f"10.0.0.{number}")
        assert wrong.status == 401

    assert (await accounts.log_in("ann", address="10.0.0.9")).status == 429
    assert (await accounts.log_in("ben", address="10.0.0.1")).status == 200


async def test_one_address_has_to_wait_whatever_the_names(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")
    for number in range(5):
        assert (await accounts.log_in(f"eve-{number}")).status == 401

    assert (await accounts.log_in("ann")).status == 429
    assert (await accounts.log_in("ann", address="10.0.0.1")).status == 200


async def test_right_passwords_are_not_counted(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")
    for _ in range(4):
        await accounts.log_in("ann", "wrong horse")

    statuses = [(await accounts.log_in("ann")).status for _ in range(10)]

    assert statuses == [200] * 10
    assert [(await accounts.log_in("ann", "wrong horse")).status for _ in range(2)] == [401, 429]


async def test_parallel_guesses_are_counted_one_by_one(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")

    responses = await asyncio.gather(*(accounts.log_in("ann", "wrong horse") for _ in range(20)))

    statuses = [response.status for response in responses]
    assert (statuses.count(401), statuses.count(429)) == (5, 15)


async def test_parallel_sign_ins_with_the_right_password_all_succeed(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")

    responses = await asyncio.gather(*(accounts.log_in("ann") for _ in range(20)))

    assert [response.status for response in responses] == [200] * 20


async def test_servers_on_one_database_count_failures_together(accounts: AccountsClient) -> None:
    other = AccountsClient(backend=accounts.backend)
    await accounts.add_user("ann")

    failed = [
        (await each.log_in("ann", "wrong horse")).status for each in (accounts, other, accounts, other, other)
    ]

    assert failed == [401] * 5
    for each in (accounts, other):
        throttled = await each.log_in("ann", address="10.0.0.1")
        assert (throttled.status, throttled.headers["retry-after"]) == (429, "60")
        assert (await each.log_in("ben")).status == 429
        assert (await each.log_in("ben", address="10.0.0.1")).status == 401


async def test_parallel_guesses_at_many_servers_are_counted(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")
    servers = [AccountsClient(backend=accounts.backend) for _ in range(20)]

    responses = await asyncio.gather(*(server.log_in("ann", "wrong horse") for server in servers))

    statuses = [response.status for response in responses]
    assert (statuses.count(401), statuses.count(429)) == (5, 15)
    assert len(await accounts.audit(action="login-refused")) == 5


async def test_a_right_guess_that_is_one_too_many_is_not_told(accounts: AccountsClient) -> None:
    class SlowHasher(MemoryPasswordHasher):
        """Lets others fail while it compares."""

        async def verify(self, password: str, hashed: str | None) -> bool:
            for number in range(5):
                await accounts.log_in("ann", "wrong horse", address=f"10.0.0.{number}")
            return await super().verify(password, hashed)

    await accounts.add_user("ann")
    slow = AccountsClient(backend=accounts.backend, passwords=SlowHasher())

    response = await slow.log_in("ann")

    assert (response.status, response.headers["retry-after"]) == (429, "60")
    assert await accounts.audit(action="login") == []


async def test_attempts_that_are_refused_for_being_many_cost_no_hashing(accounts: AccountsClient) -> None:
    for _ in range(20):
        await accounts.log_in("eve")

    assert accounts.passwords.verified == 5


async def test_a_password_that_changes_meanwhile_is_wrong() -> None:
    class SlowHasher(MemoryPasswordHasher):
        """Lets the test act after the password was compared."""

        async def verify(self, password: str, hashed: str | None) -> bool:
            is_right = await super().verify(password, hashed)
            await accounts.call("PATCH", "users/ann", {"password": "battery staple"})
            return is_right

    async with AccountsClient(passwords=SlowHasher()) as accounts:
        await accounts.add_user("ann")

        assert (await accounts.log_in("ann")).status == 401


async def test_an_outage_is_not_counted_as_a_failure() -> None:
    faults = [Fault.BEFORE_COMMIT] * 9

    def fault(call: str) -> Fault | None:
        return faults.pop() if call == "user" and faults else None

    async with AccountsClient(backend=backends.memory(faults=fault)) as accounts:
        await accounts.add_user("ann")

        statuses = [(await accounts.log_in("ann")).status for _ in range(10)]

        assert statuses == [503] * 9 + [200]


async def test_sign_ins_are_in_the_audit(accounts: AccountsClient) -> None:
    token = await accounts.signed_in("ann", "operator")
    await accounts.log_in("ann", "wrong horse")
    await accounts.log_in("my password by mistake")
    await accounts.call("POST", "auth/logout", token=token)

    entries = await accounts.audit()

    assert [described(entry) for entry in entries] == [
        ("ann", "logout", "user", "ann", ""),
        ("nobody", "login-refused", "user", "", "unknown name"),
        ("nobody", "login-refused", "user", "ann", "wrong password"),
        ("ann", "login", "user", "ann", ""),
        ("root", "create", "user", "ann", "role operator"),
    ]
    assert {entry.address for entry in entries} == {"127.0.0.1"}
    assert all(entry.request_id for entry in entries)
    assert entries[3].role == "operator"


async def test_throttled_attempts_do_not_fill_the_audit(accounts: AccountsClient) -> None:
    for _ in range(30):
        await accounts.log_in("eve")

    assert len(await accounts.audit(action="login-refused")) == 5


@pytest.mark.parametrize(
    "body",
    [
        {"name": "ann"},
        {"name": "ann", "password": 5},
        {"name": "ann", "password": "secret-words", "more": "secret-words"},
        {"name": "x" * 129, "password": "secret-words"},
        b'{"name": "ann", "password": "secret-words"',
        b'{"name": "ann", "password": "secret-words", "password": "secret-words"}',
        b'"secret-words"',
    ],
)
async def test_a_bad_body_is_a_400_that_quotes_no_password(accounts: AccountsClient, body: object) -> None:
    response = await accounts.call("POST", "auth/login", body, token="")

    assert response.status == 400
    assert b"secret-words" not in response.body
