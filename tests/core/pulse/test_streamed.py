"""Polls and a stream share the pacing table: no event is lost, and none is published twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict
from sentinel.core.pulse.streamed import StreamedEvents

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = Policy(max_age_not_ready=10 * SECOND, max_age_ready=timedelta(minutes=30))
PUBLISH, PACED, SKIP = PacingVerdict.PUBLISH, PacingVerdict.PACED, PacingVerdict.SKIP


def seen(
    generation: int = 1,
    observed: int | None = None,
    *,
    identifier: str = "cls-1",
    updated: datetime | None = NOW,
    is_paused: bool = False,
    requested: datetime | None = None,
    progress: int = 0,
) -> Observation:
    """A resource that is ready and was just updated, unless its generation has not been observed."""
    return Observation(
        identifier,
        "Cluster",
        generation,
        generation if observed is None else observed,
        True,
        updated,
        {},
        is_paused,
        requested,
        None if not progress else NOW + progress * SECOND,
        progress,
    )


class Fleet:
    """A pulse that polls and follows a stream; all events are confirmed unless said otherwise."""

    def __init__(self, *first_poll: Observation, policy: Policy = POLICY) -> None:
        self.pacer = Pacer()
        self.pacer.follow_stream(follows_progress=policy.follows_progress)
        self._policy = policy
        self.poll(NOW, *first_poll)

    def poll(self, now: datetime, *resources: Observation) -> list[PacingVerdict]:
        self.pacer.begin_cycle()
        verdicts = [self.poll_page(now, each) for each in resources]
        self.pacer.end_cycle(is_complete=True, resources=len(resources))
        return verdicts

    def poll_page(self, now: datetime, resource: Observation) -> PacingVerdict:
        """Decide on one resource within a cycle."""
        paced = self.pacer.decide(resource, self._policy, now)
        if paced.verdict is PUBLISH:
            self.pacer.record_published(resource, paced.decision, now)
        return paced.verdict

    def begin_streamed(self, now: datetime, resource: Observation) -> PacedDecision | None:
        return self.pacer.decide_streamed(resource, self._policy, now)

    def stream(self, now: datetime, resource: Observation) -> PacingVerdict | None:
        """Take a change of the stream, and publish it if it is due."""
        paced = self.begin_streamed(now, resource)
        if paced is None:
            return None
        if paced.verdict is PUBLISH:
            self.pacer.record_streamed(resource, paced.decision, now)
            self.pacer.end_streamed(resource)
        return paced.verdict


def test_a_new_generation_is_published_at_once_and_once() -> None:
    fleet = Fleet(seen(1))

    assert fleet.stream(NOW + SECOND, seen(2, 1)) is PUBLISH
    assert fleet.stream(NOW + SECOND, seen(2, 1)) is None
    assert fleet.poll(NOW + 5 * SECOND, seen(2, 1)) == [PACED]
    assert fleet.stream(NOW + 6 * SECOND, seen(2, 1)) is None


def test_a_new_resource_is_published_at_once() -> None:
    fleet = Fleet(seen(1))

    assert fleet.stream(NOW + SECOND, seen(1, 0, identifier="new", updated=None)) is PUBLISH


def test_an_event_of_the_stream_is_repeated_like_one_of_a_poll() -> None:
    fleet = Fleet(seen(1))
    fleet.stream(NOW + SECOND, seen(2, 1))

    verdicts = [fleet.poll(NOW + n * 5 * SECOND, seen(2, 1))[0] for n in range(1, 7)]

    assert verdicts == [PACED, PACED, PUBLISH, PACED, PUBLISH, PACED]


def test_a_change_that_a_poll_has_seen_is_no_news() -> None:
    fleet = Fleet(seen(1))
    fleet.poll(NOW + 5 * SECOND, seen(3, 3))

    assert fleet.stream(NOW + 6 * SECOND, seen(3, 2)) is None
    assert fleet.stream(NOW + 6 * SECOND, seen(2, 1)) is None


def test_an_old_page_forgets_nothing_that_the_stream_published() -> None:
    fleet = Fleet(seen(1))
    fleet.stream(NOW + SECOND, seen(2, 1))

    assert fleet.poll(NOW + 2 * SECOND, seen(1)) == [SKIP]
    assert fleet.stream(NOW + 3 * SECOND, seen(2, 1)) is None
    assert fleet.poll(NOW + 5 * SECOND, seen(2, 1)) == [PACED]


def test_an_old_page_between_two_changes_publishes_nothing_again() -> None:
    fleet = Fleet(seen(1))
    fleet.stream(NOW + SECOND, seen(2, 1))
    fleet.stream(NOW + 2 * SECOND, seen(3, 1))

    assert fleet.poll(NOW + 3 * SECOND, seen(2, 1)) == [PACED]
    assert fleet.poll(NOW + 4 * SECOND, seen(3, 1)) == [PACED]


def test_a_poll_does_not_publish_what_is_being_published() -> None:
    fleet = Fleet(seen(1))
    paced = fleet.begin_streamed(NOW + SECOND, seen(2, 1))

    assert paced is not None
    assert fleet.poll(NOW + SECOND, seen(2, 1)) == [PACED]
    fleet.pacer.record_streamed(seen(2, 1), paced.decision, NOW + 2 * SECOND)
    fleet.pacer.end_streamed(seen(2, 1))
    assert fleet.poll(NOW + 5 * SECOND, seen(2, 1)) == [PACED]


def test_a_poll_publishes_what_the_stream_could_not() -> None:
    fleet = Fleet(seen(1))
    fleet.begin_streamed(NOW + SECOND, seen(2, 1))
    fleet.pacer.end_streamed(seen(2, 1))

    assert fleet.poll(NOW + 5 * SECOND, seen(2, 1)) == [PUBLISH]


def test_a_failed_event_is_news_again_until_a_poll_has_seen_it() -> None:
    fleet = Fleet(seen(1))
    fleet.begin_streamed(NOW + SECOND, seen(2, 1))
    fleet.pacer.end_streamed(seen(2, 1))

    assert fleet.stream(NOW + 2 * SECOND, seen(2, 1)) is PUBLISH


def test_a_newer_generation_is_published_while_an_older_one_is_in_flight() -> None:
    fleet = Fleet(seen(1))
    fleet.pacer.begin_cycle()
    fleet.pacer.decide(seen(2, 1), POLICY, NOW + SECOND)

    assert fleet.stream(NOW + SECOND, seen(3, 1)) is PUBLISH


def test_a_change_that_polls_contradict_is_published_once() -> None:
    fleet = Fleet(seen(1))

    verdicts = []
    for n in range(1, 20):
        verdicts.append(fleet.stream(NOW + n * 5 * SECOND, seen(9, 1)))
        fleet.poll(NOW + n * 5 * SECOND, seen(1, updated=NOW + n * 5 * SECOND))

    assert verdicts == [PUBLISH] + [None] * 18


def test_a_wrong_change_does_not_delay_a_true_one() -> None:
    fleet = Fleet(seen(1))
    fleet.stream(NOW + SECOND, seen(9, 1))

    assert fleet.poll(NOW + 5 * SECOND, seen(2, 1)) == [PUBLISH]
    assert fleet.poll(NOW + 10 * SECOND, seen(2, 1)) == [PACED]


def test_a_wrong_change_is_remembered_for_an_hour() -> None:
    fleet = Fleet(seen(1), seen(1, identifier="other"))
    fleet.stream(NOW, seen(9, 1))
    later = NOW + timedelta(hours=1, seconds=1)

    fleet.stream(later, seen(9, 1, identifier="other"))

    assert fleet.stream(later, seen(9, 1)) is PUBLISH


def test_a_requested_pulse_is_news_once() -> None:
    fleet = Fleet(seen(1))
    asked = seen(1, requested=NOW + SECOND)

    assert fleet.stream(NOW + 2 * SECOND, asked) is PUBLISH
    assert fleet.poll(NOW + 2 * SECOND, seen(1)) == [SKIP]
    assert fleet.stream(NOW + 3 * SECOND, asked) is None
    assert fleet.poll(NOW + 5 * SECOND, asked) == [PACED]
    assert fleet.stream(NOW + 6 * SECOND, seen(1, requested=NOW + 6 * SECOND)) is PUBLISH


def test_progress_that_a_poll_has_seen_is_no_news() -> None:
    policy = Policy(10 * SECOND, timedelta(minutes=30), follows_progress=True)
    answered = NOW + 3 * SECOND
    fleet = Fleet(seen(1), policy=policy)

    fleet.poll(NOW + 5 * SECOND, seen(1, progress=2, updated=answered))

    assert fleet.stream(NOW + 6 * SECOND, seen(1, progress=2)) is None


@pytest.mark.parametrize("generation", [-(2**70), -1, 2**48, 2**63, 2**70])
def test_a_generation_out_of_range_does_no_harm(generation: int) -> None:
    fleet = Fleet(seen(generation), seen(1, identifier="other"))

    assert fleet.poll(NOW + 5 * SECOND, seen(generation), seen(1, identifier="other")) == [SKIP, SKIP]
    assert fleet.stream(NOW + 6 * SECOND, seen(generation)) is None
    assert fleet.stream(NOW + 6 * SECOND, seen(2, 1, identifier="other")) is PUBLISH


def test_progress_is_news_only_if_it_is_followed() -> None:
    progressed = seen(1, progress=1)

    followed = Fleet(seen(1), policy=Policy(10 * SECOND, timedelta(minutes=30), follows_progress=True))
    ignored = Fleet(seen(1))

    assert followed.stream(NOW + SECOND, progressed) is PUBLISH
    assert followed.stream(NOW + SECOND, progressed) is None
    assert ignored.stream(NOW + SECOND, progressed) is None


def test_only_polls_publish_because_of_age() -> None:
    fleet = Fleet(policy=Policy(10 * SECOND, 10 * SECOND, checks_generation=False))
    expired = seen(2, updated=NOW - timedelta(hours=1))

    assert fleet.stream(NOW, expired) is None
    assert fleet.poll(NOW, expired) == [PUBLISH]


def test_a_change_that_is_not_due_makes_older_ones_no_news() -> None:
    fleet = Fleet(seen(1))

    assert fleet.stream(NOW + SECOND, seen(2, 2)) is SKIP
    assert fleet.stream(NOW + 2 * SECOND, seen(2, 1)) is None


def test_a_paused_resource_gets_no_event_from_the_stream() -> None:
    fleet = Fleet(seen(1))

    assert fleet.stream(NOW + SECOND, seen(2, 1, is_paused=True)) is SKIP


def test_what_a_poll_published_paces_the_stream() -> None:
    """A page that is older than the last one makes a change look new again."""
    fleet = Fleet(seen(1))
    fleet.poll(NOW + SECOND, seen(2, 1))
    fleet.pacer.begin_cycle()
    fleet.poll_page(NOW + 2 * SECOND, seen(1, 0))

    assert fleet.stream(NOW + 3 * SECOND, seen(2, 1)) is PACED


def test_nothing_is_news_before_the_first_complete_walk() -> None:
    pacer = Pacer()
    pacer.follow_stream(follows_progress=False)

    assert pacer.needs_every_page
    assert pacer.decide_streamed(seen(2, 1), POLICY, NOW) is None


def test_nothing_is_news_without_a_stream() -> None:
    pacer = Pacer()

    assert not pacer.needs_every_page
    assert pacer.decide_streamed(seen(2, 1), POLICY, NOW) is None
    pacer.record_streamed(seen(2, 1), Pacer().decide(seen(2, 1), POLICY, NOW).decision, NOW)
    pacer.end_streamed(seen(2, 1))


def test_a_new_pulse_keeps_what_the_stream_has_published() -> None:
    fleet = Fleet(seen(1))
    fleet.stream(NOW + SECOND, seen(2, 1))

    fleet.pacer.follow_stream(follows_progress=False)

    assert fleet.poll(NOW + 2 * SECOND, seen(2, 1)) == [PACED]


def test_resources_that_are_gone_are_forgotten_with_all_others() -> None:
    streamed = StreamedEvents()
    for n in range(3000):
        streamed.polled(n, seen(1))
    streamed.end_walk(3000)

    streamed.end_walk(900)

    assert not streamed.is_complete
    assert len(streamed) == 0
    streamed.polled(1, seen(1))
    streamed.end_walk(900)
    assert streamed.is_complete


def test_few_events_are_kept_for_each_resource() -> None:
    streamed = StreamedEvents()
    for generation in range(2, 20):
        streamed.published(1, seen(generation), generation, NOW)

    entries = [streamed.polled(1, seen(generation)) for generation in range(1, 20)]

    assert [each for each in entries if each is not None] == list(range(12, 20))


def test_a_poll_of_another_resource_changes_nothing() -> None:
    fleet = Fleet(seen(1), seen(1, identifier="other"))
    fleet.stream(NOW + SECOND, seen(2, 1))

    assert fleet.poll(NOW + 5 * SECOND, seen(1, identifier="other"), seen(2, 1)) == [SKIP, PACED]


def test_publishing_ends_only_once() -> None:
    fleet = Fleet(seen(1))
    fleet.begin_streamed(NOW + SECOND, seen(2, 1))

    fleet.pacer.end_streamed(seen(1))
    assert fleet.poll(NOW + 5 * SECOND, seen(2, 1)) == [PACED]
    fleet.pacer.end_streamed(seen(2, 1))
    fleet.pacer.end_streamed(seen(2, 1))
    assert fleet.poll(NOW + 10 * SECOND, seen(2, 1)) == [PUBLISH]
