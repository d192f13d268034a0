from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift import trigger
from sentinel.core.drift.rules import OPENBAO
from sentinel.core.drift.trigger import ClusterView, DriftMode

NOW = datetime(2026, 11, 18, 9, 30, 15, 123456, UTC)


def test_a_trigger_is_a_time_in_utc_with_nanoseconds() -> None:
    assert trigger.next_value(NOW, ()) == "2026-11-18T09:30:15.123456000Z"
    assert trigger.next_value(NOW.astimezone(timezone(timedelta(hours=2))), ()) == "2026-11-18T09:30:15.123456000Z"


@pytest.mark.parametrize(
    ("previous", "expected"),
    [
        (["2026-11-18T09:30:15.123456000Z"], "2026-11-18T09:30:15.123456001Z"),
        (["2026-11-18T09:30:15.999999999Z"], "2026-11-18T09:30:16.000000000Z"),
        (["2027-01-01T00:00:00Z", "2026-01-01T00:00:00Z"], "2027-01-01T00:00:00.000000001Z"),
        (["2026-11-18T11:30:15.5+02:00"], "2026-11-18T09:30:15.500000001Z"),
        (["2020-01-01T00:00:00Z", "", "no time", "2026-13-01T00:00:00Z"], "2026-11-18T09:30:15.123456000Z"),
        (["9999-12-31T23:59:59.999999999Z"], "2026-11-18T09:30:15.123456000Z"),
    ],
)
def test_a_trigger_is_later_than_all_before(previous: list[str], expected: str) -> None:
    assert trigger.next_value(NOW, previous) == expected


@given(st.lists(st.datetimes(datetime(1971, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)), max_size=20))
def test_triggers_increase_whatever_the_clock_does(times: list[datetime]) -> None:
    values: list[str] = []
    for now in times:
        values.append(trigger.next_value(now, values[-1:]))

    assert values == sorted(set(values))


@given(st.integers(0, 10**18))
def test_a_written_time_is_read_as_the_same_time(nanoseconds: int) -> None:
    assert trigger.parse_time(trigger.format_time(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-18", "2026-11-18T09:30:15", "2026-11-18T09:30:15Z\n", "1" * 99]
)
def test_what_is_not_a_time_in_rfc_3339_is_refused(text: str) -> None:
    assert trigger.parse_time(text) is None


def patch_for(*objects: str) -> object:
    return trigger.merge_patch(
        OPENBAO.annotations, value="2026-11-18T09:30:15Z", objects=objects, namespace="prod"
    )


def test_the_patch_touches_the_two_annotations_alone() -> None:
    patch = patch_for("Service/prod/bao", "ConfigMap/prod/bao")

    assert patch == {
        "metadata": {
            "annotations": {
                "openbao.org/sentinel-trigger": "2026-11-18T09:30:15Z",
                "openbao.org/sentinel-trigger-resource": "Service/prod/bao",
            }
        }
    }


@pytest.mark.parametrize("odd", ["", "what", "Service/bao", "Service/other/bao", f"Service/prod/{'x' * 400}"])
def test_a_resource_that_the_policy_refuses_is_left_out(odd: str) -> None:
    assert patch_for(odd, "ConfigMap/prod/bao") == patch_for("ConfigMap/prod/bao")
    assert patch_for(odd) == {
        "metadata": {"annotations": {"openbao.org/sentinel-trigger": "2026-11-18T09:30:15Z"}}
    }


@pytest.mark.parametrize(
    ("configured", "annotation", "expected"),
    [
        (DriftMode.ENFORCE, "", DriftMode.ENFORCE),
        (DriftMode.ENFORCE, "observe", DriftMode.OBSERVE),
        (DriftMode.ENFORCE, "off", DriftMode.OFF),
        (DriftMode.OBSERVE, "enforce", DriftMode.OBSERVE),
        (DriftMode.OFF, "observe", DriftMode.OFF),
        (DriftMode.ENFORCE, "Observe", DriftMode.ENFORCE),
    ],
)
def test_an_annotation_can_only_reduce_the_mode(
    configured: DriftMode, annotation: str, expected: DriftMode
) -> None:
    assert trigger.effective_mode(configured, annotation) is expected


def test_the_view_of_a_cluster_is_read_from_its_annotations() -> None:
    annotations = {
        "openbao.org/sentinel-trigger": "t",
        "openbao.org/sentinel-trigger-resource": "r",
        "openbao.org/sentinel-mode": "off",
        "openbao.org/sentinel-maintenance-until": "2026-11-18T10:00:00Z",
        "other": "x",
    }

    view = trigger.read_view(annotations, OPENBAO.annotations, uid="u", is_deleting=True)

    assert view == ClusterView("u", "t", "r", "off", "2026-11-18T10:00:00Z", is_deleting=True)


def test_a_maintenance_ends_at_the_time_of_the_annotation() -> None:
    view = ClusterView("u", maintenance_until="2026-11-18T12:00:00.25+02:00")

    assert trigger.maintenance_end(view) == datetime(2026, 11, 18, 10, 0, 0, 250_000, UTC)
    assert trigger.maintenance_end(ClusterView("u")) is None
    assert trigger.maintenance_end(ClusterView("u", maintenance_until="tomorrow")) is None


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.9-12:00", "0001-01-01T00:00:00+12:00"])
def test_a_maintenance_may_end_at_any_time(text: str) -> None:
    end = trigger.maintenance_end(ClusterView("u", maintenance_until=text))

    assert end is not None
    assert end.year in (9999, 1970)


def test_annotations_that_cannot_be_read_are_named() -> None:
    assert trigger.problems(ClusterView("u", mode="off", maintenance_until="2026-11-18T12:00:00Z")) == []
    assert trigger.problems(ClusterView("u")) == []
    assert trigger.problems(ClusterView("u", mode="none", maintenance_until="tomorrow")) == [
        'mode: expected one of enforce, observe, off, got "none"',
        'maintenance: expected a time in RFC 3339, got "tomorrow"',
    ]
