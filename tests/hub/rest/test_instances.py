"""Instances over REST: reading, assigning, draining, removing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName, content_hash
from sentinel.ports.hub_store import HubEventType, ReportedStatus
from tests.hub.rest.rest_hub import VALID, RestHub
from tests.support.fleet.store_records import MOMENT, SECOND
from tests.support.hub.store_records import full_instance, heartbeats, instance, sample


def text_of(time: Any) -> str:
    return str(time.isoformat()).replace("+00:00", "Z")


async def test_an_instance_has_every_field(hub: RestHub) -> None:
    record = full_instance("edge-1")
    await hub.add(record)

    response = await hub.call("GET", "instances/edge-1")

    assert response.json == {
        "id": "edge-1",
        "name": "Edge 1 \N{SNOWMAN}",
        "hostname": "edge-1.example",
        "labels": {"zone": "a", "tier": ""},
        "capabilities": ["reload", "drain"],
        "state": "draining",
        "message": record.life.message,
        "agent_version": "1.2.3",
        "sentinel_version": "0.6.20",
        "registered_time": text_of(record.life.registered),
        "last_seen_time": text_of(record.life.last_seen),
        "uptime_seconds": 2**40,
        "active_connections": 12,
        "current": {"version": "api@7", "hash": "cd" * 32},
        "assigned": "api@8",
        "in_sync": False,
        "deployment_id": "dep-1",
        "metrics": {
            "requests_total": 2**62,
            "requests_failed": 0,
            "latency_p50_ms": 0.1,
            "latency_p99_ms": 1e300,
            "bytes_sent": 0,
            "bytes_received": 0,
        },
    }


async def test_a_new_instance_has_nulls(hub: RestHub) -> None:
    await hub.add(instance("edge-1"))

    found = (await hub.call("GET", "instances/edge-1")).json

    assert (found["current"], found["assigned"], found["deployment_id"], found["metrics"]) == (None,) * 4
    assert found["in_sync"] is True


async def test_instances_are_listed_by_state_and_labels(hub: RestHub) -> None:
    await hub.add(
        instance("a", labels={"zone": "1"}),
        instance("b", State.OFFLINE, labels={"zone": "2"}),
        instance("c", State.REMOVED, labels={"zone": "1"}),
        instance("d", labels={"zone": "2"}),
    )

    async def ids(query: str) -> list[str]:
        found = (await hub.call("GET", "instances", query=query)).json
        assert found["total"] == len(found["items"]) == found["size"]
        return [each["id"] for each in found["items"]]

    assert await ids("") == ["a", "b", "d"]
    assert await ids("state=removed") == ["c"]
    assert await ids("state=online") == ["a", "d"]
    assert await ids("labels=zone%3D2") == ["b", "d"]
    assert await ids("labels=zone%3D2&state=online") == ["d"]


async def test_a_list_of_instances_has_pages(hub: RestHub) -> None:
    await hub.add(*(instance(name, labels={"even": str(int(name) % 2 == 0)}) for name in "12345"))
    query = "labels=even%3DFalse&size=2"

    first = (await hub.call("GET", "instances", query=query)).json
    second = (await hub.call("GET", "instances", query=f"{query}&after={first['next']}")).json
    foreign = await hub.call("GET", "instances", query=f"size=2&after={first['next']}")

    assert [each["id"] for each in first["items"] + second["items"]] == ["1", "3", "5"]
    assert (first["total"], second["next"], foreign.status) == (3, None, 400)


@pytest.mark.parametrize("query", ["state=on", "labels=%3D", "size=0", "since=now"])
async def test_a_bad_query_is_a_400(hub: RestHub, query: str) -> None:
    await hub.add(instance("edge-1"))
    path = "instances/edge-1/metrics" if query.startswith("since") else "instances"

    response = await hub.call("GET", path, query=query)

    assert (response.status, response.json["errors"][0]["field"]) == (400, query.partition("=")[0])


async def test_metrics_are_read_since_a_time(hub: RestHub) -> None:
    await hub.add(instance("edge-1"))
    record = await hub.store.instance("edge-1")
    assert record is not None
    samples = [sample(seconds, requests_total=seconds) for seconds in (1, 2, 3)]
    await hub.store.flush([heartbeats(record, 3, samples=samples)])

    whole = (await hub.call("GET", "instances/edge-1/metrics")).json
    later = (await hub.call("GET", "instances/edge-1/metrics", query=f"since={text_of(samples[0].time)}")).json

    assert [each["requests_total"] for each in whole["items"]] == [1, 2, 3]
    assert [each["time"] for each in later["items"]] == [text_of(each.time) for each in samples[1:]]
    assert (await hub.call("GET", "instances/x/metrics")).status == 404


async def test_what_an_agent_told_this_process_is_read_at_once(hub: RestHub) -> None:
    await hub.add(instance("edge-1"))
    known = await hub.registry.find("edge-1")
    assert known is not None
    life = msgspec.structs.replace(known.life, last_seen=MOMENT + SECOND, message="warming up")
    known.record = msgspec.structs.replace(known.record, life=life, status=ReportedStatus(uptime_seconds=7))

    found = (await hub.call("GET", "instances/edge-1")).json
    listed = (await hub.call("GET", "instances")).json["items"]

    assert (found["uptime_seconds"], found["message"]) == (7, "warming up")
    assert listed == [found]


async def test_a_version_is_assigned(hub: RestHub) -> None:
    await hub.push("edge", VALID)
    await hub.add(instance("edge-1"))

    response = await hub.call("PUT", "instances/edge-1/assignment", {"config_id": "edge", "version": 1})

    assert (response.status, response.json["assigned"], response.json["in_sync"]) == (200, "edge@1", False)
    record = await hub.store.instance("edge-1")
    assert record is not None
    assert record.sync.assignment is not None
    assert record.sync.assignment.hash == content_hash(VALID)
    assert await hub.store.was_assigned("edge-1", 1, VersionName("edge", 1))
    newest = (await hub.audit())[0]
    assert (newest.action, newest.kind, newest.resource_id, newest.detail) == (
        "assign",
        "instance",
        "edge-1",
        "edge@1",
    )


async def test_an_assignment_is_removed(hub: RestHub) -> None:
    await hub.push("edge", VALID)
    await hub.add(instance("edge-1", assigned=VersionName("edge", 1)))

    response = await hub.call("DELETE", "instances/edge-1/assignment")

    assert (response.status, response.json["assigned"], response.json["in_sync"]) == (200, None, True)


@pytest.mark.parametrize(
    ("instance_id", "config_id", "version"), [("x", "edge", 1), ("edge-1", "x", 1), ("edge-1", "edge", 2)]
)
async def test_what_does_not_exist_is_not_assigned(
    hub: RestHub, instance_id: str, config_id: str, version: int
) -> None:
    await hub.push("edge", VALID)
    await hub.add(instance("edge-1"))

    body = {"config_id": config_id, "version": version}
    response = await hub.call("PUT", f"instances/{instance_id}/assignment", body)

    assert response.status == 404


@pytest.mark.parametrize("instance_id", ["draining", "removed", "deploying"])
async def test_an_instance_that_leaves_or_deploys_is_not_assigned(hub: RestHub, instance_id: str) -> None:
    await hub.push("edge", VALID)
    await hub.add(
        instance("draining", State.DRAINING, deadline=MOMENT),
        instance("removed", State.REMOVED),
        full_instance("deploying"),
    )

    body = {"config_id": "edge", "version": 1}
    response = await hub.call("PUT", f"instances/{instance_id}/assignment", body)

    assert response.status == 409


async def test_an_instance_drains(hub: RestHub) -> None:
    await hub.add(instance("edge-1"))

    response = await hub.call("POST", "instances/edge-1/drain", {"reason": "moved"})

    assert (response.status, response.json["state"]) == (202, "draining")
    assert [(event.type, event.subject) for event in await hub.events()] == [
        (HubEventType.INSTANCE_STATE, "edge-1")
    ]
    assert (await hub.audit())[0].detail == "moved"


async def test_a_drain_needs_no_reason(hub: RestHub) -> None:
    await hub.add(instance("edge-1"))

    response = await hub.call("POST", "instances/edge-1/drain")

    assert (response.status, response.json["state"]) == (202, "draining")


async def test_an_offline_instance_is_removed_at_once(hub: RestHub) -> None:
    await hub.add(instance("online"), instance("offline", State.OFFLINE), instance("gone", State.REMOVED))

    statuses = {
        name: (await hub.call("DELETE", f"instances/{name}")) for name in ("online", "offline", "gone", "unknown")
    }

    assert [(each.status, each.json.get("state")) for each in statuses.values()] == [
        (202, "draining"),
        (202, "removed"),
        (409, None),
        (404, None),
    ]
    assert (await hub.call("GET", "instances/offline")).json["state"] == "removed"


ROUTES = [
    ("GET", "instances", None),
    ("GET", "instances/edge-1", None),
    ("GET", "instances/edge-1/metrics", None),
    ("PUT", "instances/edge-1/assignment", {"config_id": "edge", "version": 1}),
    ("DELETE", "instances/edge-1/assignment", None),
    ("POST", "instances/edge-1/drain", {}),
    ("DELETE", "instances/edge-1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES, ids=[f"{each[0]} {each[1]}" for each in ROUTES])
async def test_roles(hub: RestHub, method: str, path: str, body: object) -> None:
    await hub.push("edge", VALID)
    await hub.add(instance("edge-1"))

    statuses = [
        (await hub.call(method, path, body, token=role)).status for role in ("pulse", "adapter", "agent", "")
    ]
    as_viewer = (await hub.call(method, path, body, token="viewer")).status
    as_operator = (await hub.call(method, path, body, token="operator")).status

    assert statuses == [403, 403, 403, 401]
    assert (as_viewer == 403) is (method != "GET")
    assert as_operator < 300
