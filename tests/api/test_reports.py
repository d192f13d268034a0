"""Adapters' reports: stored, discarded with a reason, or rejected with the invalid field."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from tests.support.fleet.api_client import ApiClient, ApiReply
from tests.support.fleet.http_client import Body

STATUSES = "clusters/one/statuses"
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)


@pytest.fixture(autouse=True)
async def _one(fleet: ApiClient) -> None:
    """Create a cluster at generation 2 that requires dns and validation."""
    await fleet.create("clusters", "one", id="one")
    await fleet.call("PATCH", "clusters/one", {"spec": {"a": 1}})
    await fleet.later(3600)


async def send(fleet: ApiClient, body: Body, *, method: str = "POST", path: str = STATUSES) -> ApiReply:
    return await fleet.call(method, path, body)


async def status_of(fleet: ApiClient) -> Body:
    status: Body = (await fleet.get("clusters/one"))["status"]
    return status


def each_value(fields: Mapping[str, Sequence[object]]) -> list[tuple[str, object]]:
    """Return every field with each of its values, one at a time."""
    return [(field, value) for field, values in fields.items() for value in values]


def assert_discarded(reply: ApiReply, reason: str) -> None:
    assert (reply.status, reply.content) == (204, b""), reply
    assert reply.headers["discard-reason"] == reason
    assert "content-type" not in reply.headers


# --- Stored ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_report_is_stored_and_returned(fleet: ApiClient, method: str) -> None:
    body = fleet.report("dns", generation=2, data={"zone": {"id": 7}}, metadata={"job": "x"})

    reply = await send(fleet, body, method=method)

    now = "2025-01-01T01:00:00Z"
    assert reply.status == 201
    assert reply.json == {
        "adapter": "dns",
        "observed_generation": 2,
        "created_time": now,
        "last_report_time": now,
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "created_time": now,
                "last_transition_time": now,
            }
            for kind, reason, message in (
                ("Applied", "Done", ""),
                ("Available", "Said", "as it is"),
                ("Health", "NoErrors", ""),
            )
        ],
        "data": {"zone": {"id": 7}},
        "metadata": {"job": "x"},
    }
    listed = await fleet.get(STATUSES)
    assert listed == {"page": 1, "size": 1, "total": 1, "items": [reply.json]}


async def test_a_report_without_data_has_none(fleet: ApiClient) -> None:
    reply = await send(fleet, fleet.report("dns", generation=2))

    assert not {"data", "metadata"} & set(reply.json)


async def test_the_time_of_a_report_is_when_it_was_observed(fleet: ApiClient) -> None:
    at = fleet.clock.now() - timedelta(minutes=3)

    reply = await send(fleet, fleet.report("dns", generation=2, at=at))

    assert reply.json["last_report_time"] == "2025-01-01T00:57:00Z"


async def test_times_are_converted_to_utc(fleet: ApiClient) -> None:
    reply = await send(fleet, fleet.report("dns", generation=2, observed_time="2025-01-01T03:00:00+02:00"))

    assert reply.json["last_report_time"] == "2025-01-01T01:00:00Z"


async def test_a_report_replaces_the_adapters_conditions(fleet: ApiClient) -> None:
    first = fleet.report("dns", generation=2, data={"old": 1})
    first["conditions"].append({"type": "Custom", "status": "True"})
    await send(fleet, first)
    later = await fleet.later(10)

    reply = await send(fleet, fleet.report("dns", generation=2, available="False"))

    by_type = {condition["type"]: condition for condition in reply.json["conditions"]}
    assert set(by_type) == {"Applied", "Available", "Health"}
    assert "data" not in reply.json
    assert by_type["Available"]["last_transition_time"] == f"{later:%Y-%m-%dT%H:%M:%SZ}"
    assert by_type["Available"]["created_time"] == "2025-01-01T01:00:00Z"
    assert by_type["Health"]["last_transition_time"] == "2025-01-01T01:00:00Z"
    assert reply.json["created_time"] == "2025-01-01T01:00:00Z"


async def test_conditions_beyond_the_mandatory_ones_are_kept(fleet: ApiClient) -> None:
    body = fleet.report("dns", generation=2)
    body["conditions"].append({"type": "Records", "status": "Unknown", "reason": "Counting", "message": "42"})

    reply = await send(fleet, body)

    extra = reply.json["conditions"][3]
    assert (extra["type"], extra["status"], extra["reason"], extra["message"]) == (
        "Records",
        "Unknown",
        "Counting",
        "42",
    )


async def test_unknown_members_are_ignored(fleet: ApiClient) -> None:
    body = fleet.report("dns", generation=2, sdk_version="1.2")
    body["conditions"][0]["severity"] = "low"

    assert (await send(fleet, body)).status == 201


async def test_a_report_does_not_change_the_resource_itself(fleet: ApiClient) -> None:
    before = await fleet.get("clusters/one")

    await send(fleet, fleet.report("dns", generation=2))

    after = await fleet.get("clusters/one")
    assert {**after, "status": None} == {**before, "status": None}


async def test_any_adapter_may_report(fleet: ApiClient) -> None:
    assert (await send(fleet, fleet.report("extra.one_2", generation=2))).status == 201
    assert (await status_of(fleet))["observed_generation"] == 0


async def test_an_older_generation_is_stored_as_a_first_report(fleet: ApiClient) -> None:
    assert (await send(fleet, fleet.report("dns", generation=1))).status == 201
    assert (await send(fleet, fleet.report("dns", generation=2))).status == 201


async def test_reports_on_a_deleting_resource_are_stored(fleet: ApiClient) -> None:
    await fleet.call("DELETE", "clusters/one")

    assert (await send(fleet, fleet.report("dns", generation=3))).status == 201


async def test_a_resource_has_at_most_a_hundred_adapters(fleet: ApiClient) -> None:
    for number in range(100):
        assert (await send(fleet, fleet.report(f"a{number}", generation=2))).status == 201

    (await send(fleet, fleet.report("one-too-many", generation=2))).assert_problem(409)
    assert (await send(fleet, fleet.report("a7", generation=2))).status == 201


async def test_no_concurrent_report_is_lost(fleet: ApiClient) -> None:
    names = [f"a{number}" for number in range(30)]

    replies = await asyncio.gather(*(send(fleet, fleet.report(name, generation=2)) for name in names))

    assert {reply.status for reply in replies} == {201}
    assert [item["adapter"] for item in (await fleet.get(STATUSES))["items"]] == sorted(names)


# --- Paths -------------------------------------------------------------------------------------------------------


async def test_a_report_on_a_missing_resource_is_not_found(fleet: ApiClient) -> None:
    for path in ("clusters/missing/statuses", "manifests/one/statuses", "clusters/two/nodepools/one/statuses"):
        (await send(fleet, fleet.report("dns"), path=path)).assert_problem(404, code="HYPERFLEET-NTF-001")
    (await fleet.call("GET", "clusters/missing/statuses")).assert_problem(404, code="HYPERFLEET-NTF-001")


async def test_a_child_can_be_reported_on_by_its_nested_path(fleet: ApiClient) -> None:
    await fleet.create("clusters/one/nodepools", "pool", id="pool")

    for method in ("POST", "PUT"):
        reply = await send(
            fleet, fleet.report("validation"), path="clusters/one/nodepools/pool/statuses", method=method
        )
        assert reply.status == 201

    assert (await fleet.get("nodepools/pool"))["status"]["phase"] == "Ready"
    nested, flat = (
        await fleet.get("clusters/one/nodepools/pool/statuses"),
        await fleet.get("nodepools/pool/statuses"),
    )
    assert nested == flat


async def test_statuses_are_paged_in_order_of_adapter_names(fleet: ApiClient) -> None:
    for name in "cabde":
        await send(fleet, fleet.report(name, generation=2))

    pages = [await fleet.get(STATUSES, size=2, page=page) for page in (1, 2, 3, 4)]

    assert [[item["adapter"] for item in page["items"]] for page in pages] == [["a", "b"], ["c", "d"], ["e"], []]
    assert [(page["page"], page["size"], page["total"]) for page in pages] == [
        (1, 2, 5),
        (2, 2, 5),
        (3, 1, 5),
        (4, 0, 5),
    ]


@pytest.mark.parametrize(("parameter", "value"), [("size", 0), ("size", 1001), ("page", 0), ("page", "x")])
@pytest.mark.parametrize("path", [STATUSES, f"{STATUSES}/discarded", "clusters/one/history"])
async def test_the_page_size_of_short_lists_is_limited(
    fleet: ApiClient, path: str, parameter: str, value: object
) -> None:
    reply = await fleet.send("GET", f"/api/hyperfleet/v1/{path}", query={parameter: value})

    reply.assert_problem(400, parameter)


# --- Discarded ---------------------------------------------------------------------------------------------------


async def test_a_report_on_a_future_generation_is_discarded(fleet: ApiClient) -> None:
    assert_discarded(await send(fleet, fleet.report("dns", generation=3)), "future_generation")


async def test_a_report_on_a_former_generation_is_discarded(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2))
    await fleet.later(1)

    assert_discarded(await send(fleet, fleet.report("dns", generation=1)), "stale_generation")


async def test_an_earlier_time_at_the_same_generation_is_discarded(fleet: ApiClient) -> None:
    now = fleet.clock.now()
    await send(fleet, fleet.report("dns", generation=2, at=now))

    assert_discarded(await send(fleet, fleet.report("dns", generation=2, at=now - MICROSECOND)), "stale_time")
    assert (await send(fleet, fleet.report("dns", generation=2, at=now, available="False"))).status == 201


async def test_an_earlier_time_at_a_newer_generation_is_stored(fleet: ApiClient) -> None:
    now = fleet.clock.now()
    await send(fleet, fleet.report("dns", generation=1, at=now))

    assert (await send(fleet, fleet.report("dns", generation=2, at=now - SECOND))).status == 201


async def test_unknown_is_discarded_after_a_known_status(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=1))
    await fleet.later(1)

    assert_discarded(await send(fleet, fleet.report("dns", generation=2, available="Unknown")), "unknown")


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(("generation", "age"), [(1, 0), (2, 5), (3, 0)])
async def test_a_discarded_report_changes_nothing(
    fleet: ApiClient, method: str, generation: int, age: int
) -> None:
    await send(fleet, fleet.report("dns", generation=2))
    before = await fleet.call("GET", "clusters/one"), (await fleet.get(STATUSES))
    await fleet.later(1)

    stale = fleet.report("dns", generation=generation, at=fleet.clock.now() - age * SECOND, available="Unknown")
    assert (await send(fleet, stale, method=method)).status == 204

    after = await fleet.call("GET", "clusters/one"), (await fleet.get(STATUSES))
    assert (after[0].content, after[0].etag, after[1]) == (before[0].content, before[0].etag, before[1])


async def test_each_adapter_is_compared_with_its_own_reports(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2))

    assert (await send(fleet, fleet.report("validation", generation=1))).status == 201


async def test_discarded_reports_can_be_read_newest_first(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=3, data={"n": 1}))
    await fleet.later(1)
    await send(fleet, fleet.report("other", generation=4))

    page = await fleet.get(f"{STATUSES}/discarded")

    assert (page["page"], page["size"], page["total"]) == (1, 2, 2)
    newest, oldest = page["items"]
    assert (newest["adapter"], newest["reason"]) == ("other", "future_generation")
    assert oldest == {
        "adapter": "dns",
        "reason": "future_generation",
        "received_time": "2025-01-01T01:00:00Z",
        "observed_generation": 3,
        "observed_time": "2025-01-01T01:00:00Z",
        "conditions": [
            {"type": "Applied", "status": "True", "reason": "Done"},
            {"type": "Available", "status": "True", "reason": "Said", "message": "as it is"},
            {"type": "Health", "status": "True", "reason": "NoErrors"},
        ],
        "data": {"n": 1},
    }


async def test_discarded_reports_are_limited_and_paged(fleet: ApiClient) -> None:
    for number in range(55):
        await send(fleet, fleet.report(f"a{number}", generation=3))

    first, last = [await fleet.get(f"{STATUSES}/discarded", size=20, page=page) for page in (1, 3)]

    assert (first["total"], last["size"]) == (50, 10)
    assert (first["items"][0]["adapter"], last["items"][-1]["adapter"]) == ("a54", "a5")
    (await fleet.call("GET", "clusters/missing/statuses/discarded")).assert_problem(404)


async def test_discarded_reports_are_removed_with_their_resource(fleet: ApiClient) -> None:
    await fleet.create("manifests", "m", id="m")
    await send(fleet, fleet.report("dns", generation=9), path="manifests/m/statuses")
    await fleet.call("DELETE", "manifests/m")
    await fleet.create("manifests", "m", id="m")

    assert (await fleet.get("manifests/m/statuses/discarded"))["total"] == 0


async def test_reports_are_counted(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2))
    await send(fleet, fleet.report("dns", generation=3))

    def sample(name: str, **labels: str) -> float | None:
        return fleet.registry.get_sample_value(f"hyperfleet_api_{name}", labels)

    assert sample("reports_total") == 1
    assert sample("reports_discarded_total", reason="future_generation") == 1
    assert sample("reports_discarded_total", reason="stale_time") == 0


# --- The first Unknown -------------------------------------------------------------------------------------------


async def test_the_first_unknown_is_kept_and_listed(fleet: ApiClient) -> None:
    reply = await send(fleet, fleet.report("dns", generation=2, available="Unknown"))

    assert reply.status == 201
    assert (await fleet.get(STATUSES))["items"] == [reply.json]


async def test_the_first_unknown_is_not_aggregated(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("validation", generation=2))
    before = await status_of(fleet)
    await fleet.later(5)

    await send(fleet, fleet.report("dns", generation=2, available="Unknown"))

    after = await status_of(fleet)
    assert after == before
    assert after["observed_generation"] == 0
    assert [condition["type"] for condition in after["conditions"]] == [
        "Ready",
        "Available",
        "ValidationSuccessful",
    ]


async def test_a_second_unknown_is_discarded_at_any_generation(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=1, available="Unknown"))
    await fleet.later(1)

    assert_discarded(await send(fleet, fleet.report("dns", generation=2, available="Unknown")), "unknown")
    assert (await fleet.get(STATUSES))["items"][0]["observed_generation"] == 1


async def test_a_known_status_replaces_the_first_unknown(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2, available="Unknown"))

    assert (await send(fleet, fleet.report("dns", generation=2))).status == 201


# --- Work in progress --------------------------------------------------------------------------------------------


async def in_progress(fleet: ApiClient) -> Body | None:
    """What `statuses` shows as in progress for dns."""
    (status,) = (await fleet.get(STATUSES))["items"]
    found: Body | None = status.get("in_progress")
    return found


async def work(fleet: ApiClient, **more: object) -> ApiReply:
    """Report work in progress, a second later."""
    await fleet.later(1)
    body = {**fleet.report("dns", generation=2, available="Unknown"), **more}
    body["conditions"][1] |= {"reason": "Creating", "message": "job 7 runs"}
    return await send(fleet, body)


async def test_a_discarded_unknown_is_shown_as_in_progress(fleet: ApiClient) -> None:
    stored = (await send(fleet, fleet.report("dns", generation=1, available="False"))).json

    assert_discarded(await work(fleet, data={"job": 7}), "unknown")

    expected = {
        "observed_generation": 2,
        "report_time": "2025-01-01T01:00:01Z",
        "reason": "Creating",
        "message": "job 7 runs",
        "data": {"job": 7},
    }
    assert (await fleet.get(STATUSES))["items"] == [{**stored, "in_progress": expected}]
    assert (await fleet.get(f"{STATUSES}/discarded"))["items"][0]["data"] == {"job": 7}


async def test_work_in_progress_changes_neither_resource_nor_etag(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2, available="False"))
    before = await fleet.call("GET", "clusters/one")
    waiting = await fleet.get("clusters/one/waiting")

    for _ in range(3):
        await work(fleet)

    after = await fleet.call("GET", "clusters/one")
    assert (after.content, after.etag) == (before.content, before.etag)
    assert await fleet.get("clusters/one/waiting") == waiting
    headers = {"If-Match": before.etag}
    assert (await fleet.call("PATCH", "clusters/one", {"spec": {"b": 1}}, headers=headers)).status == 200


async def test_work_in_progress_leaves_no_audit_entry(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2))
    before = await fleet.get("/api/v1/audit")

    await work(fleet)

    assert await fleet.get("/api/v1/audit") == before


async def test_a_newer_result_ends_the_work_in_progress(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2, available="False"))
    await work(fleet)
    await fleet.later(1)

    await send(fleet, fleet.report("dns", generation=2))

    assert await in_progress(fleet) is None


async def test_a_report_older_than_the_work_in_progress_is_discarded(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=1, available="False"))
    started = fleet.clock.now()
    await work(fleet)

    assert_discarded(await send(fleet, fleet.report("dns", generation=2, at=started)), "stale_time")
    assert_discarded(await send(fleet, fleet.report("dns", generation=1)), "stale_generation")
    assert await in_progress(fleet) is not None


async def test_work_in_progress_survives_reports_of_others_and_changes(fleet: ApiClient) -> None:
    await send(fleet, fleet.report("dns", generation=2, available="False"))
    await work(fleet, data={"job": 7})
    shown = await in_progress(fleet)

    await fleet.call("PATCH", "clusters/one", {"spec": {"a": 2}})
    await fleet.call("POST", "clusters/one/pause")
    await send(fleet, fleet.report("validation", generation=3))

    dns, _ = (await fleet.get(STATUSES))["items"]
    assert dns["in_progress"] == shown


async def test_later_work_is_shown_beside_a_first_unknown(fleet: ApiClient) -> None:
    first = fleet.report("dns", generation=2, available="Unknown", data={"job": 1})
    await send(fleet, first)
    assert_discarded(await send(fleet, first), "unknown")
    assert await in_progress(fleet) is None

    await work(fleet, data={"job": 2})

    shown = await in_progress(fleet)
    assert shown is not None
    assert shown["data"] == {"job": 2}


async def test_no_concurrent_work_in_progress_is_lost(fleet: ApiClient) -> None:
    names = [f"a{number}" for number in range(10)]
    for name in names:
        await send(fleet, fleet.report(name, generation=2))
    await fleet.later(1)

    bodies = [fleet.report(name, generation=2, available="Unknown") for name in names]
    await asyncio.gather(*(send(fleet, body) for body in [*bodies, fleet.report("dns", generation=2)]))

    shown = {item["adapter"] for item in (await fleet.get(STATUSES))["items"] if "in_progress" in item}
    assert shown == set(names)


# --- Rejected ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "status"),
    [
        (timedelta(minutes=5), 201),
        (timedelta(minutes=5) + MICROSECOND, 400),
        (-timedelta(minutes=30), 201),
        (-timedelta(minutes=30) - MICROSECOND, 400),
    ],
)
async def test_the_time_of_a_report_must_be_plausible(fleet: ApiClient, offset: timedelta, status: int) -> None:
    reply = await send(fleet, fleet.report("dns", generation=2, at=fleet.clock.now() + offset))

    assert reply.status == status
    if status == 400:
        reply.assert_problem(400, "observed_time")


@pytest.mark.parametrize(
    ("field", "value"),
    each_value(
        {
            "adapter": ["", "a b", "a/b", "x" * 64, None, 1],
            "observed_generation": [0, -1, "2", 1.5, True],
            "observed_time": [
                "yesterday",
                "2025-01-01T01:00:00",
                1735693200,
                "0001-01-01T00:00:00Z",
                "0001-01-01T00:00:00+23:59",
                "9999-12-31T23:59:59-23:59",
            ],
            "conditions": [[], {}, None],
            "data": ["x" * 70_000],
            "metadata": [{"x": "x" * 70_000}],
        }
    ),
)
async def test_an_invalid_field_is_named(fleet: ApiClient, field: str, value: object) -> None:
    (await send(fleet, {**fleet.report("dns", generation=2), field: value})).assert_problem(400, field)
    assert (await fleet.get(STATUSES))["total"] == 0


async def test_a_condition_that_is_not_an_object_is_named(fleet: ApiClient) -> None:
    reply = await send(fleet, {**fleet.report("dns", generation=2), "conditions": [1]})

    reply.assert_problem(400, "conditions[0]")
    assert (await fleet.get(STATUSES))["total"] == 0


@pytest.mark.parametrize("field", ["adapter", "observed_generation", "observed_time", "conditions"])
async def test_a_missing_field_is_named(fleet: ApiClient, field: str) -> None:
    body = fleet.report("dns", generation=2)
    del body[field]

    (await send(fleet, body)).assert_problem(400, field)


@pytest.mark.parametrize(
    ("field", "value"),
    each_value(
        {
            "type": ["", " ", "Available", "x" * 129, 1],
            "status": ["true", True, ""],
            "reason": ["x" * 257],
            "message": ["x" * 4097, None],
        }
    ),
)
async def test_an_invalid_condition_is_named(fleet: ApiClient, field: str, value: object) -> None:
    body = fleet.report("dns", generation=2)
    body["conditions"].append({"type": "Custom", "status": "True", field: value})

    (await send(fleet, body)).assert_problem(400, f"conditions[3].{field}")


async def test_the_number_of_conditions_is_limited(fleet: ApiClient) -> None:
    body = fleet.report("dns", generation=2)
    body["conditions"] += [{"type": f"C{number}", "status": "True"} for number in range(48)]

    (await send(fleet, body)).assert_problem(400, "conditions")


@pytest.mark.parametrize("missing", ["Applied", "Available", "Health"])
async def test_a_missing_mandatory_condition_is_named(fleet: ApiClient, missing: str) -> None:
    body = fleet.report("dns", generation=2)
    body["conditions"] = [each for each in body["conditions"] if each["type"] != missing]

    assert missing in (await send(fleet, body)).assert_problem(400, "conditions")["detail"]


async def test_staleness_is_checked_before_mandatory_conditions(fleet: ApiClient) -> None:
    assert_discarded(
        await send(fleet, {**fleet.report("dns", generation=3), "conditions": []}), "future_generation"
    )


async def test_several_errors_are_named_at_once(fleet: ApiClient) -> None:
    body = fleet.report("-", generation=0)
    body["conditions"].append({"type": "", "status": "True"})

    (await send(fleet, body)).assert_problem(400, "adapter", "observed_generation", "conditions[3].type")


async def test_a_rejected_report_keeps_the_stored_one(fleet: ApiClient) -> None:
    stored = await send(fleet, fleet.report("dns", generation=2))
    await send(fleet, {**fleet.report("dns", generation=2), "conditions": []})

    assert (await fleet.get(STATUSES))["items"] == [stored.json]


async def test_the_limit_of_a_report_is_below_that_of_a_resource(fleet: ApiClient) -> None:
    (await send(fleet, fleet.report("dns", generation=2, extra="x" * 256 * 1024))).assert_problem(413)
