"""The status of a SentinelConfig: what it says, and when it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.operator.status import (
    WRITE_INTERVAL,
    ConditionType,
    ConfigStatus,
    StatusReason,
    write_delay,
)

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def accepted(*, message: str = "", at: datetime = NOW) -> ConfigStatus:
    return (
        ConfigStatus()
        .observed(3)
        .with_condition(ConditionType.ACCEPTED, StatusReason.VALID, message, is_true=True, now=at)
    )


def test_a_status_is_encoded_as_the_surface_says() -> None:
    status = accepted(message="ok").polled(at=NOW + SECOND / 2, resources=40, published=3)

    assert status.encode() == {
        "observedGeneration": 3,
        "resources": 40,
        "published": 3,
        "lastPollTime": "2025-10-21T12:00:00Z",
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Valid",
                "message": "ok",
                "lastTransitionTime": "2025-10-21T12:00:00Z",
                "observedGeneration": 3,
            }
        ],
    }


def test_a_status_without_a_poll_has_no_poll_time() -> None:
    assert "lastPollTime" not in accepted().encode()


def test_a_patch_removes_the_poll_time_of_an_earlier_process() -> None:
    polled = accepted().polled(at=NOW, resources=1, published=0)

    assert accepted().merge_patch() == {**accepted().encode(), "lastPollTime": None}
    assert polled.merge_patch() == polled.encode()


def test_an_incomplete_poll_keeps_the_number_of_resources() -> None:
    status = ConfigStatus().polled(at=NOW, resources=40, published=3).polled(at=NOW, resources=None, published=2)

    assert (status.resources, status.published) == (40, 5)


def test_events_between_two_polls_are_counted() -> None:
    status = ConfigStatus().polled(at=NOW, resources=40, published=3).streamed(published=2)

    assert (status.resources, status.published, status.last_poll_time) == (40, 5, NOW)


def test_a_transition_time_moves_with_the_status_alone() -> None:
    turned = accepted().with_condition(
        ConditionType.ACCEPTED, StatusReason.INVALID, "", is_true=False, now=NOW + SECOND
    )
    reworded = turned.with_condition(
        ConditionType.ACCEPTED, StatusReason.DUPLICATE, "other", is_true=False, now=NOW + 2 * SECOND
    )

    assert [status.conditions[0].last_transition_time for status in (turned, reworded)] == [NOW + SECOND] * 2


def test_a_long_message_is_cut() -> None:
    (condition,) = accepted(message="x" * 5_000).conditions

    assert len(condition.message) == 1_024
    assert condition.message.endswith("…")


def test_the_first_status_is_written_at_once() -> None:
    assert write_delay(accepted(), written=None, written_at=NOW, now=NOW) == timedelta(0)


def test_a_turned_condition_is_written_at_once() -> None:
    turned = accepted().with_condition(ConditionType.ACCEPTED, StatusReason.INVALID, "", is_true=False, now=NOW)

    assert write_delay(turned, written=accepted(), written_at=NOW, now=NOW) == timedelta(0)


def test_a_new_reason_is_written_at_once() -> None:
    degraded = accepted().with_condition(
        ConditionType.DEGRADED, StatusReason.FETCH_FAILED, "", is_true=True, now=NOW
    )
    otherwise = accepted().with_condition(
        ConditionType.DEGRADED, StatusReason.PUBLISH_FAILED, "", is_true=True, now=NOW
    )

    assert write_delay(otherwise, written=degraded, written_at=NOW, now=NOW) == timedelta(0)


def test_an_observed_generation_is_written_at_once() -> None:
    assert write_delay(accepted().observed(4), written=accepted(), written_at=NOW, now=NOW) == timedelta(0)


def test_a_condition_of_a_new_generation_is_written_at_once() -> None:
    judged = accepted().observed(4)
    repeated = judged.with_condition(ConditionType.ACCEPTED, StatusReason.VALID, "", is_true=True, now=NOW)

    assert write_delay(repeated, written=judged, written_at=NOW, now=NOW) == timedelta(0)


def test_an_equal_status_is_not_written() -> None:
    assert write_delay(accepted(), written=accepted(), written_at=NOW, now=NOW + timedelta(days=1)) is None


def test_an_overwritten_status_is_restored_after_the_interval() -> None:
    delay = write_delay(accepted(), written=accepted(), written_at=NOW, now=NOW + 10 * SECOND, is_overwritten=True)

    assert delay == 20 * SECOND


@given(st.integers(-100, 100))
def test_numbers_are_written_every_thirty_seconds(elapsed: int) -> None:
    polled = accepted().polled(at=NOW, resources=1, published=1)

    delay = write_delay(polled, written=accepted(), written_at=NOW, now=NOW + elapsed * SECOND)

    assert delay is not None
    assert timedelta(0) <= delay <= WRITE_INTERVAL
    if 0 <= elapsed <= 30:
        assert delay == WRITE_INTERVAL - elapsed * SECOND


def test_a_condition_can_be_removed() -> None:
    assert accepted().without_condition(ConditionType.ACCEPTED).conditions == ()
    assert accepted().without_condition(ConditionType.DEGRADED) == accepted()


def test_a_successor_keeps_the_transition_times_of_equal_conditions() -> None:
    written = accepted(at=NOW - SECOND).with_condition(
        ConditionType.DEGRADED, StatusReason.HEALTHY, "", is_true=False, now=NOW - SECOND
    )
    own = accepted().with_condition(ConditionType.DEGRADED, StatusReason.FETCH_FAILED, "", is_true=True, now=NOW)

    continued = own.continuing(written.conditions)

    assert [each.last_transition_time for each in continued.conditions] == [NOW - SECOND, NOW]
