"""Simulates which events these settings would publish in the next hour, and when.

The fleet is reduced to a profile: groups of resources (ready or not, observed or behind their spec) and the ages
of their statuses. A sample is drawn from each group, and each sampled resource stands for many. The sample runs
through the pulse's own decision and pacing, poll by poll, on virtual time. Adapters are assumed to report a fixed
time after every event and to leave the readiness of a resource as it was. Spec changes and outages are not
predicted.

Between two events nothing changes for many polls, and the decision at each of them is known in advance. So a
resource is evaluated only at polls where something can have changed, and the cost depends on the number of events,
not of polls.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec

from sentinel.core.pulse.decision import Decision, Policy, Reason
from sentinel.core.pulse.observation import NO_LABELS, Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict
from sentinel.core.pulse.rate_limit import MostUrgent, TokenBucket

_SAMPLES_PER_GROUP = 300
"""Ages are sampled at even intervals, so a larger sample would hardly change the result."""
_MINUTE = timedelta(minutes=1)
_NEVER = datetime.min.replace(tzinfo=UTC)


class ResourceGroup(msgspec.Struct, frozen=True):
    """What a decision reads of a resource, apart from the age of its status."""

    is_ready: bool
    lead: int
    """1 if its generation is ahead of the observed one, -1 if it is behind, 0 if they are equal."""
    is_reported: bool
    """Whether an adapter has ever reported."""
    is_paused: bool = False
    """Whether it gets no events. The simulation never resumes it."""


class FleetProfile:
    """The groups of a fleet and the status ages in each; eight bytes per resource."""

    def __init__(self) -> None:
        self._ages: dict[ResourceGroup, array[float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._ages.values()))

    @property
    def ready(self) -> int:
        """The number of ready resources."""
        return sum(len(ages) for group, ages in self._ages.items() if group.is_ready)

    def add(self, seen: Observation, at: datetime) -> None:
        """Add a resource. A status time in the future counts as `at`."""
        updated = seen.last_updated_time
        lead = (seen.generation > seen.observed_generation) - (seen.generation < seen.observed_generation)
        group = ResourceGroup(seen.is_ready, lead, updated is not None, seen.is_paused)
        age = max(0.0, (at - updated).total_seconds()) if updated is not None else 0.0
        self._ages.setdefault(group, array("d")).append(age)

    def sample(self, count: int) -> Iterator[tuple[ResourceGroup, timedelta, float]]:
        """Yield up to `count` resources of each group: group, age, and how many resources each stands for."""
        for group, ages in self._ages.items():
            ordered = sorted(ages)
            size = min(count, len(ordered))
            for n in range(size):
                age = ordered[(2 * n + 1) * len(ordered) // (2 * size)]
                yield group, timedelta(seconds=age), len(ordered) / size


class SimulationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a simulation."""

    policy: Policy
    poll_interval: timedelta
    republish_interval: timedelta | None
    max_events_per_second: float | None
    answer_after: timedelta
    """From an event to the report that it causes."""
    start: datetime
    duration: timedelta


class SimulationResult(msgspec.Struct, frozen=True):
    """The result of a simulation. Counts are fractional, because each sampled resource stands for many."""

    polls: int
    events: float
    events_by_reason: dict[Reason, float]
    at_first_poll: float
    """Events of the first poll, which publishes everything already due."""
    busiest_minute: float
    """Events in the busiest minute."""
    max_remembered: float
    """The largest number of resources in the pacing table."""


def simulate(profile: FleetProfile, plan: SimulationPlan, *, size: int) -> SimulationResult:
    """Simulate a fleet of this profile scaled to `size` resources."""
    return _Simulation(profile, plan, size / len(profile) if len(profile) else 0.0).run()


_Due: TypeAlias = "tuple[_Sample, Decision]"


class _Sample:
    """A sampled resource that stands for `weight` resources."""

    __slots__ = ("is_remembered", "published", "report_times", "seen", "weight")

    def __init__(self, seen: Observation, weight: float) -> None:
        self.seen = seen
        self.weight = weight
        self.report_times: deque[datetime] = deque()
        """When the reports on its latest events arrive."""
        self.published = _NEVER
        """When its last event was published."""
        self.is_remembered = False
        """Whether it is in the pacing table."""

    def apply_reports(self, now: datetime) -> None:
        """Apply the reports that have arrived by now."""
        while self.report_times and self.report_times[0] <= now:
            self.seen = msgspec.structs.replace(
                self.seen,
                last_updated_time=self.report_times.popleft(),
                observed_generation=self.seen.generation,
            )


