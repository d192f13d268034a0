"""A quiet page gets the decisions of the last walk, for as long as they cannot change."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse import quiet_pages
from sentinel.core.pulse.decision import Policy, Reason
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict
from sentinel.core.pulse.quiet_pages import NO_DECISIONS, DecisionCounts, QuietPages
from tests.core.pulse.polls import POLICY

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
VERSION = 7


def resource(
    identifier: str = "cls-1",
    *,
    generation: int = 1,
    observed: int = 1,
    updated: datetime | None = NOW,
    ready: bool = True,
    paused: bool = False,
) -> Observation:
    return Observation(identifier, "Cluster", generation, observed, ready, updated, {}, paused)


class Walks:
    """Walks over a fleet of one page, whose version never changes."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.pacer = Pacer()
        self.pages = QuietPages(self.pacer)
        self._policy = policy

    def begin(self) -> None:
        self.pacer.begin_cycle()
        self.pages.begin_walk()

    def decide(self, now: datetime, *seen: Observation, version: int | None = VERSION) -> list[PacedDecision]:
        """Walk, and decide on these resources."""
        self.begin()
        return self.decide_on(now, seen, version)

    def decide_on(
        self, now: datetime, seen: Sequence[Observation], version: int | None = VERSION
    ) -> list[PacedDecision]:
        """Decide on these resources within the current walk."""
        decided = [self.pacer.decide(each, self._policy, now) for each in seen]
        self.pages.keep(version, decided, quiet_pages.count(decided), now)
        return decided

    def find(self, now: datetime) -> DecisionCounts | None:
        """Walk, and find the decisions on the page."""
        self.begin()
        return self.pages.find(VERSION, now)


def test_decisions_are_kept_until_the_first_of_them_is_due() -> None:
    walks = Walks()
    walks.decide(NOW, resource("a", updated=NOW - 3 * SECOND, ready=False), resource("b"))

    found = [walks.find(NOW + n * SECOND) for n in (0, 5, 6.999, 7)]

    counts = DecisionCounts(2, 1, 1, 0, ((Reason.NOT_EXPIRED, 2),))
    assert found == [counts, counts, counts, None]


def test_decisions_are_kept_only_while_each_walk_finds_the_page() -> None:
    walks = Walks()
    walks.decide(NOW, resource())
    walks.begin()

    assert walks.find(NOW) is None


def test_a_page_of_paused_resources_is_never_due() -> None:
    walks = Walks()
    walks.decide(NOW, resource(paused=True, updated=None, generation=2))

    assert walks.find(NOW + timedelta(days=999)) == DecisionCounts(1, 1, 0, 0, ((Reason.PAUSED, 1),))


def test_an_empty_page_is_never_due() -> None:
    walks = Walks()
    walks.decide(NOW)

    assert walks.find(NOW + timedelta(days=999)) == NO_DECISIONS


def test_a_clock_set_back_makes_all_decisions_again() -> None:
    walks = Walks()
    walks.decide(NOW, resource())

    assert walks.find(NOW - SECOND) is None


@pytest.mark.parametrize(
    "other",
    [
        resource(updated=NOW - timedelta(days=1)),
        resource(generation=2),
        resource(updated=None),
        resource(observed=2),
        resource(updated=NOW + SECOND),
    ],
    ids=["expired", "new generation", "never updated", "observed ahead", "in the future"],
)
def test_one_other_resource_makes_a_page_not_quiet(other: Observation) -> None:
    walks = Walks()
    walks.decide(NOW, resource("cls-0"), other)

    assert walks.find(NOW) is None


def test_a_page_without_a_version_is_not_kept() -> None:
    walks = Walks()
    walks.decide(NOW, resource(), version=None)

    assert walks.find(NOW) is None
    assert walks.pages.find(None, NOW) is None


def test_a_page_is_quiet_once_pacing_has_forgotten_its_resources() -> None:
    walks = Walks()
    [paced] = walks.decide(NOW, resource(updated=None))
    walks.pacer.record_published(paced.resource, paced.decision, NOW)

    walks.decide(NOW + SECOND, resource(updated=NOW + SECOND))

    assert len(walks.pacer) == 0
    assert walks.find(NOW + 2 * SECOND) is not None


def test_a_resource_whose_event_is_on_its_way_makes_a_page_not_quiet() -> None:
    walks = Walks()
    walks.begin()
    walks.pacer.decide(resource(generation=2), POLICY, NOW)
    decided = [walks.pacer.decide(resource(), POLICY, NOW)]

    walks.pages.keep(VERSION, decided, quiet_pages.count(decided), NOW)

    assert walks.find(NOW) is None


def test_repeated_resources_are_not_counted() -> None:
    walks = Walks()

    decided = walks.decide(NOW, resource("a", generation=2), resource("a", generation=2), resource("b"))

    assert decided[1].verdict is PacingVerdict.REPEATED
    assert quiet_pages.count(decided) == DecisionCounts(
        2, 1, 0, 0, ((Reason.GENERATION_CHANGED, 1), (Reason.NOT_EXPIRED, 1))
    )


seconds = st.integers(-90, 90).map(lambda n: n * SECOND)
times = st.none() | seconds.map(lambda offset: NOW + offset)
observations = st.builds(
    Observation,
    id=st.sampled_from("abcdefgh"),
    kind=st.just("Cluster"),
    generation=st.just(1),
    observed_generation=st.sampled_from([1, 1, 1, 1, 0, 2]),
    is_ready=st.booleans(),
    last_updated_time=times,
    labels=st.just({}),
    is_paused=st.booleans(),
    pulse_requested_time=st.none() | times,
    last_progress_time=st.none() | times,
)
policies = st.builds(
    Policy,
    max_age_not_ready=st.just(20 * SECOND),
    max_age_ready=st.just(60 * SECOND),
    checks_generation=st.booleans(),
    follows_progress=st.booleans(),
    max_age_jitter=st.sampled_from([0.0, 0.5]),
)


@given(
    page=st.lists(observations, max_size=4, unique_by=lambda each: each.id),
    polls=st.lists(seconds, min_size=2, max_size=8),
    policy=policies,
)
def test_decisions_that_are_found_are_those_that_would_be_made(
    page: list[Observation], polls: list[timedelta], policy: Policy
) -> None:
    walks = Walks(policy)
    for offset in polls:
        now = NOW + offset
        fresh = copy.deepcopy(walks.pacer)

        found = walks.find(now)

        if found is None:
            walks.decide_on(now, page)
        else:
            fresh.begin_cycle()
            decided = [fresh.decide(each, policy, now) for each in page]
            assert {paced.verdict for paced in decided} <= {PacingVerdict.SKIP}
            assert quiet_pages.count(decided) == found
            assert len(fresh) == len(walks.pacer)
        walks.pacer.end_cycle(is_complete=True)
