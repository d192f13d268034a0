from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift.conflicts import (
    INITIAL_DELAY,
    MAX_DELAY,
    MAX_PATHS,
    PERIOD,
    Conflict,
    Conflicts,
    FieldPath,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
REPLICAS = FieldPath("StatefulSet/prod/bao", "/spec/replicas")
IMAGE = FieldPath("StatefulSet/prod/bao", "/spec/template/spec/containers/name=bao/image")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def repeat_drift(
    conflicts: Conflicts, times: Iterable[float], field: FieldPath = REPLICAS
) -> list[Conflict | None]:
    """Let a path drift at each of these seconds and be corrected a second later."""
    found = []
    for seconds in times:
        found.append(conflicts.drifted([field], after(seconds)))
        conflicts.corrected([field], after(seconds + 1))
    return found


def test_the_fifth_correction_in_ten_minutes_waits() -> None:
    conflicts = Conflicts()

    assert repeat_drift(conflicts, (0, 10, 20, 30)) == [None] * 4
    assert conflicts.drifted([REPLICAS], after(40)) == Conflict(REPLICAS, 4, after(31) + INITIAL_DELAY, True)


def test_five_corrections_in_more_than_ten_minutes_do_not_wait() -> None:
    conflicts = Conflicts()

    assert repeat_drift(conflicts, (0, 200, 400, 599)) == [None] * 4
    assert conflicts.drifted([REPLICAS], after(601)) is None


def test_a_change_in_the_last_second_of_the_period_waits() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 200, 400, 598))

    assert conflicts.drifted([REPLICAS], after(600)) is not None


def test_each_further_correction_waits_twice_as_long() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30))

    delays = []
    seconds = 40.0
    for _ in range(8):
        conflict = conflicts.drifted([REPLICAS], after(seconds))
        assert conflict is not None
        corrected = max(conflict.until, after(seconds))
        conflicts.corrected([REPLICAS], corrected)
        delays.append(round((conflict.until - START).total_seconds() - seconds))
        seconds = (corrected - START).total_seconds()

    assert delays == [21, 60, 120, 240, 480, 600, 600, 600]
    assert delays[-1] == MAX_DELAY.total_seconds()


def test_a_conflict_lasts_while_its_delays_exceed_the_period() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30, 60, 120, 240, 500, 1000, 1600))

    conflict = conflicts.drifted([REPLICAS], after(1602))

    assert conflict is not None
    assert conflict.until == after(1601) + MAX_DELAY


def test_a_path_that_kept_its_value_for_ten_minutes_starts_again() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30, 40, 50))

    assert repeat_drift(conflicts, (51 + PERIOD.total_seconds(), 662, 672, 682)) == [None] * 4
    assert conflicts.drifted([REPLICAS], after(692)) == Conflict(REPLICAS, 4, after(683) + INITIAL_DELAY, True)


def test_drift_that_is_not_corrected_is_no_conflict() -> None:
    conflicts = Conflicts()

    assert [conflicts.drifted([REPLICAS], after(n)) for n in range(20)] == [None] * 20
    assert len(conflicts) == 0


def test_more_drift_of_a_waiting_path_does_not_postpone_its_correction() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30))

    found = [conflicts.drifted([REPLICAS], after(40 + n)) for n in range(3)]

    assert [conflict and conflict.until for conflict in found] == [after(31) + INITIAL_DELAY] * 3
    assert [conflict and conflict.is_new for conflict in found] == [True, False, False]


def test_another_path_of_the_same_object_does_not_wait() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30))

    assert conflicts.drifted([REPLICAS, IMAGE], after(40)) is None
    assert conflicts.drifted([REPLICAS], after(40)) is not None


def test_of_two_waiting_paths_the_earlier_time_counts() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30))
    repeat_drift(conflicts, (0, 10, 20, 29), IMAGE)

    conflict = conflicts.drifted([REPLICAS, IMAGE], after(40))

    assert conflict is not None
    assert conflict.field == IMAGE


def test_the_paths_corrected_longest_ago_are_forgotten_first() -> None:
    conflicts = Conflicts()
    repeat_drift(conflicts, (0, 10, 20, 30))
    repeat_drift(conflicts, (0, 10, 20, 31), IMAGE)

    conflicts.corrected([FieldPath("ConfigMap/prod/bao", f"/data/{n}") for n in range(MAX_PATHS - 1)], after(39))

    assert len(conflicts) == MAX_PATHS
    assert conflicts.drifted([REPLICAS], after(40)) is None
    assert conflicts.drifted([IMAGE], after(40)) is not None


@given(st.lists(st.floats(0, 1800), max_size=40))
def test_at_most_four_corrections_in_ten_minutes_do_not_wait(times: list[float]) -> None:
    conflicts = Conflicts()
    free: list[datetime] = []
    for seconds in sorted(times):
        now = after(seconds)
        conflict = conflicts.drifted([REPLICAS], now)
        if conflict is None:
            free.append(now)
        elif conflict.until > now:
            continue
        conflicts.corrected([REPLICAS], now)

    assert all(later - earlier >= PERIOD for earlier, later in zip(free, free[4:], strict=False))
