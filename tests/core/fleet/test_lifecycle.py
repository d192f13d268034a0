"""The lifecycle of a resource."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec import UNSET

from sentinel.core.fleet import lifecycle, reports
from sentinel.core.fleet.documents import (
    AdapterStatus,
    ConditionStatus,
    KindRules,
    Owner,
    Phase,
    Report,
    ReportedCondition,
    WorkInProgress,
    decode_document,
    decode_statuses,
    encode_document,
    encode_statuses,
)
from sentinel.core.fleet.lifecycle import AggregationRules, ResourceState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = AggregationRules(KindRules("clusters", "Cluster", "", ("dns", "validation")))
FREE = AggregationRules(KindRules("manifests", "Manifest"))
SPEC = msgspec.Raw(b'{"replicas":3}')


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def new(rules: AggregationRules = RULES, owner: Owner | None = None) -> ResourceState:
    return lifecycle.create(
        rules,
        resource_id="c1",
        name="one",
        labels={"region": "eu"},
        spec=SPEC,
        owner=owner,
        actor="ops",
        now=NOW,
    )


def report(adapter: str, *, generation: int = 1, at: datetime = NOW, finalized: bool = False) -> AdapterStatus:
    status = ConditionStatus.FALSE if finalized else ConditionStatus.TRUE
    conditions = [
        ReportedCondition("Applied", status),
        ReportedCondition("Available", status),
        ReportedCondition("Health", ConditionStatus.TRUE),
    ]
    if finalized:
        conditions.append(ReportedCondition("Finalized", ConditionStatus.TRUE))
    return reports.apply(Report(adapter, generation, at, tuple(conditions)), None)


def ready() -> ResourceState:
    state = new()
    for adapter in RULES.kind.required_adapters:
        state = lifecycle.with_status(state, RULES, report(adapter, at=after(1)), children=0)
    return state


def test_a_new_resource_is_at_generation_1_and_has_its_conditions() -> None:
    document = new().document

    assert document.generation == 1
    assert document.href == "/api/hyperfleet/v1/clusters/c1"
    assert [condition.type for condition in document.status.conditions] == ["Ready", "Available"]
    assert document.status.phase is Phase.NOT_READY
    assert document.status.observed_generation == 0
    assert document.status.last_updated_time == NOW
    assert document.metadata.name == "one"
    assert document.metadata.labels == {"region": "eu"}


def test_a_new_resource_waits_for_every_required_adapter() -> None:
    assert new().waiting == {"dns": NOW, "validation": NOW}


def test_a_child_names_its_owner_twice_and_has_its_path_below() -> None:
    owner = Owner("c1", "Cluster", "/api/hyperfleet/v1/clusters/c1")

    document = new(AggregationRules(KindRules("nodepools", "NodePool", "clusters")), owner).document

    assert document.owner_references == owner
    assert document.owner_resource == owner
    assert document.href == "/api/hyperfleet/v1/clusters/c1/nodepools/c1"


def test_it_is_ready_once_every_required_adapter_is_available() -> None:
    state = ready()

    assert state.document.status.phase is Phase.READY
    assert state.waiting == {}
    assert [status.adapter for status in state.statuses] == ["dns", "validation"]


@pytest.mark.parametrize(
    ("labels", "spec"), [({"region": "us"}, SPEC), ({"region": "eu"}, msgspec.Raw(b'{"replicas":4}'))]
)
def test_a_changed_spec_or_label_raises_the_generation_and_ends_readiness(
    labels: dict[str, str], spec: msgspec.Raw
) -> None:
    changed = lifecycle.change(ready(), RULES, labels=labels, spec=spec, actor="dev", now=after(9))

    assert changed is not None
    assert changed.document.generation == 2
    assert changed.document.status.phase is Phase.NOT_READY
    assert changed.document.updated_time == after(9)
    assert changed.document.updated_by == "dev"
    assert changed.document.created_by == "ops"
    assert changed.document.metadata.labels == labels
    assert changed.waiting == {"dns": after(9), "validation": after(9)}


def test_an_equal_change_makes_no_new_generation() -> None:
    unchanged = lifecycle.change(
        ready(), RULES, labels={"region": "eu"}, spec=msgspec.Raw(bytes(SPEC)), actor="dev", now=after(9)
    )

    assert unchanged is None


def test_the_time_of_a_change_never_decreases() -> None:
    changed = lifecycle.change(ready(), RULES, labels={}, spec=SPEC, actor="dev", now=after(-60))

    assert changed is not None
    assert changed.document.updated_time == NOW


def test_deleting_raises_the_generation_once() -> None:
    deleted = lifecycle.delete(ready(), RULES, children=0, actor="dev", now=after(9))

    again = lifecycle.delete(deleted, RULES, children=0, actor="dev", now=after(10))

    assert deleted.document.generation == 2
    assert deleted.document.deleted_time == after(9)
    assert deleted.document.status.phase is Phase.NOT_READY
    assert again == deleted


def test_it_is_finalized_when_every_adapter_has_finalized_it() -> None:
    state = lifecycle.delete(ready(), RULES, children=0, actor="dev", now=after(9))

    first = lifecycle.with_status(
        state, RULES, report("dns", generation=2, at=after(10), finalized=True), children=0
    )
    stale = lifecycle.with_status(
        first, RULES, report("validation", generation=1, at=after(11), finalized=True), children=0
    )
    last = lifecycle.with_status(
        first, RULES, report("validation", generation=2, at=after(11), finalized=True), children=0
    )

    assert not state.is_finalized(RULES, children=0)
    assert not first.is_finalized(RULES, children=0)
    assert not stale.is_finalized(RULES, children=0)
    assert last.is_finalized(RULES, children=0)
    assert not last.is_finalized(RULES, children=1)


def test_without_adapters_only_a_deleted_resource_is_finalized() -> None:
    state = new(FREE)

    deleted = lifecycle.delete(state, FREE, children=0, actor="dev", now=after(9))

    assert not state.is_finalized(FREE, children=0)
    assert deleted.is_finalized(FREE, children=0)


def test_a_second_report_replaces_the_first() -> None:
    state = lifecycle.with_status(ready(), RULES, report("dns", at=after(5)), children=0)

    assert [(status.adapter, status.last_report_time) for status in state.statuses] == [
        ("dns", after(5)),
        ("validation", after(1)),
    ]


def test_resources_wait_for_a_newly_required_adapter() -> None:
    stricter = AggregationRules(KindRules("clusters", "Cluster", "", ("dns", "validation", "provision")))

    refreshed = lifecycle.reaggregate(ready(), stricter, children=0, at=after(9))

    assert refreshed.document.status.phase is Phase.NOT_READY
    assert refreshed.document.status.last_transition_time == after(9)
    assert refreshed.waiting == {"provision": after(9)}


def test_work_in_progress_changes_no_condition() -> None:
    state = ready()
    work = WorkInProgress(1, after(5), "InProgress", "one job runs", msgspec.Raw(b'{"job":1}'))
    changed = msgspec.structs.replace(state.statuses[0], in_progress=work)

    after_work = lifecycle.with_work_in_progress(state, changed)
    aggregated = lifecycle.reaggregate(after_work, RULES, children=0, at=after(9))

    assert after_work.statuses == (changed, state.statuses[1])
    assert (after_work.document, after_work.waiting) == (state.document, state.waiting)
    assert aggregated == after_work


def test_statuses_are_stored_with_and_without_work_in_progress() -> None:
    without = ready().statuses
    work = WorkInProgress(1, after(5), "InProgress", "", msgspec.Raw(b'{"job":1}'))
    with_work = (msgspec.structs.replace(without[0], in_progress=work), without[1])

    assert b"in_progress" not in encode_statuses(without)
    assert decode_statuses(encode_statuses(without)) == without
    assert decode_statuses(encode_statuses(with_work)) == with_work


def test_public_names_are_written_if_configured() -> None:
    state = new(AggregationRules(RULES.kind, emits_public_names=True))

    types = [condition.type for condition in state.document.status.conditions]

    assert types == ["Ready", "Available", "Reconciled", "LastKnownReconciled"]


def test_pulse_and_pause_change_neither_generation_nor_times() -> None:
    state = ready()

    asked = lifecycle.request_pulse(state, now=after(20))
    paused = lifecycle.pause(state)

    assert asked.document.pulse_requested_time == after(20)
    assert paused.document.paused is True
    assert lifecycle.resume(paused) == state
    for marked in (asked, paused):
        assert marked.document.generation == state.document.generation
        assert marked.document.updated_time == state.document.updated_time
        assert marked.document.status == state.document.status


def test_a_stored_document_is_decoded_unchanged() -> None:
    state = lifecycle.with_status(
        ready(),
        RULES,
        msgspec.structs.replace(report("dns", at=after(3)), data=msgspec.Raw(b'{"a":1}')),
        children=0,
    )

    encoded = encode_document(state.document)

    assert decode_document(encoded) == state.document
    assert decode_statuses(encode_statuses(state.statuses)) == state.statuses
    assert b"deleted_time" not in encoded
    assert b"paused" not in encoded
    assert state.document.deleted_time is UNSET
