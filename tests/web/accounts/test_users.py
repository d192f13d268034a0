"""Users: adding, changing, removing, and what ends their sign-ins."""

from __future__ import annotations

import asyncio

import pytest

from tests.web.accounts.accounts_client import PASSWORD, AccountsClient, described


async def test_a_user_is_added_and_read(accounts: AccountsClient) -> None:
    body = {"name": "ann", "role": "admin", "password": PASSWORD}

    added = await accounts.call("POST", "users", body)

    assert added.status == 201
    assert added.headers["location"] == "/api/v1/users/ann"
    now = accounts.clock.now().isoformat().replace("+00:00", "Z")
    expected = {"name": "ann", "role": "admin", "created_time": now, "created_by": "root", "updated_time": now}
    assert added.json == expected
    assert (await accounts.call("GET", "users/ann")).json == expected
    assert (await accounts.call("GET", "users")).json == {
        "size": 1,
        "total": 1,
        "items": [expected],
        "next": None,
    }


async def test_users_are_listed_in_pages_by_name(accounts: AccountsClient) -> None:
    for name in ("cid", "ann", "ben"):
        await accounts.add_user(name)

    first = (await accounts.call("GET", "users", query="size=2")).json
    second = (await accounts.call("GET", "users", query=f"size=2&after={first['next']}")).json

    assert [each["name"] for each in first["items"]] == ["ann", "ben"]
    assert (first["size"], first["total"]) == (2, 3)
    assert [each["name"] for each in second["items"]] == ["cid"]
    assert second["next"] is None


@pytest.mark.parametrize("query", ["size=0", "size=1001", "after=x", "labels=a", "page=1"])
async def test_a_bad_query_is_a_400(accounts: AccountsClient, query: str) -> None:
    for path in ("users", "tokens"):
        assert (await accounts.call("GET", path, query=query)).status == 400


async def test_a_name_can_be_taken_once(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")

    response = await accounts.call("POST", "users", {"name": "ann", "role": "admin", "password": PASSWORD})

    assert response.status == 409
    assert (await accounts.call("GET", "users/ann")).json["role"] == "viewer"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "anonymous"}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"role": "adapter"}, "role"),
        ({"role": "root"}, "role"),
        ({"password": "seven77"}, "password"),
        ({"password": "x" * 1025}, "password"),
        ({"password": None}, "password"),
        ({"more": 1}, "more"),
    ],
)
async def test_a_bad_field_is_named(accounts: AccountsClient, change: dict[str, object], field: str) -> None:
    body = {"name": "ann", "role": "viewer", "password": PASSWORD} | change

    response = await accounts.call("POST", "users", body)

    assert response.status == 400
    assert [error["field"] for error in response.json["errors"]] == [field]
    assert PASSWORD.encode() not in response.body
    assert (await accounts.call("GET", "users")).json["total"] == 0


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PATCH", {"role": "admin"}), ("DELETE", None)])
async def test_an_unknown_user_is_a_404(accounts: AccountsClient, method: str, body: object) -> None:
    assert (await accounts.call(method, "users/eve", body)).status == 404


async def test_a_changed_role_ends_the_sign_ins_of_this_user_only(accounts: AccountsClient) -> None:
    ann, ben = await accounts.signed_in("ann"), await accounts.signed_in("ben")

    changed = await accounts.call("PATCH", "users/ann", {"role": "operator"})

    assert (changed.status, changed.json["role"]) == (200, "operator")
    assert (await accounts.me(ann), await accounts.me(ben)) == (401, 200)
    token = (await accounts.log_in("ann")).json["token"]
    assert (await accounts.call("GET", "auth/me", token=token)).json["role"] == "operator"


async def test_a_changed_password_ends_sign_ins_and_replaces_the_old_one(accounts: AccountsClient) -> None:
    token = await accounts.signed_in("ann")

    changed = await accounts.call("PATCH", "users/ann", {"password": "battery staple"})

    assert changed.status == 200
    assert await accounts.me(token) == 401
    assert (await accounts.log_in("ann")).status == 401
    assert (await accounts.log_in("ann", "battery staple")).status == 200


async def test_a_removed_user_is_signed_out_and_cannot_sign_in(accounts: AccountsClient) -> None:
    token = await accounts.signed_in("ann")

    removed = await accounts.call("DELETE", "users/ann")

    assert (removed.status, removed.body) == (204, b"")
    assert await accounts.me(token) == 401
    assert (await accounts.log_in("ann")).status == 401
    await accounts.add_user("ann", "admin")
    await accounts.add_user("ben")
    await accounts.call("DELETE", "users/ben")  # nothing is remembered of tokens now
    assert await accounts.me(token) == 401


@pytest.mark.parametrize("body", [{}, {"role": "viewer"}])
async def test_a_patch_that_changes_nothing_ends_nothing(accounts: AccountsClient, body: object) -> None:
    token = await accounts.signed_in("ann")

    response = await accounts.call("PATCH", "users/ann", body)

    assert response.status == 200
    assert await accounts.me(token) == 200
    assert [entry.action for entry in await accounts.audit()] == ["login", "create"]


async def test_the_last_admin_can_be_neither_removed_nor_demoted(accounts: AccountsClient) -> None:
    await accounts.add_user("ann", "admin")
    await accounts.add_user("ben", "operator")

    demoted = await accounts.call("PATCH", "users/ann", {"role": "operator", "password": "battery staple"})
    removed = await accounts.call("DELETE", "users/ann")

    assert (demoted.status, removed.status) == (409, 409)
    assert (await accounts.log_in("ann")).status == 200
    assert (await accounts.call("PATCH", "users/ann", {"password": "battery staple"})).status == 200
    await accounts.call("PATCH", "users/ben", {"role": "admin"})
    assert (await accounts.call("DELETE", "users/ann")).status == 204


async def test_two_admins_cannot_remove_each_other(accounts: AccountsClient) -> None:
    await accounts.add_user("ann", "admin")
    await accounts.add_user("ben", "admin")

    responses = await asyncio.gather(*(accounts.call("DELETE", f"users/{name}") for name in ("ann", "ben")))

    assert sorted(response.status for response in responses) == [204, 409]


async def test_every_change_is_in_the_audit_without_passwords(accounts: AccountsClient) -> None:
    await accounts.add_user("ann")
    await accounts.call("PATCH", "users/ann", {"role": "operator", "password": "battery staple"})
    await accounts.call("DELETE", "users/ann")
    await accounts.call("DELETE", "users/ann")

    assert [described(entry) for entry in await accounts.audit()] == [
        ("root", "delete", "user", "ann", ""),
        ("root", "patch", "user", "ann", "role operator, password"),
        ("root", "create", "user", "ann", "role viewer"),
    ]
