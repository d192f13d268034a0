"""Creating resources, and reading them back."""

from __future__ import annotations

import re

import pytest

from sentinel.api.kinds import DEFAULT
from sentinel.api.service import MAX_CHILDREN
from sentinel.core.access import Identity, Role
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import ROOT, Body

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


async def family(fleet: ApiClient) -> tuple[Body, Body]:
    cluster = await fleet.create("clusters", "east")
    return cluster, await fleet.create(f"clusters/{cluster['id']}/nodepools", "workers")


async def test_the_response_has_the_whole_new_resource(fleet: ApiClient) -> None:
    reply = await fleet.call(
        "POST", "clusters", {"name": "east", "labels": {"region": "us-east"}, "spec": {"replicas": 3}}
    )

    assert reply.status == 201
    created = reply.json
    now = "2025-01-01T00:00:00Z"
    assert UUID7.fullmatch(created["id"])
    assert created["href"] == f"{ROOT}/clusters/{created['id']}"
    status = created.pop("status")
    assert created == {
        "id": created["id"],
        "kind": "Cluster",
        "href": created["href"],
        "name": "east",
        "labels": {"region": "us-east"},
        "spec": {"replicas": 3},
        "generation": 1,
        "created_time": now,
        "updated_time": now,
        "created_by": "anonymous",
        "updated_by": "anonymous",
        "metadata": {"name": "east", "labels": {"region": "us-east"}},
    }
    assert (status["phase"], status["observed_generation"]) == ("NotReady", 0)
    assert (status["last_updated_time"], status["last_transition_time"]) == (now, now)
    assert [condition["type"] for condition in status["conditions"]] == ["Ready", "Available"]


async def test_a_new_resource_has_conditions(fleet: ApiClient) -> None:
    created = await fleet.create("clusters", "east")

    for condition in created["status"]["conditions"]:
        assert set(condition) == {
            "type",
            "status",
            "observed_generation",
            "created_time",
            "last_updated_time",
            "last_transition_time",
            "reason",
            "message",
        }
        assert (condition["status"], condition["observed_generation"]) == ("False", 1)
        assert condition["created_time"] == condition["last_updated_time"] == created["created_time"]


async def test_a_new_resource_has_a_location(fleet: ApiClient) -> None:
    reply = await fleet.call("POST", "clusters", {"name": "east"})

    assert reply.headers["location"] == reply.json["href"]
    found = await fleet.call("GET", reply.headers["location"])
    assert (found.status, found.content, found.etag) == (200, reply.content, reply.etag)


async def test_a_name_alone_is_enough(fleet: ApiClient) -> None:
    created = await fleet.create("manifests", "plain")

    assert (created["spec"], created["labels"]) == ({}, {})


async def test_an_id_can_be_given(fleet: ApiClient) -> None:
    created = await fleet.create("clusters", "east", id="cls-1.a_b~c")

    assert created["id"] == "cls-1.a_b~c"
    assert (await fleet.get("clusters/cls-1.a_b~c"))["name"] == "east"


@pytest.mark.parametrize("given", ["", ".", "..", "a/b", "a b", "ä", "a%2Fb", "x" * 129, "a\n"])
async def test_an_id_that_is_not_a_safe_segment_is_rejected(fleet: ApiClient, given: str) -> None:
    reply = await fleet.call("POST", "clusters", {"name": "east", "id": given})

    reply.assert_problem(400, "id")


async def test_ids_are_unique_across_all_kinds(fleet: ApiClient) -> None:
    await fleet.create("clusters", "east", id="one")

    reply = await fleet.call("POST", "manifests", {"name": "other", "id": "one"})

    reply.assert_problem(409, code="HYPERFLEET-CNF-001")


async def test_a_name_is_unique_within_a_kind(fleet: ApiClient) -> None:
    await fleet.create("clusters", "east")

    reply = await fleet.call("POST", "clusters", {"name": "east"})

    assert '"east"' in reply.assert_problem(409, code="HYPERFLEET-CNF-001")["detail"]


async def test_another_kind_or_parent_may_use_the_same_name(fleet: ApiClient) -> None:
    first, second = await fleet.create("clusters", "a"), await fleet.create("clusters", "b")
    await fleet.create(f"clusters/{first['id']}/nodepools", "a")

    assert (await fleet.call("POST", "manifests", {"name": "a"})).status == 201
    assert (await fleet.call("POST", f"clusters/{second['id']}/nodepools", {"name": "a"})).status == 201
    (await fleet.call("POST", f"clusters/{first['id']}/nodepools", {"name": "a"})).assert_problem(409)


