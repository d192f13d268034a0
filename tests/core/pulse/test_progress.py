"""Progress of an adapter makes a resource due, and is published once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.decision import OBSERVED_AHEAD, Reason, decide
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from tests.core.pulse.polls import POLICY, Polls

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
OFF = POLICY
ON = msgspec.structs.replace(POLICY, follows_progress=True)


def seen(
    *,
    ready: bool = False,
    generation: int = 1,
    observed: int = 1,
    updated: datetime | None = NOW,
    progress: datetime | None = None,
    count: int = 0,
    requested: datetime | None = None,
    paused: bool = False,
) -> Observation:
    return Observation(
        "cls-1", "Cluster", generation, observed, ready, updated, {}, paused, requested, progress, count
    )


class TestDecision:
    def test_progress_later_than_the_status_is_due_at_once(self) -> None:
        decision = decide(seen(ready=True, updated=NOW - MINUTE, progress=NOW - SECOND), ON, NOW)

        assert decision.is_due
        assert decision.reason == "adapter progressed"
        assert decision.next_event_time == decision.due_time == NOW
        assert decision.max_age == 30 * MINUTE

    def test_progress_that_every_adapter_has_seen_is_closed(self) -> None:
        decision = decide(seen(updated=NOW, progress=NOW - SECOND), ON, NOW)

        assert decision.reason is Reason.NOT_EXPIRED

    @pytest.mark.parametrize(("ready", "reason"), [(False, Reason.ADAPTER_PROGRESSED), (True, Reason.NOT_EXPIRED)])
    def test_equal_times_are_an_answer_only_if_ready(self, ready: bool, reason: Reason) -> None:
        decision = decide(seen(ready=ready, updated=NOW, progress=NOW), ON, NOW)

        assert decision.reason is reason

    def test_progress_is_ignored_by_default(self) -> None:
        progressed = seen(updated=NOW - SECOND, progress=NOW)

        assert decide(progressed, OFF, NOW) == decide(seen(updated=NOW - SECOND), OFF, NOW)

    @pytest.mark.parametrize("ready", [True, False])
    def test_without_progress_the_setting_changes_nothing(self, ready: bool) -> None:
        for updated in (None, NOW - 60 * MINUTE, NOW):
            plain = seen(ready=ready, updated=updated)

            assert decide(plain, ON, NOW) == decide(plain, OFF, NOW)

    def test_progress_is_due_without_any_status(self) -> None:
        assert decide(seen(updated=None, progress=NOW), ON, NOW).reason is Reason.ADAPTER_PROGRESSED

    def test_the_order_is_generation_request_progress_age(self) -> None:
        old = partial(seen, updated=NOW - 60 * MINUTE)
        requested = NOW - SECOND

        reasons = [
            decide(old(progress=NOW, requested=requested, generation=2), ON, NOW).reason,
            decide(old(progress=NOW, requested=requested), ON, NOW).reason,
            decide(old(progress=NOW), ON, NOW).reason,
            decide(old(), ON, NOW).reason,
        ]

        assert reasons == [
            Reason.GENERATION_CHANGED,
            Reason.PULSE_REQUESTED,
            Reason.ADAPTER_PROGRESSED,
            Reason.EXPIRED_NOT_READY,
        ]

    def test_progress_of_a_paused_resource_is_not_due(self) -> None:
        decision = decide(seen(paused=True, updated=NOW - SECOND, progress=NOW), ON, NOW)

        assert (decision.is_due, decision.reason) == (False, Reason.PAUSED)

    def test_a_warning_stays(self) -> None:
        assert decide(seen(observed=2, progress=NOW), ON, NOW).warning == OBSERVED_AHEAD

    def test_fast_adapter_clocks_are_compared_with_each_other(self) -> None:
        """Our clock does not matter, although both times are in its future."""
        ahead = NOW + 4 * MINUTE

        decision = decide(seen(updated=ahead + SECOND, progress=ahead), ON, NOW, first_seen=NOW - 5 * SECOND)

        assert decision.reason is Reason.NOT_EXPIRED


class TestPacing:
    def test_any_number_of_polls_after_one_progress_publish_once(self) -> None:
        polls = Polls(ON)
        progressed = seen(ready=True, updated=NOW - SECOND, progress=NOW)

        verdicts = [polls.poll_one(NOW + n * SECOND, progressed) for n in range(100)]

        assert verdicts == [PacingVerdict.PUBLISH, *[PacingVerdict.PACED] * 99]

    def test_two_close_progress_times_publish_twice(self) -> None:
        polls = Polls(ON)
        times = [NOW, NOW, NOW + timedelta(microseconds=1), NOW + timedelta(microseconds=1)]

        verdicts = [polls.poll_one(NOW, seen(updated=NOW - SECOND, progress=time)) for time in times]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED] * 2

    def test_two_completions_with_equal_times_publish_twice(self) -> None:
        polls = Polls(ON)

        verdicts = [polls.poll_one(NOW, seen(updated=NOW, progress=NOW, count=count)) for count in (1, 1, 2, 2)]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED] * 2

    def test_progress_is_published_right_after_its_generation(self) -> None:
        polls = Polls(ON)
        polls.poll_one(NOW, seen(generation=1, observed=0))

        halfway = seen(generation=1, observed=0, progress=NOW, count=1)
        verdicts = [polls.poll_one(NOW + n * SECOND, halfway) for n in (1, 2)]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED]

    def test_an_event_for_another_reason_covers_the_progress_too(self) -> None:
        polls = Polls(ON)
        polls.poll_one(NOW, seen(generation=2, updated=NOW, progress=NOW - SECOND))

        slow_clock = seen(generation=2, observed=2, updated=NOW - MINUTE, progress=NOW - SECOND)

        assert polls.poll_one(NOW + SECOND, slow_clock) is PacingVerdict.PACED

    def test_a_request_and_progress_do_not_hide_each_other(self) -> None:
        polls = Polls(ON)
        both = partial(seen, updated=NOW - SECOND, progress=NOW)

        verdicts = [
            polls.poll_one(NOW, both()),
            polls.poll_one(NOW, both(requested=NOW)),
            polls.poll_one(NOW, both(requested=NOW, count=1)),
            polls.poll_one(NOW, both(requested=NOW, count=1)),
        ]

        assert verdicts == [PacingVerdict.PUBLISH] * 3 + [PacingVerdict.PACED]

    def test_a_paused_resource_is_not_published(self) -> None:
        polls = Polls(ON)

        assert polls.poll_one(NOW, seen(paused=True, updated=NOW - SECOND, progress=NOW)) is PacingVerdict.SKIP

    def test_with_the_setting_off_nothing_is_published(self) -> None:
        polls = Polls(OFF)
        verdicts = [
            polls.poll_one(NOW + n * SECOND, seen(updated=NOW - SECOND, progress=NOW, count=n)) for n in range(9)
        ]

        assert verdicts == [PacingVerdict.SKIP] * 9

    def test_an_unconfirmed_event_stays_due(self) -> None:
        pacer = Pacer()
        progressed = seen(updated=NOW - SECOND, progress=NOW)
        for _ in range(3):
            pacer.begin_cycle()

            assert pacer.decide(progressed, ON, NOW).verdict is PacingVerdict.PUBLISH

            pacer.end_cycle(is_complete=True)

    def test_answered_progress_leaves_no_entry(self) -> None:
        polls = Polls(ON)
        polls.poll_one(NOW, seen(updated=NOW - SECOND, progress=NOW))

        assert polls.poll_one(NOW + SECOND, seen(updated=NOW + SECOND, progress=NOW)) is PacingVerdict.SKIP
        assert len(polls.pacer) == 0

    def test_progress_is_remembered_beside_a_future_time(self) -> None:
        polls = Polls(ON)
        fast = seen(updated=NOW + MINUTE, progress=NOW + 2 * MINUTE)

        verdicts = [polls.poll_one(NOW + n * SECOND, fast) for n in range(9)]

        assert verdicts == [PacingVerdict.PUBLISH, *[PacingVerdict.PACED] * 8]

    @given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60))
    def test_there_is_at_most_one_event_per_completion_and_max_age(self, steps: list[tuple[int, bool]]) -> None:
        polls = Polls(ON)
        now, count, completions = NOW, 0, 0
        for seconds, completes in steps:
            now += seconds * SECOND
            completions += completes
            count += completes
            polls.poll_one(now, seen(updated=NOW, progress=NOW, count=count))

        # The first poll publishes in any case, and each max age may add one event.
        assert polls.published <= 1 + completions + (now - NOW) // (9.5 * SECOND)
        assert polls.published >= completions
