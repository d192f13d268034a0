"""What a resource waits for, and which kinds are served."""

from __future__ import annotations

import pytest

from tests.support.fleet.api_client import ApiClient


@pytest.mark.parametrize("path", ["clusters/one/waiting", "resources/one/waiting"])
async def test_waiting_names_the_adapters_and_their_start_times(fleet: ApiClient, path: str) -> None:
    created = (await fleet.create(id="one"))["created_time"]
    await fleet.later(5)
    await fleet.reports("clusters/one", "validation")

    body = await fleet.get(path)

    assert body == {
        "waiting_for": [{"adapter": "dns", "since": created}],
        "required_adapters": ["validation", "dns"],
        "children": 0,
    }


async def test_a_ready_resource_waits_for_nothing(fleet: ApiClient) -> None:
    await fleet.create(id="one")
    await fleet.reports("clusters/one", "validation", "dns")

    assert (await fleet.get("resources/one/waiting"))["waiting_for"] == []


async def test_a_deletion_waits_for_finalizers_and_direct_children(fleet: ApiClient) -> None:
    await fleet.create(id="one")
    for number in range(2):
        await fleet.create("nodepools", f"pool-{number}", id=f"pool-{number}", owner_references={"id": "one"})
    await fleet.create("machines", "machine", owner_references={"id": "pool-0"})
    await fleet.later(5)
    deleted = (await fleet.call("DELETE", "clusters/one")).json["deleted_time"]
    await fleet.reports("clusters/one", "dns", generation=2, finalized=True)

    body = await fleet.get("clusters/one/waiting")

    assert body["waiting_for"] == [{"adapter": "validation", "since": deleted}]
    assert body["children"] == 2


async def test_a_resource_of_another_kind_is_not_found(fleet: ApiClient) -> None:
    await fleet.create(id="one")

    (await fleet.call("GET", "manifests/one/waiting")).assert_problem(404, code="HYPERFLEET-NTF-001")
    (await fleet.call("GET", "resources/two/waiting")).assert_problem(404, code="HYPERFLEET-NTF-001")


async def test_the_kinds_are_listed_in_file_order(fleet: ApiClient) -> None:
    body = await fleet.get("kinds")

    assert [(kind["plural"], kind["kind"], kind["parent"]) for kind in body["items"]] == [
        ("clusters", "Cluster", ""),
        ("nodepools", "NodePool", "clusters"),
        ("machines", "Machine", "nodepools"),
        ("manifests", "Manifest", ""),
    ]
    assert body["items"][0]["required_adapters"] == ["validation", "dns"]
