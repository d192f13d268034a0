"""Tokens in the database: issuing, expiry, revocation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.web.accounts.accounts_client import AccountsClient, described


async def test_a_token_is_shown_once(accounts: AccountsClient) -> None:
    issued = await accounts.issue(name="ci", role="operator")

    text = issued.pop("token")
    now = accounts.clock.now().isoformat().replace("+00:00", "Z")
    assert issued == {
        "id": issued["id"],
        "name": "ci",
        "role": "operator",
        "created_time": now,
        "created_by": "root",
        "expires_time": None,
    }
    assert (await accounts.call("GET", f"tokens/{issued['id']}")).json == issued
    listed = await accounts.call("GET", "tokens")
    assert listed.json == {"size": 1, "total": 1, "items": [issued], "next": None}
    assert (await accounts.call("GET", "auth/me", token=text)).json == {"name": "ci", "role": "operator"}


async def test_the_response_with_the_token_is_not_cached(accounts: AccountsClient) -> None:
    response = await accounts.call("POST", "tokens", {"name": "ci", "role": "viewer"})

    assert response.headers["cache-control"] == "no-store"
    assert response.headers["location"] == f"/api/v1/tokens/{response.json['id']}"


async def test_adapters_and_agents_have_their_attributes(accounts: AccountsClient) -> None:
    dns = await accounts.issue(name="dns", role="adapter", adapter="dns")
    edge = await accounts.issue(name="edge", role="agent", instance="edge-1")

    assert (dns["adapter"], edge["instance"]) == ("dns", "edge-1")
    me = await accounts.call("GET", "auth/me", token=dns["token"])
    assert me.json == {"name": "dns", "role": "adapter", "adapter": "dns"}
    assert await accounts.me(edge["token"]) == 403


async def test_a_token_expires(accounts: AccountsClient) -> None:
    issued = await accounts.issue(name="ci", role="viewer", expires_in="1m30s")
    end = (accounts.clock.now() + timedelta(seconds=90)).isoformat().replace("+00:00", "Z")

    await accounts.later(89)
    before = await accounts.me(issued["token"])
    await accounts.later(1)

    assert issued["expires_time"] == end
    assert (before, await accounts.me(issued["token"])) == (200, 401)


async def test_a_revoked_token_is_rejected_at_once(accounts: AccountsClient) -> None:
    one, two = [await accounts.issue(name="ci", role="viewer") for _ in range(2)]
    before = await accounts.me(one["token"])

    revoked = await accounts.call("DELETE", f"tokens/{one['id']}")

    assert (before, revoked.status, revoked.body) == (200, 204, b"")
    assert (await accounts.me(one["token"]), await accounts.me(two["token"])) == (401, 200)
    assert (await accounts.call("DELETE", f"tokens/{one['id']}")).status == 404
    assert (await accounts.call("GET", f"tokens/{one['id']}")).status == 404


async def test_tokens_are_listed_in_pages_oldest_first(accounts: AccountsClient) -> None:
    for name in ("b", "a", "c"):
        await accounts.issue(name=name, role="viewer")
        await accounts.later(1)

    first = (await accounts.call("GET", "tokens", query="size=2")).json
    second = (await accounts.call("GET", "tokens", query=f"size=2&after={first['next']}")).json

    assert [each["name"] for each in (*first["items"], *second["items"])] == ["b", "a", "c"]
    assert (first["total"], second["next"]) == (3, None)
    assert (await accounts.call("GET", "users", query=f"after={first['next']}")).status == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "nobody"}, "name"),
        ({"role": "root"}, "role"),
        ({"role": "adapter"}, "adapter"),
        ({"role": "adapter", "adapter": "no name"}, "adapter"),
        ({"adapter": "dns"}, "adapter"),
        ({"instance": "edge-1"}, "instance"),
        ({"role": "agent", "instance": "a/b"}, "instance"),
        ({"expires_in": "5"}, "expires_in"),
        ({"expires_in": "0s"}, "expires_in"),
        ({"expires_in": "-1h"}, "expires_in"),
        ({"expires_in": "2000000h"}, "expires_in"),
        ({"token": "snt_mine"}, "token"),
    ],
)
async def test_a_bad_field_is_named(accounts: AccountsClient, change: dict[str, object], field: str) -> None:
    response = await accounts.call("POST", "tokens", {"name": "ci", "role": "viewer"} | change)

    assert response.status == 400
    assert [error["field"] for error in response.json["errors"]] == [field]


async def test_every_change_is_in_the_audit(accounts: AccountsClient) -> None:
    issued = await accounts.issue(name="ci", role="viewer")
    await accounts.call("DELETE", f"tokens/{issued['id']}")

    assert [described(entry) for entry in await accounts.audit()] == [
        ("root", "delete", "token", issued["id"], "ci, role viewer"),
        ("root", "create", "token", issued["id"], "ci, role viewer"),
    ]
