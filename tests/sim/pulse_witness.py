"""Sees what one life of a pulse decides and sends.

What it claims: every decision is the one that the specification makes of what was read; and what is due is sent
exactly when it should be. An event for a generation that has had one goes out because somebody has asked for it
since, because the resource was found well in between, or because the max age in force is over; for no other
reason, and never later. However these come together, their number within a minute has a bound: there is no storm.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta
from typing import TypeAlias

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.clock import Clock
from sentinel.ports.publisher import Outcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch
from tests.sim.trace import Trace

_WINDOW = timedelta(minutes=1)
_ROUNDING = timedelta(milliseconds=2)

Asked: TypeAlias = tuple[str, datetime, int]
"""Something that is a reason for an event, once: who asks, when, and for which time."""


class _Published:
    """What is remembered of a resource that had an event."""

    def __init__(self, generation: int, time: datetime, asked: set[Asked]) -> None:
        self.generation = generation
        self.time = time
        self.asked = asked
        self.is_well_since = False


class PulseWitness:
    """`pulse.report.Observer` of one incarnation: a pulse that is started anew remembers nothing, and may repeat
    itself once."""

    def __init__(self, name: str, trace: Trace, policy: Policy, clock: Clock) -> None:
        self._name = name
        self._trace = trace
        self._clock = clock
        self._policy = policy
        self._first_seen: dict[str, tuple[datetime, datetime]] = {}
        self._judged: dict[str, tuple[datetime, Observation]] = {}
        self._published: dict[str, _Published] = {}
        self._recent: dict[tuple[str, int], deque[datetime]] = defaultdict(deque)
        self._reliefs: dict[str, deque[datetime]] = defaultdict(deque)
        """When a resource ceased to be ready, or an event was asked for."""

    # --- pulse.report.Observer ----------------------------------------------------------------------------------

    def judged(self, page: PageReport) -> None:
        self._trace.require(not page.malformed, "a document of ours is malformed:", page.malformed)
        for judgement in page.judgements:
            seen = judgement.resource
            is_due = self._is_due(seen, page.at)
            self._trace.require(
                is_due == judgement.decision.is_due,
                f"{self._name}: {seen.id} {'is' if is_due else 'is not'} due, and the decision is",
                judgement.decision.reason,
            )
            if is_due:
                self._compare_pacing(seen, page.at, judgement.verdict)
            self._remember(seen, page.at, is_due=is_due)

    def published(self, batch: PublishedBatch) -> None:
        for pending, outcome in zip(batch.pending, batch.outcomes, strict=True):
            resource = pending.judgement.resource
            self._trace.note(self._name, f"event {resource.id}@{resource.generation} {outcome}")
            if outcome is Outcome.CONFIRMED:
                self._confirmed(resource)

    def finished(self, report: CycleReport) -> None:
        if report.fetch_error:
            self._trace.note(self._name, "the walk failed", report.fetch_error)

    def crashed(self, error: BaseException) -> None:
        self._trace.violation(f"{self._name}: a cycle crashed: {error!r}")

    # --- the specification's rules ------------------------------------------------------------------------------

    def _is_due(self, seen: Observation, now: datetime) -> bool:
        updated = self._last_updated(seen, now)
        if seen.is_paused:
            return False
        if seen.generation > seen.observed_generation:
            return True
        return bool(self._asked(seen, updated)) or updated is None or now >= updated + self._max_age(seen)

    def _last_updated(self, seen: Observation, now: datetime) -> datetime | None:
        """A time in the future counts as the moment at which it was first seen."""
        updated = seen.last_updated_time
        if updated is None:
            return None
        value, moment = self._first_seen.get(seen.id, (None, now))
        if value != updated:
            if updated <= now:
                self._first_seen.pop(seen.id, None)
                return updated
            moment = now
        moment = min(moment, now)  # a clock that was set back
        self._first_seen[seen.id] = (updated, moment)
        return min(moment.replace(microsecond=moment.microsecond // 1000 * 1000), updated)

    def _asked(self, seen: Observation, updated: datetime | None) -> set[Asked]:
        """What somebody has asked for, and no status has answered: a person, or an adapter by doing its part.

        Adapters' times are compared with adapters' times. The one who has done its part may be the one who looked
        longest ago; then the others have looked since, and only if the resource is ready have they seen it.
        """
        asked: set[Asked] = set()
        requested, progress = seen.pulse_requested_time, seen.last_progress_time
        if requested is not None and (updated is None or requested > updated):
            asked.add(("a person", requested, 1))
        if progress is not None and self._policy.follows_progress:
            looked = seen.last_updated_time
            if looked is None or progress > looked or (progress == looked and not seen.is_ready):
                asked.add(("an adapter", progress, seen.progress_count))
        return asked

    def _max_age(self, seen: Observation) -> timedelta:
        is_calm = seen.is_ready and seen.generation <= seen.observed_generation
        return self._policy.max_age_ready if is_calm else self._policy.max_age_not_ready

    # --- no storm -----------------------------------------------------------------------------------------------

    def _remember(self, seen: Observation, now: datetime, *, is_due: bool) -> None:
        before = self._judged.get(seen.id)
        if before is not None:
            was = before[1]
            if (was.is_ready and not seen.is_ready) or was.pulse_requested_time != seen.pulse_requested_time:
                self._reliefs[seen.id].append(now)
            if self._policy.follows_progress:
                self._reliefs[seen.id].extend([now] * (seen.progress_count - was.progress_count))
        self._judged[seen.id] = (now, seen)
        published = self._published.get(seen.id)
        if published is not None:
            published.time = min(published.time, now)  # a clock that was set back
            published.is_well_since |= not is_due

    def _compare_pacing(self, seen: Observation, now: datetime, verdict: PacingVerdict) -> None:
        before = self._published.get(seen.id)
        asked = self._asked(seen, self._last_updated(seen, now))
        if (
            before is None
            or seen.generation > before.generation
            or before.is_well_since
            or not asked <= before.asked
        ):
            remaining = -_ROUNDING
        else:
            max_age = self._max_age(seen)
            # Polls are never quite as far apart as they should be.
            slack = min(max_age / 10, timedelta(milliseconds=500))
            remaining = max_age - slack - (now - min(before.time, now))
        if remaining >= _ROUNDING:
            self._trace.require(
                verdict is not PacingVerdict.PUBLISH,
                f"{self._name}: a storm: {seen.id}@{seen.generation} is sent {remaining} too early",
            )
        elif remaining <= -_ROUNDING:
            self._trace.require(
                verdict is not PacingVerdict.PACED,
                f"{self._name}: {seen.id}@{seen.generation} is held back for nothing",
            )

    def _confirmed(self, resource: Observation) -> None:
        now, seen = self._judged[resource.id]
        asked = self._asked(seen, self._last_updated(seen, now))
        # An event answers whatever had been asked for by then, also what was no reason for it at that moment.
        answered = asked | {("an adapter", seen.last_progress_time or now, seen.progress_count)}
        self._published[resource.id] = _Published(resource.generation, self._clock.now(), answered)
        self._bound(resource, now)

    def _bound(self, resource: Observation, now: datetime) -> None:
        recent = self._recent[resource.id, resource.generation]
        recent.append(now)
        reliefs = self._reliefs[resource.id]
        for times in (recent, reliefs):
            while times and times[0] <= now - _WINDOW:
                times.popleft()
        most = 2 * (1 + _WINDOW // self._policy.max_age_not_ready) + len(reliefs)
        self._trace.require(
            len(recent) <= most,
            f"{self._name}: a storm: within a minute {len(recent)} events",
            f"for {resource.id}@{resource.generation}, where {most} are plenty",
        )
