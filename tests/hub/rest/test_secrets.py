"""Secrets over REST: who may, what is kept, and that no value is ever shown."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.core.hub.sync import Assignment, Sync
from sentinel.core.hub.versions import VersionName, content_hash
from sentinel.testing.secret_store import MemorySecretStore
from tests.hub.rest.rest_hub import VALID, RestHub
from tests.support.hub.store_records import instance

VALUE = "hunter2-Pl4nt3d"
WITH_TLS = VALID.replace(
    'address "127.0.0.1:8088"', 'address "127.0.0.1:8088"\n tls { cert secret="api-cert"; key secret="api-key" }'
)


async def put(hub: RestHub, name: str, value: str = VALUE) -> None:
    response = await hub.call("PUT", f"secrets/{name}", {"value": value})
    assert response.status == 204, response


async def test_a_secret_is_stored_and_shown_without_its_value(hub: RestHub) -> None:
    response = await hub.call("PUT", "secrets/api-cert", {"value": VALUE})
    found = await hub.call("GET", "secrets/api-cert")

    assert (response.status, response.body) == (204, b"")
    assert found.status == 200
    assert found.json == {"name": "api-cert", "updated_time": "2025-01-01T00:00:00Z", "used_by": []}
    assert await hub.backend.secrets.values(["api-cert"]) == {"api-cert": VALUE.encode()}


async def test_secrets_are_listed_in_pages(hub: RestHub) -> None:
    for name in ("c", "a", "b"):
        await put(hub, name)

    first = (await hub.call("GET", "secrets", query="size=2")).json
    second = (await hub.call("GET", "secrets", query=f"size=2&after={first['next']}")).json

    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b", "c"]
    assert (first["size"], first["total"], second["next"]) == (2, 3, None)


async def test_versions_that_name_it_use_it(hub: RestHub) -> None:
    await put(hub, "api-cert")
    await hub.push("edge", WITH_TLS, VALID, WITH_TLS + "// again")
    await hub.push("other", VALID)
    assignment = Assignment(VersionName("edge", 1), content_hash(WITH_TLS), hub.clock.now())
    await hub.add(msgspec.structs.replace(instance("edge-1"), sync=Sync(assignment=assignment)))

    listed = (await hub.call("GET", "secrets")).json["items"]

    assert (await hub.call("GET", "secrets/api-cert")).json["used_by"] == ["edge@1", "edge@3"]
    assert [each["used_by"] for each in listed] == [["edge@1", "edge@3"]]


async def test_a_deleted_secret_is_gone(hub: RestHub) -> None:
    await put(hub, "api-cert")

    assert (await hub.call("DELETE", "secrets/api-cert")).status == 204
    assert (await hub.call("GET", "secrets/api-cert")).status == 404
    assert (await hub.call("DELETE", "secrets/api-cert")).status == 404


@pytest.mark.parametrize("token", ["viewer", "operator", "pulse", "adapter", "agent"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_an_admin_has_to_do_with_secrets(hub: RestHub, token: str, method: str) -> None:
    await put(hub, "api-cert", "before")

    response = await hub.call(
        method, "secrets/api-cert", {"value": VALUE} if method == "PUT" else None, token=token
    )

    assert response.status == 403
    assert (await hub.call("GET", "secrets", token=token)).status == 403
    assert await hub.backend.secrets.values(["api-cert"]) == {"api-cert": b"before"}


async def test_without_a_key_nothing_is_stored(hub: RestHub) -> None:
    store = hub.backend.secrets
    assert isinstance(store, MemorySecretStore)
    store.has_key = False

    response = await hub.call("PUT", "secrets/api-cert", {"value": VALUE})

    assert response.status == 409
    assert "--secrets-key-file" in response.json["detail"]
    assert (await hub.call("GET", "secrets")).json["items"] == []


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("a%20b", {"value": VALUE}, 400),
        ("x" * 200, {"value": VALUE}, 400),
        ("a", {"value": ""}, 400),
        ("a", {"value": VALUE * 10_000}, 400),
        ("a", {"value": [VALUE]}, 400),
        ("a", {"value": VALUE, "other": VALUE}, 400),
        ("a", {"valeu": VALUE}, 400),
        ("a", b'{"value": "' + VALUE.encode(), 400),
        ("a", b'{"value": "\\ud800' + VALUE.encode() + b'"}', 400),
        ("a", b'{"value": ' + VALUE.encode() + b"}", 400),
        ("a", b'{"value": "' + VALUE.encode() + b'", "value": "' + VALUE.encode() + b'"}', 400),
        ("a", {"value": VALUE * 100_000}, 413),
    ],
)
async def test_a_bad_value_is_refused_and_not_quoted(
    hub: RestHub, name: str, body: object, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    response = await hub.call("PUT", f"secrets/{name}", body)

    assert response.status == status, response.body[:300]
    assert VALUE.encode() not in response.body
    assert VALUE not in caplog.text
    assert (await hub.call("GET", "secrets")).json["items"] == []


async def test_the_audit_names_what_was_done_and_no_value(hub: RestHub) -> None:
    await put(hub, "api-cert")
    await put(hub, "api-cert", f"{VALUE}-2")
    await hub.call("DELETE", "secrets/api-cert")

    entries = await hub.audit()

    assert [(each.action, each.kind, each.resource_id, each.detail) for each in entries] == [
        ("delete", "secret", "api-cert", ""),
        ("update", "secret", "api-cert", ""),
        ("create", "secret", "api-cert", ""),
    ]


async def test_a_missing_secret_is_a_problem_until_it_is_stored(hub: RestHub) -> None:
    await put(hub, "api-key")

    before = (await hub.call("POST", "configs/validate", {"content": WITH_TLS})).json
    await put(hub, "api-cert")
    after = (await hub.call("POST", "configs/validate", {"content": WITH_TLS})).json

    missing = [each for each in before["problems"] if each["code"] == "missing-secret"]
    assert [(each["level"], each["severity"]) for each in missing] == [(3, "error")]
    assert "api-cert" in missing[0]["message"]
    assert not before["valid"]
    assert "missing-secret" not in [each["code"] for each in after["problems"]]


async def test_stored_certificates_are_checked_and_not_quoted(hub: RestHub) -> None:
    await put(hub, "api-cert")
    await put(hub, "api-key")

    checked = await hub.call("POST", "configs/validate", {"content": WITH_TLS})

    problems = [each for each in checked.json["problems"] if each["level"] == 3]
    assert [(each["severity"], "damaged" in each["message"]) for each in problems] == [("error", True)] * 2
    assert VALUE.encode() not in checked.body
