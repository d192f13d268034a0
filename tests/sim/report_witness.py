"""Sees every report on its way to the API, and what becomes of it.

What it claims: a status in the store is a report that an adapter has really sent, about the generation that its
task has seen; none is overwritten by an older one; none that was accepted is lost, and none is discarded but for
the reasons that there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from sentinel.core.fleet import documents, reports
from sentinel.core.fleet.documents import AdapterStatus, DiscardReason, Report, ResourceDocument
from tests.sim.trace import Trace


class ReportWitness:
    """Of all adapters, on all resources."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._sent: dict[tuple[str, str, int, datetime], Report] = {}
        self._finalized: set[tuple[str, str, int]] = set()
        self._taken: set[tuple[str, str, int, datetime]] = set()

    def sent(self, resource_id: str, report: Report) -> None:
        """A report is on its way; it may arrive, or not, or twice."""
        self._sent[_key(resource_id, report)] = report
        looked_at = re.search(rb"\d+", report.data) if isinstance(report.data, msgspec.Raw) else None
        self._trace.require(
            looked_at is None or int(looked_at[0]) == report.observed_generation,
            "a report is about another generation than its task has seen:",
            resource_id,
            report,
        )
        if report.status_of(documents.FINALIZED) == "True":
            self._finalized.add((resource_id, report.adapter, report.observed_generation))

    def judged(
        self,
        resource_id: str,
        report: Report,
        verdict: reports.Accepted | reports.Discarded,
        status: AdapterStatus | None,
    ) -> None:
        """The API has answered a report on a resource that is still there; `status` is what it has of the adapter
        by now."""
        if isinstance(verdict, reports.Accepted):
            self._trace.require(
                _key(resource_id, report) in self._taken,
                "a report was accepted, and the store never had it:",
                resource_id,
                report,
            )
        else:
            reason = verdict.reason
            is_right = status is not None and (
                (
                    reason is DiscardReason.STALE_GENERATION
                    and report.observed_generation < status.observed_generation
                )
                or (reason is DiscardReason.STALE_TIME and _rank(report) < _rank(status))
                or (reason is DiscardReason.UNKNOWN and report.status_of(documents.AVAILABLE) == "Unknown")
            )
            self._trace.require(is_right, "a report was discarded wrongly:", reason, resource_id, report, status)

    def was_finalized(self, resource_id: str, adapter: str, generation: int) -> bool:
        """Whether an adapter has said that it is done. The report that ends a resource is stored nowhere."""
        return (resource_id, adapter, generation) in self._finalized

    def compare(
        self, document: ResourceDocument, before: Mapping[str, AdapterStatus], after: Mapping[str, AdapterStatus]
    ) -> None:
        """A commit has left these statuses behind, in the place of those."""
        resource_id = document.id
        for adapter in before:
            self._trace.require(adapter in after, "the report of an adapter is gone:", resource_id, adapter)
        for adapter, status in after.items():
            former = before.get(adapter)
            if status == former:
                continue
            key = (resource_id, adapter, status.observed_generation, status.last_report_time)
            report = self._sent.get(key)
            if report is None:
                self._trace.violation(f"a status that no adapter has sent: {resource_id} {status}")
                continue
            self._taken.add(key)
            self._compare_one(document, report, former, status)

    def _compare_one(
        self, document: ResourceDocument, report: Report, before: AdapterStatus | None, after: AdapterStatus
    ) -> None:
        is_news = (
            report.observed_generation <= document.generation
            and (before is None or _rank(report) >= _rank(before))
            and (before is None or report.status_of(documents.AVAILABLE) != "Unknown")
        )
        self._trace.require(is_news, "a report was accepted that is none:", document.id, report, before)
        said = [(each.type, each.status) for each in report.conditions]
        kept = [(each.type, each.status) for each in after.conditions]
        self._trace.require(said == kept, "a status is not what was reported:", report, after)
        for condition in after.conditions:
            former = None if before is None else before.condition(condition.type)
            is_same = former is not None and former.status is condition.status
            expected = former.last_transition_time if is_same and former is not None else report.observed_time
            self._trace.require(
                condition.last_transition_time == expected,
                "a transition time moves with its status, and only then:",
                report,
                condition,
            )


def _key(resource_id: str, report: Report) -> tuple[str, str, int, datetime]:
    return resource_id, report.adapter, report.observed_generation, report.observed_time


def _rank(said: Report | AdapterStatus) -> tuple[int, datetime]:
    """What a later report has more of."""
    return said.observed_generation, said.observed_time if isinstance(said, Report) else said.last_report_time