async def test_a_rejected_creation_stores_nothing(fleet: ApiClient) -> None:
    await fleet.create("clusters", "east")
    await fleet.call("POST", "clusters", {"name": "east", "id": "second"})

    (await fleet.call("GET", "resources/second")).assert_problem(404)
    assert (await fleet.get("clusters"))["total"] == 1
    assert len((await fleet.get("/api/v1/audit"))["items"]) == 1


async def test_the_kind_is_optional_and_must_match_the_path(fleet: ApiClient) -> None:
    assert (await fleet.call("POST", "clusters", {"name": "a", "kind": "Cluster"})).status == 201
    (await fleet.call("POST", "clusters", {"name": "b", "kind": "NodePool"})).assert_problem(400, "kind")
    (await fleet.call("POST", "clusters", {"name": "b", "kind": "cluster"})).assert_problem(400, "kind")


async def test_a_child_created_below_its_parent_refers_to_it(fleet: ApiClient) -> None:
    cluster, pool = await family(fleet)

    owner = {"id": cluster["id"], "kind": "Cluster", "href": cluster["href"]}
    assert (pool["owner_references"], pool["ownerResource"]) == (owner, owner)
    assert pool["href"] == f"{cluster['href']}/nodepools/{pool['id']}"


async def test_a_child_is_found_flat_nested_and_among_all_resources(fleet: ApiClient) -> None:
    cluster, pool = await family(fleet)

    for path in (
        f"nodepools/{pool['id']}",
        f"clusters/{cluster['id']}/nodepools/{pool['id']}",
        f"resources/{pool['id']}",
    ):
        assert await fleet.get(path) == pool


async def test_a_child_can_be_created_flat_with_an_owner_reference(fleet: ApiClient) -> None:
    cluster = await fleet.create("clusters", "east")

    pool = await fleet.create("nodepools", "workers", owner_references={"id": cluster["id"]})

    assert pool["owner_references"] == {"id": cluster["id"], "kind": "Cluster", "href": cluster["href"]}
    assert (await fleet.get(f"clusters/{cluster['id']}/nodepools"))["items"] == [pool]


async def test_a_flat_child_without_an_owner_is_rejected(fleet: ApiClient) -> None:
    reply = await fleet.call("POST", "nodepools", {"name": "workers"})

    reply.assert_problem(400, "owner_references.id")


@pytest.mark.parametrize("owner", ["missing", "man", ".."])
async def test_a_flat_child_of_a_wrong_owner_is_rejected(fleet: ApiClient, owner: str) -> None:
    await fleet.create("manifests", "m", id="man")

    reply = await fleet.call("POST", "nodepools", {"name": "workers", "owner_references": {"id": owner}})

    reply.assert_problem(400, "owner_references.id")


async def test_a_child_below_a_missing_parent_is_not_found(fleet: ApiClient) -> None:
    reply = await fleet.call("POST", "clusters/missing/nodepools", {"name": "workers"})

    reply.assert_problem(404, code="HYPERFLEET-NTF-001")


async def test_an_owner_reference_must_agree_with_the_path(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a", id="a")
    await fleet.create("clusters", "b", id="b")

    reply = await fleet.call("POST", "clusters/a/nodepools", {"name": "x", "owner_references": {"id": "b"}})

    reply.assert_problem(400, "owner_references.id")
    assert await fleet.create("clusters/a/nodepools", "y", owner_references={"id": "a"})


@pytest.mark.parametrize(("member", "wrong"), [("kind", "Manifest"), ("href", "/elsewhere")])
async def test_an_owner_reference_must_describe_the_owner_correctly(
    fleet: ApiClient, member: str, wrong: str
) -> None:
    cluster = await fleet.create("clusters", "a", id="a")
    right = {"id": "a", "kind": "Cluster", "href": cluster["href"]}

    reply = await fleet.call("POST", "nodepools", {"name": "x", "owner_references": {**right, member: wrong}})

    reply.assert_problem(400, f"owner_references.{member}")
    assert await fleet.create("nodepools", "x", owner_references=right)


async def test_a_kind_without_a_parent_accepts_no_owner(fleet: ApiClient) -> None:
    reply = await fleet.call("POST", "clusters", {"name": "x", "owner_references": {"id": "y"}})

    reply.assert_problem(400, "owner_references")


async def test_a_resource_is_not_found_under_another_kind_or_parent(fleet: ApiClient) -> None:
    cluster, pool = await family(fleet)
    other = await fleet.create("clusters", "other")

    for path in (
        f"manifests/{cluster['id']}",
        f"nodepools/{cluster['id']}",
        f"clusters/{other['id']}/nodepools/{pool['id']}",
        f"clusters/{pool['id']}",
        f"clusters/{other['id']}/nodepools/{pool['id']}/statuses",
    ):
        (await fleet.call("GET", path)).assert_problem(404, code="HYPERFLEET-NTF-001")


async def test_an_unknown_path_differs_from_a_missing_resource(fleet: ApiClient) -> None:
    (await fleet.call("GET", "clusters/gone")).assert_problem(404, code="HYPERFLEET-NTF-001")
    (await fleet.call("GET", "clusterz/gone")).assert_problem(404, code="HYPERFLEET-NTF-000")
    (await fleet.call("GET", "resources")).assert_problem(404, code="HYPERFLEET-NTF-000")


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "a\tb", "a\nb", "\u200b", "x" * 256])
async def test_a_name_must_be_printable(fleet: ApiClient, name: str) -> None:
    (await fleet.call("POST", "clusters", {"name": name})).assert_problem(400, "name")


