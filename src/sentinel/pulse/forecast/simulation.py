"""An hour of a fleet's life, rehearsed: which events these settings would send, and when.

The fleet is reduced to a profile: how its resources stand (ready or not, abreast of their spec or behind it) and
how old their statuses are. From that a small cast is drawn, each of whom stands for many, and taken through the
decision and the pacing that a pulse uses, poll by poll, on virtual time. Adapters are assumed to answer every
event after a given time, and to leave a resource as ready as it was: a forecast of what owners will change, or of
what will break, would be a guess.

Between two events nothing happens to a resource for many polls, and what the pulse would decide at each of them
is known beforehand; so nobody is looked at before something can have changed. That makes the cost of an hour
depend on its events, not on its polls.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec

from sentinel.core.pulse.decision import Decision, Policy, Reason, decide
from sentinel.core.pulse.observation import NO_LABELS, Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from sentinel.core.pulse.rate_limit import MostUrgent, TokenBucket

_CAST = 300
"""How many play each standing. Ages are drawn evenly, so that more would only smooth what is smooth already."""
_MINUTE = timedelta(minutes=1)
_NEVER = datetime.min.replace(tzinfo=UTC)


class ResourceGroup(msgspec.Struct, frozen=True):
    """How a resource stands, as far as a decision can tell, its age apart."""

    is_ready: bool
    lead: int
    """1 where its spec is newer than what was observed, -1 where it is older, 0 where both agree."""
    is_reported: bool
    """Whether an adapter has ever looked at it."""
    is_paused: bool = False
    """Whether it gets no events; that somebody may resume it is not foreseen."""


class FleetProfile:
    """A fleet, reduced to how many resources stand how, and for how long: eight bytes each."""

    def __init__(self) -> None:
        self._ages: dict[ResourceGroup, array[float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._ages.values()))

    @property
    def ready(self) -> int:
        """How many are ready."""
        return sum(len(ages) for standing, ages in self._ages.items() if standing.is_ready)

    def add(self, seen: Observation, at: datetime) -> None:
        """Counts one more resource. A status from the future is counted from the moment it is seen."""
        updated = seen.last_updated_time
        lead = (seen.generation > seen.observed_generation) - (seen.generation < seen.observed_generation)
        standing = ResourceGroup(seen.is_ready, lead, updated is not None, seen.is_paused)
        age = max(0.0, (at - updated).total_seconds()) if updated is not None else 0.0
        self._ages.setdefault(standing, array("d")).append(age)

    def drawn(self, count: int) -> Iterator[tuple[ResourceGroup, timedelta, float]]:
        """At most so many of each standing, their ages evenly drawn, each with how many it stands for."""
        for standing, ages in self._ages.items():
            ordered = sorted(ages)
            drawn = min(count, len(ordered))
            for n in range(drawn):
                age = ordered[(2 * n + 1) * len(ordered) // (2 * drawn)]
                yield standing, timedelta(seconds=age), len(ordered) / drawn


class SimulationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is rehearsed."""

    policy: Policy
    poll_interval: timedelta
    republish_interval: timedelta | None
    max_events_per_second: float | None
    answer_after: timedelta
    """From an event to the report that it causes."""
    start: datetime
    lasting: timedelta


class SimulationResult(msgspec.Struct, frozen=True):
    """What came of it. Numbers of events and resources are not whole, because each of the cast stands for many."""

    polls: int
    events: float
    events_by_reason: dict[Reason, float]
    at_first_poll: float
    """Events of the first poll, which works off whatever is due by now."""
    busiest_minute: float
    """Events of the minute that had most."""
    most_remembered: float
    """How many resources pacing had to remember at the most."""


def simulate(profile: FleetProfile, plan: SimulationPlan, *, size: int) -> SimulationResult:
    """Rehearses a fleet of this profile that has `size` resources."""
    return _Rehearsal(profile, plan, size / len(profile) if len(profile) else 0.0).run()


_Due: TypeAlias = "tuple[_Actor, Decision]"


class _Actor:
    """Plays a resource, and `weight` of its kind with it."""

    __slots__ = ("answers", "is_remembered", "published", "seen", "weight")

    def __init__(self, seen: Observation, weight: float) -> None:
        self.seen = seen
        self.weight = weight
        self.answers: deque[datetime] = deque()
        """When the reports on its latest events will come."""
        self.published = _NEVER
        """When its last event went out."""
        self.is_remembered = False
        """Whether pacing still holds that against it."""

    def hear(self, now: datetime) -> None:
        """Takes in the reports that have come by now."""
        while self.answers and self.answers[0] <= now:
            self.seen = msgspec.structs.replace(
                self.seen, last_updated_time=self.answers.popleft(), observed_generation=self.seen.generation
            )


