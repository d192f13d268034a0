"""Pulse, pause and resume: the fields of a resource that the pulse reads."""

from __future__ import annotations

import pytest

from tests.support.fleet.api_client import ApiClient


@pytest.fixture
async def one(fleet: ApiClient) -> str:
    """The path of a cluster that was created a while ago."""
    await fleet.create("clusters", "one", id="one")
    await fleet.later(60)
    return "clusters/one"


async def test_a_new_resource_has_no_pulse_fields(fleet: ApiClient, one: str) -> None:
    assert not {"paused", "pulse_requested_time"} & set(await fleet.get(one))


async def test_a_pulse_is_requested_now(fleet: ApiClient, one: str) -> None:
    reply = await fleet.call("POST", f"{one}/pulse")

    assert (reply.status, reply.json["pulse_requested_time"]) == (202, "2025-01-01T00:01:00Z")
    assert await fleet.get(one) == reply.json
    await fleet.later(5)
    again = await fleet.call("POST", f"{one}/pulse")
    assert again.json["pulse_requested_time"] == "2025-01-01T00:01:05Z"


async def test_a_pause_lasts_until_resume(fleet: ApiClient, one: str) -> None:
    paused = await fleet.call("POST", f"{one}/pause")
    assert (paused.status, paused.json["paused"], (await fleet.get(one))["paused"]) == (202, True, True)

    resumed = await fleet.call("POST", f"{one}/resume")

    assert (resumed.status, "paused" in resumed.json) == (202, False)
    assert await fleet.get(one) == resumed.json


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_repeating_a_request_changes_nothing(fleet: ApiClient, one: str, verb: str) -> None:
    first = await fleet.call("POST", f"{one}/{verb}")

    second = await fleet.call("POST", f"{one}/{verb}")

    assert (second.status, second.content, second.etag) == (202, first.content, first.etag)


@pytest.mark.parametrize("verb", ["pulse", "pause", "resume"])
async def test_generation_times_and_conditions_stay(fleet: ApiClient, one: str, verb: str) -> None:
    before = await fleet.get(one)

    after = (await fleet.call("POST", f"{one}/{verb}")).json

    for member in ("generation", "updated_time", "updated_by", "spec", "labels", "status"):
        assert after[member] == before[member]
    assert (await fleet.get(f"{one}/history"))["total"] == 1


async def test_pulse_fields_survive_patches_and_reports(fleet: ApiClient, one: str) -> None:
    await fleet.call("POST", f"{one}/pause")
    await fleet.call("POST", f"{one}/pulse")

    await fleet.call("PATCH", one, {"spec": {"a": 1}})
    await fleet.reports(one, "dns", generation=2)

    found = await fleet.get(one)
    assert (found["paused"], found["pulse_requested_time"]) == (True, "2025-01-01T00:01:00Z")


@pytest.mark.parametrize("verb", ["pulse", "pause", "resume"])
async def test_a_deleting_resource_accepts_the_request(fleet: ApiClient, one: str, verb: str) -> None:
    await fleet.call("DELETE", one)

    assert (await fleet.call("POST", f"{one}/{verb}")).status == 202


@pytest.mark.parametrize("verb", ["pulse", "pause", "resume"])
async def test_a_missing_resource_is_not_found(fleet: ApiClient, verb: str) -> None:
    (await fleet.call("POST", f"clusters/missing/{verb}")).assert_problem(404, code="HYPERFLEET-NTF-001")


@pytest.mark.parametrize("verb", ["pulse", "pause", "resume"])
async def test_every_request_has_an_audit_entry(fleet: ApiClient, one: str, verb: str) -> None:
    await fleet.call("POST", f"{one}/{verb}")

    entry = (await fleet.get("/api/v1/audit"))["items"][0]
    assert (entry["action"], entry["kind"], entry["resource_id"]) == (verb, "Cluster", "one")


async def test_an_unexpected_body_is_ignored(fleet: ApiClient, one: str) -> None:
    assert (await fleet.call("POST", f"{one}/pulse", {})).status == 202
