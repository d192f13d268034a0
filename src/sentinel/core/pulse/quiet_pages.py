"""Decide on a page again only if it has changed, or if one of its resources may be due by now.

A page is quiet if no resource on it is due and pacing remembers none of them. Then each decision depends on the
resource, the policy and the time alone, and the time matters in two ways only: whether a status has expired, and
whether it is in the future. So all decisions stay the same until the first status expires, unless the clock is set
back behind the time at which they were made.

There is one exception. Pacing forgets what was published for a resource when the resource is skipped. If a server
lists a resource twice, once due and once on a page that stays quiet, it is not forgotten: its event is paced, and
no longer published at every poll.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from sentinel.core.pulse.decision import Reason
from sentinel.core.pulse.known_pages import PageTable
from sentinel.core.pulse.pacing import PacedDecision, Pacer, PacingVerdict


class DecisionCounts(msgspec.Struct, frozen=True, gc=False):
    """How many decisions a page got. Repeated resources are not counted."""

    decided: int
    skipped_ready: int
    skipped_not_ready: int
    paced: int
    by_reason: tuple[tuple[Reason, int], ...]
    """Before pacing; reasons that occur."""

    @property
    def skipped(self) -> int:
        return self.skipped_ready + self.skipped_not_ready


NO_DECISIONS = DecisionCounts(0, 0, 0, 0, ())


def count(paced_decisions: Sequence[PacedDecision]) -> DecisionCounts:
    """Count the decisions on a page."""
    # This runs for every resource of a changed page; counting in bulk costs half as much as a loop.
    skip, paced, repeated = PacingVerdict.SKIP, PacingVerdict.PACED, PacingVerdict.REPEATED
    counted = [each for each in paced_decisions if each.verdict is not repeated]
    skipped = [each.resource.is_ready for each in counted if each.verdict is skip]
    ready = skipped.count(True)
    return DecisionCounts(
        len(counted),
        ready,
        len(skipped) - ready,
        len([each for each in counted if each.verdict is paced]),
        tuple(Counter([each.decision.reason for each in counted]).items()),
    )


class _QuietPage(msgspec.Struct, frozen=True, gc=False):
    decided_at: datetime
    due_time: datetime | None
    """When the first status expires. None if all resources are paused."""
    counts: DecisionCounts


class QuietPages:
    """The quiet pages of the last walk, for one policy and one pacer."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._pages = PageTable[_QuietPage]()

    def begin_walk(self) -> None:
        self._pages.begin_walk()

    def find(self, version: int | None, now: datetime) -> DecisionCounts | None:
        """Return the decisions on a page if they are known and not due."""
        page = None if version is None else self._pages.find(version)
        if version is None or page is None or now < page.decided_at:
            return None
        if page.due_time is not None and now >= page.due_time:
            return None
        self._pages.keep(version, page)
        return page.counts

    def keep(
        self,
        version: int | None,
        paced_decisions: Sequence[PacedDecision],
        counts: DecisionCounts,
        now: datetime,
    ) -> None:
        """Keep the decisions on a page for the next walk, if it is quiet."""
        if (
            version is None
            or counts.skipped < len(paced_decisions)
            or any(each.decision.warning for each in paced_decisions)
            or self._pacer.is_tracking_any(paced_decisions)
        ):
            return
        times = [each.decision.next_event_time for each in paced_decisions]
        due_time = min([time for time in times if time is not None], default=None)
        self._pages.keep(version, _QuietPage(now, due_time, counts))
