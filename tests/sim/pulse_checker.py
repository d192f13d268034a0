"""Checks the decisions and events of one pulse process.

Every decision must follow the specification, and every due resource must be published exactly when it should be. A
generation gets another event only if one was requested since, if the resource was not due in between, or
after the max age in force; and then without delay. The number of events within a minute is bounded: no storms.

A stream may publish only what no poll has seen and it has not published. When a poll sees what the stream has
published, that event counts for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import PacedDecision, PacingVerdict
from sentinel.ports.fleet_stream import Changed, StreamItem
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, StreamReport
from tests.sim.process import SimulatedProcess

_WINDOW = timedelta(minutes=1)
_ROUNDING = timedelta(milliseconds=2)

Version: TypeAlias = tuple[int, datetime, int]
"""What makes a change news: the generation, the requested pulse, and the progress."""
_NEVER = datetime.min.replace(tzinfo=UTC)

OpenRequest: TypeAlias = tuple[str, datetime, int]
"""A one-time reason for an event: its source, its time, and its count."""


class _LastEvent:
    """The last event of a resource."""

    def __init__(self, generation: int, time: datetime, requests: set[OpenRequest]) -> None:
        self.generation = generation
        self.time = time
        self.requests = requests
        self.was_skipped_since = False


class PulseChecker:
    """The `PulseObserver` of one process. A restarted pulse remembers nothing and may repeat each event once."""

    needs_every_decision = False

    def __init__(self, process: SimulatedProcess, policy: Policy) -> None:
        self._process = process
        self._policy = policy
        self._first_seen: dict[str, tuple[datetime, datetime]] = {}
        self._decided: dict[str, tuple[datetime, Observation]] = {}
        self._last_events: dict[str, _LastEvent] = {}
        self._polled: list[PacedDecision] = []
        """What the polls of this cycle decided to publish."""
        self._streamed: dict[str, list[tuple[Version, _LastEvent]]] = defaultdict(list)
        """The events of the stream whose changes no poll has seen, the oldest first."""
        self._streaming: list[Observation] = []
        """What the stream has brought and the pulse may be publishing."""
        self._known: dict[str, list[Version]] = {}
        """What had been seen or published of these resources before."""
        self._recent: dict[tuple[str, int], deque[datetime]] = defaultdict(deque)
        self._allowances: dict[str, deque[datetime]] = defaultdict(deque)
        """Times of changes that allow one more event: a resource became not ready, or an event was requested."""

    def decided(self, page: PageReport) -> None:
        self._process.trace.require(not page.malformed, "a document is malformed:", page.malformed)
        for paced in page.paced_decisions:
            seen = paced.resource
            is_due = self._is_due(seen, page.at)
            self._process.trace.require(
                is_due == paced.decision.is_due,
                f"{self._process.name}: {seen.id} {'is' if is_due else 'is not'} due, and the decision is",
                paced.decision.reason,
            )
            self._adopt_streamed(seen)
            if is_due:
                self._check_pacing(seen, page.at, paced.verdict)
            if paced.verdict is PacingVerdict.PUBLISH:
                self._polled.append(paced)
            self._remember(seen, page.at, is_due=is_due)
        if not page.paced_decisions:
            self._check_unchanged(page)

    def _check_unchanged(self, page: PageReport) -> None:
        """Check a page without decisions: deciding on it would have skipped everything."""
        for resource in page.resources:
            seen = resource.observation
            self._process.trace.require(
                not self._is_due(seen, page.at),
                f"{self._process.name}: {seen.id} is due, and no decision was made",
            )
            self._adopt_streamed(seen)
            self._remember(seen, page.at, is_due=False)
        self._process.trace.require(
            page.counts.skipped == len(page.resources),
            f"{self._process.name}: a page of {len(page.resources)} resources counts as",
            page.counts,
        )

    def published(self, batch: PublishedBatch) -> None:
        for pending, outcome in zip(batch.pending, batch.outcomes, strict=True):
            resource = pending.paced.resource
            self._process.trace.note(self._process.name, f"event {resource.id}@{resource.generation} {outcome}")
            is_confirmed = outcome is PublishOutcome.CONFIRMED
            if any(each is pending.paced for each in self._polled):
                if is_confirmed:
                    self._confirmed(resource)
            else:
                self._check_streamed(resource, is_confirmed=is_confirmed)

    def finished(self, report: CycleReport) -> None:
        self._polled.clear()
        if report.fetch_error:
            self._process.trace.note(self._process.name, "the walk failed", report.fetch_error)

    def streaming(self, items: Sequence[StreamItem]) -> None:
        """The stream is about to bring this."""
        self._streaming = [item.resource.observation for item in items if isinstance(item, Changed)]
        self._known = {each.id: self._known_versions(each.id) for each in self._streaming}

    def _known_versions(self, resource_id: str) -> list[Version]:
        polled = self._decided.get(resource_id)
        streamed = [event[0] for event in self._streamed.get(resource_id, ())]
        return streamed if polled is None else [*streamed, self._version(polled[1])]

    def streamed(self, report: StreamReport) -> None:
        self._streaming = []

    def crashed(self, error: BaseException) -> None:
        self._process.trace.violation(f"{self._process.name}: a cycle crashed: {error!r}")

    # --- decisions by the specification -------------------------------------------------------------------------

    def _is_due(self, seen: Observation, now: datetime) -> bool:
        updated = self._last_updated(seen, now)
        if seen.is_paused:
            return False
        if seen.generation > seen.observed_generation:
            return True
        return bool(self._open_requests(seen, updated)) or updated is None or now >= updated + self._max_age(seen)

    def _last_updated(self, seen: Observation, now: datetime) -> datetime | None:
        """A time in the future counts as the time at which it was first seen."""
        updated = seen.last_updated_time
        if updated is None:
            return None
        value, first_seen = self._first_seen.get(seen.id, (None, now))
        if value != updated:
            if updated <= now:
                self._first_seen.pop(seen.id, None)
                return updated
            first_seen = now
        first_seen = min(first_seen, now)  # the clock was set back
        self._first_seen[seen.id] = (updated, first_seen)
        return min(first_seen.replace(microsecond=first_seen.microsecond // 1000 * 1000), updated)

    def _open_requests(self, seen: Observation, updated: datetime | None) -> set[OpenRequest]:
        """Requests that no later status has answered: by a user, or by an adapter that completed its part.

        Only times of adapters are compared with each other. If the completed adapter has the oldest report, the
        others have reported since, and they have seen the completion only if the resource is ready.
        """
        requests: set[OpenRequest] = set()
        requested, progress = seen.pulse_requested_time, seen.last_progress_time
        if requested is not None and (updated is None or requested > updated):
            requests.add(("a user", requested, 1))
        if progress is not None and self._policy.follows_progress:
            reported = seen.last_updated_time
            if reported is None or progress > reported or (progress == reported and not seen.is_ready):
                requests.add(("an adapter", progress, seen.progress_count))
        return requests

    def _max_age(self, seen: Observation) -> timedelta:
        is_ready = seen.is_ready and seen.generation <= seen.observed_generation
        return self._policy.max_age_ready if is_ready else self._policy.max_age_not_ready

    # --- pacing -------------------------------------------------------------------------------------------------

    def _remember(self, seen: Observation, now: datetime, *, is_due: bool) -> None:
        before = self._decided.get(seen.id)
        if before is not None:
            previous = before[1]
            if (
                previous.is_ready and not seen.is_ready
            ) or previous.pulse_requested_time != seen.pulse_requested_time:
                self._allowances[seen.id].append(now)
            if self._policy.follows_progress:
                self._allowances[seen.id].extend([now] * (seen.progress_count - previous.progress_count))
        self._decided[seen.id] = (now, seen)
        last_event = self._last_events.get(seen.id)
        if last_event is not None:
            last_event.time = min(last_event.time, now)  # the clock was set back
            last_event.was_skipped_since |= not is_due

    def _check_pacing(self, seen: Observation, now: datetime, verdict: PacingVerdict) -> None:
        last_event = self._last_events.get(seen.id)
        requests = self._open_requests(seen, self._last_updated(seen, now))
        if (
            last_event is None
            or seen.generation > last_event.generation
            or last_event.was_skipped_since
            or not requests <= last_event.requests
        ):
            remaining = -_ROUNDING
        else:
            max_age = self._max_age(seen)
            # Polls jitter, so pacing ends a little early.
            slack = min(max_age / 10, timedelta(milliseconds=500))
            remaining = max_age - slack - (now - min(last_event.time, now))
        if remaining >= _ROUNDING:
            self._process.trace.require(
                verdict is not PacingVerdict.PUBLISH,
                f"{self._process.name}: a storm: {seen.id}@{seen.generation} is sent {remaining} too early",
            )
        elif remaining <= -_ROUNDING and all(
            self._version(each) != self._version(seen) for each in self._streaming if each.id == seen.id
        ):
            self._process.trace.require(
                verdict is not PacingVerdict.PACED,
                f"{self._process.name}: {seen.id}@{seen.generation} is paced without a reason",
            )

    # --- the stream ---------------------------------------------------------------------------------------------

    def _version(self, seen: Observation) -> Version:
        progress = seen.progress_count if self._policy.follows_progress else 0
        return seen.generation, seen.pulse_requested_time or _NEVER, progress

    def _adopt_streamed(self, seen: Observation) -> None:
        """Let the newest event of the stream count whose change the poll sees."""
        version = self._version(seen)
        events = self._streamed.pop(seen.id, [])
        covered = [event for event in events if not _has_news(event[0], version)]
        if covered:
            self._last_events[seen.id] = covered[-1][1]
        if len(covered) < len(events):
            self._streamed[seen.id] = [event for event in events if event not in covered]

    def _check_streamed(self, resource: Observation, *, is_confirmed: bool) -> None:
        """Check an event of the stream: it is due for another reason than its age, and it is news."""
        now, version = self._process.clock.now(), self._version(resource)
        name = f"{self._process.name}: the stream publishes {resource.id}@{resource.generation},"
        requests = self._open_requests(resource, self._last_updated(resource, now))
        has_reason = resource.generation > resource.observed_generation or bool(requests)
        self._process.trace.require(
            not resource.is_paused and (has_reason or resource.last_updated_time is None), name, "which is not due"
        )
        self._process.trace.require(
            all(_has_news(version, each) for each in self._known[resource.id]), name, "which is no news"
        )
        if is_confirmed:
            answered = requests | {("an adapter", resource.last_progress_time or now, resource.progress_count)}
            event = _LastEvent(resource.generation, now, answered)
            self._streamed[resource.id].append((version, event))
            self._allowances[resource.id].append(now)
            self._check_rate(resource, now)

    def _confirmed(self, resource: Observation) -> None:
        now, seen = self._decided[resource.id]
        requests = self._open_requests(seen, self._last_updated(seen, now))
        # An event answers all requests so far, including those that were not its reason.
        answered = requests | {("an adapter", seen.last_progress_time or now, seen.progress_count)}
        self._last_events[resource.id] = _LastEvent(resource.generation, self._process.clock.now(), answered)
        self._check_rate(resource, now)

    def _check_rate(self, resource: Observation, now: datetime) -> None:
        recent = self._recent[resource.id, resource.generation]
        recent.append(now)
        allowances = self._allowances[resource.id]
        for times in (recent, allowances):
            while times and times[0] <= now - _WINDOW:
                times.popleft()
        maximum = 2 * (1 + _WINDOW // self._policy.max_age_not_ready) + len(allowances)
        self._process.trace.require(
            len(recent) <= maximum,
            f"{self._process.name}: a storm: {len(recent)} events within a minute",
            f"for {resource.id}@{resource.generation}, expected at most {maximum}",
        )


def _has_news(version: Version, known: Version) -> bool:
    return version[0] > known[0] or version[1] > known[1] or version[2] > known[2]
