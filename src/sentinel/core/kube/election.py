"""Leader election on a Lease: which process may act, decided by each process on its own, as in client-go.

The leader renews the Lease every `retry_period`. A candidate looks at it as often, and takes it when it has not
seen it change for the lease's duration. The resource version makes sure that only one candidate succeeds.

No process compares its clock with that of another. A candidate measures from the moment at which it saw the Lease
change. A leader measures from the moment at which it sent its last successful renewal, which is earlier. So a
leader stops, after `renew_deadline`, before a candidate starts, after `lease_duration`, as long as no clock runs
faster than another by the ratio of the two: 1.5 by default. A clock that shows the wrong time does no harm.

If the Lease is deleted, a process that has never seen it may become leader too early.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias, assert_never

import msgspec

from sentinel.core.kube.lease import Lease

_JITTER = 0.2
"""The fraction by which a retry period may be shorter, so that candidates spread. It is never longer."""
_NO_TIME = timedelta(0)


class Timings(msgspec.Struct, frozen=True):
    """How long a Lease is valid and how often it is renewed. The defaults are client-go's."""

    lease_duration: timedelta = timedelta(seconds=15)
    """How long candidates wait after the last renewal that they saw. Whole seconds."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """How long a leader acts after its last renewal."""
    retry_period: timedelta = timedelta(seconds=2)
    """How often a leader renews and a candidate looks."""

    def __post_init__(self) -> None:
        if not _NO_TIME < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(
                "expected 0 < retry_period < renew_deadline < lease_duration, "
                f"got {self.retry_period}, {self.renew_deadline}, {self.lease_duration}"
            )
        if self.lease_duration % timedelta(seconds=1):
            raise ValueError(f"lease_duration: expected whole seconds, got {self.lease_duration}")


class Sighting(msgspec.Struct, frozen=True):
    """A Lease that a process saw."""

    lease: Lease
    seen: timedelta
    """When it first saw this term of the Lease."""
    was_alive: bool
    """Whether it saw the Lease change to this term, so that the holder was alive then, or releasing it. The first
    Lease that a process sees may be that of a leader that ended long ago."""


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """What one process knows. All times are those of its own monotonic clock."""

    identity: str
    """Names this process in the Lease. No other process has it, not even a later one."""
    timings: Timings = Timings()
    has_looked: bool = False
    """Whether the API server has returned the Lease, or that there is none."""
    latest: Sighting | None = None
    """The Lease as last seen."""
    last_leader: Sighting | None = None
    """The Lease as last seen without this process as its holder."""
    has_unconfirmed_write: bool = False
    """Whether the outcome of our last write is unknown. Otherwise a leader renews without looking first."""
    renewed: timedelta | None = None
    """When the last successful write was sent; None if this process is not the leader."""


class Waited(msgspec.Struct, frozen=True):
    """The wait is over. Also the first event."""


class Found(msgspec.Struct, frozen=True):
    """The API server returned the Lease."""

    lease: Lease


class Absent(msgspec.Struct, frozen=True):
    """The API server has no such Lease."""


class Written(msgspec.Struct, frozen=True):
    """The API server confirmed a write and returned the Lease."""

    lease: Lease
    sent: timedelta
    """When the request was sent."""


class Failed(msgspec.Struct, frozen=True):
    """The call failed, or another process wrote first. A write may have taken effect nevertheless."""


Event: TypeAlias = Waited | Found | Absent | Written | Failed


class Get(msgspec.Struct, frozen=True):
    """Get the Lease."""


class Create(msgspec.Struct, frozen=True):
    """Create the Lease with this process as its holder."""


class Replace(msgspec.Struct, frozen=True):
    """Replace the Lease, at the version that was last seen, with this process as its holder."""


class Wait(msgspec.Struct, frozen=True):
    """Do nothing for a while."""

    delay: timedelta


Command: TypeAlias = Get | Create | Replace | Wait


def time_left(election: Election, now: timedelta) -> timedelta:
    """Return how long this process is still the leader without another renewal. Zero if it is not."""
    if election.renewed is None:
        return _NO_TIME
    return max(election.renewed + election.timings.renew_deadline - now, _NO_TIME)


def may_hold(election: Election) -> bool:
    """Whether the Lease may name this process as its holder, so that it has to be released."""
    is_holder = election.latest is not None and election.latest.lease.term.holder == election.identity
    return is_holder or election.has_unconfirmed_write


def advance(election: Election, event: Event, now: timedelta, *, random: float) -> tuple[Election, Command]:
    """Return what the process knows after an event, and what to do next. The outcome of that is the next event.

    `random` is from [0, 1).
    """
    if not time_left(election, now):
        election = msgspec.structs.replace(election, renewed=None)
    match event:
        case Waited():
            if election.renewed is not None and not election.has_unconfirmed_write:
                return _writing(election), Replace()
            return election, Get()
        case Found(lease=lease):
            election = _with_sighting(election, lease, now)
            if _is_held_by_another(election, now):
                return _wait(msgspec.structs.replace(election, renewed=None), now, random)
            return _writing(election), Replace()
        case Absent():
            election = msgspec.structs.replace(election, has_looked=True)
            # The Lease was deleted. Its holder acts until it notices.
            if _is_held_by_another(election, now):
                return _wait(election, now, random)
            return _writing(election), Create()
        case Written(lease=lease, sent=sent):
            election = _with_sighting(election, lease, now)
            return _wait(msgspec.structs.replace(election, renewed=sent), now, random)
        case Failed():
            return _wait(election, now, random)
        case _:
            assert_never(event)


def _with_sighting(election: Election, lease: Lease, now: timedelta) -> Election:
    sighting = Sighting(lease, now, was_alive=election.has_looked)
    if election.latest is not None and election.latest.lease.term == lease.term:
        sighting = Sighting(lease, election.latest.seen, election.latest.was_alive)
    last_leader = election.last_leader if lease.term.holder == election.identity else sighting
    return msgspec.structs.replace(
        election, has_looked=True, latest=sighting, last_leader=last_leader, has_unconfirmed_write=False
    )


def _writing(election: Election) -> Election:
    return msgspec.structs.replace(election, has_unconfirmed_write=True)


def _is_held_by_another(election: Election, now: timedelta) -> bool:
    return _time_left_of_another(election, now) > _NO_TIME


def _time_left_of_another(election: Election, now: timedelta) -> timedelta:
    """Return how long another process may still act as leader."""
    if election.latest is None or election.latest.lease.term.holder in ("", election.identity):
        return _NO_TIME
    duration = election.latest.lease.term.duration or election.timings.lease_duration
    return max(election.latest.seen + duration - now, _NO_TIME)


def _wait(election: Election, now: timedelta, random: float) -> tuple[Election, Wait]:
    delay = election.timings.retry_period * (1 - _JITTER * random)
    if time := _time_left_of_another(election, now):
        delay = min(delay, time)  # take the Lease as soon as that is safe
    if time := time_left(election, now):
        # Try to renew once more before the time is over, then step down when it is.
        delay = min(delay, time, max(time / 2, election.timings.retry_period / 10))
    return election, Wait(delay)
