"""Which pass a trigger causes, and what the status says afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift import fast_path
from sentinel.core.drift.fast_path import DriftStatus, PassKind, Trigger
from sentinel.core.drift.rules import OPENBAO, AnnotationNames
from sentinel.core.json import Json

NOW = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
NAMES = OPENBAO.annotations
TRIGGER = Trigger("2026-11-18T08:59:58.123456789Z", "Service/prod/bao")

times = st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2027, 1, 1), timezones=st.just(UTC))
counts = st.integers(0, 20)
seconds = times.map(lambda time: time.replace(microsecond=0))
statuses = st.builds(
    DriftStatus,
    last_drift_detected=st.none() | seconds,
    drift_correction_count=counts,
    last_correction_time=st.none() | seconds,
    last_drift_resource=st.sampled_from(["", "unknown", "Service/prod/bao"]),
    last_full_reconcile_time=st.none() | seconds,
    consecutive_fast_paths=counts,
)


def choose(trigger: Trigger | None, status: DriftStatus, *, is_policy_enforced: bool = True) -> PassKind:
    return fast_path.choose_pass(trigger, status, is_policy_enforced=is_policy_enforced, now=NOW)


class TestChoosePass:
    @given(statuses, st.booleans())
    def test_without_a_trigger_every_pass_is_normal(self, status: DriftStatus, is_enforced: bool) -> None:
        assert choose(None, status, is_policy_enforced=is_enforced) is PassKind.NORMAL

    @pytest.mark.parametrize(
        ("fast_paths", "age", "expected"),
        [
            (0, timedelta(0), PassKind.FAST),
            (4, timedelta(seconds=299), PassKind.FAST),
            (5, timedelta(0), PassKind.FORCED),
            (6, timedelta(0), PassKind.FORCED),
            (0, timedelta(seconds=300), PassKind.FORCED),
            (0, timedelta(days=1), PassKind.FORCED),
            (0, timedelta(seconds=-1), PassKind.FORCED),
        ],
    )
    def test_a_full_pass_is_forced_after_five_fast_ones_or_five_minutes(
        self, fast_paths: int, age: timedelta, expected: PassKind
    ) -> None:
        status = DriftStatus(last_full_reconcile_time=NOW - age, consecutive_fast_paths=fast_paths)

        assert choose(TRIGGER, status) is expected

    def test_a_trigger_before_the_first_full_pass_forces_one(self) -> None:
        assert choose(TRIGGER, DriftStatus()) is PassKind.FORCED

    def test_an_unenforced_policy_forces_a_full_pass(self) -> None:
        status = DriftStatus(last_full_reconcile_time=NOW)

        assert choose(TRIGGER, status, is_policy_enforced=False) is PassKind.FORCED

    @given(st.lists(st.integers(0, 120), min_size=1, max_size=60))
    def test_no_history_of_triggers_starves_the_slow_steps(self, gaps: list[int]) -> None:
        status, now, last_full, fast_paths = DriftStatus().completed(NOW), NOW, NOW, 0

        for gap in gaps:
            now += timedelta(seconds=gap)
            kind = fast_path.choose_pass(TRIGGER, status, is_policy_enforced=True, now=now)
            status = status.detected(TRIGGER, now).corrected(kind, now)
            if kind.is_full:
                status, last_full, fast_paths = status.completed(now), now, 0
            else:
                fast_paths += 1
            assert fast_paths <= 5
            assert now - last_full < timedelta(minutes=5)

    def test_kinds_of_passes_say_what_they_do(self) -> None:
        assert [(kind.is_full, kind.has_trigger) for kind in PassKind] == [
            (False, True),
            (True, True),
            (True, False),
        ]


class TestStatus:
    def test_detection_and_correction_have_their_own_times(self) -> None:
        detected = DriftStatus().detected(TRIGGER, NOW)
        corrected = detected.corrected(PassKind.FAST, NOW + timedelta(seconds=1.5))

        assert detected == DriftStatus(
            last_drift_detected=datetime(2026, 11, 18, 8, 59, 58, tzinfo=UTC),
            last_drift_resource="Service/prod/bao",
        )
        assert corrected.last_correction_time == NOW + timedelta(seconds=1)
        assert (corrected.drift_correction_count, corrected.consecutive_fast_paths) == (1, 1)

    @pytest.mark.parametrize("value", ["tomorrow", "2026-11-18T10:00:00Z", "2026-11-18T23:00:00+01:00"])
    def test_a_trigger_without_a_past_time_was_detected_now(self, value: str) -> None:
        assert DriftStatus().detected(Trigger(value), NOW).last_drift_detected == NOW

    def test_a_trigger_without_a_resource_is_about_an_unknown_one(self) -> None:
        assert DriftStatus().detected(Trigger("now"), NOW).last_drift_resource == "unknown"

    def test_a_huge_resource_is_shortened(self) -> None:
        assert len(DriftStatus().detected(Trigger("now", "x" * 10_000), NOW).last_drift_resource) == 400

    def test_a_forced_pass_counts_the_correction_but_no_fast_path(self) -> None:
        status = DriftStatus(consecutive_fast_paths=5).corrected(PassKind.FORCED, NOW)

        assert (status.drift_correction_count, status.consecutive_fast_paths) == (1, 5)

    def test_a_full_pass_resets_the_fast_paths(self) -> None:
        status = DriftStatus(consecutive_fast_paths=5).completed(NOW + timedelta(seconds=0.9))

        assert status == DriftStatus(last_full_reconcile_time=NOW, consecutive_fast_paths=0)

    def test_counters_stop_at_the_largest_number_that_the_field_holds(self) -> None:
        full = DriftStatus(drift_correction_count=2**31 - 1, consecutive_fast_paths=2**31 - 1)

        assert full.corrected(PassKind.FAST, NOW).drift_correction_count == 2**31 - 1
        assert full.corrected(PassKind.FAST, NOW).consecutive_fast_paths == 2**31 - 1

    @given(statuses)
    def test_what_is_written_is_read_again(self, status: DriftStatus) -> None:
        assert fast_path.read_status(status.encode()) == status

    @pytest.mark.parametrize(
        "value", [None, [], "x", {"driftCorrectionCount": "many"}, {"lastDriftDetected": 1.5}]
    )
    def test_of_an_unreadable_status_nothing_is_known(self, value: Json) -> None:
        assert fast_path.read_status(value) == DriftStatus()

    def test_times_and_counts_of_others_are_normalized(self) -> None:
        status = fast_path.read_status(
            {"lastDriftDetected": "2026-11-18T10:00:00.5+01:00", "driftCorrectionCount": -3, "other": 1}
        )

        assert status == DriftStatus(last_drift_detected=NOW)


class TestTrigger:
    def test_no_annotation_and_an_empty_one_are_no_trigger(self) -> None:
        assert fast_path.read_trigger({}, NAMES) is None
        assert fast_path.read_trigger({NAMES.trigger: "", NAMES.trigger_resource: "x"}, NAMES) is None

    def test_a_trigger_has_a_value_and_maybe_a_resource(self) -> None:
        both = {NAMES.trigger: TRIGGER.value, NAMES.trigger_resource: TRIGGER.resource}

        assert fast_path.read_trigger(both, NAMES) == TRIGGER
        assert fast_path.read_trigger({NAMES.trigger: "x"}, NAMES) == Trigger("x")

    @pytest.mark.parametrize(
        ("resource", "kind"),
        [("Service/prod/bao", "Service"), ("", "unknown"), ("Service", "unknown"), ("/prod/bao", "unknown")],
    )
    def test_its_kind_is_the_first_part_of_the_resource(self, resource: str, kind: str) -> None:
        assert Trigger("x", resource).kind == kind

    def test_it_is_cleared_only_if_it_is_still_the_same(self) -> None:
        value, resource = "/metadata/annotations/openbao.org~1sentinel-trigger", TRIGGER.resource

        assert fast_path.clearing_patch(TRIGGER, NAMES) == [
            {"op": "test", "path": value, "value": TRIGGER.value},
            {"op": "remove", "path": value},
            {"op": "test", "path": f"{value}-resource", "value": resource},
            {"op": "remove", "path": f"{value}-resource"},
        ]

    def test_an_absent_resource_is_not_removed(self) -> None:
        names = AnnotationNames.with_prefix("a~b/")

        patch = fast_path.clearing_patch(Trigger("x"), names)

        assert [each["path"] for each in patch] == ["/metadata/annotations/a~0b~1sentinel-trigger"] * 2
