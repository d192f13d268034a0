"""A resource reduced to its generation, reports and conditions, for tests of aggregation.

Times are minutes of one morning: a test writes `at=3` and expects `minute(3)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from sentinel.core.fleet import aggregate, reports
from sentinel.core.fleet.documents import (
    APPLIED,
    AVAILABLE,
    FINALIZED,
    HEALTH,
    READY,
    AdapterStatus,
    Condition,
    ConditionStatus,
    Report,
    ReportedCondition,
    ResourceStatus,
)
from sentinel.core.fleet.expressions import ConditionExpressions

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN

MORNING = datetime(2025, 10, 17, 10, 0, tzinfo=UTC)


def minute(number: int) -> datetime:
    return MORNING + timedelta(minutes=number)


def report_of(
    adapter: str = "dns",
    available: ConditionStatus = TRUE,
    *,
    at: int = 1,
    generation: int = 1,
    is_finalized: bool = False,
    reason: str = "",
    message: str = "",
) -> Report:
    conditions = [
        ReportedCondition(APPLIED, FALSE if is_finalized else TRUE),
        ReportedCondition(AVAILABLE, available, reason, message),
        ReportedCondition(HEALTH, TRUE),
    ]
    if is_finalized:
        conditions.append(ReportedCondition(FINALIZED, TRUE))
    return Report(adapter, generation, minute(at), tuple(conditions))


def unworded(status: ResourceStatus) -> ResourceStatus:
    """Return the status without reason and message of a False `Ready` or `Available`.

    They name an expression, if one decided. All else is the same by an expression and by a built-in rule.
    """
    return msgspec.structs.replace(
        status,
        conditions=tuple(
            msgspec.structs.replace(each, reason="", message="")
            if each.type in (READY, AVAILABLE) and not each.is_true
            else each
            for each in status.conditions
        ),
    )


class OneResource:
    """A resource that is created in minute 0 and aggregated after every step, as the API does."""

    def __init__(
        self, *required: str, public_names: bool = False, expressions: ConditionExpressions | None = None
    ) -> None:
        self.required: Sequence[str] = required
        self.generation = 1
        self.updated_time = minute(0)
        self.statuses: dict[str, AdapterStatus] = {}
        self.children = 0
        self.is_deleting = False
        self.public_names = public_names
        self.expressions = expressions or ConditionExpressions()
        self.waiting: Mapping[str, datetime] = {}
        self._previous: ResourceStatus | None = None
        self.status: ResourceStatus = self.refresh(at=self.updated_time)

    @property
    def situation(self) -> aggregate.AggregationInput:
        return aggregate.AggregationInput(
            generation=self.generation,
            updated_time=self.updated_time,
            required=self.required,
            statuses=tuple(self.statuses.values()),
            children=self.children,
            is_deleting=self.is_deleting,
            expressions=self.expressions,
        )

    @property
    def ready(self) -> Condition:
        return self.condition(READY)

    @property
    def available(self) -> Condition:
        return self.condition(AVAILABLE)

    def condition(self, name: str) -> Condition:
        found = self.status.condition(name)
        assert found is not None, f"no condition {name}"
        return found

    def refresh(self, *, at: datetime) -> ResourceStatus:
        """Aggregate again because of something that happened at this time."""
        situation = self.situation
        self.status = aggregate.aggregate(
            situation, previous=self._previous, at=at, public_names=self.public_names
        )
        self._previous = self.status
        self.waiting = aggregate.waiting(situation, status=self.status, previous=self.waiting)
        return self.status

    def patch(self, *, at: int) -> None:
        self.generation += 1
        self.updated_time = minute(at)
        self.refresh(at=self.updated_time)

    def delete(self, *, at: int, children: int = 0) -> None:
        self.is_deleting = True
        self.children = children
        self.patch(at=at)

    def require(self, *adapters: str, at: int = 59) -> None:
        self.required = adapters
        self.refresh(at=minute(at))

    def report(
        self,
        adapter: str,
        available: ConditionStatus,
        *,
        at: int,
        generation: int | None = None,
        is_finalized: bool = False,
        reason: str = "",
        message: str = "",
    ) -> reports.Accepted | reports.Discarded | reports.Rejected:
        """Report at the time of the observation, by default on the current generation."""
        return self.send(
            report_of(
                adapter,
                available,
                at=at,
                generation=self.generation if generation is None else generation,
                is_finalized=is_finalized,
                reason=reason,
                message=message,
            )
        )

    def send(self, report: Report) -> reports.Accepted | reports.Discarded | reports.Rejected:
        result = reports.admit(
            report,
            generation=self.generation,
            stored=self.statuses.get(report.adapter),
            now=report.observed_time,
        )
        if isinstance(result, reports.Accepted):
            self.statuses[report.adapter] = result.status
            self.refresh(at=result.status.last_report_time)
        elif isinstance(result, reports.Discarded) and result.status is not None:
            self.statuses[report.adapter] = result.status
        return result
