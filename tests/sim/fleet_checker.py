"""Checks every change of the fleet when it is committed.

Generations rise by one and never fall. Conditions equal `expected_conditions`, and a transition time changes
exactly with its status. A write reported to a user as successful has happened. A resource is removed after its
adapters have finalized it and its children are gone, or by force, and not later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from sentinel.core.fleet import documents, reports
from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import AdapterStatus, Report, ResourceDocument
from sentinel.ports.fleet_store import StoredResource
from tests.sim import expected_conditions
from tests.sim.expected_conditions import ExpectedCondition, Facts, LastReport, Progress
from tests.sim.report_checker import ReportChecker, without_work
from tests.sim.trace import Trace


class TrackedResource:
    """A resource after the last commit."""

    def __init__(self, plural: str, parent: str, document: ResourceDocument) -> None:
        self.plural = plural
        self.parent = parent
        self.required: tuple[str, ...] = ()
        """The required adapters when its conditions were aggregated."""
        self.document = document
        self.statuses: dict[str, AdapterStatus] = {}
        self.ready: ExpectedCondition | None = None
        self.available: ExpectedCondition | None = None
        self.progress = Progress()

    @property
    def is_ready(self) -> bool:
        return self.ready is not None and self.ready.is_true

    @property
    def value(self) -> int:
        """The value in the spec."""
        return int(bytes(self.document.spec)[len(b'{"v":') : -1])


class FleetChecker:
    """Checks all resources; its method `committed` is a `fleet_store.CommitListener`."""

    def __init__(self, trace: Trace, required: Mapping[str, tuple[str, ...]]) -> None:
        """`required` maps plurals to required adapters, and changes with the API's configuration."""
        self.resources: dict[str, TrackedResource] = {}
        self._trace = trace
        self._required = required
        self._reports = ReportChecker(trace)
        self._specs: dict[tuple[str, int], bytes] = {}
        self._forced: set[str] = set()

    @property
    def not_converged(self) -> list[ResourceDocument]:
        """Resources that are not ready for the adapters required now."""
        return [
            known.document
            for known in self.resources.values()
            if not known.is_ready or known.required != self._required[known.plural]
        ]

    # --- requests and responses ---------------------------------------------------------------------------------

    def report_sent(self, resource_id: str, report: Report) -> None:
        """An adapter has sent a report."""
        self._check_removals()
        self._reports.sent(resource_id, report)

    def report_answered(
        self, resource_id: str, report: Report, verdict: reports.Accepted | reports.Discarded
    ) -> None:
        """The API has answered a report."""
        known = self.resources.get(resource_id)
        if known is not None:
            self._reports.answered(resource_id, report, verdict, known.statuses.get(report.adapter))

    def write_confirmed(self, document: bytes, value: int | None) -> None:
        """A user's write has succeeded with this result; `value` is the new value in the spec."""
        written = documents.decode_document(document)
        spec = self._specs.get((written.id, written.generation))
        self._trace.require(
            spec == bytes(written.spec) and (value is None or spec == b'{"v":%d}' % value),
            "a confirmed write never happened:",
            f"{written.id}@{written.generation} {written.spec!r} {value}",
        )

    def force_deleted(self, resource_id: str) -> None:
        """A user has force-deleted a resource and its children."""
        self._forced.add(resource_id)

    # --- commits ------------------------------------------------------------------------------------------------

    def committed(self, before: StoredResource | None, after: StoredResource | None) -> None:
        if after is None:
            assert before is not None
            self._removed(before.id)
            return
        document = documents.decode_document(after.document)
        known = self.resources.get(after.id)
        if known is None:
            self._trace.require(document.generation == 1, "a resource begins at generation 1:", after.id)
            known = self.resources[after.id] = TrackedResource(after.plural, after.parent, document)
        else:
            self._check_document(known.document, document)
        is_marker_change = _markers(known.document) != _markers(document)
        former, known.document = known.document, document
        self._specs.setdefault((after.id, document.generation), bytes(document.spec))
        reports_before = {
            adapter: report for adapter, report in _last_reports(known).items() if adapter in known.required
        }
        statuses = {status.adapter: status for status in documents.decode_statuses(after.statuses)}
        self._reports.compare(document, known.statuses, statuses)
        reported = [each.last_report_time for each in statuses.values() if _is_report(each, known.statuses)]
        is_work_in_progress = known.statuses != statuses and not reported
        known.statuses = statuses
        if is_work_in_progress:
            self._trace.require(former == document, "work in progress changed the resource:", document.id)
        elif not is_marker_change:
            # Pausing, resuming and requesting a pulse do not aggregate conditions again.
            known.required = self._required[known.plural]
        is_new_generation = known.ready is None or document.generation > former.generation
        at = document.updated_time if is_new_generation else max(reported, default=None)
        self._check_conditions(known, reports_before, at)
        self._check_columns(known, after)
        self._trace.note("store", f"{document.id}@{document.generation}", document.status.phase, *_statuses(known))

    def _check_document(self, before: ResourceDocument, after: ResourceDocument) -> None:
        is_changed = (before.spec, before.labels, before.deleted_time) != (
            after.spec,
            after.labels,
            after.deleted_time,
        )
        self._trace.require(
            after.generation == before.generation + is_changed,
            "a generation must rise by one with every change only:",
            f"{before.id}: {before.generation} to {after.generation}",
        )
        self._trace.require(
            not before.is_deleting or before.deleted_time == after.deleted_time,
            "a deletion was reverted:",
            before.id,
        )
        self._trace.require(after.updated_time >= before.updated_time, "updated_time went back:", before.id)

    def _check_conditions(
        self, known: TrackedResource, reports_before: Mapping[str, LastReport], at: datetime | None
    ) -> None:
        document = known.document
        facts = Facts(
            generation=document.generation,
            updated=document.updated_time,
            at=at,
            is_deleting=document.is_deleting,
            required=known.required,
            reports=_last_reports(known),
        )
        known.ready = self._with_unspecified_times(
            known, documents.READY, expected_conditions.ready(facts, known.ready), known.ready
        )
        known.available = self._with_unspecified_times(
            known, documents.AVAILABLE, expected_conditions.available(facts, known.available), known.available
        )
        known.progress = expected_conditions.progress(facts, reports_before, known.progress)
        status = document.status
        self._check_condition(known, documents.READY, known.ready)
        self._check_condition(known, documents.AVAILABLE, known.available)
        flat = (
            status.phase,
            status.observed_generation,
            status.last_updated_time,
            status.last_transition_time,
            status.last_progress_time or None,
            status.progress_count or 0,
        )
        expected = (
            "Ready" if known.ready.is_true else "NotReady",
            expected_conditions.observed_generation(facts),
            known.ready.updated,
            known.ready.transition,
            known.progress.time,
            known.progress.count,
        )
        self._trace.require(
            flat == expected, "the flat status contradicts the reports:", document.id, flat, expected
        )
        for adapter in facts.required:
            mirror = status.condition(condition_type(adapter))
            report = facts.reports.get(adapter)
            is_mirrored = report is not None and report.available != "Unknown"
            self._trace.require(
                (mirror is not None) == is_mirrored,
                "an adapter must be mirrored if it has reported:",
                document.id,
                adapter,
            )
            if mirror is not None and report is not None:
                seen = (mirror.status, mirror.observed_generation, mirror.last_updated_time)
                wanted = (report.available, report.generation, report.time)
                self._trace.require(
                    seen == wanted, "a mirror contradicts its report:", document.id, mirror, report
                )

    def _with_unspecified_times(
        self, known: TrackedResource, name: str, expected: ExpectedCondition, before: ExpectedCondition | None
    ) -> ExpectedCondition:
        condition = known.document.status.condition(name)
        if condition is None or expected.transition is not None:
            return expected
        transition = condition.last_transition_time
        self._trace.require(
            before is None or before.transition is None or before.transition <= transition,
            f"the transition time of {name} went back:",
            known.document.id,
        )
        return msgspec.structs.replace(expected, transition=transition)

    def _check_columns(self, known: TrackedResource, stored: StoredResource) -> None:
        """Check the columns that lists and metrics use."""
        waiting = self._waiting_for(known)
        self._trace.require(
            stored.adapters == ",".join(known.required),
            "the column of aggregated adapters is wrong:",
            f"{stored.id}: {stored.adapters}, expected {known.required}",
        )
        self._trace.require(stored.is_ready == known.is_ready, "a column contradicts the document:", stored.id)
        self._trace.require(
            set(stored.waiting) == waiting,
            "the column of waiting adapters is wrong:",
            stored.id,
            stored.waiting,
            waiting,
        )

    def _check_condition(self, known: TrackedResource, name: str, expected: ExpectedCondition) -> None:
        condition = known.document.status.condition(name)
        if condition is None:
            self._trace.violation(f"{name} is missing from {known.document.id}")
            return
        updated = condition.last_updated_time if expected.updated is not None else None
        seen = ExpectedCondition(
            condition.is_true, condition.observed_generation, updated, condition.last_transition_time
        )
        self._trace.require(
            seen == expected,
            f"{name} contradicts the reports on {known.document.id}@{known.document.generation}:",
            f"it is {seen}, expected {expected}, from",
            *_statuses(known),
        )

    def _check_removals(self) -> None:
        """Finalized resources must have been removed."""
        parents = {known.parent for known in self.resources.values()}
        for resource_id, known in self.resources.items():
            if known.document.is_deleting and resource_id not in parents and not self._waiting_for(known):
                self._trace.violation(f"{resource_id} is finalized but not removed")

    def _waiting_for(self, known: TrackedResource) -> set[str]:
        wanted = documents.FINALIZED if known.document.is_deleting else documents.AVAILABLE
        return {
            adapter
            for adapter in known.required
            if (status := known.statuses.get(adapter)) is None
            or status.observed_generation != known.document.generation
            or status.status_of(documents.AVAILABLE) == "Unknown"
            or status.status_of(wanted) != "True"
        }

    def _removed(self, resource_id: str) -> None:
        known = self.resources.pop(resource_id)
        document = known.document
        self._trace.note("store", f"{resource_id}@{document.generation} is gone")
        self._trace.require(document.is_deleting, "a resource is gone that was not deleted:", resource_id)
        for each in self.resources.values():
            self._trace.require(each.parent != resource_id, "a parent was removed before its child:", resource_id)
        if {resource_id, known.parent} & self._forced:
            return
        for adapter in self._required[known.plural]:
            self._trace.require(
                self._reports.was_finalized(resource_id, adapter, document.generation),
                "a resource is gone that an adapter has not finalized:",
                resource_id,
                adapter,
            )


def _last_reports(known: TrackedResource) -> dict[str, LastReport]:
    return {adapter: _last_report(status) for adapter, status in known.statuses.items()}


def _last_report(status: AdapterStatus) -> LastReport:
    available = status.condition(documents.AVAILABLE)
    assert available is not None
    return LastReport(
        status.observed_generation, status.last_report_time, str(available.status), available.last_transition_time
    )


def _is_report(status: AdapterStatus, before: Mapping[str, AdapterStatus]) -> bool:
    """Whether a status is a new report, and not only new work in progress."""
    former = before.get(status.adapter)
    return former is None or without_work(status) != without_work(former)


def _markers(document: ResourceDocument) -> tuple[object, ...]:
    return document.paused, document.pulse_requested_time


def _statuses(known: TrackedResource) -> list[str]:
    return [
        f"{adapter}={status.status_of(documents.AVAILABLE)}@{status.observed_generation}"
        for adapter, status in known.statuses.items()
    ]