class _Rehearsal:
    def __init__(self, profile: FleetProfile, plan: SimulationPlan, scale: float) -> None:
        self._plan = plan
        self._pacer = Pacer(republish_interval=plan.republish_interval)
        self._allowance = (
            TokenBucket(per_second=plan.max_events_per_second, poll_interval=plan.poll_interval)
            if plan.max_events_per_second is not None
            else None
        )
        """What an actor, who stands for many, has sent beyond what its poll allowed; the polls after it pay."""
        self._polls = -(-plan.lasting // plan.poll_interval)
        self._agenda: dict[int, list[_Actor]] = {
            0: [
                _Actor(_observation(f"{n}", standing, age, plan.start), weight * scale)
                for n, (standing, age, weight) in enumerate(profile.drawn(_CAST))
            ]
        }
        """Whom to look at, by poll."""
        self._minutes = [0.0] * (plan.lasting // _MINUTE + 1)
        self._reasons = dict.fromkeys(Reason, 0.0)
        self._remembered = self._most_remembered = 0.0

    def run(self) -> SimulationResult:
        at_first_poll = 0.0
        for poll in range(self._polls):
            actors = self._agenda.pop(poll, None)
            if actors is not None:
                self._poll(poll, actors)
            if poll == 0:
                at_first_poll = sum(self._minutes)
        return SimulationResult(
            polls=self._polls,
            events=sum(self._minutes),
            events_by_reason={reason: events for reason, events in self._reasons.items() if events},
            at_first_poll=at_first_poll,
            busiest_minute=max(self._minutes),
            most_remembered=self._most_remembered,
        )

    def _poll(self, poll: int, actors: Sequence[_Actor]) -> None:
        plan, pacer = self._plan, self._pacer
        now = plan.start + poll * plan.poll_interval
        pacer.begin()
        due: list[_Due] = []
        for actor in actors:
            actor.hear(now)
            decision = decide(actor.seen, plan.policy, now, pacer.first_seen(actor.seen, now))
            match pacer.consider(actor.seen, decision, now):
                case PacingVerdict.PUBLISH:
                    due.append((actor, decision))
                case PacingVerdict.PACED:
                    interval = plan.republish_interval
                    paced_for = decision.max_age if interval is None else interval
                    self._look_again(actor, poll, actor.published + paced_for)
                case PacingVerdict.SKIP | PacingVerdict.REPEATED:  # nobody is on the agenda of a poll twice
                    self._remember(actor, is_remembered=False)
                    if decision.next_event_time is not None:
                        self._look_again(actor, poll, decision.next_event_time)
        for actor, decision in self._allowed(due, now):
            pacer.settled(actor.seen, decision, now)
            actor.published = now
            actor.answers.append(now + plan.answer_after)
            self._remember(actor, is_remembered=True)
            self._minutes[poll * plan.poll_interval // _MINUTE] += actor.weight
            self._reasons[decision.reason] += actor.weight
        for actor, _ in due:
            self._look_again(actor, poll, now)

    def _allowed(self, due: Sequence[_Due], now: datetime) -> Sequence[_Due]:
        """Those of the due that the ceiling lets pass, the most urgent first."""
        if self._allowance is None:
            return due
        budget = float(self._allowance.available(now))
        shortlist = MostUrgent[_Due](len(due))
        for candidate in due:
            shortlist.offer(candidate, candidate[1])
        allowed: list[_Due] = []
        for candidate in shortlist.chosen():
            if budget <= 0:
                break
            allowed.append(candidate)
            budget -= candidate[0].weight
            self._allowance.spend(candidate[0].weight)
        return allowed

    def _look_again(self, actor: _Actor, poll: int, when: datetime) -> None:
        """At the first poll after this one at which anything can have changed."""
        if actor.answers:
            when = min(when, actor.answers[0])
        again = max(poll + 1, -((self._plan.start - when) // self._plan.poll_interval))
        if again < self._polls:
            self._agenda.setdefault(again, []).append(actor)

    def _remember(self, actor: _Actor, *, is_remembered: bool) -> None:
        """Keeps count of what pacing holds: a resource from its event until it is not due any more."""
        self._remembered += actor.weight * (is_remembered - actor.is_remembered)
        self._most_remembered = max(self._most_remembered, self._remembered)
        actor.is_remembered = is_remembered


def _observation(name: str, standing: ResourceGroup, age: timedelta, start: datetime) -> Observation:
    """A resource that stands like this; its generation has room on either side."""
    return Observation(
        id=name,
        kind="",
        generation=2,
        observed_generation=2 - standing.lead,
        is_ready=standing.is_ready,
        last_updated_time=start - age if standing.is_reported else None,
        labels=NO_LABELS,
        is_paused=standing.is_paused,
    )
