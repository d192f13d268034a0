"""Aggregate the reports of adapters into the conditions of a resource, `Available` and `Ready`.

The two answer different questions. `Ready`: does the resource run with its current spec? `Available`: does it run
at all, at some known generation? A new spec makes `Ready` False at once but does not stop what is running. So
`Available` is sticky: it stays True at the generation for which it was last True, until an adapter reports that
generation as not available, or all adapters agree on another generation.

A kind may define either rule by an expression (`core.fleet.expressions`). An expression decides only whether the
reports of all required adapters make the resource available or ready. Missing reports, stickiness and times are as
for the built-in rules.

A condition's transition time is the time of what turned it: of a report, or of a change of the spec. It changes
only with the status and never goes back, although the clocks of adapters differ.

The result depends only on the arguments: every time in it comes from a report, the resource, the previous
conditions, or what caused the aggregation. So the same history always gives the same conditions, and aggregating
again changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from sentinel.core.fleet import expressions, progress
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
from sentinel.core.fleet.expressions import ConditionExpressions, EvaluationFailure, ExpressionInput

RECONCILED = "Reconciled"
"""The name of `Ready` in the public API."""
LAST_KNOWN_RECONCILED = "LastKnownReconciled"
"""The name of `Available` in the public API."""


class AggregationInput(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a resource that its conditions depend on."""

    generation: int
    updated_time: datetime
    """When spec or labels last changed, or the resource was deleted."""
    required: Sequence[str]
    """The adapters whose reports count."""
    statuses: Sequence[AdapterStatus]
    """The latest report of each adapter, required or not."""
    children: int = 0
    """The number of child resources. Only a deletion waits for them."""
    is_deleting: bool = False
    expressions: ConditionExpressions = ConditionExpressions()


class ConditionReason(StrEnum):
    """The reason of `Ready` or `Available`. Clients of the public API know most of these words."""

    RECONCILED_ALL = "ReconciledAll"
    RECONCILED_MISSING_ADAPTERS = "ReconciledMissingAdapters"
    RECONCILED_WAITING_FOR_CHILDREN = "ReconciledWaitingForChildren"
    ALL_ADAPTERS_RECONCILED = "AllAdaptersReconciled"
    ADAPTERS_MISSING_REPORTS = "AdaptersMissingReports"
    ADAPTER_REPORTED_NOT_AVAILABLE = "AdapterReportedNotAvailable"
    ADAPTERS_NOT_AT_SAME_GENERATION = "AdaptersNotAtSameGeneration"
    NO_REQUIRED_ADAPTERS = "NoRequiredAdapters"
    EXPRESSION_TRUE = "ExpressionTrue"
    EXPRESSION_FALSE = "ExpressionFalse"
    EXPRESSION_FAILED = "ExpressionFailed"
    """The expression could not be evaluated, which counts as False. The message says why."""


def aggregate(
    inputs: AggregationInput, *, previous: ResourceStatus | None, at: datetime, public_names: bool = False
) -> ResourceStatus:
    """Return the status of the resource. `previous` is its current status, None before the first aggregation.

    `at` is the time of what happened since: of the report, or of the change of the spec or the configuration.
    `public_names` adds `Reconciled` and `LastKnownReconciled`, for clients of the public API.
    """
    former = {} if previous is None else {condition.type: condition for condition in previous.conditions}
    reports = _required_reports(inputs)
    is_available = _is_available(inputs, reports)
    ready = _successor(former.get(READY), _ready(inputs, reports, is_available, at))
    was_available = former.get(AVAILABLE)
    available = _successor(was_available, _available(inputs, reports, is_available, was_available, at))
    conditions = [ready, available]
    if public_names:
        conditions.append(msgspec.structs.replace(ready, type=RECONCILED))
        conditions.append(msgspec.structs.replace(available, type=LAST_KNOWN_RECONCILED))
    mirrored = sorted((_mirrored(report) for report in reports.present), key=lambda each: each.type)
    conditions.extend(mirrored)
    observed = 0 if reports.missing else min(reports.generations, default=0)
    progressed = progress.after(previous, mirrored, generation=inputs.generation)
    return ResourceStatus(
        phase=Phase.READY if ready.is_true else Phase.NOT_READY,
        observed_generation=observed,
        last_updated_time=ready.last_updated_time,
        last_transition_time=ready.last_transition_time,
        conditions=tuple(conditions),
        last_progress_time=progressed.time,
        progress_count=progressed.count,
    )


