"""Deployments over REST: what is created, planned, read and refused."""

from __future__ import annotations

import pytest

from sentinel.core.hub.rollout_state import ReportedState
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.core.proxy.facts import Resolve
from tests.hub.rest.rest_hub import VALID, WITH_OTHER_LISTENER, WITH_OTHER_ROUTE, RestHub
from tests.hub.rest.running_rollouts import deployment_id
from tests.support.hub.store_records import instance

OLD = VersionName("edge", 1)
UNRESOLVED = VALID + 'upstreams { upstream "api" { target "gone.example:80" } }\n'


@pytest.fixture
async def fleet(hub: RestHub) -> RestHub:
    """Three instances that have the first of two versions."""
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)
    await hub.add(*(instance(name, assigned=OLD, labels={"zone": name}) for name in "abc"))
    return hub


def body(**more: object) -> dict[str, object]:
    return {
        "config_id": "edge",
        "version": 2,
        "targets": {"ids": ["a", "b", "c"]},
        "strategy": "rolling",
        **more,
    }


async def test_a_deployment_is_created_and_read(fleet: RestHub) -> None:
    created = await fleet.call("POST", "deployments", body(rolling={"batch_size": "50%"}))
    found = await fleet.call("GET", f"deployments/{created.json['id']}")

    assert created.status == 201
    assert created.headers["location"] == f"/api/v1/deployments/{created.json['id']}"
    assert (found.status, found.json["state"], found.json["rollback"]) == (200, "running", "none")
    assert found.json["batch"] == {"position": 1, "total": 2}
    assert found.json["counts"] == {"pending": 2, "waiting": 1}
    assert found.json["rolling"]["batch_size"] == "50%"
    assert found.json["created_by"] == "root"


async def test_a_dry_run_shows_the_plan_and_stores_nothing(fleet: RestHub) -> None:
    await fleet.add(instance("d"))

    planned = await fleet.call(
        "POST", "deployments", body(targets={"selector": "zone"}, rolling={"batch_size": 2}), query="dry_run=true"
    )
    empty = await fleet.call("POST", "deployments", body(targets={"ids": ["d"]}), query="dry_run=true")

    assert planned.status == 200
    assert planned.json["batches"] == [
        [{"id": "a", "from": "edge@1", "to": "edge@2"}, {"id": "b", "from": "edge@1", "to": "edge@2"}],
        [{"id": "c", "from": "edge@1", "to": "edge@2"}],
    ]
    assert (planned.json["problems"], planned.json["estimated_seconds"]) == ([], 40)
    assert set(planned.json) == {"batches", "problems", "diff", "restart_required", "estimated_seconds"}
    assert empty.json["batches"] == [[{"id": "d", "from": None, "to": "edge@2"}]]
    assert (await fleet.call("GET", "deployments")).json["total"] == 0


async def test_a_dry_run_says_whether_any_target_has_to_restart(fleet: RestHub) -> None:
    await fleet.push("moved", VALID, WITH_OTHER_LISTENER, WITH_OTHER_LISTENER.replace("/health", "/ready"))
    one, two = VersionName("moved", 1), VersionName("moved", 2)
    await fleet.add(*(instance(name, assigned=two) for name in "ef"), instance("g", assigned=one))
    await fleet.add(instance("new"))

    found = {}
    for ids in ("ef", "efg", ["new"]):
        asked = body(config_id="moved", version=3, targets={"ids": [*ids]})
        planned = await fleet.call("POST", "deployments", asked, query="dry_run=true")
        found["".join(ids)] = planned.json["restart_required"]

    assert found == {"ef": False, "efg": True, "new": False}


async def test_a_dry_run_returns_what_would_refuse_the_start(fleet: RestHub) -> None:
    await fleet.push("down", UNRESOLVED)
    asked = body(config_id="down", version=1, targets={"ids": ["a", "x"]})

    planned = await fleet.call("POST", "deployments", asked, query="dry_run=true")
    refused = await fleet.call("POST", "deployments", asked)

    unknown, unresolved = planned.json["problems"]
    assert unknown == {"field": "targets.ids", "message": "there is no instance x"}
    assert (unresolved["field"], unresolved["level"], unresolved["line"]) == ("version", 3, 13)
    assert "gone.example" in unresolved["message"]
    assert refused.status == 422
    assert refused.json["errors"] == [unknown, unresolved]


