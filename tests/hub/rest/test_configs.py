"""Configurations over REST: saving, reading, comparing, checking, deleting."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import msgspec
import pytest

from sentinel.core.hub.versions import VersionName
from sentinel.hub.schemas import RefusedVersion
from sentinel.ports.hub_store import HubEventType
from tests.hub.rest.rest_hub import VALID, WITH_OTHER_LISTENER, WITH_OTHER_ROUTE, RestHub
from tests.support.hub import store_records

INVALID = 'listeners {\n  listener "web" {\n    address true\n  }\n}\nlistner\n'
"""Without `system`; a bare boolean; an unknown block."""


async def test_a_configuration_begins_with_version_1(hub: RestHub) -> None:
    body = {"id": "edge", "content": VALID, "change_summary": "first"}

    response = await hub.call("POST", "configs", body)

    now = hub.clock.now().isoformat().replace("+00:00", "Z")
    assert response.status == 201
    assert response.headers["location"] == "/api/v1/configs/edge/versions/1"
    assert response.json == {
        "config_id": "edge",
        "version": 1,
        "hash": hashlib.sha256(VALID.encode()).hexdigest(),
        "change_summary": "first",
        "created_time": now,
        "created_by": "root",
        "restart_required": False,
        "secrets": [],
        "warnings": [],
        "content": VALID,
    }
    assert (await hub.call("GET", "configs/edge/versions/1")).json == response.json
    assert (await hub.call("GET", "configs/edge")).json == {
        "id": "edge",
        "latest_version": 1,
        "created_time": now,
        "created_by": "root",
        "updated_time": now,
        "assigned": 0,
    }


async def test_an_id_that_is_taken_is_a_conflict(hub: RestHub) -> None:
    await hub.push("edge", VALID)

    response = await hub.call("POST", "configs", {"id": "edge", "content": WITH_OTHER_ROUTE})

    assert response.status == 409
    assert (await hub.call("GET", "configs/edge/versions/1")).json["content"] == VALID


@pytest.mark.parametrize("config_id", ["", "a/b", "a@1", "..", "x" * 200])
async def test_a_bad_id_is_refused(hub: RestHub, config_id: str) -> None:
    response = await hub.call("POST", "configs", {"id": config_id, "content": VALID})

    assert response.status == 400
    (error,) = response.json["errors"]
    assert error["field"] == "id"
    assert error["message"].startswith("expected letters, digits and ._~- only, at most 128, such as edge, got ")


async def test_an_id_that_is_a_route_is_refused_with_the_reason(hub: RestHub) -> None:
    response = await hub.call("POST", "configs", {"id": "validate", "content": VALID})

    assert response.status == 400
    message = "expected another id, because configs/validate is a route of the API"
    assert response.json["errors"] == [{"field": "id", "message": message}]


async def test_an_invalid_text_is_refused_with_all_its_errors(hub: RestHub) -> None:
    response = await hub.call("POST", "configs", {"id": "edge", "content": INVALID})

    assert response.status == 422
    assert response.headers["content-type"] == "application/problem+json"
    errors = {(error["level"], error["line"]): error for error in response.json["errors"]}
    assert set(errors) >= {(2, 1), (1, 3), (2, 6)}
    assert set(errors[1, 3]) == {"level", "code", "line", "column", "message", "suggestion"}
    assert (errors[1, 3]["column"], "#true" in errors[1, 3]["suggestion"]) == (13, True)
    assert (await hub.call("GET", "configs/edge")).status == 404
    assert await hub.events() == []


async def test_a_new_version_says_whether_proxies_restart(hub: RestHub) -> None:
    await hub.push("edge", VALID)

    reloaded = await hub.call("POST", "configs/edge/versions", {"content": WITH_OTHER_ROUTE})
    restarted = await hub.call("POST", "configs/edge/versions", {"content": WITH_OTHER_LISTENER})

    assert (reloaded.json["version"], reloaded.json["restart_required"]) == (2, False)
    assert (restarted.json["version"], restarted.json["restart_required"]) == (3, True)


async def test_an_invalid_version_changes_nothing(hub: RestHub) -> None:
    await hub.push("edge", VALID)

    response = await hub.call("POST", "configs/edge/versions", {"content": INVALID})

    assert response.status == 422
    assert (await hub.call("GET", "configs/edge")).json["latest_version"] == 1


async def test_a_copy_of_a_version_is_a_new_version(hub: RestHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)

    copied = await hub.call("POST", "configs/edge/versions", {"copy_of": 1, "change_summary": "back"})
    unknown = await hub.call("POST", "configs/edge/versions", {"copy_of": 9})

    assert (copied.json["version"], copied.json["content"]) == (3, VALID)
    assert (unknown.status, unknown.json["errors"][0]["field"]) == (422, "copy_of")
    assert msgspec.convert(unknown.json["errors"][0], RefusedVersion).field == "copy_of"


@pytest.mark.parametrize("body", [{}, {"content": VALID, "copy_of": 1}])
async def test_a_version_is_a_text_or_a_copy(hub: RestHub, body: dict[str, object]) -> None:
    await hub.push("edge", VALID)

    assert (await hub.call("POST", "configs/edge/versions", body)).status == 400


async def test_a_version_can_require_the_one_it_is_based_on(hub: RestHub) -> None:
    await hub.push("edge", VALID)
    etag = (await hub.call("GET", "configs/edge")).headers["etag"]

    first = await hub.call(
        "POST", "configs/edge/versions", {"content": WITH_OTHER_ROUTE}, headers={"if-match": etag}
    )
    second = await hub.call(
        "POST", "configs/edge/versions", {"content": WITH_OTHER_LISTENER}, headers={"if-match": etag}
    )

    assert (first.status, second.status) == (201, 412)
    assert (await hub.call("GET", "configs/edge")).json["latest_version"] == 2


async def test_versions_that_are_added_at_once_all_get_a_number(hub: RestHub) -> None:
    await hub.push("edge", VALID)

    added = await asyncio.gather(
        *(hub.call("POST", "configs/edge/versions", {"content": WITH_OTHER_ROUTE}) for _ in range(5))
    )

    assert {each.status for each in added} == {201}
    assert sorted(each.json["version"] for each in added) == [2, 3, 4, 5, 6]


async def test_lists_have_pages(hub: RestHub) -> None:
    for name in ("b", "a", "c"):
        await hub.push(name, VALID)

    first = (await hub.call("GET", "configs", query="size=2")).json
    second = (await hub.call("GET", "configs", query=f"size=2&after={first['next']}")).json

    assert [each["id"] for each in first["items"] + second["items"]] == ["a", "b", "c"]
    assert (first["size"], first["total"], second["size"], second["next"]) == (2, 3, 1, None)


async def test_versions_are_listed_newest_first_without_text(hub: RestHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE, WITH_OTHER_LISTENER)

    first = (await hub.call("GET", "configs/edge/versions", query="size=2")).json
    second = (await hub.call("GET", "configs/edge/versions", query=f"size=2&after={first['next']}")).json

    assert [each["version"] for each in first["items"] + second["items"]] == [3, 2, 1]
    assert (first["total"], "content" in first["items"][0]) == (3, False)


async def test_versions_are_compared(hub: RestHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE, WITH_OTHER_LISTENER)

    with_last = (await hub.call("GET", "configs/edge/versions/2/diff")).json
    with_first = (await hub.call("GET", "configs/edge/versions/3/diff", query="from=1")).json

    assert with_last["restart_required"] is False
    assert with_last["diff"].startswith("--- edge@1\n+++ edge@2\n")
    assert '-        matches { path "/health" }\n+        matches { path "/ready" }\n' in with_last["diff"]
    assert (with_first["diff"].startswith("--- edge@1\n+++ edge@3\n"), with_first["restart_required"]) == (
        True,
        True,
    )


@pytest.mark.parametrize("path", ["configs/x", "configs/edge/versions/2", "configs/edge/versions/two"])
async def test_what_does_not_exist_is_not_found(hub: RestHub, path: str) -> None:
    await hub.push("edge", VALID)

    assert (await hub.call("GET", path)).status == 404


async def test_a_check_stores_nothing_and_knows_all_levels(hub: RestHub) -> None:
    unresolved = VALID.replace(
        "routes {", 'upstreams { upstream "api" { target "nowhere.example:80" } }\nroutes {'
    )

    valid = await hub.call("POST", "configs/validate", {"content": VALID})
    invalid = await hub.call("POST", "configs/validate", {"content": INVALID})
    dangling = await hub.call("POST", "configs/validate", {"content": unresolved})

    assert valid.json == {"valid": True, "problems": []}
    assert (invalid.status, invalid.json["valid"]) == (200, False)
    assert 3 in {problem["level"] for problem in dangling.json["problems"]}
    assert (await hub.call("GET", "configs")).json["total"] == 0


async def test_the_references_to_secrets_are_listed_in_order(hub: RestHub) -> None:
    tls = 'tls { cert secret="api-cert"; key vault="secret/data/api/tls#key" }'
    content = VALID.replace(
        "routes {", f'upstreams {{ upstream "api" {{ target "127.0.0.1:80"; {tls} }} }}\nroutes {{'
    )

    saved = await hub.push("edge", content)

    assert saved["secrets"] == ["secret:api-cert", "vault:secret/data/api/tls#key"]
    assert saved["content"] == content


async def test_an_assigned_configuration_is_not_deleted(hub: RestHub) -> None:
    await hub.push("edge", VALID)
    await hub.add(store_records.instance("edge-1", assigned=VersionName("edge", 1)))

    assert (await hub.call("DELETE", "configs/edge")).status == 409
    assert (await hub.call("GET", "configs/edge")).json["assigned"] == 1


async def test_an_unused_configuration_is_deleted_with_its_versions(hub: RestHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)

    assert (await hub.call("DELETE", "configs/edge")).status == 204
    assert (await hub.call("GET", "configs/edge/versions/1")).status == 404
    assert (await hub.call("DELETE", "configs/edge")).status == 404


async def test_every_write_is_in_the_audit_and_in_the_events(hub: RestHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)
    await hub.call("DELETE", "configs/edge")

    written = [
        (entry.actor, entry.action, entry.kind, entry.resource_id, entry.detail) for entry in await hub.audit()
    ]
    assert written == [
        ("root", "delete", "config", "edge", ""),
        ("root", "update", "config", "edge", "edge@2"),
        ("root", "create", "config", "edge", "edge@1"),
    ]
    events = await hub.events()
    assert [(event.type, event.subject) for event in events] == [
        (HubEventType.CONFIG_VERSION, "edge@1"),
        (HubEventType.CONFIG_VERSION, "edge@2"),
    ]
    described: dict[str, Any] = json.loads(events[1].data)
    assert (described["version"], "content" in described) == (2, False)


ROUTES = [
    ("GET", "configs", None),
    ("GET", "configs/edge", None),
    ("GET", "configs/edge/versions", None),
    ("GET", "configs/edge/versions/1", None),
    ("GET", "configs/edge/versions/1/diff", None),
    ("POST", "configs/validate", {"content": ""}),
    ("POST", "configs", {"id": "new", "content": VALID}),
    ("POST", "configs/edge/versions", {"content": VALID}),
    ("DELETE", "configs/edge", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES, ids=[f"{each[0]} {each[1]}" for each in ROUTES])
async def test_roles(hub: RestHub, method: str, path: str, body: object) -> None:
    is_write = (method, path) not in {each[:2] for each in ROUTES[:6]}
    await hub.push("edge", VALID)

    statuses = {
        role: (await hub.call(method, path, body, token=role)).status
        for role in ("viewer", "pulse", "adapter", "agent", "")
    }

    expected = dict.fromkeys(("pulse", "adapter", "agent"), 403) | {"": 401}
    assert {role: statuses[role] for role in expected} == expected
    assert (statuses["viewer"] == 403) is is_write
    assert (await hub.call(method, path, body, token="operator")).status < 300