def is_finalized(inputs: AggregationInput) -> bool:
    """Whether a deleted resource can be removed: no child is left, and every required adapter has finalized it."""
    return inputs.is_deleting and inputs.children == 0 and not _required_reports(inputs).blocking


def waiting(
    inputs: AggregationInput, *, status: ResourceStatus, previous: Mapping[str, datetime]
) -> dict[str, datetime]:
    """Return the required adapters that keep the resource from being ready, each with the time since when.

    `status` was aggregated from the same inputs. `previous` is the last result: an adapter that was and still is
    blocking keeps its time, whatever it reported in between. A deletion restarts all times, because the adapters
    now have to finalize.
    """
    reports = _required_reports(inputs)
    if inputs.is_deleting:
        return dict.fromkeys(reports.blocking, inputs.updated_time)
    if status.phase is Phase.READY:
        return {}  # an expression may make it ready without some of the adapters
    transitions = {
        report.adapter: report.available.last_transition_time
        for report in reports.present
        if report.generation == inputs.generation
    }
    return {
        # No adapter was blocking while the resource was ready. So an adapter that has just become required does
        # not block since the last change of the spec, which may be a year ago.
        adapter: previous.get(adapter)
        or max(transitions.get(adapter, inputs.updated_time), status.last_transition_time)
        for adapter in reports.blocking
    }


