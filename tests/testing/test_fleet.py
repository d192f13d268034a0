"""The fake fleet beyond its contract: edits, reports and failures."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from sentinel.core.json import Json
from sentinel.core.pulse.decision import Policy, Reason, decide
from sentinel.core.pulse.observation import Observation
from sentinel.ports.fleet import FetchError
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet, FakeOwner

LATER = START + timedelta(minutes=1)
POLICY = Policy(max_age_not_ready=timedelta(seconds=10), max_age_ready=timedelta(minutes=30))


async def observe(fleet: FakeFleet, resource_id: str) -> Observation:
    return next(
        resource.observation
        for page in [page async for page in fleet.walk()]
        for resource in page.resources
        if resource.observation.id == resource_id
    )


async def decode(fleet: FakeFleet, resource_id: str) -> dict[str, Json]:
    pages = [page async for page in fleet.walk()]
    [document] = [
        resource.decode()
        for page in pages
        for resource in page.resources
        if resource.observation.id == resource_id
    ]
    assert isinstance(document, dict)
    return document


async def test_a_changed_spec_is_an_unobserved_generation() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1", observed_generation=1, is_ready=True, last_updated_time=START)

    fleet.change_spec("cls-1", {"replicas": 5}, at=LATER)

    seen = await observe(fleet, "cls-1")
    assert (seen.generation, seen.observed_generation) == (2, 1)
    assert decide(seen, POLICY, LATER).reason is Reason.GENERATION_CHANGED


async def test_the_next_decision_reads_the_report() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1")

    is_stored = fleet.report("cls-1", generation=1, is_ready=True, at=LATER)

    seen = await observe(fleet, "cls-1")
    assert is_stored
    assert seen.is_ready
    assert (seen.observed_generation, seen.last_updated_time) == (1, LATER)
    assert decide(seen, POLICY, LATER).reason is Reason.NOT_EXPIRED


async def test_the_conditions_agree_with_the_flat_fields() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1", generation=3)
    fleet.report("cls-1", generation=3, is_ready=True, at=LATER)
    flat = await observe(fleet, "cls-1")
    document = await decode(fleet, "cls-1")

    status = document["status"]
    assert isinstance(status, dict)
    document["status"] = {"conditions": status["conditions"]}
    by_conditions = FakeFleet()
    by_conditions.put_encoded(msgspec.json.encode(document))

    assert await observe(by_conditions, "cls-1") == flat


async def test_the_transition_time_changes_only_with_the_phase() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1")
    fleet.report("cls-1", generation=1, is_ready=True, at=START)

    fleet.report("cls-1", generation=1, is_ready=True, at=LATER)
    unchanged = fleet.get("cls-1")
    fleet.report("cls-1", generation=1, is_ready=False, at=LATER)
    changed = fleet.get("cls-1")

    assert unchanged is not None
    assert changed is not None
    assert unchanged.status.last_transition_time == START
    assert changed.status.last_transition_time == LATER


@pytest.mark.parametrize("resource_id", ["unknown", "cls-1"])
async def test_an_outdated_or_unknown_report_is_not_stored(resource_id: str) -> None:
    fleet = FakeFleet()
    fleet.put("cls-1", generation=3, observed_generation=2, last_updated_time=START)

    is_stored = fleet.report(resource_id, generation=1, is_ready=True, at=LATER)

    seen = await observe(fleet, "cls-1")
    assert not is_stored
    assert (seen.observed_generation, seen.last_updated_time) == (2, START)


async def test_a_document_has_the_fields_that_templates_use() -> None:
    fleet = FakeFleet(kind="NodePool")
    fleet.put("np-1", name="workers", labels={"region": "us-east"}, owner=FakeOwner("cls-1", "Cluster"))

    document = await decode(fleet, "np-1")

    assert document["kind"] == "NodePool"
    assert document["name"] == "workers"
    assert document["metadata"] == {"name": "workers", "labels": {"region": "us-east"}}
    assert document["ownerResource"] == {"id": "cls-1", "kind": "Cluster"}


async def test_a_removal_during_a_walk_loses_no_other_resource() -> None:
    fleet = FakeFleet(page_size=1)
    for number in range(4):
        fleet.put(f"cls-{number}")
    seen = []

    async for page in fleet.walk():
        seen += [resource.observation.id for resource in page.resources]
        if len(seen) == 1:
            fleet.remove("cls-0")
            fleet.remove("cls-2")

    assert seen == ["cls-0", "cls-1", "cls-3"]


async def test_fail_applies_to_the_given_number_of_walks() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1")
    fleet.fail("no route to host", walks=2)

    for _ in range(2):
        with pytest.raises(FetchError, match="no route to host"):
            await anext(fleet.walk())

    assert (await observe(fleet, "cls-1")).id == "cls-1"


async def test_a_failure_after_more_pages_than_there_are_still_fails() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1")
    fleet.fail(after_pages=5)

    with pytest.raises(FetchError):
        await observe(fleet, "cls-1")


def test_an_unknown_resource_cannot_be_changed() -> None:
    fleet = FakeFleet()

    with pytest.raises(KeyError, match="cls-1"):
        fleet.change_spec("cls-1", {}, at=LATER)
    with pytest.raises(KeyError, match="cls-1"):
        fleet.remove("cls-1")


def test_a_page_size_of_0_is_rejected() -> None:
    with pytest.raises(ValueError, match="page_size: expected 1 or more, got 0"):
        FakeFleet(page_size=0)


async def test_the_next_decision_reads_requests_and_pauses() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1", observed_generation=1, is_ready=True, last_updated_time=START)

    fleet.request_pulse("cls-1", at=LATER)
    requested = decide(await observe(fleet, "cls-1"), POLICY, LATER)
    fleet.pause("cls-1")
    paused = decide(await observe(fleet, "cls-1"), POLICY, LATER)
    fleet.resume("cls-1")
    resumed = decide(await observe(fleet, "cls-1"), POLICY, LATER)

    assert (requested.reason, requested.trigger) == (Reason.PULSE_REQUESTED, LATER)
    assert paused.reason is Reason.PAUSED
    assert resumed == requested
