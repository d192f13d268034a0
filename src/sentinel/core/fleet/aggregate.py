"""Reports of adapters, aggregated into what holds of a resource: `Available` and `Ready`.

Two questions that are easily taken for one. `Ready`: does the resource run as its owner last asked? `Available`:
does it run at all, at some generation that is known? A new spec makes `Ready` False at once, and does not stop
what is running, so `Available` is sticky: it stays True at the generation that was last seen whole, until an
adapter reports that very generation as broken, or all adapters agree on another.

Everything is a function of what is stored. No clock is read: every time in a result is one that a report, the
resource or the former conditions brought along, so that the same history gives the same conditions wherever and
whenever it is replayed, and to aggregate again changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from sentinel.core.fleet import progress
from sentinel.core.fleet.documents import (
    AVAILABLE,
    FINALIZED,
    READY,
    AdapterCondition,
    AdapterStatus,
    Condition,
    ConditionStatus,
    Phase,
    ResourceStatus,
)

RECONCILED = "Reconciled"
"""The public API's name for `Ready`."""
LAST_KNOWN_RECONCILED = "LastKnownReconciled"
"""The public API's name for `Available`."""


class ConditionReason(StrEnum):
    """Why `Ready` or `Available` is as it is; clients of the public API know most of these words."""

    RECONCILED_ALL = "ReconciledAll"
    RECONCILED_MISSING_ADAPTERS = "ReconciledMissingAdapters"
    RECONCILED_WAITING_FOR_CHILDREN = "ReconciledWaitingForChildren"
    ALL_ADAPTERS_RECONCILED = "AllAdaptersReconciled"
    ADAPTERS_MISSING_REPORTS = "AdaptersMissingReports"
    ADAPTER_REPORTED_NOT_AVAILABLE = "AdapterReportedNotAvailable"
    ADAPTERS_NOT_AT_SAME_GENERATION = "AdaptersNotAtSameGeneration"
    NO_REQUIRED_ADAPTERS = "NoRequiredAdapters"


