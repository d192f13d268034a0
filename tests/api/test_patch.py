"""Merge patches, and when they raise the generation."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import ROOT, Body

SPEC: Body = {"replicas": 3, "network": {"cidr": "10.0.0.0/8", "zones": ["a", "b"]}, "ratio": 1}


@pytest.fixture
async def _one(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="one")


async def patched(fleet: ApiClient, patch: object, **created: object) -> tuple[Body, Body]:
    """Return a cluster before and after a patch."""
    before = await fleet.create("clusters", "one", id="one", **({"spec": SPEC} | created))
    await fleet.later(5)
    reply = await fleet.call("PATCH", "clusters/one", patch)
    assert reply.status == 200, reply
    assert reply.json == await fleet.get("clusters/one")
    return before, reply.json


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"replicas": 4}, {**SPEC, "replicas": 4}),
        ({"added": {"deep": [1]}}, {**SPEC, "added": {"deep": [1]}}),
        ({"replicas": None}, {key: value for key, value in SPEC.items() if key != "replicas"}),
        ({"network": {"cidr": None}}, {**SPEC, "network": {"zones": ["a", "b"]}}),
        ({"network": {"zones": ["c"]}}, {**SPEC, "network": {"cidr": "10.0.0.0/8", "zones": ["c"]}}),
        ({"network": "flat"}, {**SPEC, "network": "flat"}),
        ({"replicas": {"a": None, "b": 1}}, {**SPEC, "replicas": {"b": 1}}),
    ],
)
async def test_a_spec_is_patched_by_the_rules_of_merge_patch(
    fleet: ApiClient, patch: Body, expected: Body
) -> None:
    before, after = await patched(fleet, {"spec": patch})

    assert after["spec"] == expected
    assert (before["generation"], after["generation"]) == (1, 2)


async def test_a_spec_change_raises_generation_and_update_time(fleet: ApiClient) -> None:
    before, after = await patched(fleet, {"spec": {"replicas": 4}})

    assert after["generation"] == before["generation"] + 1
    assert (after["created_time"], after["updated_time"]) == (before["created_time"], "2025-01-01T00:00:05Z")
    assert after["labels"] == before["labels"]


async def test_a_change_of_labels_raises_the_generation_too(fleet: ApiClient) -> None:
    _, after = await patched(fleet, {"labels": {"b": "2"}}, labels={"a": "1"})

    assert (after["labels"], after["metadata"]["labels"]) == ({"a": "1", "b": "2"}, {"a": "1", "b": "2"})
    assert after["generation"] == 2


async def test_changing_spec_and_labels_is_one_generation(fleet: ApiClient) -> None:
    _, after = await patched(fleet, {"spec": {"replicas": 9}, "labels": {"b": "2"}})

    assert after["generation"] == 2


async def test_a_null_removes_a_label(fleet: ApiClient) -> None:
    _, after = await patched(fleet, {"labels": {"a": None, "never": None}}, labels={"a": "1", "b": "2"})

    assert (after["labels"], after["generation"]) == ({"b": "2"}, 2)


async def test_null_for_all_labels_removes_them_all(fleet: ApiClient) -> None:
    _, after = await patched(fleet, {"labels": None}, labels={"a": "1", "b": "2"})

    assert (after["labels"], after["metadata"]["labels"], after["generation"]) == ({}, {}, 2)


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"spec": {}},
        {"spec": {"replicas": 3}},
        {"spec": {"ratio": 1.0}},
        {"spec": {"network": {"zones": ["a", "b"], "cidr": "10.0.0.0/8"}}},
        {"spec": {"missing": None}},
        {"labels": {}},
        {"labels": {"a": "1"}},
        {"labels": {"missing": None}},
        {"id": "one", "kind": "Cluster", "name": "one"},
    ],
)
async def test_a_patch_that_changes_nothing_is_not_recorded(fleet: ApiClient, patch: Body) -> None:
    await fleet.create("clusters", "one", id="one", spec=SPEC, labels={"a": "1"})
    before = await fleet.call("GET", "clusters/one")
    await fleet.later(5)

    reply = await fleet.call("PATCH", "clusters/one", patch)

    assert (reply.status, reply.content, reply.etag) == (200, before.content, before.etag)
    assert [entry["action"] for entry in (await fleet.get("/api/v1/audit"))["items"]] == ["create"]
    assert (await fleet.get("clusters/one/history"))["total"] == 1


async def test_the_order_of_keys_is_not_a_change(fleet: ApiClient) -> None:
    await fleet.send(
        "POST",
        f"{ROOT}/clusters",
        b'{"name":"one","id":"one","spec":{"b":{"d":1,"c":2},"a":3}}',
        headers={"content-type": "application/json"},
    )

    reply = await fleet.send(
        "PATCH",
        f"{ROOT}/clusters/one",
        b'{"spec":{"a":3.0,"b":{"c":2,"d":1}}}',
        headers={"content-type": "application/merge-patch+json"},
    )

    assert reply.json["generation"] == 1


async def test_a_change_of_type_is_a_change(fleet: ApiClient) -> None:
    _, after = await patched(fleet, {"spec": {"ratio": "1"}})

    assert (after["spec"]["ratio"], after["generation"]) == ("1", 2)


@pytest.mark.usefixtures("_one")
async def test_a_change_clears_ready_and_keeps_available(fleet: ApiClient) -> None:
    await fleet.reports("clusters/one", "dns", "validation")
    assert (await fleet.get("clusters/one"))["status"]["phase"] == "Ready"

    reply = await fleet.call("PATCH", "clusters/one", {"spec": {"replicas": 4}})

    ready, available, *_ = reply.json["status"]["conditions"]
    assert reply.json["status"]["phase"] == "NotReady"
    assert (ready["status"], ready["observed_generation"]) == ("False", 2)
    assert (available["status"], available["observed_generation"]) == ("True", 1)


@pytest.mark.usefixtures("_one")
@pytest.mark.parametrize(("member", "value"), [("id", "two"), ("kind", "NodePool"), ("name", "two")])
async def test_changing_an_immutable_field_is_rejected(fleet: ApiClient, member: str, value: str) -> None:
    (await fleet.call("PATCH", "clusters/one", {member: value, "spec": {"a": 1}})).assert_problem(400, member)
    assert (await fleet.get("clusters/one"))["generation"] == 1


@pytest.mark.usefixtures("_one")
@pytest.mark.parametrize(
    "member", ["generation", "status", "href", "metadata", "created_time", "deleted_time", "paused", "Spec"]
)
async def test_server_fields_in_a_patch_are_rejected(fleet: ApiClient, member: str) -> None:
    (await fleet.call("PATCH", "clusters/one", {member: {}})).assert_problem(400, member)


@pytest.mark.usefixtures("_one")
@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"spec": None}, "spec"),
        ({"spec": [1]}, "spec"),
        ({"spec": "x"}, "spec"),
        ({"labels": []}, "labels"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": {"a": "not fine"}}, "labels.a"),
        ({"name": None}, "name"),
        ([], ""),
        ("x", ""),
        (1, ""),
    ],
)
async def test_a_patch_of_the_wrong_type_is_rejected(fleet: ApiClient, patch: object, field: str) -> None:
    (await fleet.call("PATCH", "clusters/one", patch)).assert_problem(400, field)


async def test_labels_are_limited_after_the_patch(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="one", labels={f"k{number}": "v" for number in range(64)})

    (await fleet.call("PATCH", "clusters/one", {"labels": {"more": "v"}})).assert_problem(400, "labels")
    swapped = await fleet.call("PATCH", "clusters/one", {"labels": {"more": "v", "k0": None}})
    assert (swapped.status, len(swapped.json["labels"])) == (200, 64)


async def test_the_size_of_a_spec_is_limited_after_the_patch(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="one", spec={"a": "x" * 300_000})

    (await fleet.call("PATCH", "clusters/one", {"spec": {"b": "x" * 300_000}})).assert_problem(400, "spec")


@pytest.mark.usefixtures("_one")
@pytest.mark.parametrize("content_type", ["application/merge-patch+json", "application/json; charset=utf-8"])
async def test_a_patch_may_be_merge_patch_or_json(fleet: ApiClient, content_type: str) -> None:
    reply = await fleet.call("PATCH", "clusters/one", {"spec": {"a": 1}}, headers={"Content-Type": content_type})

    assert reply.status == 200


@pytest.mark.usefixtures("_one")
@pytest.mark.parametrize("content_type", ["application/json-patch+json", "text/plain", ""])
async def test_other_patch_formats_are_rejected(fleet: ApiClient, content_type: str) -> None:
    reply = await fleet.call("PATCH", "clusters/one", {"spec": {"a": 1}}, headers={"Content-Type": content_type})

    reply.assert_problem(415)


@pytest.mark.usefixtures("_one")
async def test_a_child_is_patched_by_its_nested_path(fleet: ApiClient) -> None:
    await fleet.create("clusters/one/nodepools", "pool", id="pool")

    reply = await fleet.call("PATCH", "clusters/one/nodepools/pool", {"spec": {"a": 1}})

    assert reply.json["generation"] == 2
    (await fleet.call("PATCH", "clusters/other/nodepools/pool", {"spec": {"a": 2}})).assert_problem(404)


async def test_a_missing_resource_cannot_be_patched(fleet: ApiClient) -> None:
    (await fleet.call("PATCH", "clusters/missing", {"spec": {}})).assert_problem(404, code="HYPERFLEET-NTF-001")


@pytest.mark.usefixtures("_one")
async def test_concurrent_patches_raise_the_generation_once_each(fleet: ApiClient) -> None:
    replies = await asyncio.gather(
        *(fleet.call("PATCH", "clusters/one", {"spec": {f"k{number}": number}}) for number in range(50))
    )

    assert sorted(reply.json["generation"] for reply in replies) == list(range(2, 52))
    assert (await fleet.get("clusters/one"))["spec"] == {f"k{number}": number for number in range(50)}


async def test_times_never_decrease_when_the_clock_is_set_back(fleet: ApiClient) -> None:
    # Another server, whose clock is an hour ahead, has written before.
    async with ApiClient(backend=fleet.backend) as ahead:
        await ahead.later(3600)
        await ahead.create("clusters", "one", id="one")
    await fleet.backend.database.open()

    reply = await fleet.call("PATCH", "clusters/one", {"spec": {"a": 1}})

    assert reply.json["updated_time"] == reply.json["created_time"] == "2025-01-01T01:00:00Z"


async def test_past_generations_can_be_read_newest_first(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="one", spec={"a": 1}, labels={"l": "v"})
    await fleet.later(1)
    await fleet.call("PATCH", "clusters/one", {"spec": {"a": 2}})
    await fleet.later(1)
    await fleet.call("DELETE", "clusters/one")

    page = await fleet.get("clusters/one/history")

    assert (page["page"], page["size"], page["total"]) == (1, 3, 3)
    assert [(each["generation"], each["change"], each["spec"]) for each in page["items"]] == [
        (3, "delete", {"a": 2}),
        (2, "patch", {"a": 2}),
        (1, "create", {"a": 1}),
    ]
    assert {(each["actor"], each["labels"]["l"]) for each in page["items"]} == {("anonymous", "v")}
    second = await fleet.get("clusters/one/history", page=2, size=2)
    assert [each["generation"] for each in second["items"]] == [1]


async def test_history_outlives_its_resource(fleet: ApiClient) -> None:
    await fleet.create("manifests", "one", id="one")
    await fleet.create("manifests", "two", id="two")
    await fleet.call("DELETE", "manifests/one")

    assert (await fleet.get("manifests/one/history"))["total"] == 2
    (await fleet.call("GET", "manifests/never/history")).assert_problem(404)
    (await fleet.call("GET", "clusters/two/history")).assert_problem(404)
