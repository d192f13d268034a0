"""Leader election, one decision at a time. `test_election_simulation` runs several processes."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.kube import election
from sentinel.core.kube.election import (
    Absent,
    Command,
    Create,
    Election,
    Event,
    Failed,
    Found,
    Get,
    Replace,
    Timings,
    Wait,
    Waited,
    Written,
)
from sentinel.core.kube.lease import Lease, Term

SECOND = timedelta(seconds=1)
RETRY = Timings().retry_period
START = timedelta(hours=1)
"""By the monotonic clock, whose zero means nothing."""


def lease_of(holder: str, number: int = 0, duration: timedelta = 15 * SECOND, **annotations: str) -> Lease:
    """A Lease whose term differs for each number."""
    return Lease(Term(holder, duration, 0, "", str(number)), annotations)


class Process:
    """A process with identity `a` whose clock the test moves."""

    def __init__(self) -> None:
        self.state = Election(identity="a")
        self.now = START

    def after(self, event: Event, *, seconds: float = 0, random: float = 0.0) -> Command:
        self.now += seconds * SECOND
        self.state, command = election.advance(self.state, event, self.now, random=random)
        return command

    def becomes_leader(self) -> None:
        self.after(Waited())
        self.after(Absent())
        self.after(Written(lease_of("a"), self.now))
        assert self.is_leader

    @property
    def is_leader(self) -> bool:
        return election.time_left(self.state, self.now) > timedelta(0)


def test_a_process_looks_before_it_writes() -> None:
    process = Process()

    assert process.after(Waited()) == Get()
    assert not process.is_leader
    assert not election.may_hold(process.state)


def test_an_absent_lease_is_created() -> None:
    process = Process()

    assert process.after(Absent()) == Create()
    assert not process.is_leader
    assert election.may_hold(process.state)
    assert process.after(Written(lease_of("a"), process.now), seconds=1) == Wait(RETRY)
    assert process.is_leader


def test_a_released_lease_is_taken_at_once() -> None:
    assert Process().after(Found(lease_of(""))) == Replace()


def test_a_held_lease_is_watched() -> None:
    process = Process()

    assert process.after(Found(lease_of("b"))) == Wait(RETRY)
    assert process.after(Waited(), seconds=2) == Get()
    assert process.after(Found(lease_of("b", 1))) == Wait(RETRY)


def test_a_lease_is_taken_when_it_was_not_renewed_for_its_duration() -> None:
    process = Process()
    process.after(Found(lease_of("b")))

    assert process.after(Found(lease_of("b")), seconds=14) == Wait(SECOND)
    assert process.after(Found(lease_of("b")), seconds=1) == Replace()


def test_a_renewal_starts_the_wait_again() -> None:
    process = Process()
    process.after(Found(lease_of("b")))
    process.after(Found(lease_of("b", 1)), seconds=14)

    assert process.after(Found(lease_of("b", 1)), seconds=14) == Wait(SECOND)


def test_the_duration_is_the_one_that_the_holder_promised() -> None:
    process = Process()
    process.after(Found(lease_of("b", duration=60 * SECOND)))

    assert process.after(Found(lease_of("b", duration=60 * SECOND)), seconds=59) == Wait(SECOND)
    assert process.after(Found(lease_of("b", duration=60 * SECOND)), seconds=1) == Replace()


def test_a_lease_without_a_duration_has_ours() -> None:
    process = Process()
    process.after(Found(lease_of("b", duration=timedelta(0))))

    assert process.after(Found(lease_of("b", duration=timedelta(0))), seconds=14.5) == Wait(SECOND / 2)
    assert process.after(Found(lease_of("b", duration=timedelta(0))), seconds=0.5) == Replace()


def test_a_foreign_annotation_is_no_renewal() -> None:
    process = Process()
    process.after(Found(lease_of("b")))

    assert process.after(Found(lease_of("b", note="x")), seconds=15) == Replace()


def test_a_deleted_lease_is_not_created_while_its_holder_may_act() -> None:
    process = Process()
    process.after(Found(lease_of("b")))

    assert process.after(Absent(), seconds=14) == Wait(SECOND)
    assert process.after(Absent(), seconds=1) == Create()


def test_a_leader_renews_without_looking() -> None:
    process = Process()
    process.becomes_leader()

    assert process.after(Waited(), seconds=2) == Replace()


def test_after_a_failed_renewal_a_leader_looks_first() -> None:
    process = Process()
    process.becomes_leader()
    process.after(Waited(), seconds=2)

    assert process.after(Failed()) == Wait(RETRY)
    assert process.after(Waited(), seconds=2) == Get()
    assert process.after(Found(lease_of("a", 1))) == Replace()
    assert process.is_leader
    process.after(Written(lease_of("a", 2), process.now))
    assert process.after(Waited(), seconds=2) == Replace()


def test_a_leader_steps_down_at_the_deadline_after_it_sent_the_renewal() -> None:
    process = Process()
    process.after(Absent())
    sent = process.now
    process.after(Written(lease_of("a"), sent), seconds=4)

    process.now = sent + timedelta(seconds=9.999)
    assert process.is_leader
    process.now = sent + 10 * SECOND
    assert not process.is_leader


def test_a_leader_whose_time_runs_out_tries_again_before_it_steps_down() -> None:
    process = Process()
    process.becomes_leader()

    assert process.after(Failed(), seconds=7) == Wait(1.5 * SECOND)
    assert process.after(Failed(), seconds=2) == Wait(0.5 * SECOND)
    assert process.after(Failed(), seconds=0.7) == Wait(0.2 * SECOND)
    assert process.after(Failed(), seconds=0.2) == Wait(0.1 * SECOND)
    assert process.after(Failed(), seconds=0.1) == Wait(RETRY)


def test_a_confirmation_after_the_deadline_makes_no_leader() -> None:
    process = Process()
    process.after(Absent())

    assert process.after(Written(lease_of("a"), process.now), seconds=10) == Wait(RETRY)
    assert not process.is_leader
    assert process.after(Waited(), seconds=2) == Get()


def test_a_leader_that_finds_another_holder_steps_down() -> None:
    process = Process()
    process.becomes_leader()

    assert process.after(Found(lease_of("b", 1)), seconds=1) == Wait(RETRY)
    assert not process.is_leader


def test_a_process_that_finds_itself_as_holder_renews_before_it_leads() -> None:
    process = Process()

    assert process.after(Found(lease_of("a"))) == Replace()
    assert not process.is_leader
    process.after(Written(lease_of("a", 1), process.now))
    assert process.is_leader


def test_the_last_leader_is_known_with_its_facts_and_when_they_were_seen() -> None:
    process = Process()
    process.after(Found(lease_of("b", 1, cycle="6")))
    process.after(Found(lease_of("b", 2, cycle="7")), seconds=2)
    seen = process.now
    process.after(Found(lease_of("b", 2, cycle="7")), seconds=15)
    process.after(Written(lease_of("a", 3, cycle="0"), process.now))

    assert process.state.last_leader == election.Sighting(lease_of("b", 2, cycle="7"), seen, was_alive=True)


def test_a_leader_whose_lease_never_changed_may_have_ended_long_ago() -> None:
    process = Process()
    process.after(Found(lease_of("b")))
    process.after(Found(lease_of("b")), seconds=15)

    process.after(Written(lease_of("a", 1), process.now))

    assert process.state.last_leader == election.Sighting(lease_of("b"), START, was_alive=False)


@pytest.mark.parametrize("first", [Found(lease_of("b")), Found(lease_of("")), Absent()])
@pytest.mark.parametrize("second", [lease_of("b", 1), lease_of("", 1), lease_of("c", 1)])
def test_a_lease_that_changed_was_changed_by_a_living_process(first: Event, second: Lease) -> None:
    process = Process()
    process.after(first)
    process.after(Failed())

    process.after(Found(second), seconds=2)

    assert process.state.last_leader == election.Sighting(second, process.now, was_alive=True)


def test_a_release_before_the_first_look_may_be_long_ago() -> None:
    process = Process()
    process.after(Found(lease_of("")))

    assert process.state.last_leader == election.Sighting(lease_of(""), START, was_alive=False)


def test_nobody_led_before_the_first_leader() -> None:
    process = Process()
    process.becomes_leader()

    assert process.state.last_leader is None


def test_only_a_lease_that_may_be_ours_has_to_be_released() -> None:
    process = Process()
    process.after(Found(lease_of("b")))
    assert not election.may_hold(process.state)

    process.after(Found(lease_of("")))
    assert election.may_hold(process.state)  # the outcome of the write is unknown
    process.after(Failed())
    assert election.may_hold(process.state)
    process.after(Found(lease_of("b", 1)))
    assert not election.may_hold(process.state)
    process.after(Found(lease_of("a", 2)))
    process.after(Written(lease_of("a", 3), process.now))
    assert election.may_hold(process.state)


@pytest.mark.parametrize(
    ("random", "delay"),
    [(0.0, timedelta(seconds=2)), (0.5, timedelta(seconds=1.8)), (1.0, timedelta(seconds=1.6))],
)
def test_retries_come_early_by_a_random_time(random: float, delay: timedelta) -> None:
    assert Process().after(Failed(), random=random) == Wait(delay)


@pytest.mark.parametrize(
    ("lease", "renew", "retry"), [(15, 15, 2), (15, 2, 2), (15, 10, 0), (10, 15, 2), (15.5, 10, 2)]
)
def test_timings_that_cannot_be_safe_are_refused(lease: float, renew: float, retry: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Timings(lease * SECOND, renew * SECOND, retry * SECOND)


leases = st.builds(lease_of, st.sampled_from(["", "a", "b"]), st.integers(0, 3))
simple_events: list[Event] = [Waited(), Absent(), Failed()]
events = st.sampled_from(simple_events) | st.builds(Found, leases) | st.builds(Written, leases, st.just(START))


@given(st.lists(st.tuples(events, st.floats(0, 20), st.floats(0, 1, exclude_max=True))))
def test_waits_are_short_and_leaders_have_renewed(steps: list[tuple[Event, float, float]]) -> None:
    process = Process()
    for event, seconds, random in steps:
        process.now += seconds * SECOND
        sent = (
            event if not isinstance(event, Written) else msgspec.structs.replace(event, sent=process.now - SECOND)
        )

        command = process.after(sent, random=random)

        if isinstance(command, Wait):
            assert timedelta(0) < command.delay <= RETRY
        if process.is_leader:
            assert process.state.renewed is not None
            assert process.state.renewed <= process.now < process.state.renewed + 10 * SECOND
