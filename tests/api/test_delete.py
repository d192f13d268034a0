"""Deleting: finalization by adapters, families, and force-delete."""

from __future__ import annotations

import pytest

from tests.support.fleet.api_client import THREE_LEVELS, ApiClient
from tests.support.fleet.http_client import Body


@pytest.fixture
async def _deleting(fleet: ApiClient) -> None:
    """Create the cluster c, which requires two adapters, and delete it."""
    await fleet.create("clusters", "c", id="c")
    await fleet.call("DELETE", "clusters/c")


async def three_levels(fleet: ApiClient) -> None:
    """Create a cluster (two adapters), its node pool (one), and its machine (none)."""
    await fleet.create("clusters", "c", id="c")
    await fleet.create("clusters/c/nodepools", "n", id="n")
    await fleet.create("nodepools/n/machines", "m", id="m")


async def exists(fleet: ApiClient, resource_id: str) -> bool:
    return (await fleet.call("GET", f"resources/{resource_id}")).status == 200


async def actions(fleet: ApiClient) -> list[tuple[str, str]]:
    """Return the actions and resources in the audit log, in order."""
    items = (await fleet.get("/api/v1/audit", size=1000))["items"]
    return [(entry["action"], entry["resource_id"]) for entry in reversed(items)]


async def finalize(fleet: ApiClient, path: str, *adapters: str, generation: int = 2) -> None:
    for adapter in adapters:
        reply = await fleet.reports(path, adapter, generation=generation, available="False", finalized=True)
        assert reply.status == 201, reply


def ready(body: Body) -> Body:
    condition: Body = body["status"]["conditions"][0]
    assert condition["type"] == "Ready"
    return condition


# --- Deletion ----------------------------------------------------------------------------------------------------