class _Simulation:
    def __init__(self, profile: FleetProfile, plan: SimulationPlan, scale: float) -> None:
        self._plan = plan
        self._pacer = Pacer(republish_interval=plan.republish_interval)
        self._rate_limit = (
            TokenBucket(per_second=plan.max_events_per_second, poll_interval=plan.poll_interval)
            if plan.max_events_per_second is not None
            else None
        )
        """May go into debt, which later polls pay: one sample stands for many resources."""
        self._polls = -(-plan.duration // plan.poll_interval)
        self._schedule: dict[int, list[_Sample]] = {
            0: [
                _Sample(_observation(f"{n}", group, age, plan.start), weight * scale)
                for n, (group, age, weight) in enumerate(profile.sample(_SAMPLES_PER_GROUP))
            ]
        }
        """The samples to evaluate, by poll."""
        self._minutes = [0.0] * (plan.duration // _MINUTE + 1)
        self._reasons = dict.fromkeys(Reason, 0.0)
        self._remembered = self._max_remembered = 0.0

    def run(self) -> SimulationResult:
        at_first_poll = 0.0
        for poll in range(self._polls):
            samples = self._schedule.pop(poll, None)
            if samples is not None:
                self._poll(poll, samples)
            if poll == 0:
                at_first_poll = sum(self._minutes)
        return SimulationResult(
            polls=self._polls,
            events=sum(self._minutes),
            events_by_reason={reason: events for reason, events in self._reasons.items() if events},
            at_first_poll=at_first_poll,
            busiest_minute=max(self._minutes),
            max_remembered=self._max_remembered,
        )

    def _poll(self, poll: int, samples: Sequence[_Sample]) -> None:
        plan, pacer = self._plan, self._pacer
        now = plan.start + poll * plan.poll_interval
        pacer.begin_cycle()
        due: list[_Due] = []
        for sample in samples:
            sample.apply_reports(now)
            paced = pacer.decide(sample.seen, plan.policy, now)
            decision = paced.decision
            match paced.verdict:
                case PacingVerdict.PUBLISH:
                    due.append((sample, decision))
                case PacingVerdict.PACED:
                    interval = plan.republish_interval
                    paced_for = decision.max_age if interval is None else interval
                    self._reschedule(sample, poll, sample.published + paced_for)
                case PacingVerdict.SKIP | PacingVerdict.REPEATED:  # scheduled at most once per poll
                    self._remember(sample, is_remembered=False)
                    if decision.next_event_time is not None:
                        self._reschedule(sample, poll, decision.next_event_time)
        for sample, decision in self._allowed(due, now):
            pacer.record_published(sample.seen, decision, now)
            sample.published = now
            sample.report_times.append(now + plan.answer_after)
            self._remember(sample, is_remembered=True)
            self._minutes[poll * plan.poll_interval // _MINUTE] += sample.weight
            self._reasons[decision.reason] += sample.weight
        for sample, _ in due:
            self._reschedule(sample, poll, now)

    def _allowed(self, due: Sequence[_Due], now: datetime) -> Sequence[_Due]:
        """The due samples that the rate limit allows, most urgent first."""
        if self._rate_limit is None:
            return due
        budget = float(self._rate_limit.available(now))
        most_urgent = MostUrgent[_Due](len(due))
        for candidate in due:
            most_urgent.offer(candidate, candidate[1])
        allowed: list[_Due] = []
        for candidate in most_urgent.chosen():
            if budget <= 0:
                break
            allowed.append(candidate)
            budget -= candidate[0].weight
            self._rate_limit.spend(candidate[0].weight)
        return allowed

    def _reschedule(self, sample: _Sample, poll: int, when: datetime) -> None:
        """Schedule the sample for the first later poll at which anything can have changed."""
        if sample.report_times:
            when = min(when, sample.report_times[0])
        next_poll = max(poll + 1, -((self._plan.start - when) // self._plan.poll_interval))
        if next_poll < self._polls:
            self._schedule.setdefault(next_poll, []).append(sample)

    def _remember(self, sample: _Sample, *, is_remembered: bool) -> None:
        """Track the size of the pacing table, which holds a resource from its event until it is no longer due."""
        self._remembered += sample.weight * (is_remembered - sample.is_remembered)
        self._max_remembered = max(self._max_remembered, self._remembered)
        sample.is_remembered = is_remembered


def _observation(name: str, group: ResourceGroup, age: timedelta, start: datetime) -> Observation:
    """A resource of this group; generation 2 leaves room for an observed one on either side."""
    return Observation(
        id=name,
        kind="",
        generation=2,
        observed_generation=2 - group.lead,
        is_ready=group.is_ready,
        last_updated_time=start - age if group.is_reported else None,
        labels=NO_LABELS,
        is_paused=group.is_paused,
    )
