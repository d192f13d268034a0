"""Checks every report on its way to the API, and its result.

A stored status must be a report that an adapter has sent, about the generation that its task has read. No report
is overwritten by an older one, no accepted report is lost, and none is discarded without a valid reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from sentinel.core.fleet import documents, reports
from sentinel.core.fleet.documents import AdapterStatus, DiscardReason, Report, ResourceDocument, WorkInProgress
from tests.sim.trace import Trace


class ReportChecker:
    """Checks the reports of all adapters on all resources."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._sent: dict[tuple[str, str, int, datetime], Report] = {}
        self._finalized: set[tuple[str, str, int]] = set()
        self._stored: set[tuple[str, str, int, datetime]] = set()

    def sent(self, resource_id: str, report: Report) -> None:
        """An adapter has sent a report, which may arrive once, twice or never."""
        self._sent[_key(resource_id, report)] = report
        generation_read = re.search(rb"\d+", report.data) if isinstance(report.data, msgspec.Raw) else None
        self._trace.require(
            generation_read is None or int(generation_read[0]) == report.observed_generation,
            "a report is about another generation than its task has read:",
            resource_id,
            report,
        )
        if report.status_of(documents.FINALIZED) == "True":
            self._finalized.add((resource_id, report.adapter, report.observed_generation))

    def answered(
        self,
        resource_id: str,
        report: Report,
        verdict: reports.Accepted | reports.Discarded,
        status: AdapterStatus | None,
    ) -> None:
        """The API has answered a report on an existing resource; `status` is the adapter's stored status."""
        if isinstance(verdict, reports.Accepted):
            self._trace.require(
                _key(resource_id, report) in self._stored,
                "a report was accepted but never stored:",
                resource_id,
                report,
            )
        else:
            reason = verdict.reason
            is_valid = status is not None and (
                (reason is DiscardReason.STALE_GENERATION and report.observed_generation < status.newest[0])
                or (reason is DiscardReason.STALE_TIME and _rank(report) < status.newest)
                or (
                    reason is DiscardReason.UNKNOWN
                    and report.status_of(documents.AVAILABLE) == "Unknown"
                    and _rank(report) <= status.newest
                )
            )
            self._trace.require(is_valid, "a report was discarded wrongly:", reason, resource_id, report, status)

    def was_finalized(self, resource_id: str, adapter: str, generation: int) -> bool:
        """Whether an adapter has reported Finalized. The report that removes a resource is not stored."""
        return (resource_id, adapter, generation) in self._finalized

    def compare(
        self, document: ResourceDocument, before: Mapping[str, AdapterStatus], after: Mapping[str, AdapterStatus]
    ) -> None:
        """Check the statuses after a commit against those before it."""
        resource_id = document.id
        for adapter in before:
            self._trace.require(
                adapter in after, "the report of an adapter has disappeared:", resource_id, adapter
            )
        for adapter, status in after.items():
            previous = before.get(adapter)
            if status == previous:
                continue
            if previous is not None and without_work(status) == without_work(previous):
                self._check_work(resource_id, previous, status)
                continue
            key = (resource_id, adapter, status.observed_generation, status.last_report_time)
            report = self._sent.get(key)
            if report is None:
                self._trace.violation(f"a status that no adapter has sent: {resource_id} {status}")
                continue
            self._stored.add(key)
            self._compare_one(document, report, previous, status)

    def _check_work(self, resource_id: str, before: AdapterStatus, after: AdapterStatus) -> None:
        """Check new work in progress: it is the latest `Unknown` that the adapter has sent."""
        report = self._sent.get((resource_id, after.adapter, *after.newest))
        work = after.in_progress
        if report is None or not isinstance(work, WorkInProgress):
            self._trace.violation(f"work in progress was lost, or never sent: {resource_id} {before} {after}")
            return
        available = next(each for each in report.conditions if each.type == documents.AVAILABLE)
        self._trace.require(
            (available.status, available.reason, available.message, report.data)
            == ("Unknown", work.reason, work.message, work.data)
            and after.newest >= before.newest,
            "work in progress is not the latest Unknown:",
            resource_id,
            before,
            after,
        )

    def _compare_one(
        self, document: ResourceDocument, report: Report, before: AdapterStatus | None, after: AdapterStatus
    ) -> None:
        is_acceptable = (
            report.observed_generation <= document.generation
            and (before is None or _rank(report) >= before.newest)
            and after.in_progress is msgspec.UNSET
            and (before is None or report.status_of(documents.AVAILABLE) != "Unknown")
        )
        self._trace.require(is_acceptable, "an outdated report was accepted:", document.id, report, before)
        sent = [(each.type, each.status) for each in report.conditions]
        stored = [(each.type, each.status) for each in after.conditions]
        self._trace.require(sent == stored, "a status differs from its report:", report, after)
        for condition in after.conditions:
            previous = None if before is None else before.condition(condition.type)
            is_same = previous is not None and previous.status is condition.status
            expected = previous.last_transition_time if is_same and previous is not None else report.observed_time
            self._trace.require(
                condition.last_transition_time == expected,
                "a transition time must change with its status only:",
                report,
                condition,
            )


def _key(resource_id: str, report: Report) -> tuple[str, str, int, datetime]:
    return resource_id, report.adapter, report.observed_generation, report.observed_time


def _rank(report: Report) -> tuple[int, datetime]:
    """The sort key of reports by age."""
    return report.observed_generation, report.observed_time


def without_work(status: AdapterStatus) -> AdapterStatus:
    """The status without its work in progress."""
    return msgspec.structs.replace(status, in_progress=msgspec.UNSET)