async def test_a_dry_run_warns_of_what_does_not_refuse_the_start() -> None:
    async with RestHub(resolve=Resolve.WARN) as hub:
        await hub.push("down", UNRESOLVED)
        await hub.add(instance("a"))
        asked = body(config_id="down", version=1, targets={"ids": ["a"]})

        planned = await hub.call("POST", "deployments", asked, query="dry_run=true")
        created = await hub.call("POST", "deployments", asked)

    [warning] = planned.json["warnings"]
    assert (warning["field"], warning["level"], warning["line"]) == ("version", 3, 13)
    assert "gone.example" in warning["message"]
    assert planned.json["problems"] == []
    assert created.status == 201


async def test_bad_fields_are_named(fleet: RestHub) -> None:
    wrong = await fleet.call("POST", "deployments", body(rolling={"batch_size": "0%", "batch_delay": "soon"}))
    unknown = await fleet.call("POST", "deployments", body(stratgy="rolling"))
    nobody = await fleet.call("POST", "deployments", body(targets={"selector": "zone=x"}))

    assert (wrong.status, [each["field"] for each in wrong.json["errors"]]) == (
        422,
        ["rolling.batch_size", "rolling.batch_delay"],
    )
    assert (unknown.status, unknown.json["errors"]) == (
        400,
        [{"field": "stratgy", "message": "unknown field; did you mean strategy?"}],
    )
    assert (nobody.status, nobody.json["errors"][0]["field"]) == (422, "targets.selector")


async def test_an_unknown_configuration_version_or_deployment_is_404(fleet: RestHub) -> None:
    requests = [
        await fleet.call("POST", "deployments", body(version=9)),
        await fleet.call("POST", "deployments", body(config_id="other")),
        await fleet.call("GET", "deployments/x"),
        await fleet.call("GET", "deployments/x/instances"),
        await fleet.call("GET", "deployments/x/events"),
        await fleet.call("POST", "deployments/x/pause"),
        await fleet.call("POST", "deployments/x/retry"),
    ]

    assert [each.status for each in requests] == [404] * len(requests)


async def test_a_busy_instance_is_a_conflict(fleet: RestHub) -> None:
    await fleet.deploy("edge", 2, ids=["a", "b"])

    refused = await fleet.call("POST", "deployments", body())

    assert refused.status == 409
    assert deployment_id(1) in refused.json["detail"]


async def test_a_repeated_request_creates_nothing(fleet: RestHub) -> None:
    headers = {"Idempotency-Key": "k"}

    first = await fleet.call("POST", "deployments", body(), headers=headers)
    again = await fleet.call("POST", "deployments", body(), headers=headers)
    other = await fleet.call("POST", "deployments", body(version=1), headers=headers)

    assert (again.status, again.json, again.headers["idempotent-replayed"]) == (201, first.json, "true")
    assert other.status == 422
    assert (await fleet.call("GET", "deployments")).json["total"] == 1


async def test_the_list_is_paged_newest_first_and_selected_by_state(fleet: RestHub) -> None:
    for name in "abc":
        await fleet.deploy("edge", 2, ids=[name])
    await fleet.call("POST", f"deployments/{deployment_id(2)}/abort")

    first = (await fleet.call("GET", "deployments", query="size=2")).json
    second = (await fleet.call("GET", "deployments", query=f"size=2&after={first['next']}")).json
    aborted = (await fleet.call("GET", "deployments", query="state=aborted")).json

    assert [each["id"] for each in first["items"]] == [deployment_id(3), deployment_id(2)]
    assert (first["size"], first["total"]) == (2, 3)
    assert ([each["id"] for each in second["items"]], second["next"]) == ([deployment_id(1)], None)
    assert [each["id"] for each in aborted["items"]] == [deployment_id(2)]


async def test_rows_are_listed_in_the_order_of_the_plan(fleet: RestHub) -> None:
    created = await fleet.deploy("edge", 2, ids=["c", "a", "b"])
    await fleet.rollouts.report(created["id"], ReportedState.FAILED, "c", message="line 3: unknown directive")
    path = f"deployments/{created['id']}/instances"

    first = (await fleet.call("GET", path, query="size=1")).json
    others = (await fleet.call("GET", path, query=f"size=5&after={first['next']}")).json

    [row] = first["items"]
    assert (row["instance_id"], row["batch"], row["from"], row["to"]) == ("c", 1, "edge@1", "edge@2")
    assert (row["state"], row["message"]) == ("failed", "line 3: unknown directive")
    assert (first["total"], first["size"]) == (3, 1)
    assert [(each["instance_id"], each["state"]) for each in others["items"]] == [
        ("a", "skipped"),
        ("b", "skipped"),
    ]


