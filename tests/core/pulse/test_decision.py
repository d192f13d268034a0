"""The decision: the eight scenarios of the specification, then properties of every decision."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.decision import OBSERVED_AHEAD, Decision, Policy, Reason, decide, shortened
from sentinel.core.pulse.observation import Observation

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
POLICY = Policy(max_age_not_ready=10 * SECOND, max_age_ready=30 * MINUTE)


def resource(
    *,
    ready: bool = True,
    generation: int = 1,
    observed: int = 1,
    age: timedelta | None = timedelta(0),
    paused: bool = False,
    requested: timedelta | None = None,
) -> Observation:
    """`age` and `requested` are how long ago the last status and the last request were."""
    updated, requested_time = (None if ago is None else NOW - ago for ago in (age, requested))
    return Observation("cls-1", "Cluster", generation, observed, ready, updated, {}, paused, requested_time)


def test_scenario_1_a_ready_cluster_with_a_new_generation_is_due_at_once() -> None:
    decision = decide(resource(generation=2, observed=1, age=5 * SECOND), POLICY, NOW)

    assert decision.is_due
    assert decision.reason == "generation changed - new spec to reconcile"
    assert decision.next_event_time == NOW


def test_scenario_2_a_ready_cluster_at_its_generation_waits_for_max_age() -> None:
    decision = decide(resource(generation=2, observed=2, age=5 * MINUTE), POLICY, NOW)

    assert not decision.is_due
    assert decision.reason == "max age not expired"
    assert decision.next_event_time == NOW + 25 * MINUTE


def test_scenario_3_an_unready_cluster_with_a_new_generation_is_due() -> None:
    decision = decide(resource(ready=False, generation=3, observed=2, age=2 * SECOND), POLICY, NOW)

    assert decision.is_due
    assert decision.reason == "generation changed - new spec to reconcile"


def test_scenario_4_a_not_ready_cluster_past_max_age_is_due() -> None:
    decision = decide(resource(ready=False, age=15 * SECOND), POLICY, NOW)

    assert decision.is_due
    assert decision.reason == "max age expired (not ready)"
    assert decision.due_time == NOW - 5 * SECOND


def test_scenario_5_a_not_ready_cluster_within_max_age_is_skipped() -> None:
    decision = decide(resource(ready=False, age=5 * SECOND), POLICY, NOW)

    assert not decision.is_due
    assert decision.reason == "max age not expired"
    assert decision.next_event_time == NOW + 5 * SECOND


def test_scenario_6_a_ready_cluster_past_max_age_is_due() -> None:
    decision = decide(resource(age=31 * MINUTE), POLICY, NOW)

    assert decision.is_due
    assert decision.reason == "max age expired (ready)"


def test_scenario_7_an_observed_generation_ahead_matches_and_warns() -> None:
    decision = decide(resource(generation=1, observed=2, age=None), POLICY, NOW)

    assert not decision.is_due
    assert decision.warning == "observed_generation ahead of generation - potential API issue"


def test_scenario_8_a_missing_observed_generation_is_due_at_once() -> None:
    decision = decide(resource(ready=False, generation=1, observed=0, age=2 * SECOND), POLICY, NOW)

    assert decision.is_due
    assert decision.reason == "generation changed - new spec to reconcile"


def test_a_resource_of_exactly_max_age_is_due() -> None:
    assert decide(resource(ready=False, age=10 * SECOND), POLICY, NOW).is_due


def test_a_resource_without_a_report_is_due_at_once() -> None:
    decision = decide(resource(ready=False, age=None), POLICY, NOW)

    assert decision.is_due
    assert decision.reason == "never updated - no adapter has reported"


def test_a_warning_stays_when_an_observed_generation_ahead_is_due_by_age() -> None:
    decision = decide(resource(generation=1, observed=2, age=31 * MINUTE), POLICY, NOW)

    assert decision.is_due
    assert decision.warning == OBSERVED_AHEAD


def test_without_the_generation_check_age_alone_decides() -> None:
    policy = Policy(POLICY.max_age_not_ready, POLICY.max_age_ready, checks_generation=False)

    assert not decide(resource(generation=5, observed=1, age=5 * MINUTE), policy, NOW).is_due
    assert decide(resource(generation=1, observed=2, age=None), policy, NOW).reason is Reason.NEVER_UPDATED


def test_a_new_generation_has_the_shorter_max_age_even_if_ready() -> None:
    assert decide(resource(ready=True, generation=2, observed=1), POLICY, NOW).max_age == 10 * SECOND


def test_a_future_time_counts_from_when_it_was_first_seen() -> None:
    fast = resource(ready=False, age=-4 * MINUTE)

    first = decide(fast, POLICY, NOW, first_seen=NOW)
    later = decide(fast, POLICY, NOW + 10 * SECOND, first_seen=NOW)

    assert not first.is_due
    assert first.next_event_time == NOW + 10 * SECOND
    assert later.is_due


def test_a_future_time_seen_for_the_first_time_counts_as_just_now() -> None:
    decision = decide(resource(ready=False, age=-4 * MINUTE), POLICY, NOW)

    assert decision.next_event_time == NOW + 10 * SECOND


def test_a_max_age_that_ends_after_year_9999_is_never_due() -> None:
    policy = Policy(timedelta.max, timedelta.max)

    assert not decide(resource(), policy, NOW).is_due


class TestRequestedPulse:
    def test_a_request_later_than_the_last_status_is_due_at_once(self) -> None:
        decision = decide(resource(age=5 * MINUTE, requested=SECOND), POLICY, NOW)

        assert decision.is_due
        assert decision.reason == "pulse requested"
        assert decision.next_event_time == decision.due_time == NOW
        assert decision.max_age == 30 * MINUTE
        assert decision.trigger == NOW - SECOND

    @pytest.mark.parametrize("age", [timedelta(0), SECOND])
    def test_a_request_that_a_status_has_answered_is_ignored(self, age: timedelta) -> None:
        decision = decide(resource(age=age, requested=SECOND), POLICY, NOW)

        assert decision.reason is Reason.NOT_EXPIRED
        assert decision.trigger is None

    def test_a_request_is_due_without_any_status(self) -> None:
        decision = decide(resource(ready=False, age=None, requested=10 * MINUTE), POLICY, NOW)

        assert decision.reason is Reason.PULSE_REQUESTED

    def test_a_new_generation_comes_first_and_answers_the_request_too(self) -> None:
        decision = decide(resource(generation=2, age=MINUTE, requested=SECOND), POLICY, NOW)

        assert decision.reason is Reason.GENERATION_CHANGED
        assert decision.trigger == NOW - SECOND

    def test_a_request_is_due_without_the_generation_check(self) -> None:
        policy = Policy(POLICY.max_age_not_ready, POLICY.max_age_ready, checks_generation=False)

        assert decide(resource(generation=2, age=MINUTE, requested=SECOND), policy, NOW).is_due

    def test_a_warning_stays(self) -> None:
        decision = decide(resource(observed=2, age=None, requested=SECOND), POLICY, NOW)

        assert decision.reason is Reason.PULSE_REQUESTED
        assert decision.warning == OBSERVED_AHEAD

    def test_a_server_clock_ahead_of_ours_delays_nothing(self) -> None:
        assert decide(resource(requested=-MINUTE), POLICY, NOW).reason is Reason.PULSE_REQUESTED

    def test_a_fast_adapter_clock_hides_no_later_request(self) -> None:
        fast = resource(age=-4 * MINUTE, requested=SECOND)

        assert decide(fast, POLICY, NOW, first_seen=NOW - 5 * SECOND).reason is Reason.PULSE_REQUESTED


class TestPaused:
    @pytest.mark.parametrize(
        "seen",
        [
            resource(paused=True),
            resource(paused=True, generation=2),
            resource(paused=True, age=None),
            resource(paused=True, age=60 * MINUTE),
            resource(paused=True, age=MINUTE, requested=SECOND),
        ],
    )
    def test_a_paused_resource_is_never_due(self, seen: Observation) -> None:
        decision = decide(seen, POLICY, NOW)

        assert not decision.is_due
        assert decision.reason == "paused"
        assert decision.next_event_time is None


class TestJitter:
    def test_without_jitter_every_id_has_the_whole_max_age(self) -> None:
        assert {shortened(30 * MINUTE, 0, f"cls-{n}") for n in range(100)} == {30 * MINUTE}

    def test_a_shortened_max_age_makes_a_resource_due_earlier(self) -> None:
        policy = msgspec.structs.replace(POLICY, max_age_jitter=0.5)
        limit = shortened(30 * MINUTE, 0.5, "cls-1")

        early = decide(resource(age=limit - SECOND), policy, NOW)
        late = decide(resource(age=limit), policy, NOW)

        assert 15 * MINUTE <= limit < 29 * MINUTE
        assert (early.is_due, early.next_event_time) == (False, NOW + SECOND)
        assert (late.is_due, late.max_age, late.due_time) == (True, limit, NOW)

    def test_a_new_generation_is_repeated_after_the_shortened_max_age(self) -> None:
        policy = msgspec.structs.replace(POLICY, max_age_jitter=0.5)

        decision = decide(resource(generation=2), policy, NOW)

        assert decision.max_age == shortened(10 * SECOND, 0.5, "cls-1") < 10 * SECOND

    def test_the_hash_is_the_same_in_every_process(self) -> None:
        assert shortened(100 * SECOND, 0.5, "cls-1") == timedelta(seconds=72.147618)

    @pytest.mark.parametrize("pattern", ["{}", "cls-{}", "cls-{:06}", "0190a1b2-7c3d-7000-8000-{:012}"])
    def test_consecutive_ids_are_spread_evenly(self, pattern: str) -> None:
        ages = [shortened(100 * SECOND, 0.5, pattern.format(n)) for n in range(1000)]

        tenths = Counter(int((age - 50 * SECOND) / (5.001 * SECOND)) for age in ages)

        assert sorted(tenths) == list(range(10))
        assert all(70 <= count <= 130 for count in tenths.values()), tenths


times = st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC))
durations = st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=400))
shares = st.floats(0, 1, exclude_max=True)
policies = st.builds(Policy, durations, durations, st.booleans(), st.booleans(), shares)
resources = st.builds(
    Observation,
    st.text(min_size=1),
    st.text(),
    st.integers(),
    st.integers(),
    st.booleans(),
    st.none() | times,
    st.just({}),
    st.booleans(),
    st.none() | times,
)


@given(resources, policies, times, st.none() | times)
def test_deciding_never_raises_and_names_the_next_event_unless_paused(
    seen: Observation, policy: Policy, now: datetime, first_seen: datetime | None
) -> None:
    decision = decide(seen, policy, now, first_seen)

    assert isinstance(decision, Decision)
    assert decision.is_due == decision.reason.is_due == (decision.next_event_time == now)
    if seen.is_paused:
        assert decision.next_event_time is None
    else:
        assert decision.next_event_time is not None
        assert decision.next_event_time >= now


@given(resources, policies, times, durations, st.none() | times)
def test_a_due_resource_stays_due_without_reports(
    seen: Observation, policy: Policy, now: datetime, later: timedelta, first_seen: datetime | None
) -> None:
    if now > datetime.max.replace(tzinfo=UTC) - later:
        return
    if first_seen is None and seen.last_updated_time is not None and seen.last_updated_time > now:
        first_seen = now  # as pacing remembers

    if decide(seen, policy, now, first_seen).is_due:
        assert decide(seen, policy, now + later, first_seen).is_due


@given(resources, policies, times)
def test_a_new_generation_wins_over_every_age(seen: Observation, policy: Policy, now: datetime) -> None:
    if seen.generation > seen.observed_generation and policy.checks_generation and not seen.is_paused:
        assert decide(seen, policy, now).reason is Reason.GENERATION_CHANGED


@given(durations | st.just(timedelta.max), shares, st.text())
def test_jitter_shortens_a_max_age_by_at_most_its_share(max_age: timedelta, jitter: float, name: str) -> None:
    age = shortened(max_age, jitter, name)

    assert timedelta(0) < age <= max_age
    assert age >= max_age * (1 - jitter) - 2 * timedelta.resolution


@given(resources, policies, times)
def test_jitter_never_delays_an_event(seen: Observation, policy: Policy, now: datetime) -> None:
    without = decide(seen, msgspec.structs.replace(policy, max_age_jitter=0.0), now)

    decision = decide(seen, policy, now)

    assert decision.is_due or not without.is_due
    if without.next_event_time is not None:
        assert decision.next_event_time is not None
        assert decision.next_event_time <= without.next_event_time


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_can_be_reached(reason: Reason) -> None:
    seen = [
        resource(generation=2),
        resource(ready=False, age=MINUTE),
        resource(age=60 * MINUTE),
        resource(),
        resource(age=None),
        resource(age=MINUTE, requested=SECOND),
        resource(paused=True),
        msgspec.structs.replace(resource(age=MINUTE), last_progress_time=NOW),
    ]
    policy = msgspec.structs.replace(POLICY, follows_progress=True)

    assert reason in {decide(one, policy, NOW).reason for one in seen}
