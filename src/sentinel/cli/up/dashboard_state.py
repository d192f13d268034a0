"""What has happened lately and how the fleet stands, gathered for a screen.

Nobody who works here knows of it: pulses and adapters are given observers, and the fleet is read through its API
like anybody would. So what the screen shows is what users of the API see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.cli.client.rows import Item
from sentinel.cli.up.narration import Activity
from sentinel.core.pulse.pacing import PacedDecision, PacingVerdict
from sentinel.ports.publisher import Outcome
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch

_REMEMBERED = 200
"""How many happenings are kept; more than any terminal has lines."""
_NAMED = 10_000
"""How many resources are known by name."""
_RATE_WINDOW = timedelta(seconds=10)


class Shelf(msgspec.Struct, frozen=True):
    """The resources of one kind, as they were last read."""

    plural: str
    required: tuple[str, ...]
    items: Sequence[Item] = ()
    total: int = 0
    """More than there are items, where not all were read."""

    @property
    def ready(self) -> int:
        """Of those that were read."""
        return sum(item.is_ready for item in self.items)


class Totals(msgspec.Struct, frozen=True):
    """Sums since the beginning, over all pulses and adapters."""

    published: int = 0
    paced: int = 0
    failed: int = 0
    """Refused, unconfirmed or unroutable."""
    evaluations: int = 0

    def with_cycle(self, report: CycleReport) -> Totals:
        """And one cycle more."""
        return Totals(
            self.published + report.published,
            self.paced + report.paced,
            self.failed + report.failed + report.unroutable,
            self.evaluations,
        )


class DashboardState:
    """One for everything that runs."""

    def __init__(self, *, started: datetime) -> None:
        self.started = started
        self.totals = Totals()
        self._happenings: deque[Activity] = deque(maxlen=_REMEMBERED)
        self._shelves: dict[str, Shelf] = {}
        self._names: dict[str, str] = {}
        self._said: dict[tuple[str, str], str] = {}
        self._prospects: dict[str, Mapping[str, PacedDecision]] = {}
        self._ready: dict[str, int] = {}
        self._published: deque[tuple[datetime, int]] = deque()

    @property
    def shelves(self) -> Sequence[Shelf]:
        """In the order in which they were put up first."""
        return list(self._shelves.values())

    def ready(self, shelf: Shelf) -> int:
        """How many of a kind are ready: as they were read, or where not all were, as their pulse saw them last."""
        is_whole = len(shelf.items) == shelf.total
        return shelf.ready if is_whole else min(self._ready.get(shelf.plural, shelf.ready), shelf.total)

    def put_up(self, shelf: Shelf) -> None:
        """The resources of a kind, in place of how they were before."""
        self._shelves[shelf.plural] = shelf
        for item in shelf.items:
            self.learn(item.id, item.name)

    def learn(self, resource_id: str, name: str) -> None:
        """Whom an id stands for."""
        if name and (resource_id in self._names or len(self._names) < _NAMED):
            self._names[resource_id] = name

    def name_of(self, resource_id: str) -> str:
        """The name, or nothing where it is not known."""
        return self._names.get(resource_id, "")

    def prospect(self, resource_id: str) -> PacedDecision | None:
        """What its pulse last thought of a resource."""
        for judgements in self._prospects.values():
            if resource_id in judgements:
                return judgements[resource_id]
        return None

    def tell(self, happening: Activity) -> None:
        """Puts a happening up."""
        self.learn(happening.resource_id, happening.name)
        if happening.is_evaluation:
            self.totals = msgspec.structs.replace(self.totals, evaluations=self.totals.evaluations + 1)
            if self._is_repetition(happening):
                return  # adapters say the same at every pulse, and the screen has room for what is new
        self._happenings.append(happening)

    def _is_repetition(self, happening: Activity) -> bool:
        key = (happening.source, happening.resource_id)
        if self._said.get(key) == happening.text:
            return True
        if key in self._said or len(self._said) < _NAMED:
            self._said[key] = happening.text
        return False

    def latest(self, count: int) -> Sequence[Activity]:
        """The latest happenings, the newest first."""
        return [happening for happening, _ in zip(reversed(self._happenings), range(count), strict=False)]

    def rate(self, now: datetime) -> float:
        """Events a second, lately."""
        self._forget_published_before(now - _RATE_WINDOW)
        lately = min(now - self.started, _RATE_WINDOW)
        return sum(count for _, count in self._published) / max(lately.total_seconds(), 1)

    def observer(self, resource_type: str) -> DashboardObserver:
        """What a pulse over this type of resource is to be given."""
        return DashboardObserver(self, resource_type)

    def answered(self, at: datetime, confirmed: int) -> None:
        """Counts what was sent."""
        self._forget_published_before(at - _RATE_WINDOW)
        self._published.append((at, confirmed))

    def finished(self, resource_type: str, seen: Mapping[str, PacedDecision], report: CycleReport) -> None:
        """Counts a cycle; what it thought of the resources, only where it saw all of them."""
        self.totals = self.totals.with_cycle(report)
        if report.is_complete:
            self._prospects[resource_type] = seen
            self._ready[resource_type] = sum(judgement.resource.is_ready for judgement in seen.values())

    def _forget_published_before(self, moment: datetime) -> None:
        while self._published and self._published[0][0] <= moment:
            self._published.popleft()


class DashboardObserver:
    """`pulse.report.Observer` of one pulse: when each resource will have its next event."""

    def __init__(self, board: DashboardState, resource_type: str) -> None:
        self._board = board
        self._resource_type = resource_type
        self._seen: dict[str, PacedDecision] = {}
        self._at = board.started

    def judged(self, page: PageReport) -> None:
        self._at = page.at
        for judgement in page.judgements:
            if judgement.verdict is not PacingVerdict.REPEATED:
                self._seen[judgement.resource.id] = judgement

    def published(self, batch: PublishedBatch) -> None:
        self._board.answered(self._at, batch.outcomes.count(Outcome.CONFIRMED))

    def finished(self, report: CycleReport) -> None:
        seen, self._seen = self._seen, {}
        self._board.finished(self._resource_type, seen, report)

    def crashed(self, error: BaseException) -> None:
        self._seen = {}