async def test_events_are_a_list_of_what_has_happened(fleet: RestHub) -> None:
    created = await fleet.deploy("edge", 2, ids=["a"])
    await fleet.rollouts.report(created["id"], ReportedState.COMPLETED, "a")
    path = f"deployments/{created['id']}/events"

    found = (await fleet.call("GET", path)).json
    page = (await fleet.call("GET", path, query="size=1")).json
    following = (await fleet.call("GET", path, query=f"size=1&after={page['next']}")).json

    told = [(each["number"], each["type"], each["data"]["state"]) for each in found["items"]]
    assert told == [
        (1, "deployment.instance", "pending"),
        (2, "deployment.state", "running"),
        (3, "deployment.instance", "completed"),
        (4, "deployment.state", "completed"),
    ]
    assert (found["total"], found["next"]) == (4, None)
    assert [each["number"] for each in following["items"]] == [2]


@pytest.mark.parametrize("action", ["pause", "abort", "rollback"])
async def test_what_a_user_wants_of_a_running_deployment_is_accepted(fleet: RestHub, action: str) -> None:
    created = await fleet.deploy("edge", 2, ids=["a", "b"])

    accepted = await fleet.call("POST", f"deployments/{created['id']}/{action}")

    expected = {"pause": "paused", "abort": "aborted", "rollback": "aborted"}
    assert (accepted.status, accepted.json["state"]) == (202, expected[action])


async def test_a_configuration_that_instances_may_go_back_to_is_not_deleted(fleet: RestHub) -> None:
    await fleet.push("other", VALID)
    created = await fleet.deploy("other", 1, ids=["a", "b", "c"], strategy="all_at_once")

    refused = await fleet.call("DELETE", "configs/edge")
    await fleet.rollouts.report(created["id"], ReportedState.COMPLETED, "a", "b", "c")
    deleted = await fleet.call("DELETE", "configs/edge")

    assert (refused.status, refused.json["detail"]) == (409, 'the configuration "edge" is being deployed')
    assert deleted.status == 204


@pytest.mark.parametrize("action", ["resume", "promote", "retry"])
async def test_an_action_in_the_wrong_state_is_a_conflict(fleet: RestHub, action: str) -> None:
    created = await fleet.deploy("edge", 2, ids=["a", "b"])

    refused = await fleet.call("POST", f"deployments/{created['id']}/{action}")

    assert (refused.status, bool(refused.json["detail"])) == (409, True)


async def test_a_canary_is_promoted(fleet: RestHub) -> None:
    created = await fleet.deploy("edge", 2, ids=["a", "b", "c"], strategy="canary", canary={"instances": 1})
    await fleet.rollouts.report(created["id"], ReportedState.COMPLETED, "a")

    watched = (await fleet.call("GET", f"deployments/{created['id']}")).json
    promoted = await fleet.call("POST", f"deployments/{created['id']}/promote")

    assert (watched["stage"], watched["analysis"]["extensions"]) == ("analysis", 0)
    assert (promoted.status, promoted.json["analysis"]) == (202, None)


async def test_a_retry_is_a_new_deployment_of_what_failed(fleet: RestHub) -> None:
    created = await fleet.deploy("edge", 2, ids=["a", "b"], rolling={"failure_threshold": 2, "batch_delay": "0s"})
    await fleet.rollouts.report(created["id"], ReportedState.FAILED, "a", message="no")

    await fleet.rollouts.report(created["id"], ReportedState.COMPLETED, "b")

    retried = await fleet.call("POST", f"deployments/{created['id']}/retry")

    assert (retried.status, retried.json["retry_of"]) == (201, created["id"])
    assert retried.json["targets"] == {"ids": ["a"]}
    assert retried.headers["location"].endswith(retried.json["id"])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "deployments"),
        *(
            ("POST", f"deployments/x/{each}")
            for each in ("pause", "resume", "promote", "abort", "rollback", "retry")
        ),
    ],
)
async def test_viewers_read_and_operators_act(fleet: RestHub, method: str, path: str) -> None:
    asked = body() if path == "deployments" else None
    viewer = await fleet.call(method, path, asked, token="viewer")
    operator = await fleet.call(method, path, asked, token="operator")
    reads = await fleet.call("GET", "deployments", token="viewer")

    assert (viewer.status, reads.status) == (403, 200)
    assert operator.status in (201, 404)


async def test_an_instance_that_is_leaving_is_named(fleet: RestHub) -> None:
    await fleet.add(instance("gone", State.DRAINING))

    refused = await fleet.call("POST", "deployments", body(targets={"ids": ["gone"]}))

    assert refused.json["errors"] == [{"field": "targets.ids", "message": "instance gone is draining"}]
