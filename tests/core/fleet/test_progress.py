"""Progress: an adapter turns available, the status says so, and whoever waits for it has one event, at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from sentinel.core.fleet import documents, lifecycle, reports, why
from sentinel.core.fleet.documents import KindRules, ResourceStatus
from sentinel.core.fleet.lifecycle import AggregationRules
from sentinel.core.pulse import observation
from sentinel.core.pulse.decision import OBSERVED_AHEAD, Policy, Reason, decide
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource, minute, report_of

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
OFF = Policy(max_age_not_ready=10 * SECOND, max_age_ready=30 * MINUTE)
ON = msgspec.structs.replace(OFF, follows_progress=True)


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


def progress_of(status: ResourceStatus) -> tuple[object, object]:
    return status.last_progress_time, status.progress_count


class TestStatus:
    def test_there_is_none_until_an_adapter_has_turned_available(self) -> None:
        cluster = OneResource("dns", "validation")

        cluster.report("dns", UNKNOWN, at=1)
        cluster.report("validation", FALSE, at=2)

        assert progress_of(cluster.status) == (UNSET, UNSET)
        assert b"progress" not in msgspec.json.encode(cluster.status)

    def test_it_is_the_latest_moment_at_which_a_required_adapter_turned_available(self) -> None:
        cluster = OneResource("dns", "validation")

        cluster.report("validation", TRUE, at=1)
        first = progress_of(cluster.status)
        cluster.report("dns", TRUE, at=2)

        assert first == (minute(1), 1)
        assert progress_of(cluster.status) == (minute(2), 2)

    def test_what_an_adapter_says_again_or_takes_back_is_no_progress(self) -> None:
        cluster = OneResource("dns")
        cluster.report("dns", TRUE, at=1)

        for at, available in ((2, TRUE), (3, UNKNOWN), (4, FALSE), (5, FALSE)):
            cluster.report("dns", available, at=at)

            assert progress_of(cluster.status) == (minute(1), 1)

        cluster.report("dns", TRUE, at=6)

        assert progress_of(cluster.status) == (minute(6), 2)

    def test_an_adapter_that_was_available_before_a_change_of_the_spec_has_to_turn_anew(self) -> None:
        cluster = OneResource("dns", "validation")
        cluster.report("validation", TRUE, at=1)

        cluster.patch(at=2)
        by_the_change = progress_of(cluster.status)
        cluster.report("validation", TRUE, at=3)
        by_the_report = progress_of(cluster.status)
        cluster.report("validation", TRUE, at=4)

        assert by_the_change == (minute(1), 1)
        assert by_the_report == progress_of(cluster.status) == (minute(3), 2)

    def test_what_is_done_for_an_older_generation_is_no_progress(self) -> None:
        cluster = OneResource("dns")
        cluster.patch(at=1)

        cluster.report("dns", TRUE, at=2, generation=1)

        assert progress_of(cluster.status) == (UNSET, UNSET)

    def test_an_adapter_that_is_not_required_makes_none(self) -> None:
        cluster = OneResource("dns")

        cluster.report("billing", TRUE, at=1)

        assert progress_of(cluster.status) == (UNSET, UNSET)

    def test_one_that_becomes_required_turned_when_it_did_and_not_when_it_last_said_so(self) -> None:
        cluster = OneResource("dns")
        cluster.report("dns", TRUE, at=2)
        for at in (1, 3, 4):
            cluster.report("billing", TRUE, at=at)

        cluster.require("dns", "billing")

        assert progress_of(cluster.status) == (minute(2), 2)

    def test_a_completion_by_a_slow_clock_leaves_the_time_and_shows_in_the_count(self) -> None:
        cluster = OneResource("dns", "validation")
        cluster.report("validation", TRUE, at=5)

        cluster.report("dns", TRUE, at=3)

        assert progress_of(cluster.status) == (minute(5), 2)

    def test_a_document_stored_before_there_was_such_a_thing_is_read_and_goes_on_from_there(self) -> None:
        rules = AggregationRules(KindRules("clusters", "Cluster", "", ("dns",)))
        state = lifecycle.create(
            rules, resource_id="c1", name="", labels={}, spec=msgspec.Raw(b"{}"), owner=None, actor="", now=NOW
        )
        stored = documents.encode_document(state.document)
        assert b"progress" not in stored

        document = documents.decode_document(stored)
        verdict = reports.judge(report_of("dns", TRUE, at=1), generation=1, stored=None, now=minute(1))
        assert isinstance(verdict, reports.Accepted)
        taken = lifecycle.with_status(lifecycle.ResourceState(document), rules, verdict.status, children=0)

        assert progress_of(document.status) == (UNSET, UNSET)
        assert observation.observe(stored).last_progress_time is None
        assert progress_of(taken.document.status) == (minute(1), 1)

    reported = st.tuples(
        st.sampled_from(("dns", "validation")), st.sampled_from((TRUE, FALSE, UNKNOWN)), st.integers(0, 20)
    )

    @given(st.lists(reported | st.none(), max_size=20))
    def test_it_moves_exactly_when_an_adapter_turns_and_never_backwards(
        self, steps: list[tuple[str, documents.ConditionStatus, int] | None]
    ) -> None:
        """A step is a report, or None for a change of the spec; times come in any order."""
        cluster = OneResource("dns", "validation")
        done: set[str] = set()
        for step in steps:
            before = cluster.status
            turned: set[str] = set()
            if step is None:
                cluster.patch(at=0)
                done.clear()
            else:
                cluster.report(step[0], step[1], at=step[2])
                current = cluster.statuses.get(step[0])
                is_done = (
                    current is not None
                    and current.observed_generation == cluster.generation
                    and current.status_of("Available") is TRUE
                )
                turned = {step[0]} - done if is_done else set()
                done = done | {step[0]} if is_done else done - {step[0]}

            after = cluster.status

            assert (after.progress_count or 0) == (before.progress_count or 0) + len(turned)
            if isinstance(before.last_progress_time, datetime):
                assert isinstance(after.last_progress_time, datetime)
                assert after.last_progress_time >= before.last_progress_time
            if turned:
                # Whatever the clocks: the report that turned is one of those whose oldest is the status' time.
                assert isinstance(after.last_progress_time, datetime)
                assert after.last_progress_time >= after.last_updated_time
            else:
                assert progress_of(after) == progress_of(before)


class TestDecision:
    def test_progress_later_than_the_status_is_due_at_once(self) -> None:
        decision = decide(seen(ready=True, updated=NOW - MINUTE, progress=NOW - SECOND), ON, NOW)

        assert decision.is_due
        assert decision.reason == "adapter progressed"
        assert decision.next_event_time == decision.due_time == NOW
        assert decision.max_age == 30 * MINUTE

    def test_progress_that_every_adapter_has_looked_at_since_is_none(self) -> None:
        decision = decide(seen(updated=NOW, progress=NOW - SECOND), ON, NOW)

        assert decision.reason is Reason.NOT_EXPIRED

    @pytest.mark.parametrize(("ready", "reason"), [(False, Reason.ADAPTER_PROGRESSED), (True, Reason.NOT_EXPIRED)])
    def test_where_the_adapter_that_turned_is_the_one_that_looked_longest_ago_others_may_wait_for_it(
        self, ready: bool, reason: Reason
    ) -> None:
        decision = decide(seen(ready=ready, updated=NOW, progress=NOW), ON, NOW)

        assert decision.reason is reason

    def test_unless_asked_to_nobody_follows_progress(self) -> None:
        progressed = seen(updated=NOW - SECOND, progress=NOW)

        assert decide(progressed, OFF, NOW) == decide(seen(updated=NOW - SECOND), OFF, NOW)

    @pytest.mark.parametrize("ready", [True, False])
    def test_a_server_that_does_not_tell_of_progress_is_decided_on_as_ever(self, ready: bool) -> None:
        for updated in (None, NOW - 60 * MINUTE, NOW):
            plain = seen(ready=ready, updated=updated)

            assert decide(plain, ON, NOW) == decide(plain, OFF, NOW)

    def test_without_any_status_progress_stands(self) -> None:
        assert decide(seen(updated=None, progress=NOW), ON, NOW).reason is Reason.ADAPTER_PROGRESSED

    def test_a_new_generation_comes_first_then_a_request_then_progress_then_age(self) -> None:
        old = partial(seen, updated=NOW - 60 * MINUTE)
        asked = NOW - SECOND

        reasons = [
            decide(old(progress=NOW, requested=asked, generation=2), ON, NOW).reason,
            decide(old(progress=NOW, requested=asked), ON, NOW).reason,
            decide(old(progress=NOW), ON, NOW).reason,
            decide(old(), ON, NOW).reason,
        ]

        assert reasons == [
            Reason.GENERATION_CHANGED,
            Reason.PULSE_REQUESTED,
            Reason.ADAPTER_PROGRESSED,
            Reason.EXPIRED_NOT_READY,
        ]

    def test_a_paused_resource_is_not_due_whoever_progresses(self) -> None:
        decision = decide(seen(paused=True, updated=NOW - SECOND, progress=NOW), ON, NOW)

        assert (decision.is_due, decision.reason) == (False, Reason.PAUSED)

    def test_a_warning_stays(self) -> None:
        assert decide(seen(observed=2, progress=NOW), ON, NOW).warning == OBSERVED_AHEAD

    def test_clocks_that_are_all_fast_answer_each_other(self) -> None:
        """Our own clock, by which such times lie in the future, has no say in which of the two is later."""
        ahead = NOW + 4 * MINUTE

        decision = decide(seen(updated=ahead + SECOND, progress=ahead), ON, NOW, first_seen=NOW - 5 * SECOND)

        assert decision.reason is Reason.NOT_EXPIRED

    def test_why_says_that_it_is_due_now(self) -> None:
        rules = AggregationRules(KindRules("clusters", "Cluster", "", ("dns", "validation")))
        state = lifecycle.create(
            rules, resource_id="c1", name="one", labels={}, spec=msgspec.Raw(b"{}"), owner=None, actor="", now=NOW
        )
        cluster = OneResource("dns", "validation")
        cluster.report("validation", TRUE, at=1)
        cluster.report("dns", FALSE, at=2)
        for status in cluster.statuses.values():
            state = lifecycle.with_status(state, rules, status, children=0)

        found = why.explain(
            state.document, statuses=(), waiting={}, required=(), children=0, policy=ON, now=minute(2)
        )

        assert found.next_pulse == minute(2)
        *_, outlook = why.sentences(found, now=minute(2), duration=str)
        assert outlook == "next pulse due now, and every 0:00:10 until it is answered: adapter progressed"


class Polls:
    """A pulse reduced to its decisions; every publish is confirmed."""

    def __init__(self) -> None:
        self.pacer = Pacer()
        self.published = 0

    def poll(self, resource: Observation, now: datetime, policy: Policy = ON) -> PacingVerdict:
        self.pacer.begin_cycle()
        paced = self.pacer.decide(resource, policy, now)
        if paced.verdict is PacingVerdict.PUBLISH:
            self.pacer.record_published(resource, paced.decision, now)
            self.published += 1
        self.pacer.end_cycle(is_complete=True)
        return paced.verdict


class TestPacing:
    def test_any_number_of_polls_after_one_progress_publish_once(self) -> None:
        polls = Polls()
        progressed = seen(ready=True, updated=NOW - SECOND, progress=NOW)

        verdicts = [polls.poll(progressed, NOW + n * SECOND) for n in range(100)]

        assert verdicts == [PacingVerdict.PUBLISH, *[PacingVerdict.PACED] * 99]

    def test_two_values_publish_twice_however_close_they_are(self) -> None:
        polls = Polls()
        moments = [NOW, NOW, NOW + timedelta(microseconds=1), NOW + timedelta(microseconds=1)]

        verdicts = [polls.poll(seen(updated=NOW - SECOND, progress=moment), NOW) for moment in moments]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED] * 2

    def test_two_completions_that_bear_the_same_time_publish_twice(self) -> None:
        polls = Polls()

        verdicts = [polls.poll(seen(updated=NOW, progress=NOW, count=count), NOW) for count in (1, 1, 2, 2)]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED] * 2

    def test_progress_goes_at_once_although_the_generation_was_just_published(self) -> None:
        polls = Polls()
        polls.poll(seen(generation=1, observed=0), NOW)

        halfway = seen(generation=1, observed=0, progress=NOW, count=1)
        verdicts = [polls.poll(halfway, NOW + n * SECOND) for n in (1, 2)]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED]

    def test_an_event_for_another_reason_tells_of_the_progress_too(self) -> None:
        polls = Polls()
        polls.poll(seen(generation=2, updated=NOW, progress=NOW - SECOND), NOW)

        slow_clock = seen(generation=2, observed=2, updated=NOW - MINUTE, progress=NOW - SECOND)

        assert polls.poll(slow_clock, NOW + SECOND) is PacingVerdict.PACED

    def test_a_request_and_progress_do_not_hide_each_other(self) -> None:
        polls = Polls()
        both = partial(seen, updated=NOW - SECOND, progress=NOW)

        verdicts = [
            polls.poll(both(), NOW),
            polls.poll(both(requested=NOW), NOW),
            polls.poll(both(requested=NOW, count=1), NOW),
            polls.poll(both(requested=NOW, count=1), NOW),
        ]

        assert verdicts == [PacingVerdict.PUBLISH] * 3 + [PacingVerdict.PACED]

    def test_a_paused_resource_is_not_published(self) -> None:
        polls = Polls()

        assert polls.poll(seen(paused=True, updated=NOW - SECOND, progress=NOW), NOW) is PacingVerdict.SKIP

    def test_with_the_setting_off_nothing_is_published_for_it(self) -> None:
        polls = Polls()
        verdicts = [
            polls.poll(seen(updated=NOW - SECOND, progress=NOW, count=n), NOW + n * SECOND, OFF) for n in range(9)
        ]

        assert verdicts == [PacingVerdict.SKIP] * 9

    def test_what_was_not_confirmed_stays_due(self) -> None:
        pacer = Pacer()
        progressed = seen(updated=NOW - SECOND, progress=NOW)
        for _ in range(3):
            pacer.begin_cycle()

            assert pacer.decide(progressed, ON, NOW).verdict is PacingVerdict.PUBLISH

            pacer.end_cycle(is_complete=True)

    def test_answered_progress_leaves_nothing_behind(self) -> None:
        polls = Polls()
        polls.poll(seen(updated=NOW - SECOND, progress=NOW), NOW)

        assert polls.poll(seen(updated=NOW + SECOND, progress=NOW), NOW + SECOND) is PacingVerdict.SKIP
        assert len(polls.pacer) == 0

    def test_progress_is_remembered_beside_a_time_from_the_future(self) -> None:
        polls = Polls()
        fast = seen(updated=NOW + MINUTE, progress=NOW + 2 * MINUTE)

        verdicts = [polls.poll(fast, NOW + n * SECOND) for n in range(9)]

        assert verdicts == [PacingVerdict.PUBLISH, *[PacingVerdict.PACED] * 8]

    @given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60))
    def test_there_is_one_event_per_completion_and_max_age_at_most(self, steps: list[tuple[int, bool]]) -> None:
        polls = Polls()
        now, count, completions = NOW, 0, 0
        for seconds, completes in steps:
            now += seconds * SECOND
            completions += completes
            count += completes
            polls.poll(seen(updated=NOW, progress=NOW, count=count), now)

        # The first poll has its event either way, and each max age may bring one more.
        assert polls.published <= 1 + completions + (now - NOW) // (9.5 * SECOND)
        assert polls.published >= completions