async def test_a_name_may_be_as_long_as_the_limit(fleet: ApiClient) -> None:
    assert len((await fleet.create("clusters", "x" * 255))["name"]) == 255


async def test_all_errors_are_reported_at_once(fleet: ApiClient) -> None:
    reply = await fleet.call(
        "POST", "clusters", {"name": " a", "kind": "Nope", "labels": {"-": "x", "ok": "v"}, "spec": {}}
    )

    reply.assert_problem(400, "name", "labels.-", "kind")


async def test_labels_are_limited_in_number_and_length(fleet: ApiClient) -> None:
    most = {f"k{number}": "v" for number in range(64)}

    assert (await fleet.call("POST", "clusters", {"name": "a", "labels": most})).status == 201
    (await fleet.call("POST", "clusters", {"name": "b", "labels": {**most, "one-more": "v"}})).assert_problem(
        400, "labels"
    )
    (await fleet.call("POST", "clusters", {"name": "b", "labels": {"k": "v" * 64}})).assert_problem(
        400, "labels.k"
    )
    (await fleet.call("POST", "clusters", {"name": "b", "labels": {"k" * 64: "v"}})).assert_problem(
        400, "labels." + "k" * 64
    )


async def test_a_label_must_be_text(fleet: ApiClient) -> None:
    (await fleet.call("POST", "clusters", {"name": "b", "labels": {"fine": "v", "k": 1}})).assert_problem(
        400, "labels.k"
    )


async def test_the_size_of_a_spec_is_limited(fleet: ApiClient) -> None:
    largest = 512 * 1024 - len('{"text":""}')

    assert (await fleet.call("POST", "clusters", {"name": "a", "spec": {"text": "x" * largest}})).status == 201
    reply = await fleet.call("POST", "clusters", {"name": "b", "spec": {"text": "x" * (largest + 1)}})
    reply.assert_problem(400, "spec")


async def test_the_creator_of_a_resource_is_stored() -> None:
    async with ApiClient(identities=[Identity("ops", Role.OPERATOR), Identity("eve", Role.ADMIN)]) as fleet:
        created = (await fleet.call("POST", "clusters", {"name": "a"}, token="ops")).json
        patched = (await fleet.call("PATCH", f"clusters/{created['id']}", {"spec": {"a": 1}}, token="eve")).json

    assert (created["created_by"], created["updated_by"]) == ("ops", "ops")
    assert (patched["created_by"], patched["updated_by"]) == ("ops", "eve")


async def test_the_default_kinds_are_served_without_a_kinds_file() -> None:
    async with ApiClient(kinds=DEFAULT) as fleet:
        cluster = await fleet.create("clusters", "a")
        for plural in ("manifests", "workloads", f"clusters/{cluster['id']}/nodepools"):
            created = await fleet.create(plural, "a")
            assert created["status"]["phase"] == "NotReady"
            assert created["status"]["observed_generation"] == 0


async def test_the_number_of_children_is_limited(fleet: ApiClient) -> None:
    parent = (await fleet.create())["id"]
    for number in range(MAX_CHILDREN):
        assert (await fleet.call("POST", f"clusters/{parent}/nodepools", {"name": f"n{number}"})).status == 201

    reply = await fleet.call("POST", f"clusters/{parent}/nodepools", {"name": "one more"})

    reply.assert_problem(409)
