"""What the pulses have reported lately, gathered for somebody to look at.

The pulses know nothing of it: each is given an observer, and everything that the live view draws comes from the
report values which that observer is handed. So whatever publishes, wherever the resources live, looks the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.pacing import Verdict
from sentinel.ports import Outcome
from sentinel.pulse.report import Answer, CycleReport, Judgement, Observer, PageReport

_REMEMBERED = 200
"""How many happenings are kept; more than any terminal has lines."""

_RATE_WINDOW = timedelta(seconds=10)


class Happening(msgspec.Struct, frozen=True):
    """An event that was sent, or something that went wrong."""

    at: datetime
    judgement: Judgement | None = None
    outcome: Outcome | None = None
    trouble: str = ""


class Column(msgspec.Struct, frozen=True):
    """The resources of one pulse, as its last complete walk saw them."""

    resource_type: str
    judgements: Sequence[Judgement]


class Totals(msgspec.Struct, frozen=True):
    """Sums since the beginning, over all pulses."""

    cycles: int = 0
    published: int = 0
    skipped: int = 0
    paced: int = 0
    failed: int = 0
    """Refused, unconfirmed or unroutable."""

    def with_cycle(self, report: CycleReport) -> Totals:
        """And one cycle more."""
        return Totals(
            self.cycles + 1,
            self.published + report.published,
            self.skipped + report.skipped,
            self.paced + report.paced,
            self.failed + report.failed + report.unroutable,
        )


class Board:
    """One for all pulses; `observer` gives each its own place on it."""

    def __init__(self, *, started: datetime) -> None:
        self.started = started
        self.totals = Totals()
        self._happenings: deque[Happening] = deque(maxlen=_REMEMBERED)
        self._columns: dict[str, Column] = {}
        self._published: deque[tuple[datetime, int]] = deque()

    def observer(self, resource_type: str) -> BoardObserver:
        """What a pulse over this type of resource is to be given."""
        self._columns[resource_type] = Column(resource_type, ())
        return BoardObserver(self, resource_type)

    @property
    def columns(self) -> Sequence[Column]:
        """In the order in which the pulses were announced."""
        return list(self._columns.values())

    def latest(self, count: int) -> Sequence[Happening]:
        """The latest happenings, the newest first."""
        return [happening for happening, _ in zip(reversed(self._happenings), range(count), strict=False)]

    def rate(self, now: datetime) -> float:
        """Events a second, lately."""
        self._forget_published_before(now - _RATE_WINDOW)
        lately = min(now - self.started, _RATE_WINDOW)
        return sum(count for _, count in self._published) / max(lately.total_seconds(), 1)

    def _forget_published_before(self, moment: datetime) -> None:
        while self._published and self._published[0][0] <= moment:
            self._published.popleft()

    def happened(self, happening: Happening) -> None:
        """Puts a happening up."""
        self._happenings.append(happening)

    def answered(self, at: datetime, answer: Answer) -> None:
        """Puts up what was sent."""
        for pending, outcome in zip(answer.pending, answer.outcomes, strict=True):
            self.happened(Happening(at, pending.judgement, outcome))
        self._forget_published_before(at - _RATE_WINDOW)
        self._published.append((at, answer.outcomes.count(Outcome.CONFIRMED)))

    def finished(self, column: Column, report: CycleReport) -> None:
        """Puts up a cycle; the resources only where it saw all of them."""
        self.totals = self.totals.with_cycle(report)
        if report.is_complete:
            self._columns[column.resource_type] = column
        for trouble in (report.fetch_error, report.broker_error):
            if trouble:
                self.happened(Happening(report.started, trouble=f"{column.resource_type}: {trouble}"))


class BoardObserver:
    """`pulse.report.Observer` of one pulse."""

    def __init__(self, board: Board, resource_type: str) -> None:
        self._board = board
        self._resource_type = resource_type
        self._seen: dict[str, Judgement] = {}
        self._at = board.started

    def judged(self, page: PageReport) -> None:
        self._at = page.at
        for judgement in page.judgements:
            if judgement.verdict is not Verdict.REPEATED:
                self._seen[judgement.resource.id] = judgement

    def answered(self, answer: Answer) -> None:
        self._board.answered(self._at, answer)

    def finished(self, report: CycleReport) -> None:
        seen, self._seen = self._seen, {}
        self._board.finished(Column(self._resource_type, tuple(seen.values())), report)

    def crashed(self, error: BaseException) -> None:
        self._seen = {}
        # Its text stays in the log, which is redacted.
        trouble = f"{self._resource_type}: a fault of our own ({type(error).__name__}); the log has it"
        self._board.happened(Happening(self._at, trouble=trouble))


class Observers:
    """Tells each of several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def judged(self, page: PageReport) -> None:
        for observer in self._observers:
            observer.judged(page)

    def answered(self, answer: Answer) -> None:
        for observer in self._observers:
            observer.answered(answer)

    def finished(self, report: CycleReport) -> None:
        for observer in self._observers:
            observer.finished(report)

    def crashed(self, error: BaseException) -> None:
        for observer in self._observers:
            observer.crashed(error)
