"""The state that the live view shows: the resources, the proxy instances, the recent activity and the totals.

Observers of the pulses and adapters update it, and the fleet is read through the API, as by any other client. So
the live view shows what users of the API see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.cli.client.resource_table import ResourceSummary
from sentinel.cli.hub.deployment_progress import Progress
from sentinel.cli.up.activity import Activity
from sentinel.core.pulse.pacing import PacedDecision, PacingVerdict
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, StreamReport

_MAX_ACTIVITIES = 200
"""More than any terminal has lines."""
_MAX_RESOURCES = 10_000
"""The number of resources whose names and last evaluations are remembered."""
_RATE_WINDOW = timedelta(seconds=10)


class KindState(msgspec.Struct, frozen=True):
    """The resources of one kind, as last read."""

    plural: str
    required: tuple[str, ...]
    resources: Sequence[ResourceSummary] = ()
    total: int = 0
    """More than the number of `resources` if not all were read."""

    @property
    def is_complete(self) -> bool:
        return len(self.resources) == self.total


class InstancesState(msgspec.Struct, frozen=True):
    """The proxy instances, as last read from the hub."""

    instances: Sequence[InstanceDocument] = ()
    total: int = 0
    """More than the number of `instances` if not all were read."""


class Totals(msgspec.Struct, frozen=True):
    """Sums since the start, over all pulses and adapters."""

    published: int = 0
    paced: int = 0
    failed: int = 0
    """Rejected, unconfirmed or unroutable."""
    evaluations: int = 0

    def with_cycle(self, report: CycleReport) -> Totals:
        """Add one cycle."""
        return Totals(
            self.published + report.published,
            self.paced + report.paced,
            self.failed + report.failed + report.unroutable,
            self.evaluations,
        )


class DashboardState:
    """The state of one `sentinel up`, shared by all its pulses and adapters."""

    def __init__(self, *, started: datetime) -> None:
        self.started = started
        self.totals = Totals()
        self.instances = InstancesState()
        self.deployment: Progress | None = None
        """The newest deployment."""
        self._activities: deque[Activity] = deque(maxlen=_MAX_ACTIVITIES)
        self._kinds: dict[str, KindState] = {}
        self._names: dict[str, str] = {}
        self._last_evaluations: dict[tuple[str, str], str] = {}
        self._decisions: dict[str, Mapping[str, PacedDecision]] = {}
        self._ready_counts: dict[str, int] = {}
        self._published: deque[tuple[datetime, int]] = deque()

    @property
    def kinds(self) -> Sequence[KindState]:
        """The kinds, in the order in which they were first read."""
        return list(self._kinds.values())

    def count_ready(self, kind: KindState) -> int:
        """Count the ready resources of a kind; if not all were read, use the count of its pulse."""
        ready = sum(resource.is_ready for resource in kind.resources)
        return ready if kind.is_complete else min(self._ready_counts.get(kind.plural, ready), kind.total)

    def update(self, kind: KindState) -> None:
        """Replace the state of a kind."""
        self._kinds[kind.plural] = kind
        for resource in kind.resources:
            self._remember_name(resource.id, resource.name)

    def name_of(self, resource_id: str) -> str:
        """The name of a resource, or an empty text if it is unknown."""
        return self._names.get(resource_id, "")

    def decision_on(self, resource_id: str) -> PacedDecision | None:
        """The latest decision of a pulse on this resource."""
        for decisions in self._decisions.values():
            if resource_id in decisions:
                return decisions[resource_id]
        return None

    def record(self, activity: Activity) -> None:
        """Add an activity to the feed."""
        self._remember_name(activity.resource_id, activity.name)
        if activity.is_evaluation:
            self.totals = msgspec.structs.replace(self.totals, evaluations=self.totals.evaluations + 1)
            # Adapters report the same at every pulse; the feed has room only for news.
            if self._is_repetition(activity):
                return
        self._activities.append(activity)

    def latest(self, count: int) -> Sequence[Activity]:
        """Return the latest activities, newest first."""
        return [activity for activity, _ in zip(reversed(self._activities), range(count), strict=False)]

    def events_per_second(self, now: datetime) -> float:
        """The recent rate of published events."""
        self._discard_published_before(now - _RATE_WINDOW)
        window = min(now - self.started, _RATE_WINDOW)
        return sum(count for _, count in self._published) / max(window.total_seconds(), 1)

    def add_published(self, at: datetime, count: int) -> None:
        """Count published events for the rate."""
        self._discard_published_before(at - _RATE_WINDOW)
        self._published.append((at, count))

    def add_cycle(self, resource_type: str, decisions: Mapping[str, PacedDecision], report: CycleReport) -> None:
        """Add a cycle to the totals; replace the decisions only if it read the whole fleet."""
        self.totals = self.totals.with_cycle(report)
        if report.is_complete:
            self._decisions[resource_type] = decisions
            self._ready_counts[resource_type] = sum(each.resource.is_ready for each in decisions.values())

    def add_streamed(self, report: StreamReport) -> None:
        """Add what a stream has brought to the totals. What it leaves for a poll is counted there."""
        self.totals = msgspec.structs.replace(self.totals, published=self.totals.published + report.published)

    def _remember_name(self, resource_id: str, name: str) -> None:
        if name and (resource_id in self._names or len(self._names) < _MAX_RESOURCES):
            self._names[resource_id] = name

    def _is_repetition(self, activity: Activity) -> bool:
        key = (activity.source, activity.resource_id)
        if self._last_evaluations.get(key) == activity.text:
            return True
        if key in self._last_evaluations or len(self._last_evaluations) < _MAX_RESOURCES:
            self._last_evaluations[key] = activity.text
        return False

    def _discard_published_before(self, time: datetime) -> None:
        while self._published and self._published[0][0] <= time:
            self._published.popleft()


class DashboardObserver:
    """`pulse.report.PulseObserver` of one pulse: collects its decisions and totals."""

    needs_every_decision = True

    def __init__(self, state: DashboardState, resource_type: str) -> None:
        self._state = state
        self._resource_type = resource_type
        self._decisions: dict[str, PacedDecision] = {}
        self._at = state.started

    def decided(self, page: PageReport) -> None:
        self._at = page.at
        for decision in page.paced_decisions:
            if decision.verdict is not PacingVerdict.REPEATED:
                self._decisions[decision.resource.id] = decision

    def published(self, batch: PublishedBatch) -> None:
        self._state.add_published(self._at, batch.outcomes.count(PublishOutcome.CONFIRMED))

    def finished(self, report: CycleReport) -> None:
        decisions, self._decisions = self._decisions, {}
        self._state.add_cycle(self._resource_type, decisions, report)

    def streamed(self, report: StreamReport) -> None:
        self._state.add_streamed(report)

    def crashed(self, error: BaseException) -> None:
        self._decisions = {}
