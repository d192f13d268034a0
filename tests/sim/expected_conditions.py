"""A reference implementation of the aggregation of reports, written from the specification.

It does not use `core.fleet.aggregate` and is as simple as possible. If the two disagree, the simulation has found
a bug.

The rules. `Ready`: every required adapter says Available at the resource's own generation. `Available` becomes
True when all of them say so at the same generation, current or not. It becomes False only when one of them revokes
the generation for which it was True. Otherwise it keeps its value and its times. A report counts unless it says
Unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec


class LastReport(msgspec.Struct, frozen=True):
    """The last accepted report of an adapter.

    `since` is when `available` changed to its value.
    """

    generation: int
    time: datetime
    available: str
    since: datetime


class ExpectedCondition(msgspec.Struct, frozen=True):
    """A condition, as it should be."""

    is_true: bool
    generation: int
    updated: datetime | None
    """None if unspecified: while `Available` stays False."""
    transition: datetime | None
    """None if unspecified: it changes because other adapters are required, at a time that is stored nowhere."""

    def __str__(self) -> str:
        since, updated = (_format(self.transition), _format(self.updated))
        return f"{self.is_true}@{self.generation} since {since}, as of {updated}"


class Progress(msgspec.Struct, frozen=True):
    """How often an adapter has become available at the resource's own generation, and when last."""

    time: datetime | None = None
    count: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The state that conditions are computed from."""

    generation: int
    updated: datetime
    at: datetime | None
    """When the report or the change of the spec happened that this state is the result of; None if neither did."""
    is_deleting: bool
    required: tuple[str, ...]
    reports: Mapping[str, LastReport]

    @property
    def counted(self) -> list[LastReport]:
        """The reports of required adapters that count."""
        return [
            self.reports[adapter]
            for adapter in self.required
            if adapter in self.reports and self.reports[adapter].available != "Unknown"
        ]

    @property
    def is_complete(self) -> bool:
        return len(self.counted) == len(self.required)


def observed_generation(facts: Facts) -> int:
    """The lowest generation that every required adapter has reported."""
    return min(each.generation for each in facts.counted) if facts.is_complete else 0


def ready(facts: Facts, before: ExpectedCondition | None) -> ExpectedCondition:
    current = [each for each in facts.counted if each.generation == facts.generation]
    is_ready = (
        not facts.is_deleting
        and len(current) == len(facts.required)
        and all(each.available == "True" for each in current)
    )
    updated = min([each.time for each in current], default=facts.updated)
    return ExpectedCondition(is_ready, facts.generation, updated, _transition(before, is_ready, facts.at))


def available(facts: Facts, before: ExpectedCondition | None) -> ExpectedCondition:
    if before is None:
        return ExpectedCondition(False, 1, facts.updated, facts.updated)
    generations = {each.generation for each in facts.counted}
    if facts.is_complete and len(generations) == 1 and all(each.available == "True" for each in facts.counted):
        updated = min(each.time for each in facts.counted)
        return ExpectedCondition(True, generations.pop(), updated, _transition(before, True, facts.at))
    newest = max(generations, default=before.generation)
    if not before.is_true:
        return ExpectedCondition(False, newest, None, before.transition)
    if not facts.is_complete:
        return ExpectedCondition(False, newest, None, None)
    revoking = [
        each.time for each in facts.counted if each.available == "False" and each.generation == before.generation
    ]
    if not revoking:
        return before
    return ExpectedCondition(False, newest, min(revoking), _transition(before, False, min(revoking)))


def _transition(before: ExpectedCondition | None, is_true: bool, at: datetime | None) -> datetime | None:
    """The time of what turns the condition, but never before its last transition."""
    if before is None or before.transition is None:
        return at
    if before.is_true == is_true:
        return before.transition
    return None if at is None else max(at, before.transition)


def progress(facts: Facts, before: Mapping[str, LastReport], so_far: Progress) -> Progress:
    """`before` has the previous reports of the adapters that were required then."""
    completed = [
        # An adapter that was available before it was required has completed when it became available.
        report.time if adapter in before else report.since
        for adapter, report in facts.reports.items()
        if adapter in facts.required
        and _is_available(report, facts.generation)
        and not _is_available(before.get(adapter), facts.generation)
    ]
    latest = max([*completed, *([] if so_far.time is None else [so_far.time])], default=None)
    return Progress(latest, so_far.count + len(completed))


def _format(time: datetime | None) -> str:
    return "any time" if time is None else time.isoformat()


def _is_available(report: LastReport | None, generation: int) -> bool:
    return report is not None and report.available == "True" and report.generation == generation