class AggregationInput(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a resource when its conditions are asked for."""

    generation: int
    updated_time: datetime
    """When spec or labels last changed, or the resource was deleted."""
    required: Sequence[str]
    """The adapters whose reports decide."""
    statuses: Sequence[AdapterStatus]
    """The latest report of each adapter, required or not."""
    children: int = 0
    """How many resources still belong to this one; only a deletion waits for them."""
    is_deleting: bool = False


def aggregate(
    situation: AggregationInput, *, previous: ResourceStatus | None, public_names: bool = False
) -> ResourceStatus:
    """The resource's status; `previous` is what it was until now, None where it was never aggregated.

    `public_names` adds `Reconciled` and `LastKnownReconciled`, for clients of the public API.
    """
    former = {} if previous is None else {condition.type: condition for condition in previous.conditions}
    reports = _reports(situation)
    ready = _ready(situation, reports, former.get(READY))
    available = _available(situation, reports, former.get(AVAILABLE))
    conditions = [ready, available]
    if public_names:
        conditions.append(msgspec.structs.replace(ready, type=RECONCILED))
        conditions.append(msgspec.structs.replace(available, type=LAST_KNOWN_RECONCILED))
    mirrored = sorted((_mirrored(report) for report in reports.given), key=lambda each: each.type)
    conditions.extend(mirrored)
    observed = 0 if reports.missing else min(reports.generations, default=0)
    progressed = progress.after(previous, mirrored, generation=situation.generation)
    return ResourceStatus(
        phase=Phase.READY if ready.is_true else Phase.NOT_READY,
        observed_generation=observed,
        last_updated_time=ready.last_updated_time,
        last_transition_time=ready.last_transition_time,
        conditions=tuple(conditions),
        last_progress_time=progressed.time,
        progress_count=progressed.count,
    )


def is_finalized(situation: AggregationInput) -> bool:
    """Whether the resource is being deleted and can go: no child left, every required adapter done with it."""
    return situation.is_deleting and situation.children == 0 and not _reports(situation).in_the_way


def waiting(
    situation: AggregationInput, *, status: ResourceStatus, previous: Mapping[str, datetime]
) -> dict[str, datetime]:
    """The required adapters that keep the resource from being ready, each with the moment since when.

    `status` is what was aggregated from this situation, `previous` the former answer: an adapter that was in the
    way and still is has been all the while, whatever it reported in between. A deletion begins the wait anew,
    since it is another thing that is waited for.
    """
    reports = _reports(situation)
    if situation.is_deleting:
        return dict.fromkeys(reports.in_the_way, situation.updated_time)
    turned = {
        report.adapter: report.available.last_transition_time
        for report in reports.given
        if report.generation == situation.generation
    }
    return {
        # Nobody was in the way while the resource was ready: an adapter that has just become required has not
        # been missed since the last change of the spec, which may be a year ago.
        adapter: previous.get(adapter)
        or max(turned.get(adapter, situation.updated_time), status.last_transition_time)
        for adapter in reports.in_the_way
    }


def condition_type(adapter: str) -> str:
    """The type of the condition that mirrors an adapter: `my-adapter` gives `MyAdapterSuccessful`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[-_.]", adapter)) + "Successful"


class _Report(msgspec.Struct, frozen=True):
    """What a required adapter has said that counts."""

    adapter: str
    generation: int
    time: datetime
    available: AdapterCondition
    """True or False."""
    is_finalized: bool

    @property
    def is_available(self) -> bool:
        return self.available.status is ConditionStatus.TRUE


class _Reports(msgspec.Struct, frozen=True):
    """What the required adapters have said, taken together; every sequence in the order of their names."""

    given: Sequence[_Report]
    missing: Sequence[str]
    """Those that have said nothing that counts."""
    in_the_way: Sequence[str]
    """Those that have not said, at the resource's generation, that all is done."""

    @property
    def adapters(self) -> list[str]:
        return [report.adapter for report in self.given]

    @property
    def generations(self) -> set[int]:
        return {report.generation for report in self.given}

    @property
    def failing(self) -> list[_Report]:
        return [report for report in self.given if not report.is_available]

    def times(self, generation: int) -> list[datetime]:
        return [report.time for report in self.given if report.generation == generation]


def _reports(situation: AggregationInput) -> _Reports:
    statuses = {status.adapter: status for status in situation.statuses}
    given, missing, in_the_way = [], [], []
    for adapter in sorted(set(situation.required)):
        report = _report(statuses.get(adapter), situation.generation)
        if report is None:
            missing.append(adapter)
            in_the_way.append(adapter)
            continue
        given.append(report)
        is_done = report.is_finalized if situation.is_deleting else report.is_available
        if not is_done or report.generation != situation.generation:
            in_the_way.append(adapter)
    return _Reports(given, missing, in_the_way)


def _report(status: AdapterStatus | None, generation: int) -> _Report | None:
    """An adapter that has only said `Unknown` has said nothing; nor has one that is ahead of the resource."""
    if status is None or status.observed_generation > generation:
        return None
    available = status.condition(AVAILABLE)
    if available is None or available.status is ConditionStatus.UNKNOWN:
        return None
    return _Report(
        status.adapter,
        status.observed_generation,
        status.last_report_time,
        available,
        status.status_of(FINALIZED) is ConditionStatus.TRUE,
    )


def _mirrored(report: _Report) -> Condition:
    return Condition(
        type=condition_type(report.adapter),
        status=report.available.status,
        observed_generation=report.generation,
        created_time=report.available.created_time,
        last_updated_time=report.time,
        last_transition_time=report.available.last_transition_time,
        reason=report.available.reason,
        message=report.available.message,
    )


def _ready(situation: AggregationInput, reports: _Reports, previous: Condition | None) -> Condition:
    reason, message = _readiness(situation, reports)
    # The oldest: the resource has been looked at only as recently as the adapter that looked longest ago.
    updated = min(reports.times(situation.generation), default=situation.updated_time)
    was_ready = previous is not None and previous.is_true
    is_new_spec = previous is not None and situation.generation > previous.observed_generation
    return _successor(
        previous,
        Condition(
            type=READY,
            status=ConditionStatus.TRUE if reason is ConditionReason.RECONCILED_ALL else ConditionStatus.FALSE,
            observed_generation=situation.generation,
            created_time=situation.updated_time,
            last_updated_time=updated,
            # Where a new spec ends it, that is the moment, not the first report on it.
            last_transition_time=situation.updated_time if was_ready and is_new_spec else updated,
            reason=reason,
            message=message,
        ),
    )


def _successor(previous: Condition | None, condition: Condition) -> Condition:
    """The condition with what it keeps of the previous one: its creation, and its transition if there is none."""
    if previous is None:
        return condition
    is_same = previous.status is condition.status
    return msgspec.structs.replace(
        condition,
        created_time=previous.created_time,
        last_transition_time=previous.last_transition_time if is_same else condition.last_transition_time,
    )


def _readiness(situation: AggregationInput, reports: _Reports) -> tuple[ConditionReason, str]:
    wanted = f"{FINALIZED if situation.is_deleting else AVAILABLE}=True"
    if reports.in_the_way:
        return (
            ConditionReason.RECONCILED_MISSING_ADAPTERS,
            f"Required adapters not reporting {wanted}: {_listed(reports.in_the_way)}. "
            f"Currently reporting: {_listed(reports.adapters)}",
        )
    if situation.is_deleting and situation.children:
        return (
            ConditionReason.RECONCILED_WAITING_FOR_CHILDREN,
            f"Children that are not gone yet: {situation.children}",
        )
    if not reports.given:
        return ConditionReason.NO_REQUIRED_ADAPTERS, "No adapter is required, so none can say that it is ready"
    return (
        ConditionReason.RECONCILED_ALL,
        f"All required adapters report {wanted} at generation {situation.generation}",
    )


def _available(situation: AggregationInput, reports: _Reports, previous: Condition | None) -> Condition:
    generations = reports.generations
    observed = max(generations, default=1 if previous is None else previous.observed_generation)
    if len(generations) == 1 and not reports.missing and not reports.failing:
        status, reason = ConditionStatus.TRUE, ConditionReason.ALL_ADAPTERS_RECONCILED
        updated = min(reports.times(observed))
        message = f"All required adapters report Available=True at generation {observed}"
    elif previous is not None and _sticks(previous, reports):
        status, reason = ConditionStatus.TRUE, ConditionReason.ALL_ADAPTERS_RECONCILED
        observed, updated = previous.observed_generation, previous.last_updated_time
        moved = [report.adapter for report in reports.given if report.generation != observed]
        message = f"Last known to be available at generation {observed}. Now at another: {_listed(moved)}"
    else:
        status = ConditionStatus.FALSE
        reason, message = _unavailability(reports)
        updated = _unavailable_as_of(situation, reports, previous, observed)
    return _successor(
        previous,
        Condition(
            type=AVAILABLE,
            status=status,
            observed_generation=observed,
            created_time=situation.updated_time,
            last_updated_time=updated,
            last_transition_time=updated,
            reason=reason,
            message=message,
        ),
    )


def _sticks(previous: Condition, reports: _Reports) -> bool:
    """Whether `Available` stays True though the adapters disagree: nobody takes back the generation it was for."""
    return (
        previous.is_true
        and bool(reports.given)
        and not reports.missing
        and all(report.generation != previous.observed_generation for report in reports.failing)
    )


def _unavailable_as_of(
    situation: AggregationInput, reports: _Reports, previous: Condition | None, newest: int
) -> datetime:
    """When an `Available` that is False was last updated; `newest` is the newest generation reported."""
    if previous is not None and previous.is_true:
        # Several at once only where the kind's required adapters were changed.
        felling = [each.time for each in reports.failing if each.generation == previous.observed_generation]
        if felling:
            return min(felling)
    if previous is not None and any(
        each.time == previous.last_transition_time == previous.last_updated_time for each in reports.failing
    ):
        # The report that felled it may be older than those at the newest generation. Its time stands while it is
        # the last word of its adapter; otherwise to aggregate again would change it.
        return previous.last_updated_time
    if any(each.generation == newest for each in reports.failing):
        return min(reports.times(newest))
    return situation.updated_time if previous is None else previous.last_updated_time


def _unavailability(reports: _Reports) -> tuple[ConditionReason, str]:
    if reports.missing:
        return (
            ConditionReason.ADAPTERS_MISSING_REPORTS,
            f"Required adapters that have not reported: {_listed(reports.missing)}. "
            f"Currently reporting: {_listed(reports.adapters)}",
        )
    if reports.failing:
        return (
            ConditionReason.ADAPTER_REPORTED_NOT_AVAILABLE,
            f"Required adapters reporting Available=False: {_listed(each.adapter for each in reports.failing)}",
        )
    if not reports.given:
        return ConditionReason.NO_REQUIRED_ADAPTERS, "No adapter is required, so none can say that it is available"
    return (
        ConditionReason.ADAPTERS_NOT_AT_SAME_GENERATION,
        "Required adapters report Available=True at different generations: "
        + _listed(f"{report.adapter}={report.generation}" for report in reports.given),
    )


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"