def condition_type(adapter: str) -> str:
    """Return the type of the condition that mirrors an adapter: `MyAdapterSuccessful` for `my-adapter`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[-_.]", adapter)) + "Successful"


class _Report(msgspec.Struct, frozen=True):
    """A report of a required adapter that counts."""

    adapter: str
    generation: int
    time: datetime
    available: AdapterCondition
    """True or False."""
    is_finalized: bool
    status: AdapterStatus
    """The whole report, for expressions."""

    @property
    def is_available(self) -> bool:
        return self.available.status is ConditionStatus.TRUE


class _Reports(msgspec.Struct, frozen=True):
    """The reports of the required adapters. Every sequence is sorted by adapter."""

    present: Sequence[_Report]
    missing: Sequence[str]
    """The adapters without a report that counts."""
    blocking: Sequence[str]
    """The adapters that have not reported success at the generation of the resource."""

    @property
    def statuses(self) -> list[AdapterStatus]:
        return [report.status for report in self.present]

    @property
    def adapters(self) -> list[str]:
        return [report.adapter for report in self.present]

    @property
    def generations(self) -> set[int]:
        return {report.generation for report in self.present}

    @property
    def failing(self) -> list[_Report]:
        return [report for report in self.present if not report.is_available]

    @property
    def agree(self) -> bool:
        """Whether all required adapters, at least one, report Available=True at one generation."""
        return len(self.generations) == 1 and not self.missing and not self.failing

    def times(self, generation: int) -> list[datetime]:
        return [report.time for report in self.present if report.generation == generation]


def _required_reports(inputs: AggregationInput) -> _Reports:
    statuses = {status.adapter: status for status in inputs.statuses}
    present, missing, blocking = [], [], []
    for adapter in sorted(set(inputs.required)):
        report = _counted(statuses.get(adapter), inputs.generation)
        if report is None:
            missing.append(adapter)
            blocking.append(adapter)
            continue
        present.append(report)
        is_done = report.is_finalized if inputs.is_deleting else report.is_available
        if not is_done or report.generation != inputs.generation:
            blocking.append(adapter)
    return _Reports(present, missing, blocking)


def _counted(status: AdapterStatus | None, generation: int) -> _Report | None:
    """Return the report if it counts: neither `Unknown` nor of a generation that the resource has not reached."""
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
        status,
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


def _is_available(inputs: AggregationInput, reports: _Reports) -> bool | EvaluationFailure:
    """Return what the rule of the kind says of the present reports alone. `Available` is sticky in addition."""
    expression = inputs.expressions.available
    if expression is None or reports.missing or not reports.present:
        return reports.agree
    return expression(ExpressionInput(items=reports.statuses, generation=inputs.generation))


def _ready(
    inputs: AggregationInput, reports: _Reports, is_available: bool | EvaluationFailure, at: datetime
) -> Condition:
    is_ready, reason, message = _readiness(inputs, reports, is_available)
    return Condition(
        type=READY,
        status=ConditionStatus.TRUE if is_ready else ConditionStatus.FALSE,
        observed_generation=inputs.generation,
        created_time=inputs.updated_time,
        # The oldest report: the resource as a whole was checked only when its last adapter was.
        last_updated_time=min(reports.times(inputs.generation), default=inputs.updated_time),
        last_transition_time=at,
        reason=reason,
        message=message,
    )


def _successor(previous: Condition | None, condition: Condition) -> Condition:
    """Return the condition with the previous creation time and, if the status is unchanged, transition time.

    If it changes, the transition time is not earlier than the last: the report that turned the condition may come
    from a clock that is behind.
    """
    if previous is None:
        return condition
    transition = previous.last_transition_time
    if previous.status is not condition.status:
        transition = max(transition, condition.last_transition_time)
    return msgspec.structs.replace(condition, created_time=previous.created_time, last_transition_time=transition)


def _readiness(
    inputs: AggregationInput, reports: _Reports, is_available: bool | EvaluationFailure
) -> tuple[bool, ConditionReason, str]:
    reason, message = _built_in_readiness(inputs, reports)
    is_ready = reason is ConditionReason.RECONCILED_ALL
    expression = inputs.expressions.ready
    # While a resource is being deleted, Ready means that it is finalized, which is not up to an expression.
    if expression is None or inputs.is_deleting or reports.missing or not reports.present:
        return is_ready, reason, message
    given = ExpressionInput(
        items=reports.statuses, generation=inputs.generation, is_available=is_available is True
    )
    result = expression(given)
    if result is True and is_ready:
        return True, reason, message
    return result is True, *_by_expression(result, "" if is_ready else message)


def _by_expression(result: bool | EvaluationFailure, facts: str) -> tuple[ConditionReason, str]:
    """Return reason and message of a condition that an expression decides.

    `facts` is what the built-in rule has against it, or empty.
    """
    if isinstance(result, EvaluationFailure):
        return (
            ConditionReason.EXPRESSION_FAILED,
            f"The expression of the kind cannot be evaluated: {result.message}",
        )
    message = f"The expression of the kind is {'true' if result else 'false'}"
    reason = ConditionReason.EXPRESSION_TRUE if result else ConditionReason.EXPRESSION_FALSE
    return reason, f"{message}. {facts}" if facts else message


def _built_in_readiness(inputs: AggregationInput, reports: _Reports) -> tuple[ConditionReason, str]:
    expected = f"{FINALIZED if inputs.is_deleting else AVAILABLE}=True"
    if reports.blocking:
        return (
            ConditionReason.RECONCILED_MISSING_ADAPTERS,
            f"Required adapters not reporting {expected}: {_listed(reports.blocking)}. "
            f"Currently reporting: {_listed(reports.adapters)}",
        )
    if inputs.is_deleting and inputs.children:
        return ConditionReason.RECONCILED_WAITING_FOR_CHILDREN, f"Children not deleted yet: {inputs.children}"
    if not reports.present:
        return ConditionReason.NO_REQUIRED_ADAPTERS, "No adapter is required, so none can report it ready"
    return (
        ConditionReason.RECONCILED_ALL,
        f"All required adapters report {expected} at generation {inputs.generation}",
    )


def _available(
    inputs: AggregationInput,
    reports: _Reports,
    is_available: bool | EvaluationFailure,
    previous: Condition | None,
    at: datetime,
) -> Condition:
    reason: str
    turned = at
    generations = reports.generations
    observed = max(generations, default=1 if previous is None else previous.observed_generation)
    if is_available is True:
        status = ConditionStatus.TRUE
        # The built-in rule knows one generation. An expression may accept several; all adapters have the lowest.
        observed = min(generations)
        updated = min(reports.times(observed))
        reason, message = _availability(reports, observed)
    elif previous is not None and _sticks(inputs, reports, previous):
        status, reason = ConditionStatus.TRUE, previous.reason
        observed, updated = previous.observed_generation, previous.last_updated_time
        message = f"Last known to be available at generation {observed}"
        moved = [report.adapter for report in reports.present if report.generation != observed]
        if moved:
            message += f". Now reporting another: {_listed(moved)}"
    else:
        status = ConditionStatus.FALSE
        reason, message = _unavailability(inputs, reports, is_available)
        fell = _fell(reports, previous)
        updated = fell or _unavailable_as_of(inputs, reports, previous, observed)
        turned = fell or at
    return Condition(
        type=AVAILABLE,
        status=status,
        observed_generation=observed,
        created_time=inputs.updated_time,
        last_updated_time=updated,
        last_transition_time=turned,
        reason=reason,
        message=message,
    )


def _sticks(inputs: AggregationInput, reports: _Reports, previous: Condition) -> bool:
    """Whether `Available` stays True: no adapter has reported its generation as not available."""
    if not previous.is_true or reports.missing or not reports.present:
        return False
    generation = previous.observed_generation
    expression = inputs.expressions.available
    if expression is None:
        return all(report.generation != generation for report in reports.failing)
    items = [expressions.as_of(status, generation) for status in reports.statuses]
    return expression(ExpressionInput(items=items, generation=generation)) is True


def _fell(reports: _Reports, previous: Condition | None) -> datetime | None:
    """Return the time of the report that makes `Available` False, or None if no report does."""
    if previous is None or not previous.is_true:
        return None
    # More than one only if the required adapters of the kind have changed.
    failures = [each.time for each in reports.failing if each.generation == previous.observed_generation]
    return min(failures, default=None)


def _unavailable_as_of(
    inputs: AggregationInput, reports: _Reports, previous: Condition | None, newest: int
) -> datetime:
    """Return the update time of an `Available` that no report has just made False.

    `newest` is the newest reported generation.
    """
    if previous is not None and any(
        each.time == previous.last_updated_time <= previous.last_transition_time for each in reports.failing
    ):
        # The report that made Available False may predate those at the newest generation. Keep its time while it
        # is the latest of its adapter, so that re-aggregation is idempotent.
        return previous.last_updated_time
    if any(each.generation == newest for each in reports.failing):
        return min(reports.times(newest))
    if previous is None:
        return inputs.updated_time
    if previous.is_true and reports.present and not reports.missing:
        # An expression has made it False, by something else than a report of Available=False.
        return max(each.time for each in reports.present)
    return previous.last_updated_time


def _availability(reports: _Reports, generation: int) -> tuple[ConditionReason, str]:
    if reports.agree:
        return (
            ConditionReason.ALL_ADAPTERS_RECONCILED,
            f"All required adapters report Available=True at generation {generation}",
        )
    return _by_expression(True, _disagreement(reports)[1])


def _unavailability(
    inputs: AggregationInput, reports: _Reports, is_available: bool | EvaluationFailure
) -> tuple[ConditionReason, str]:
    if reports.missing:
        return (
            ConditionReason.ADAPTERS_MISSING_REPORTS,
            f"Required adapters that have not reported: {_listed(reports.missing)}. "
            f"Currently reporting: {_listed(reports.adapters)}",
        )
    if not reports.present:
        return ConditionReason.NO_REQUIRED_ADAPTERS, "No adapter is required, so none can report it available"
    if inputs.expressions.available is not None:
        return _by_expression(is_available, "" if reports.agree else _disagreement(reports)[1])
    return _disagreement(reports)


def _disagreement(reports: _Reports) -> tuple[ConditionReason, str]:
    """Return why the reports, of which none is missing, do not agree."""
    if reports.failing:
        return (
            ConditionReason.ADAPTER_REPORTED_NOT_AVAILABLE,
            f"Required adapters reporting Available=False: {_listed(each.adapter for each in reports.failing)}",
        )
    return (
        ConditionReason.ADAPTERS_NOT_AT_SAME_GENERATION,
        "Required adapters report Available=True at different generations: "
        + _listed(f"{report.adapter}={report.generation}" for report in reports.present),
    )


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"