async def test_a_deleted_resource_stays_with_a_deleted_time(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c", spec={"a": 1})
    await fleet.reports("clusters/c", "dns", "validation")
    await fleet.later(5)

    reply = await fleet.call("DELETE", "clusters/c")

    assert reply.status == 202
    deleted = reply.json
    assert deleted["deleted_time"] == deleted["updated_time"] == "2025-01-01T00:00:05Z"
    assert (deleted["generation"], deleted["spec"], deleted["status"]["phase"]) == (2, {"a": 1}, "NotReady")
    assert (ready(deleted)["status"], ready(deleted)["observed_generation"]) == ("False", 2)
    assert "Finalized=True: [dns, validation]" in ready(deleted)["message"]
    found = await fleet.call("GET", "clusters/c")
    assert (found.content, found.etag) == (reply.content, reply.etag)


async def test_deleting_again_changes_nothing(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c")
    first = await fleet.call("DELETE", "clusters/c")
    await fleet.later(5)

    second = await fleet.call("DELETE", "clusters/c")

    assert (second.status, second.content, second.etag) == (202, first.content, first.etag)
    assert (await actions(fleet)).count(("delete", "c")) == 1


async def test_a_missing_resource_cannot_be_deleted(fleet: ApiClient) -> None:
    (await fleet.call("DELETE", "clusters/missing")).assert_problem(404, code="HYPERFLEET-NTF-001")
    await three_levels(fleet)
    (await fleet.call("DELETE", "clusters/other/nodepools/n")).assert_problem(404)
    (await fleet.call("DELETE", "machines/n")).assert_problem(404)


async def test_without_required_adapters_it_is_removed_at_once(fleet: ApiClient) -> None:
    await fleet.create("manifests", "one", id="one")

    reply = await fleet.call("DELETE", "manifests/one")

    assert (reply.status, reply.json["generation"], "deleted_time" in reply.json) == (202, 2, True)
    (await fleet.call("GET", "manifests/one")).assert_problem(404, code="HYPERFLEET-NTF-001")
    assert (await fleet.get("manifests"))["total"] == 0
    assert (await actions(fleet))[-2:] == [("delete", "one"), ("remove", "one")]


async def test_the_name_of_a_removed_resource_can_be_reused(fleet: ApiClient) -> None:
    await fleet.create("manifests", "one")
    clusters = await fleet.create("clusters", "one")
    manifest = (await fleet.get("manifests"))["items"][0]
    await fleet.call("DELETE", f"manifests/{manifest['id']}")
    await fleet.call("DELETE", f"clusters/{clusters['id']}")

    assert (await fleet.call("POST", "manifests", {"name": "one"})).status == 201
    (await fleet.call("POST", "clusters", {"name": "one"})).assert_problem(409)


@pytest.mark.usefixtures("_deleting")
async def test_a_deleting_resource_cannot_be_patched(fleet: ApiClient) -> None:
    for patch in ({"spec": {"a": 1}}, {}):
        (await fleet.call("PATCH", "clusters/c", patch)).assert_problem(409, code="HYPERFLEET-CNF-001")


@pytest.mark.usefixtures("_deleting")
async def test_a_deleting_parent_accepts_no_child(fleet: ApiClient) -> None:
    (await fleet.call("POST", "clusters/c/nodepools", {"name": "n"})).assert_problem(409)
    (await fleet.call("POST", "nodepools", {"name": "n", "owner_references": {"id": "c"}})).assert_problem(409)


# --- Finalization ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_deleting")
async def test_it_is_removed_when_all_required_adapters_finalized(fleet: ApiClient) -> None:
    await finalize(fleet, "clusters/c", "dns")
    assert await exists(fleet, "c")
    await finalize(fleet, "clusters/c", "validation")

    assert not await exists(fleet, "c")
    (await fleet.call("GET", "clusters/c/statuses")).assert_problem(404)
    assert (await actions(fleet))[-2:] == [("report", "c"), ("remove", "c")]


async def test_only_reports_at_the_deletion_generation_finalize(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c")
    await finalize(fleet, "clusters/c", "dns", "validation", generation=1)
    assert await exists(fleet, "c")
    await fleet.call("DELETE", "clusters/c")
    assert await exists(fleet, "c")

    await finalize(fleet, "clusters/c", "dns")
    assert await exists(fleet, "c")
    await finalize(fleet, "clusters/c", "validation")

    assert not await exists(fleet, "c")


async def test_finalized_has_no_effect_on_a_live_resource(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c")

    await finalize(fleet, "clusters/c", "dns", "validation", generation=1)

    assert await exists(fleet, "c")


@pytest.mark.usefixtures("_deleting")
async def test_an_adapter_that_is_not_required_is_ignored(fleet: ApiClient) -> None:
    await finalize(fleet, "clusters/c", "other")
    assert await exists(fleet, "c")
    await finalize(fleet, "clusters/c", "dns", "validation")

    assert not await exists(fleet, "c")


@pytest.mark.usefixtures("_deleting")
async def test_available_alone_does_not_finalize(fleet: ApiClient) -> None:
    await fleet.reports("clusters/c", "dns", "validation", generation=2)

    assert ready(await fleet.get("clusters/c"))["status"] == "False"


# --- Families ----------------------------------------------------------------------------------------------------


async def test_children_are_deleted_with_their_parent(fleet: ApiClient) -> None:
    await three_levels(fleet)

    await fleet.call("DELETE", "clusters/c")

    assert not await exists(fleet, "m")  # requires no adapter
    pool = await fleet.get("nodepools/n")
    assert (pool["generation"], "deleted_time" in pool) == (2, True)
    assert (await actions(fleet))[-4:] == [("delete", "m"), ("remove", "m"), ("delete", "n"), ("delete", "c")]


async def test_a_parent_stays_until_its_last_child_is_removed(fleet: ApiClient) -> None:
    await three_levels(fleet)
    await fleet.create("clusters/c/nodepools", "n2", id="n2")
    await fleet.call("DELETE", "clusters/c")
    await finalize(fleet, "clusters/c", "dns", "validation")

    waiting = ready(await fleet.get("clusters/c"))
    assert (waiting["status"], waiting["reason"]) == ("False", "ReconciledWaitingForChildren")
    await finalize(fleet, "nodepools/n", "validation")
    assert await exists(fleet, "c")
    await finalize(fleet, "clusters/c/nodepools/n2", "validation")

    assert not await exists(fleet, "n2")
    assert not await exists(fleet, "c")
    assert (await actions(fleet))[-3:] == [("report", "n2"), ("remove", "n2"), ("remove", "c")]


async def test_a_grandchild_keeps_its_grandparent() -> None:
    async with ApiClient(kinds=THREE_LEVELS) as fleet:
        await three_levels(fleet)
        await fleet.call("DELETE", "clusters/c")
        assert [await exists(fleet, each) for each in "cnm"] == [True, True, True]

        await finalize(fleet, "machines/m", "validation")

        assert [await exists(fleet, each) for each in "cnm"] == [False, False, False]
        removed = [each for action, each in await actions(fleet) if action == "remove"]
        assert removed == ["m", "n", "c"]


async def test_a_child_deleted_before_its_parent_is_deleted_once(fleet: ApiClient) -> None:
    await three_levels(fleet)
    await fleet.call("DELETE", "nodepools/n")
    await fleet.call("DELETE", "clusters/c")

    assert (await fleet.get("nodepools/n"))["generation"] == 2
    await finalize(fleet, "clusters/c", "dns", "validation")
    await finalize(fleet, "nodepools/n", "validation")
    assert not await exists(fleet, "c")


async def test_removing_a_child_does_not_change_a_live_parent(fleet: ApiClient) -> None:
    await three_levels(fleet)
    before = await fleet.call("GET", "nodepools/n")

    await fleet.call("DELETE", "nodepools/n/machines/m")

    after = await fleet.call("GET", "nodepools/n")
    assert (after.content, after.etag) == (before.content, before.etag)


# --- Force-delete ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_deleting")
async def test_force_removes_a_deleting_resource(fleet: ApiClient) -> None:
    reply = await fleet.call("POST", "clusters/c/force-delete", {"reason": "the zone is gone"})

    assert (reply.status, reply.content) == (204, b"")
    assert not await exists(fleet, "c")
    entry = (await fleet.get("/api/v1/audit", action="force-delete"))["items"][0]
    assert (entry["resource_id"], entry["detail"]) == ("c", "the zone is gone")


async def test_force_removes_children_before_their_parent(fleet: ApiClient) -> None:
    await three_levels(fleet)
    await fleet.call("DELETE", "clusters/c")

    await fleet.call("POST", "clusters/c/force-delete", {"reason": "r"})

    assert [await exists(fleet, each) for each in "cnm"] == [False, False, False]
    assert (await actions(fleet))[-2:] == [("force-delete", "n"), ("force-delete", "c")]


async def test_force_on_the_last_child_removes_its_deleting_parent(fleet: ApiClient) -> None:
    await three_levels(fleet)
    await fleet.call("DELETE", "clusters/c")
    await finalize(fleet, "clusters/c", "dns", "validation")

    reply = await fleet.call("POST", "clusters/c/nodepools/n/force-delete", {"reason": "r"})

    assert reply.status == 204
    assert not await exists(fleet, "c")


async def test_force_on_a_live_resource_is_rejected(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c")

    (await fleet.call("POST", "clusters/c/force-delete", {"reason": "r"})).assert_problem(409)
    (await fleet.call("POST", "clusters/missing/force-delete", {"reason": "r"})).assert_problem(404)
    assert await exists(fleet, "c")


@pytest.mark.usefixtures("_deleting")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "reason"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 1025}, "reason"),
        ({"reason": 1}, "reason"),
        ({"reason": "r", "force": True}, "force"),
    ],
)
async def test_force_needs_a_reason(fleet: ApiClient, body: Body, field: str) -> None:
    (await fleet.call("POST", "clusters/c/force-delete", body)).assert_problem(400, field)
    assert await exists(fleet, "c")


async def test_a_blank_reason_is_rejected(fleet: ApiClient) -> None:
    made = await fleet.create()
    await fleet.call("DELETE", f"clusters/{made['id']}")

    reply = await fleet.call("POST", f"clusters/{made['id']}/force-delete", {"reason": "  "})

    reply.assert_problem(400, "reason")
