from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift.conflicts import INITIAL_DELAY
from sentinel.core.drift.debounce import Debounce
from sentinel.core.drift.schedule import MAX_PATHS, Send, TriggerSchedule
from sentinel.core.drift.trigger import ClusterView

START = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = ClusterView("u1")
BAO = "StatefulSet/prod/bao"
WINDOW, MAX_WAIT, ACK_TIMEOUT = 2, 10, 60


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def schedule() -> TriggerSchedule:
    made = new_schedule()
    made.cluster_seen(CLUSTER, START)
    return made


def new_schedule() -> TriggerSchedule:
    return TriggerSchedule(
        debounce=Debounce(timedelta(seconds=WINDOW), timedelta(seconds=MAX_WAIT)),
        ack_timeout=timedelta(seconds=ACK_TIMEOUT),
    )


def begin(schedule: TriggerSchedule, seconds: float, value: str = "t1") -> Send:
    """Begin to write the trigger that is due."""
    send = schedule.next(after(seconds))
    assert isinstance(send, Send)
    schedule.began(send, value, after(seconds))
    return send


def write(schedule: TriggerSchedule, seconds: float, value: str = "t1") -> Send:
    """Write the trigger that is due, and show it on the cluster."""
    send = begin(schedule, seconds, value)
    schedule.succeeded()
    schedule.cluster_seen(ClusterView("u1", value, send.batch.burst.first), after(seconds))
    return send


def correct(schedule: TriggerSchedule, seconds: float, value: str) -> None:
    """Let a path drift, and the operator correct it."""
    schedule.drifted(BAO, ["/spec/replicas"], after(seconds))
    write(schedule, seconds + WINDOW, value)
    schedule.cluster_seen(CLUSTER, after(seconds + WINDOW + 1))


def test_without_drift_nothing_is_due(schedule: TriggerSchedule) -> None:
    assert schedule.next(after(1000)) is None
    assert not schedule.has_pending


