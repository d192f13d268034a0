"""What a new leader repeats: nothing too soon, and nothing that the old leader missed."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.kube.election import Election, Found, Sighting, Wait, advance
from sentinel.core.kube.lease import Lease, Term
from sentinel.core.operator.failover import LastCycle, leader_end, read_last_cycle
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLL = 5 * SECOND
RENEW = 2 * SECOND
LEASE = 15 * SECOND
POLICY = Policy(max_age_not_ready=10 * SECOND, max_age_ready=60 * SECOND)

_milliseconds = st.integers(0, 300_000).map(lambda n: n * timedelta(milliseconds=1))
_phases = st.integers(0, 4_999).map(lambda n: n * timedelta(milliseconds=1))
_starts = st.just(timedelta(0)) | _milliseconds
"""When the follower starts: with the leader, or later, perhaps when the leader is dead."""
_clocks_ahead = st.just(timedelta(0)) | st.integers(5_000, 90_000).map(lambda n: n * timedelta(milliseconds=1))
"""How far the clock of an adapter is ahead: not at all, or by so much that every replica notices it."""


class Replica:
    """The decisions of one replica on one resource."""

    def __init__(self, resource: Observation, policy: Policy = POLICY) -> None:
        self.pacer = Pacer()
        self.resource = resource
        self.policy = policy

    def poll(self, now: datetime) -> bool:
        """Decide, record, and return whether an event is due."""
        self.pacer.begin_cycle()
        paced = self.pacer.decide(self.resource, self.policy, now)
        is_due = paced.verdict is PacingVerdict.PUBLISH
        if is_due:
            self.pacer.record_published(paced.resource, paced.decision, now)
        self.pacer.end_cycle(is_complete=True)
        return is_due


def resource(*, updated: datetime, ready: bool = False) -> Observation:
    return Observation("cls-1", "Cluster", 1, 1, ready, updated, {}, False, None)


def end_of(cycle: LastCycle | None, *, was_alive: bool = True, has_released: bool = False) -> datetime | None:
    """The end of a leader whose last renewal was seen at `NOW`."""
    return leader_end(
        cycle,
        seen=NOW,
        was_alive=was_alive,
        has_released=has_released,
        renew_interval=RENEW,
        poll_interval=POLL,
    )


class Failover:
    """A leader that polls until it dies, and a follower that polls from its start on and takes over.

    Both see the subject from the time of its status on, or earlier if the clock of its adapter is ahead. The
    leader renews its lease every `RENEW`, and the follower looks at it as often.
    """

    def __init__(
        self,
        subject: Observation,
        *,
        phase: timedelta,
        dies: timedelta,
        starts: timedelta = timedelta(0),
        clock_ahead: timedelta = timedelta(0),
    ) -> None:
        """The follower starts at `starts`, or `phase` later with its polls."""
        assert subject.last_updated_time is not None
        self.published: list[datetime] = []
        self._dies = dies
        sighting, waited = self._watch_lease(starts)
        self.saw_renewal = sighting.was_alive
        self.takes_over = NOW + waited
        reported = subject.last_updated_time - clock_ahead
        leader, follower = Replica(subject), Replica(subject)
        polls = [(NOW + n * POLL, leader) for n in range(100) if n * POLL < dies]
        polls += [(NOW + starts + phase + n * POLL, follower) for n in range(200)]
        is_taken_over = False
        for now, replica in sorted(polls, key=lambda poll: poll[0]):
            if replica is follower and now >= self.takes_over and not is_taken_over:
                is_taken_over = True
                self._take_over(follower.pacer, sighting, now)
            if now >= reported and replica.poll(now) and (replica is leader or is_taken_over):
                self.published.append(now)

    def _watch_lease(self, now: timedelta) -> tuple[Sighting, timedelta]:
        """Return the last leader as the follower knows it, and when the follower replaces it."""
        state = Election(identity="follower")
        while True:
            renewed = min(now, self._dies) // RENEW * RENEW
            cycle = renewed - renewed // POLL * POLL
            seen = Lease(
                Term("leader", LEASE, renew_time=str(renewed)), LastCycle(cycle, cycle).annotations("leader")
            )
            state, command = advance(state, Found(seen), now, random=0)
            if not isinstance(command, Wait):
                assert state.last_leader is not None
                return state.last_leader, now
            now += command.delay

    def _take_over(self, pacer: Pacer, last: Sighting, now: datetime) -> None:
        ended = leader_end(
            read_last_cycle(last.lease.annotations, "leader"),
            seen=NOW + last.seen,
            was_alive=last.was_alive,
            has_released=False,
            renew_interval=RENEW,
            poll_interval=POLL,
        )
        if ended is None:
            pacer.forget_published()
        else:
            pacer.take_over(leader_ended=ended, lag=POLL, now=now)


@given(
    phase=_phases,
    dies=_milliseconds,
    starts=_starts,
    expires=_milliseconds,
    ready=st.booleans(),
    clock_ahead=_clocks_ahead,
)
def test_no_event_is_repeated_within_its_interval(
    phase: timedelta,
    dies: timedelta,
    starts: timedelta,
    expires: timedelta,
    ready: bool,
    clock_ahead: timedelta,
) -> None:
    interval = POLICY.max_age_ready if ready else POLICY.max_age_not_ready
    updated = NOW + clock_ahead + expires - (timedelta(0) if clock_ahead else interval)
    silent = resource(updated=updated, ready=ready)

    failover = Failover(silent, phase=phase, dies=dies, starts=starts, clock_ahead=clock_ahead)

    # Without a renewal, the follower cannot know when the leader was alive. If the status had expired before the
    # follower started, the follower cannot know when the leader has published.
    if failover.saw_renewal and starts + phase <= expires:
        for one, following in itertools.pairwise(failover.published):
            assert following - one >= interval - SECOND / 2


@given(phase=_phases, dies=_milliseconds, starts=_starts)
def test_events_go_on_after_the_lease(phase: timedelta, dies: timedelta, starts: timedelta) -> None:
    failover = Failover(resource(updated=NOW - timedelta(hours=1)), phase=phase, dies=dies, starts=starts)

    after = [time for time in failover.published if time >= failover.takes_over]

    assert after[0] - failover.takes_over <= POLL


@given(phase=_phases, dies=_milliseconds, starts=_starts, expires=_milliseconds)
def test_a_status_that_expires_without_a_leader_is_not_missed(
    phase: timedelta, dies: timedelta, starts: timedelta, expires: timedelta
) -> None:
    subject = resource(updated=NOW + expires - POLICY.max_age_ready, ready=True)

    failover = Failover(subject, phase=phase, dies=dies, starts=starts)

    # What expired while the old leader may have been alive was possibly published. Later, it certainly was not.
    # The follower sees a renewal up to one period late.
    if expires > dies + 2 * RENEW:
        assert failover.published[0] <= max(failover.takes_over, NOW + expires) + POLL


@given(phase=_phases, dies=_milliseconds, away=_milliseconds, expires=_milliseconds, ready=st.booleans())
def test_what_fell_due_while_nobody_ran_is_published_at_once(
    phase: timedelta, dies: timedelta, away: timedelta, expires: timedelta, ready: bool
) -> None:
    interval = POLICY.max_age_ready if ready else POLICY.max_age_not_ready
    subject = resource(updated=NOW + expires - interval, ready=ready)

    failover = Failover(subject, phase=phase, dies=dies, starts=dies + away)

    after = [time for time in failover.published if time >= failover.takes_over]
    assert not failover.saw_renewal
    assert after[0] <= max(failover.takes_over, NOW + expires) + POLL


def test_the_end_of_a_completed_cycle_is_exact() -> None:
    cycle = LastCycle(started=2 * SECOND, ended=SECOND)

    assert end_of(cycle) == NOW - SECOND


def test_a_running_cycle_may_have_gone_on_until_the_missing_renewal() -> None:
    cycle = LastCycle(started=SECOND, ended=None)

    assert end_of(cycle) == NOW + RENEW


def test_another_cycle_may_have_begun_before_the_missing_renewal() -> None:
    cycle = LastCycle(started=3 * SECOND, ended=SECOND)

    assert end_of(cycle) == NOW + RENEW


def test_a_leader_that_told_nothing_may_have_begun_its_first_cycle() -> None:
    assert end_of(None) == NOW + RENEW


@pytest.mark.parametrize("cycle", [None, LastCycle(SECOND, SECOND), LastCycle(SECOND, SECOND, failing=SECOND)])
def test_the_end_of_a_leader_never_seen_alive_is_unknown(cycle: LastCycle | None) -> None:
    assert end_of(cycle, was_alive=False) is None


def test_a_leader_that_released_its_lease_has_ended() -> None:
    assert end_of(LastCycle(SECOND, ended=None), has_released=True) == NOW
    assert end_of(LastCycle(3 * SECOND, SECOND), has_released=True) == NOW - SECOND


@given(
    started=st.integers(0, 10**9),
    ended=st.none() | st.integers(0, 10**9),
    leader=st.sampled_from(("one", "")),
)
def test_annotations_carry_a_cycle(started: int, ended: int | None, leader: str) -> None:
    millisecond = timedelta(milliseconds=1)
    cycle = LastCycle(started * millisecond, None if ended is None else ended * millisecond)

    assert read_last_cycle(cycle.annotations("one"), leader) == cycle


def test_unreadable_annotations_are_no_cycle() -> None:
    for text in ("", "-1", "1.5", "x", "9" * 16, "١"):
        assert read_last_cycle({"sentinel.hyperfleet.io/last-cycle-started-ms-ago": text}, "") is None


def test_the_cycle_of_an_earlier_leader_is_not_that_of_the_last() -> None:
    annotations = LastCycle(SECOND, SECOND).annotations("one")

    assert read_last_cycle(annotations, "two") is None


def test_records_of_a_follower_without_a_leader_are_forgotten() -> None:
    follower = Replica(resource(updated=NOW - timedelta(hours=1)))
    follower.poll(NOW)

    follower.pacer.forget_published()

    assert follower.poll(NOW + SECOND)


def new_cluster() -> Observation:
    """A cluster that no adapter has reported on."""
    return Observation("cls-1", "Cluster", 1, 0, False, None, {}, False, None)


def late_follower() -> Replica:
    """A follower of a cluster that no adapter has reported on, with a long interval."""
    hour = timedelta(hours=1)
    return Replica(new_cluster(), Policy(max_age_not_ready=hour, max_age_ready=hour))


def test_a_cluster_created_without_a_leader_waits_for_one_poll() -> None:
    follower = late_follower()
    follower.poll(NOW + 10 * SECOND)

    follower.pacer.take_over(leader_ended=NOW, lag=POLL, now=NOW + 11 * SECOND)

    assert not follower.poll(NOW + 11 * SECOND)
    assert follower.poll(NOW + 15 * SECOND)


def test_a_cluster_that_the_leader_may_have_seen_is_not_repeated() -> None:
    follower = late_follower()
    follower.poll(NOW + 4 * SECOND)

    follower.pacer.take_over(leader_ended=NOW, lag=POLL, now=NOW + 15 * SECOND)

    assert not follower.poll(NOW + timedelta(minutes=50))
    assert follower.poll(NOW + timedelta(hours=1))


def test_a_status_that_expired_after_the_leader_ended_is_published_at_once() -> None:
    follower = Replica(resource(updated=NOW + SECOND - POLICY.max_age_ready, ready=True))
    follower.poll(NOW + 2 * SECOND)

    follower.pacer.take_over(leader_ended=NOW, lag=POLL, now=NOW + 15 * SECOND)

    assert follower.poll(NOW + 15 * SECOND)


def test_a_future_status_that_the_leader_saw_first_is_not_repeated() -> None:
    follower = Replica(resource(updated=NOW + timedelta(hours=1), ready=True))
    follower.poll(NOW + SECOND)  # the leader saw the status at NOW, and published at NOW + 60 seconds
    follower.poll(NOW + 61 * SECOND)

    follower.pacer.take_over(leader_ended=NOW + 60 * SECOND, lag=POLL, now=NOW + 75 * SECOND)

    assert not follower.poll(NOW + 75 * SECOND)
    assert follower.poll(NOW + 120 * SECOND)


def test_a_leader_that_could_not_publish_ended_when_that_began() -> None:
    cycle = LastCycle(started=SECOND, ended=SECOND / 2, failing=60 * SECOND)

    assert read_last_cycle(cycle.annotations("one"), "one") == cycle
    assert end_of(cycle) == NOW - 60 * SECOND
