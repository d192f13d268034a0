"""Pacing: one event per max age, and no event lost."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.decision import decide
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from tests.core.pulse.polls import POLICY, Polls

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def resource(
    identifier: str = "cls-1",
    *,
    generation: int = 1,
    observed: int = 1,
    updated: datetime | None = NOW - timedelta(hours=1),
    ready: bool = False,
    paused: bool = False,
    requested: datetime | None = None,
) -> Observation:
    return Observation(identifier, "Cluster", generation, observed, ready, updated, {}, paused, requested)


def test_an_unchanged_status_is_published_once_per_max_age() -> None:
    polls = Polls()

    verdicts = [polls.poll_one(NOW + n * 5 * SECOND, resource()) for n in range(60)]

    assert verdicts.count(PacingVerdict.PUBLISH) == 30
    assert verdicts.count(PacingVerdict.PACED) == 30


def test_a_newer_generation_is_published_at_once() -> None:
    polls = Polls()
    polls.poll(NOW, resource(generation=2))

    assert polls.poll(NOW + SECOND, resource(generation=3)) == [PacingVerdict.PUBLISH]


def test_an_unobserved_generation_repeats_at_the_shorter_interval() -> None:
    polls = Polls()
    silent = resource(generation=2, observed=1, ready=True)

    verdicts = [polls.poll_one(NOW + n * 5 * SECOND, silent) for n in range(4)]

    assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED, PacingVerdict.PUBLISH, PacingVerdict.PACED]


def test_an_unconfirmed_event_is_due_at_the_next_poll() -> None:
    pacer = Pacer()
    stuck = resource()
    for n in range(2):
        now = NOW + n * SECOND
        pacer.begin_cycle()

        assert pacer.decide(stuck, POLICY, now).verdict is PacingVerdict.PUBLISH

        pacer.end_cycle(is_complete=True)


def test_a_republish_interval_replaces_the_max_age() -> None:
    polls = Polls(republish_interval=60 * SECOND)

    verdicts = [polls.poll_one(NOW + n * 10 * SECOND, resource()) for n in range(7)]

    assert verdicts == [PacingVerdict.PUBLISH, *[PacingVerdict.PACED] * 5, PacingVerdict.PUBLISH]


def test_a_republish_interval_of_zero_keeps_deduplication() -> None:
    polls = Polls(republish_interval=timedelta(0))

    assert polls.poll(NOW, resource(), resource()) == [PacingVerdict.PUBLISH, PacingVerdict.REPEATED]
    assert polls.poll(NOW + SECOND, resource()) == [PacingVerdict.PUBLISH]


class TestChangedInterval:
    """A pulse that is rebuilt for new settings keeps its table."""

    def test_what_was_published_before_is_paced_by_the_new_interval(self) -> None:
        polls = Polls(republish_interval=60 * SECOND)
        polls.poll(NOW, resource())

        polls.pacer.republish_interval = 20 * SECOND

        assert polls.poll(NOW + 15 * SECOND, resource()) == [PacingVerdict.PACED]
        assert polls.poll(NOW + 20 * SECOND, resource()) == [PacingVerdict.PUBLISH]

    def test_without_an_interval_the_max_age_applies_again(self) -> None:
        polls = Polls(republish_interval=60 * SECOND)
        polls.poll(NOW, resource())

        polls.pacer.republish_interval = None

        assert polls.poll(NOW + 5 * SECOND, resource()) == [PacingVerdict.PACED]
        assert polls.poll(NOW + 10 * SECOND, resource()) == [PacingVerdict.PUBLISH]

    @given(
        st.lists(
            st.tuples(st.integers(1, 40), st.none() | st.integers(0, 60).map(lambda n: n * SECOND)), max_size=30
        )
    )
    def test_each_poll_uses_the_interval_in_force(self, polled: list[tuple[int, timedelta | None]]) -> None:
        polls = Polls()
        now, published = NOW, NOW
        polls.poll(now, resource())

        for seconds, interval in polled:
            now += seconds * SECOND
            polls.pacer.republish_interval = interval
            waited = POLICY.max_age_not_ready if interval is None else interval
            is_over = now - published >= waited - min(waited / 10, SECOND / 2)

            assert polls.poll(now, resource()) == [PacingVerdict.PUBLISH if is_over else PacingVerdict.PACED]

            published = now if is_over else published


def test_a_healthy_fleet_leaves_the_table_empty() -> None:
    polls = Polls()
    polls.poll(NOW, resource())

    polls.poll(NOW + 5 * SECOND, resource(updated=NOW + SECOND))

    assert len(polls.pacer) == 0


def test_a_missing_resource_is_forgotten_after_two_complete_walks() -> None:
    polls = Polls()
    polls.poll(NOW, resource("a"), resource("b"))

    polls.poll(NOW + SECOND, resource("b"))
    after_one = len(polls.pacer)
    polls.poll(NOW + 2 * SECOND, resource("b"))

    assert (after_one, len(polls.pacer)) == (2, 1)


def test_incomplete_walks_forget_nothing() -> None:
    polls = Polls()
    polls.poll(NOW, resource("a"))

    for n in range(5):
        polls.poll(NOW + n * SECOND, is_complete=False)

    assert polls.poll(NOW + 6 * SECOND, resource("a")) == [PacingVerdict.PACED]


def test_forgetting_survives_an_overflow_of_the_walk_counter() -> None:
    polls = Polls()
    for n in range(300):
        polls.poll(NOW + n * SECOND, resource("a"))

    polls.poll(NOW + 400 * SECOND)
    polls.poll(NOW + 401 * SECOND)

    assert len(polls.pacer) == 0


def test_a_clock_set_back_delays_by_one_interval_at_most() -> None:
    polls = Polls()
    past = NOW - timedelta(hours=1)
    stuck = resource(updated=past - timedelta(hours=1))
    polls.poll(NOW, stuck)

    assert polls.poll(past, stuck) == [PacingVerdict.PACED]
    assert polls.poll(past + 10 * SECOND, stuck) == [PacingVerdict.PUBLISH]


def test_a_fast_adapter_clock_delays_nothing() -> None:
    polls = Polls()
    fast = resource(updated=NOW + timedelta(minutes=4))

    verdicts = [polls.poll_one(NOW + n * 5 * SECOND, fast) for n in range(60)]

    assert verdicts[:5] == [
        PacingVerdict.SKIP,
        PacingVerdict.SKIP,
        PacingVerdict.PUBLISH,
        PacingVerdict.PACED,
        PacingVerdict.PUBLISH,
    ]
    assert verdicts.count(PacingVerdict.PUBLISH) == 29


def test_each_report_of_a_fast_clock_counts_from_when_seen() -> None:
    polls = Polls()
    ahead = timedelta(minutes=4)
    polls.poll(NOW, resource(updated=NOW + ahead))

    assert polls.poll(NOW + 10 * SECOND, resource(updated=NOW + ahead + 9 * SECOND)) == [PacingVerdict.SKIP]
    assert polls.poll(NOW + 15 * SECOND, resource(updated=NOW + ahead + 9 * SECOND)) == [PacingVerdict.SKIP]
    assert polls.poll(NOW + 20 * SECOND, resource(updated=NOW + ahead + 9 * SECOND)) == [PacingVerdict.PUBLISH]


def test_a_future_time_that_is_corrected_is_forgotten() -> None:
    polls = Polls()
    polls.poll(NOW, resource(updated=NOW + timedelta(minutes=4)))

    polls.poll(NOW + SECOND, resource(updated=NOW))

    assert len(polls.pacer) == 0


def test_huge_generations_and_times_before_1970_are_handled() -> None:
    polls = Polls()
    before = datetime(1960, 1, 1, tzinfo=UTC)

    assert polls.poll(before, resource(generation=2**80, observed=0)) == [PacingVerdict.PUBLISH]
    assert polls.poll(before, resource(generation=-1, observed=-2)) == [PacingVerdict.PUBLISH]


def test_an_entry_takes_at_most_150_bytes() -> None:
    pacer = Pacer()
    pacer.begin_cycle()
    count = 100_000
    decision = decide(resource(), POLICY, NOW)
    for n in range(count):
        pacer.record_published(resource(f"cluster-{n:08d}", generation=3), decision, NOW)

    table = pacer._table
    size = sys.getsizeof(table) + sum(map(sys.getsizeof, table)) + sum(map(sys.getsizeof, table.values()))

    assert size / count <= 150


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(0, 4)), max_size=60))
def test_a_generation_is_published_once_within_the_max_age(steps: list[tuple[int, bool, int]]) -> None:
    """For any status, as long as the adapters do not report on the current generation."""
    polls = Polls()
    now, generation = NOW, 1
    published: dict[int, datetime] = {}
    for seconds, changes, lag in steps:
        now += seconds * SECOND
        generation += changes
        stuck = resource(generation=generation, observed=generation - lag, updated=NOW - timedelta(hours=2))
        if polls.poll(now, stuck) == [PacingVerdict.PUBLISH]:
            assert now - published.get(generation, datetime.min.replace(tzinfo=UTC)) >= 9.5 * SECOND
            published[generation] = now
        else:
            assert generation in published


def test_a_healthy_resource_has_no_entry() -> None:
    polls = Polls()

    assert polls.poll(NOW, resource(updated=NOW)) == [PacingVerdict.SKIP]
    assert len(polls.pacer) == 0


def test_a_resource_without_a_report_is_paced_too() -> None:
    polls = Polls()

    verdicts = [polls.poll_one(NOW + n * 5 * SECOND, resource(updated=None)) for n in range(3)]

    assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED, PacingVerdict.PUBLISH]


def test_a_clock_set_back_delays_a_future_time_by_one_interval() -> None:
    polls = Polls()
    past = NOW - timedelta(hours=1)
    fast = resource(updated=NOW + timedelta(minutes=4))
    polls.poll(NOW, fast)

    assert polls.poll(past, fast) == [PacingVerdict.SKIP]
    assert polls.poll(past + 10 * SECOND, fast) == [PacingVerdict.PUBLISH]


def test_a_slightly_early_poll_still_publishes() -> None:
    polls = Polls()
    polls.poll(NOW, resource())

    assert polls.poll(NOW + timedelta(seconds=9.4), resource()) == [PacingVerdict.PACED]
    assert polls.poll(NOW + timedelta(seconds=9.99), resource()) == [PacingVerdict.PUBLISH]


def test_pacing_counts_from_publishing_not_from_the_cycle() -> None:
    pacer = Pacer()
    late = resource()
    pacer.begin_cycle()
    paced = pacer.decide(late, POLICY, NOW)
    pacer.record_published(late, paced.decision, NOW + 8 * SECOND)
    pacer.end_cycle(is_complete=True)
    pacer.begin_cycle()

    again = pacer.decide(late, POLICY, NOW + 10 * SECOND)

    assert again.verdict is PacingVerdict.PACED


class TestRequests:
    def test_a_request_is_published_right_after_its_generation(self) -> None:
        polls = Polls()
        polls.poll(NOW, resource())

        requested = resource(requested=NOW + SECOND)

        assert polls.poll(NOW + 2 * SECOND, requested) == [PacingVerdict.PUBLISH]

    def test_an_unanswered_request_is_paced(self) -> None:
        polls = Polls()
        unanswered = resource(ready=True, updated=NOW, requested=NOW + SECOND)

        verdicts = [polls.poll_one(NOW + n * timedelta(minutes=5), unanswered) for n in range(1, 14)]

        assert verdicts == [PacingVerdict.PUBLISH, *[PacingVerdict.PACED] * 5] * 2 + [PacingVerdict.PUBLISH]

    def test_each_new_request_is_published_once(self) -> None:
        polls = Polls()
        answered = NOW - SECOND

        verdicts = [
            polls.poll(
                NOW + n * SECOND, resource(ready=True, updated=answered, requested=NOW + n // 3 * 3 * SECOND)
            )[0]
            for n in range(9)
        ]

        assert verdicts == [PacingVerdict.PUBLISH, PacingVerdict.PACED, PacingVerdict.PACED] * 3

    def test_an_event_for_a_new_generation_answers_a_request_too(self) -> None:
        polls = Polls()
        polls.poll(NOW, resource(generation=2, requested=NOW))

        assert polls.poll(NOW + SECOND, resource(generation=2, requested=NOW)) == [PacingVerdict.PACED]
        assert polls.poll(NOW + 2 * SECOND, resource(generation=2, observed=2, requested=NOW)) == [
            PacingVerdict.PACED
        ]

    def test_a_request_is_published_while_a_generation_is_paced(self) -> None:
        polls = Polls()
        polls.poll(NOW, resource(generation=2))

        requested = resource(generation=2, requested=NOW + SECOND)

        assert polls.poll(NOW + 2 * SECOND, requested) == [PacingVerdict.PUBLISH]
        assert polls.poll(NOW + 3 * SECOND, requested) == [PacingVerdict.PACED]

    def test_a_request_that_was_not_confirmed_stays_due(self) -> None:
        pacer = Pacer()
        requested = resource(requested=NOW)
        for n in range(3):
            now = NOW + n * SECOND
            pacer.begin_cycle()

            assert pacer.decide(requested, POLICY, now).verdict is PacingVerdict.PUBLISH

            pacer.end_cycle(is_complete=True)

    def test_an_answered_request_leaves_no_entry(self) -> None:
        polls = Polls()
        polls.poll(NOW, resource(requested=NOW))

        polls.poll(NOW + SECOND, resource(requested=NOW, updated=NOW + SECOND))

        assert len(polls.pacer) == 0

    def test_a_request_is_remembered_beside_a_future_time(self) -> None:
        polls = Polls()
        fast = NOW + timedelta(minutes=4)
        polls.poll(NOW, resource(updated=fast))

        requested = resource(updated=fast, requested=NOW + SECOND)

        assert polls.poll(NOW + 2 * SECOND, requested) == [PacingVerdict.PUBLISH]
        assert polls.poll(NOW + 3 * SECOND, requested) == [PacingVerdict.PACED]
        assert polls.poll(NOW + 12 * SECOND, requested) == [PacingVerdict.PUBLISH]

    def test_pausing_forgets_what_was_published(self) -> None:
        polls = Polls()
        polls.poll(NOW, resource())

        assert polls.poll(NOW + SECOND, resource(paused=True)) == [PacingVerdict.SKIP]
        assert len(polls.pacer) == 0
        assert polls.poll(NOW + 2 * SECOND, resource()) == [PacingVerdict.PUBLISH]

    @given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40))
    def test_between_two_requests_there_is_one_event_per_max_age(self, steps: list[tuple[int, bool]]) -> None:
        polls = Polls()
        now, requested = NOW, NOW
        published: dict[datetime, datetime] = {}
        for seconds, is_requested in steps:
            now += seconds * SECOND
            requested = now if is_requested else requested
            if polls.poll(now, resource(requested=requested)) == [PacingVerdict.PUBLISH]:
                assert now - published.get(requested, datetime.min.replace(tzinfo=UTC)) >= 9.5 * SECOND
                published[requested] = now
            else:
                assert requested in published
