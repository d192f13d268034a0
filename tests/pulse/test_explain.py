"""`explain` runs a cycle that sends nothing, so its result is what a pulse would do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.decision import OBSERVED_AHEAD, Reason, shortened
from sentinel.core.pulse.message import DataTypes, reason_data
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.pulse.definition import PulseApiSettings
from sentinel.pulse.explain import (
    ExplainedResource,
    Explanation,
    NullPublisher,
    ReasonSummary,
    UnknownResource,
    explain,
)
from sentinel.pulse.settings import LabelMatch, PulseSettings
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.pulse_harness import MINUTE, SECOND, PageCountingFleet, PulseRecorder, make_pulse

SETTINGS = PulseSettings(resource_type="clusters", hyperfleet_api=PulseApiSettings(endpoint="http://fleet"))


def explained(
    fleet: FakeFleet, settings: PulseSettings = SETTINGS, *, at: datetime = START, resource_id: str | None = None
) -> Explanation:
    return loop.run(explain(settings.definition, fleet=fleet, at=at, resource_id=resource_id))


def row_of(fleet: FakeFleet, settings: PulseSettings = SETTINGS, *, at: datetime = START) -> ExplainedResource:
    (row,) = explained(fleet, settings, at=at).resources
    return row


@simulated
async def published_by_a_pulse(fleet: FakeFleet) -> list[str]:
    """The ids for which a pulse without pacing publishes an event at the same time."""
    recorder = PulseRecorder()
    pulse = make_pulse(
        fleet=fleet,
        publisher=NullPublisher(),
        clock=SimulatedClock(),
        observer=recorder,
        republish_interval=timedelta(0),
    )
    await pulse.cycle(Stopping())
    return recorder.confirmed


def ids(rows: Sequence[ExplainedResource], verdict: PacingVerdict) -> list[str]:
    return [row.id for row in rows if row.decision is verdict]


ages = st.sampled_from([-600, -1, 0, 1, 9, 10, 11, 1799, 1800, 1801, 10**9])
times = st.one_of(
    ages.map(lambda age: (START - timedelta(seconds=age)).isoformat()),
    st.sampled_from(["", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "yesterday"]),
)
generations = st.integers(0, 3)
flat = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Ready", "ready", "NotReady", ""]),
        "observed_generation": generations,
        "observedGeneration": generations,
        "last_updated_time": times,
        "lastTransitionTime": times,
        "last_progress_time": times,
        "conditions": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["Ready", "Reconciled", "Available"]),
                    "status": st.sampled_from(["True", "False", "Unknown"]),
                },
                optional={"observed_generation": generations, "last_updated_time": times},
            ),
            max_size=3,
        ),
    },
)
documents = st.fixed_dictionaries(
    {"id": st.integers(0, 12).map(lambda n: f"cls-{n}")},
    optional={
        "generation": generations,
        "kind": st.just("Cluster"),
        "status": flat,
        "paused": st.booleans(),
        "pulse_requested_time": times,
    },
).map(msgspec.json.encode)
broken = documents.map(lambda document: document[:-1] + b',"spec":"\xff"}')
"""Invalid in a field that no decision reads, so the error shows only when the whole document is decoded."""


@given(st.lists(documents | broken, max_size=25))
def test_what_is_explained_as_publish_is_what_a_pulse_publishes(items: list[bytes]) -> None:
    fleet = FakeFleet(page_size=4)
    for item in items:
        fleet.put_encoded(item)

    rows = explained(fleet).resources

    assert sorted(ids(rows, PacingVerdict.PUBLISH)) == sorted(published_by_a_pulse(fleet))
    assert len({row.id for row in rows}) == len(rows)


def test_the_next_event_of_a_due_resource_is_at_the_explained_time() -> None:
    fleet = FakeFleet()
    fleet.put("old", observed_generation=1, last_updated_time=START - MINUTE)

    row = row_of(fleet, at=START + SECOND)

    assert row.decision is PacingVerdict.PUBLISH
    assert row.reason is Reason.EXPIRED_NOT_READY
    assert row.next_event_time == START + SECOND


def test_a_resource_that_is_not_due_shows_when_it_will_be() -> None:
    fleet = FakeFleet()
    fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START - MINUTE)

    row = row_of(fleet)

    assert row.decision is PacingVerdict.SKIP
    assert row.reason is Reason.NOT_EXPIRED
    assert row.next_event_time == START + 29 * MINUTE


def test_jitter_is_part_of_the_explanation() -> None:
    fleet = FakeFleet()
    for n in range(20):
        fleet.put(f"calm-{n}", observed_generation=1, is_ready=True, last_updated_time=START)

    rows = explained(fleet, msgspec.structs.replace(SETTINGS, max_age_jitter=0.5)).resources

    assert {row.id: row.next_event_time for row in rows} == {
        f"calm-{n}": START + shortened(30 * MINUTE, 0.5, f"calm-{n}") for n in range(20)
    }


def test_native_data_keeps_its_types() -> None:
    fleet = FakeFleet()
    fleet.put("due", generation=3)
    settings = msgspec.structs.replace(
        SETTINGS,
        message_data={"generation": ".generation", "owner": ".owner_references"},
        message_data_types=DataTypes.NATIVE,
    )

    row = row_of(fleet, settings)

    assert bytes(row.data) == b'{"generation":3,"owner":null}'
    assert row.warnings == ("message_data.owner: the resource has no such field",)


def test_a_paused_resource_has_no_next_event() -> None:
    fleet = FakeFleet()
    fleet.put("changed", generation=2, observed_generation=1)
    fleet.pause("changed")

    found = explained(fleet)

    (row,) = found.resources
    assert (row.decision, row.reason, row.next_event_time) == (PacingVerdict.SKIP, Reason.PAUSED, None)
    assert found.summary.by_reason == {Reason.PAUSED: ReasonSummary(1, 0.0)}
    assert (found.summary.skip, found.summary.events_per_minute) == (1, 0.0)


def test_a_requested_pulse_is_explained() -> None:
    fleet = FakeFleet()
    fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START - MINUTE)
    fleet.request_pulse("calm", at=START - SECOND)

    row = row_of(fleet)

    assert (row.decision, row.reason, row.next_event_time) == (
        PacingVerdict.PUBLISH,
        Reason.PULSE_REQUESTED,
        START,
    )


@pytest.mark.parametrize(
    ("follows", "decision", "reason"),
    [
        (True, PacingVerdict.PUBLISH, Reason.ADAPTER_PROGRESSED),
        (False, PacingVerdict.SKIP, Reason.NOT_EXPIRED),
    ],
)
def test_progress_is_explained_where_it_is_followed(
    follows: bool, decision: PacingVerdict, reason: Reason
) -> None:
    fleet = FakeFleet()
    fleet.put_encoded(
        b'{"id":"halfway","generation":1,"status":{"phase":"Ready","observed_generation":1,'
        b'"last_updated_time":"2024-12-31T23:59:00Z","last_progress_time":"2024-12-31T23:59:30Z"}}'
    )

    row = row_of(fleet, msgspec.structs.replace(SETTINGS, pulse_on_progress=follows))

    assert (row.decision, row.reason) == (decision, reason)


def test_the_explained_time_can_be_chosen() -> None:
    fleet = FakeFleet()
    fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)

    now, later = row_of(fleet), row_of(fleet, at=START + 30 * MINUTE)

    assert (now.decision, later.decision) == (PacingVerdict.SKIP, PacingVerdict.PUBLISH)


def test_a_status_time_in_the_future_counts_as_the_explained_time() -> None:
    fleet = FakeFleet()
    fleet.put("fast", observed_generation=1, last_updated_time=START + 4 * MINUTE)

    row = row_of(fleet)

    assert row.last_updated_time == START + 4 * MINUTE
    assert row.next_event_time == START + 10 * SECOND


@pytest.mark.parametrize("age", [MINUTE, timedelta(0)])
def test_the_data_is_composed_for_due_and_skipped_resources(age: timedelta) -> None:
    fleet = FakeFleet()
    fleet.put("cls", labels={"region": "eu"}, observed_generation=1, last_updated_time=START - age)
    settings = msgspec.structs.replace(SETTINGS, message_data={"id": ".id", "where": {"region": ".labels.region"}})

    row = row_of(fleet, settings)

    assert msgspec.json.decode(row.data) == {"id": "cls", "where": {"region": "eu"}}


@pytest.mark.parametrize(("observed", "reason"), [(1, "generation-changed"), (2, "backoff-expired")])
@pytest.mark.parametrize("at", [START, START + MINUTE], ids=["skipped where observed", "due"])
def test_a_reason_in_the_data_is_the_reason_of_the_decision(observed: int, reason: str, at: datetime) -> None:
    settings = msgspec.structs.replace(SETTINGS, message_data=reason_data("clusters"))
    fleet = FakeFleet()
    fleet.put("one", generation=2, observed_generation=observed, last_updated_time=START)

    row = row_of(fleet, settings, at=at)

    assert msgspec.json.decode(row.data) == {"resourceType": "clusters", "resourceId": "one", "reason": reason}


def test_empty_fields_and_generations_ahead_are_warnings() -> None:
    fleet = FakeFleet()
    fleet.put("odd", name="odd", observed_generation=2, last_updated_time=START)
    settings = msgspec.structs.replace(SETTINGS, message_data={"a": {"b": ".spec.missing"}, "c": ".name.first"})

    row = row_of(fleet, settings)

    ahead, missing, failed = row.warnings
    assert ahead == OBSERVED_AHEAD
    assert missing == "message_data.a.b: the resource has no such field"
    assert failed.startswith("message_data.c: can't evaluate field first")


def test_neither_pacing_nor_a_rate_limit_hides_a_resource() -> None:
    fleet = FakeFleet(page_size=10)
    for n in range(30):
        fleet.put(f"cls-{n}")
    settings = msgspec.structs.replace(SETTINGS, max_events_per_second=0.1, republish_interval=timedelta(hours=1))

    summary = explained(fleet, settings).summary

    assert (summary.fetched, summary.publish, summary.skip) == (30, 30, 0)


def test_a_resource_that_cannot_be_composed_is_malformed_and_not_listed() -> None:
    fleet = FakeFleet()
    fleet.put_encoded(b'{"id":"due","spec":"\xff"}')
    fleet.put_encoded(b'{"id":"calm","status":{"last_updated_time":"2025-01-01T00:00:00Z"},"spec":"\xff"}')
    fleet.put_encoded(b'{"id":7}')

    found = explained(fleet)

    assert found.resources == []
    assert sorted(str(item.id) for item in found.malformed) == ["7", "calm", "due"]
    assert found.summary.malformed == 3


def test_a_resource_that_occurs_twice_is_explained_once_as_published() -> None:
    class RepeatingFleet(FakeFleet):
        async def walk(self) -> AsyncGenerator[FleetPage, None]:
            async for page in super().walk():
                yield page
            self.put("cls", observed_generation=1, last_updated_time=START - MINUTE)
            async for page in super().walk():
                yield page
            async for page in super().walk():
                yield page

    fleet = RepeatingFleet()
    fleet.put("cls", observed_generation=1, last_updated_time=START)

    row = row_of(fleet)

    assert row.decision is PacingVerdict.PUBLISH


def test_an_id_that_cannot_be_read_is_unknown_with_its_problem() -> None:
    fleet = FakeFleet()
    fleet.put_encoded(b'{"id": "bad", "generation": "two"}')

    with pytest.raises(UnknownResource, match=r"^bad \(item 1\): Expected `int \| null`.*generation"):
        explained(fleet, resource_id="bad")


NO_ADAPTERS = "no adapter is required for Cluster: it never becomes ready, and gets an event every 10s"


@pytest.mark.parametrize(
    ("status", "is_warned"),
    [
        ({"conditions": []}, True),
        ({"conditions": [{"type": "Ready", "status": "False", "reason": "NoRequiredAdapters"}]}, True),
        ({"conditions": [{"type": "Ready", "status": "False", "reason": "MissingRequiredAdapters"}]}, False),
        ({"conditions": [{"type": "Available", "status": "False", "reason": "NoRequiredAdapters"}]}, False),
        ({"conditions": [], "phase": "NotReady"}, False),
        ({"conditions": [], "observed_generation": 1}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_kind_without_required_adapters_is_named(status: object, is_warned: bool) -> None:
    fleet = FakeFleet()
    fleet.put_encoded(msgspec.json.encode({"id": "one", "kind": "Cluster", "generation": 1, "status": status}))
    fleet.put("of-the-same-kind", is_ready=False)
    fleet.put("ready", observed_generation=1, is_ready=True, last_updated_time=START)

    one, other, ready = explained(fleet).resources

    assert [any(NO_ADAPTERS in each for each in row.warnings) for row in (one, other)] == [is_warned] * 2
    assert ready.warnings == ()


def test_the_walk_ends_at_the_one_resource_to_explain() -> None:
    fleet = PageCountingFleet(page_size=1)
    for n in range(9):
        fleet.put(f"cls-{n}", observed_generation=n % 2, last_updated_time=START)

    due, calm = (explained(fleet, resource_id=each) for each in ("cls-4", "cls-5"))

    assert [(row.id, row.decision) for row in (*due.resources, *calm.resources)] == [
        ("cls-4", PacingVerdict.PUBLISH),
        ("cls-5", PacingVerdict.SKIP),
    ]
    assert (due.summary.fetched, due.summary.publish, calm.summary.skip) == (1, 1, 1)
    assert fleet.pages < 2 * 9


def test_an_unknown_resource_is_an_error_that_names_the_selector() -> None:
    fleet = FakeFleet()
    fleet.put("cls-1", labels={"region": "eu"})
    settings = msgspec.structs.replace(SETTINGS, resource_selector=(LabelMatch("region", "eu"),))

    with pytest.raises(UnknownResource, match=r"cls-2: no such resource among the 1 clusters .*region=eu"):
        explained(fleet, settings, resource_id="cls-2")


@pytest.mark.parametrize("resource_id", [None, "cls-7"])
def test_an_incomplete_walk_raises_instead_of_explaining_a_part(resource_id: str | None) -> None:
    fleet = FakeFleet(page_size=2)
    for n in range(9):
        fleet.put(f"cls-{n}")
    fleet.fail("page 2: 500 three times", after_pages=1)

    with pytest.raises(FetchError, match="page 2: 500 three times"):
        explained(fleet, resource_id=resource_id)


def summary_of(explanation: Explanation) -> dict[str, tuple[int, float]]:
    by_reason = explanation.summary.by_reason
    return {reason.name: (each.resources, round(each.events_per_minute, 6)) for reason, each in by_reason.items()}


def test_each_resource_is_expected_to_get_one_event_per_max_age() -> None:
    fleet = FakeFleet()
    for n in range(30):
        fleet.put(f"ready-{n}", observed_generation=1, is_ready=True, last_updated_time=START - n * MINUTE)
    for n in range(10):
        fleet.put(f"busy-{n}", observed_generation=1, last_updated_time=START - n * 2 * SECOND)
    fleet.put("changed", generation=2, observed_generation=1, is_ready=True, last_updated_time=START)
    fleet.put("new", generation=0)

    explanation = explained(fleet)

    assert summary_of(explanation) == {
        "GENERATION_CHANGED": (1, 6),
        "EXPIRED_NOT_READY": (10, 60),
        "EXPIRED_READY": (30, 1),
        "NEVER_UPDATED": (1, 6),
    }
    assert explanation.summary.events_per_minute == pytest.approx(73)


def test_events_are_expected_at_polls_only() -> None:
    fleet = FakeFleet()
    fleet.put("busy", observed_generation=1, last_updated_time=START)
    settings = msgspec.structs.replace(SETTINGS, poll_interval=6 * SECOND)

    summary = explained(fleet, settings).summary

    assert summary.events_per_minute == 5


def test_walk_progress_is_reported_for_each_page() -> None:
    fleet = FakeFleet(page_size=2)
    for n in range(5):
        fleet.put(f"cls-{n}", observed_generation=1, is_ready=True, last_updated_time=START)
    progress: list[int] = []

    loop.run(explain(SETTINGS.definition, fleet=fleet, at=START, progress=progress.append))

    assert progress == [2, 4, 5]