def test_drift_is_sent_at_the_end_of_its_window(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    schedule.drifted("Service/prod/bao", ["/b"], after(1))

    assert schedule.next(after(1)) == after(3)
    send = write(schedule, 3)
    assert send.batch.burst.objects == (BAO, "Service/prod/bao")
    assert not send.is_repeated
    assert send.batch.burst.opened == after(0)
    assert schedule.outstanding == "t1"


def test_an_acknowledged_trigger_is_done(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)

    acknowledged = schedule.cluster_seen(CLUSTER, after(7))

    assert acknowledged is not None
    assert acknowledged.batch.burst.first == BAO
    assert acknowledged.after == timedelta(seconds=5)
    assert schedule.outstanding == ""
    assert schedule.next(after(1000)) is None


def test_an_unacknowledged_trigger_is_sent_again(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)

    assert schedule.next(after(3)) == after(62)
    again = write(schedule, 62, "t2")
    assert again.is_repeated
    assert again.batch.burst.first == BAO
    assert schedule.next(after(63)) == after(122)


def test_a_cluster_that_never_showed_the_trigger_acknowledges_nothing(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    begin(schedule, 2)
    schedule.succeeded()

    # An event from before the patch.
    assert schedule.cluster_seen(ClusterView("u1", mode="x"), after(3)) is None
    assert schedule.next(after(3)) == after(62)


def test_another_trigger_on_the_cluster_acknowledges_nothing(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)

    assert schedule.cluster_seen(ClusterView("u1", "foreign"), after(3)) is None
    assert schedule.outstanding == "t1"


def test_drift_while_a_trigger_is_outstanding_is_a_new_trigger(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)
    schedule.drifted("Service/prod/bao", ["/b"], after(5))

    send = write(schedule, 7, "t2")

    assert send.batch.burst.objects == ("Service/prod/bao", BAO)
    assert send.batch.burst.opened == after(5)
    assert not send.is_repeated
    assert schedule.outstanding == "t2"


def test_nothing_is_sent_while_a_trigger_is_being_written(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    begin(schedule, 2)
    schedule.drifted(BAO, ["/b"], after(3))

    assert schedule.next(after(100)) is None
    assert schedule.has_pending
    schedule.succeeded()
    assert isinstance(schedule.next(after(100)), Send)


def test_a_failed_trigger_is_due_again_with_what_drifted_meanwhile(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    begin(schedule, 2)
    schedule.drifted("Service/prod/bao", ["/b"], after(3))

    assert schedule.failed(after(4))
    assert schedule.next(after(3.5)) == after(4)
    send = write(schedule, 4, "t2")
    assert send.batch.burst.objects == (BAO, "Service/prod/bao")
    assert send.batch.burst.opened == after(0)
    assert schedule.next(after(5)) == after(64)


def test_a_failed_trigger_keeps_what_was_outstanding(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)
    schedule.drifted("Service/prod/bao", ["/b"], after(3))
    begin(schedule, 5, "t2")

    schedule.failed(after(6))

    assert write(schedule, 6, "t3").batch.burst.objects == ("Service/prod/bao", BAO)


def test_a_lost_response_is_no_failure_if_the_cluster_shows_the_trigger(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    begin(schedule, 2)
    schedule.cluster_seen(ClusterView("u1", "t1"), after(2.5))

    assert not schedule.failed(after(4))
    assert schedule.outstanding == "t1"
    assert schedule.next(after(5)) == after(62)


def test_a_trigger_can_be_acknowledged_before_its_response(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    begin(schedule, 2)
    schedule.cluster_seen(ClusterView("u1", "t1"), after(2.5))

    assert schedule.cluster_seen(CLUSTER, after(3)) is not None
    schedule.succeeded()
    assert schedule.next(after(1000)) is None


def test_a_trigger_of_the_last_process_is_waited_for() -> None:
    schedule = new_schedule()
    schedule.cluster_seen(ClusterView("u1", "t0", BAO), START)

    assert schedule.outstanding == "t0"
    assert schedule.next(after(1)) == after(60)
    again = write(schedule, 60)
    assert again.is_repeated
    assert again.batch.burst.first == BAO


def test_a_trigger_that_appears_later_is_not_ours(schedule: TriggerSchedule) -> None:
    schedule.cluster_seen(ClusterView("u1", "foreign", BAO), after(1))

    assert schedule.outstanding == ""
    assert schedule.next(after(1000)) is None


def test_a_maintenance_delays_the_trigger(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))

    assert schedule.next(after(5), not_before=after(100)) == after(100)
    assert isinstance(schedule.next(after(100)), Send)


@pytest.mark.parametrize("view", [None, ClusterView("u1", is_deleting=True)])
def test_without_a_cluster_nothing_is_sent(schedule: TriggerSchedule, view: ClusterView | None) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    schedule.cluster_seen(view, after(1))

    assert schedule.next(after(100)) is None
    assert schedule.pending_now() is None
    schedule.cluster_seen(CLUSTER, after(101))
    assert isinstance(schedule.next(after(101)), Send)


def test_a_new_cluster_of_the_same_name_has_no_outstanding_trigger(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)

    schedule.cluster_seen(ClusterView("u2"), after(3))

    assert schedule.outstanding == ""
    assert schedule.next(after(1000)) is None


def test_cleared_drift_is_not_sent(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    write(schedule, 2)
    schedule.drifted(BAO, ["/a"], after(3))

    schedule.clear()

    assert not schedule.has_pending
    assert schedule.next(after(1000)) is None


def test_what_is_collected_can_be_sent_before_the_process_ends(schedule: TriggerSchedule) -> None:
    assert schedule.pending_now() is None

    schedule.drifted(BAO, ["/a"], after(0))
    send = schedule.pending_now()

    assert send is not None
    assert send.batch.burst.first == BAO
    schedule.began(send, "t1", after(1))
    assert schedule.pending_now() is None


def test_the_fifth_correction_of_a_path_is_held(schedule: TriggerSchedule) -> None:
    for n in range(4):
        correct(schedule, 10 * n, f"t{n}")

    conflict = schedule.drifted(BAO, ["/spec/replicas"], after(40))

    assert conflict is not None
    assert conflict.corrections == 4
    held_until = after(33) + INITIAL_DELAY
    assert schedule.next(after(40)) == held_until
    schedule.drifted(BAO, ["/spec/replicas"], after(41))
    assert schedule.next(after(41)) == held_until
    assert isinstance(schedule.next(held_until), Send)


def test_drift_of_another_path_takes_the_held_one_along(schedule: TriggerSchedule) -> None:
    for n in range(4):
        correct(schedule, 10 * n, f"t{n}")
    schedule.drifted(BAO, ["/spec/replicas"], after(40))

    schedule.drifted("Service/prod/bao", ["/spec/ports"], after(41))

    send = write(schedule, 43, "t5")
    assert send.batch.burst.objects == ("Service/prod/bao", BAO)
    assert schedule.next(after(44)) == after(103)


def test_a_conflict_whose_delay_has_passed_is_not_held(schedule: TriggerSchedule) -> None:
    for n in range(4):
        correct(schedule, 10 * n, f"t{n}")

    conflict = schedule.drifted(BAO, ["/spec/replicas"], after(100))

    assert conflict is not None
    assert schedule.next(after(100)) == after(102)


def test_a_limited_number_of_paths_is_remembered(schedule: TriggerSchedule) -> None:
    for n in range(3):
        schedule.drifted(BAO, [f"/data/{n}-{path}" for path in range(MAX_PATHS)], after(n))

    send = schedule.next(after(20))

    assert isinstance(send, Send)
    assert len(send.batch.fields) == MAX_PATHS


@given(st.lists(st.tuples(st.floats(0.1, 5), st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_whatever_fails_everything_that_drifted_is_sent(steps: list[tuple[float, bool, bool]]) -> None:
    """Each step: some time passes, an object may drift, the write that is due may fail."""
    schedule = new_schedule()
    schedule.cluster_seen(CLUSTER, START)
    unsent: set[str] = set()
    seconds = 0.0
    for number, (pause, drifts, fails) in enumerate(steps):
        seconds += pause
        if drifts:
            name = f"Service/prod/{number}"
            schedule.drifted(name, ["/spec"], after(seconds))
            unsent.add(name)
        if isinstance(schedule.next(after(seconds)), Send):
            send = begin(schedule, seconds, f"t{number}")
            if fails:
                assert schedule.failed(after(seconds + 1))
            else:
                unsent -= set(send.batch.burst.objects)
                schedule.succeeded()

    send_last = schedule.next(after(seconds + MAX_WAIT))

    assert bool(unsent) == schedule.has_pending
    if unsent:
        assert isinstance(send_last, Send)
        assert unsent <= set(send_last.batch.burst.objects)


def test_a_trigger_that_cannot_be_replaced_is_still_outstanding(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    assert not schedule.has_outstanding
    write(schedule, WINDOW)
    assert schedule.has_outstanding

    begin(schedule, WINDOW + ACK_TIMEOUT, "t2")
    assert schedule.has_outstanding
    schedule.failed(after(100))
    assert schedule.has_outstanding

    schedule.clear()
    assert not schedule.has_outstanding


def test_a_trigger_that_was_never_written_is_not_outstanding(schedule: TriggerSchedule) -> None:
    schedule.drifted(BAO, ["/a"], after(0))
    begin(schedule, WINDOW)
    schedule.failed(after(100))

    assert not schedule.has_outstanding
