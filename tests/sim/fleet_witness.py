"""Sees every change of the fleet at the moment of its commit.

What it claims: generations rise by one and never fall; conditions are what the reports amount to by `conditions`;
a transition time moves exactly when its status does; what a user was told has happened; nothing goes before its
adapters have finalised it and its children are gone, unless somebody insists, and nothing stays any longer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sentinel.core.fleet import documents, reports
from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import AdapterStatus, Report, ResourceDocument
from sentinel.ports.fleet_store import StoredResource
from tests.sim import conditions
from tests.sim.conditions import Facts, Held, Progress, Said
from tests.sim.report_witness import ReportWitness
from tests.sim.trace import Trace


class Known:
    """A resource as the last commit has left it."""

    def __init__(self, plural: str, parent: str, document: ResourceDocument) -> None:
        self.plural = plural
        self.parent = parent
        self.required: tuple[str, ...] = ()
        """The adapters that its conditions were aggregated for."""
        self.document = document
        self.statuses: dict[str, AdapterStatus] = {}
        self.ready: Held | None = None
        self.available: Held | None = None
        self.progress = Progress()

    @property
    def is_ready(self) -> bool:
        return self.ready is not None and self.ready.is_true

    @property
    def value(self) -> int:
        """What the spec asks for."""
        return int(bytes(self.document.spec)[len(b'{"v":') : -1])


class FleetWitness:
    """A `fleet_store.CommitListener` by its method `committed`."""

    def __init__(self, trace: Trace, required: Mapping[str, tuple[str, ...]]) -> None:
        """`required` are the adapters of each kind, by its plural; they change with the API's configuration."""
        self.resources: dict[str, Known] = {}
        self._trace = trace
        self._required = required
        self._reports = ReportWitness(trace)
        self._specs: dict[tuple[str, int], bytes] = {}
        self._forced: set[str] = set()

    @property
    def unsettled(self) -> list[ResourceDocument]:
        """What is not ready, or not for the adapters that are required by now."""
        return [
            known.document
            for known in self.resources.values()
            if not known.is_ready or known.required != self._required[known.plural]
        ]

    # --- what is said -------------------------------------------------------------------------------------------

    def sent(self, resource_id: str, report: Report) -> None:
        """A report is on its way; it may arrive, or not, or twice."""
        self._require_no_leftovers()
        self._reports.sent(resource_id, report)

    def judged(self, resource_id: str, report: Report, verdict: reports.Accepted | reports.Discarded) -> None:
        """The API has answered a report."""
        known = self.resources.get(resource_id)
        if known is not None:
            self._reports.judged(resource_id, report, verdict, known.statuses.get(report.adapter))

    def wrote(self, document: bytes, value: int | None) -> None:
        """A user was told that a write has succeeded, and what the resource has become.

        `value` is what its spec was changed to.
        """
        written = documents.decode_document(document)
        spec = self._specs.get((written.id, written.generation))
        self._trace.require(
            spec == bytes(written.spec) and (value is None or spec == b'{"v":%d}' % value),
            "a user was told of a write that never happened:",
            f"{written.id}@{written.generation} {written.spec!r} {value}",
        )

    def forced(self, resource_id: str) -> None:
        """A user insists that a deleted resource goes, with all that belongs to it."""
        self._forced.add(resource_id)

    # --- what is stored -----------------------------------------------------------------------------------------

    def committed(self, before: StoredResource | None, after: StoredResource | None) -> None:
        if after is None:
            assert before is not None
            self._removed(before.id)
            return
        document = documents.decode_document(after.document)
        known = self.resources.get(after.id)
        if known is None:
            self._trace.require(document.generation == 1, "a resource begins at generation 1:", after.id)
            known = self.resources[after.id] = Known(after.plural, after.parent, document)
        else:
            self._compare_documents(known.document, document)
        is_mark = _marks(known.document) != _marks(document)
        known.document = document
        self._specs.setdefault((after.id, document.generation), bytes(document.spec))
        said_before = {adapter: said for adapter, said in _all_said(known).items() if adapter in known.required}
        statuses = {status.adapter: status for status in documents.decode_statuses(after.statuses)}
        self._reports.compare(document, known.statuses, statuses)
        known.statuses = statuses
        if not is_mark:
            # To pause a resource, say, changes nothing of its conditions, whoever is required by now.
            known.required = self._required[known.plural]
        self._compare_conditions(known, said_before)
        self._compare_columns(known, after)
        self._trace.note("store", f"{document.id}@{document.generation}", document.status.phase, *_told(known))

    def _compare_documents(self, before: ResourceDocument, after: ResourceDocument) -> None:
        is_other = (before.spec, before.labels, before.deleted_time) != (
            after.spec,
            after.labels,
            after.deleted_time,
        )
        self._trace.require(
            after.generation == before.generation + is_other,
            "a generation rises by one with every change, and never otherwise:",
            f"{before.id}: {before.generation} to {after.generation}",
        )
        self._trace.require(
            not before.is_deleting or before.deleted_time == after.deleted_time, "a deletion ends:", before.id
        )
        self._trace.require(after.updated_time >= before.updated_time, "updated_time runs backwards:", before.id)

    def _compare_conditions(self, known: Known, said_before: Mapping[str, Said]) -> None:
        document = known.document
        facts = Facts(
            generation=document.generation,
            updated=document.updated_time,
            is_deleting=document.is_deleting,
            required=known.required,
            said=_all_said(known),
        )
        known.ready = conditions.ready(facts, known.ready)
        known.available = self._with_open_times(known, conditions.available(facts, known.available))
        known.progress = conditions.progress(facts, said_before, known.progress)
        status = document.status
        self._compare(known, documents.READY, known.ready)
        self._compare(known, documents.AVAILABLE, known.available)
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
            conditions.observed_generation(facts),
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
            said = facts.said.get(adapter)
            is_there = said is not None and said.available != "Unknown"
            self._trace.require(
                (mirror is not None) == is_there,
                "an adapter is mirrored exactly when it has said something:",
                document.id,
                adapter,
            )
            if mirror is not None and said is not None:
                seen = (mirror.status, mirror.observed_generation, mirror.last_updated_time)
                wanted = (said.available, said.generation, said.time)
                self._trace.require(seen == wanted, "a mirror contradicts its report:", document.id, mirror, said)

    def _with_open_times(self, known: Known, available: Held) -> Held:
        condition = known.document.status.condition(documents.AVAILABLE)
        if condition is None or available.transition is not None:
            return available
        return msgspec.structs.replace(available, transition=condition.last_transition_time)

    def _compare_columns(self, known: Known, stored: StoredResource) -> None:
        """What lists and metrics are made of."""
        waiting = self._waiting_for(known)
        self._trace.require(
            stored.adapters == ",".join(known.required),
            "the conditions are marked as aggregated for adapters that they were not aggregated for:",
            f"{stored.id}: {stored.adapters}, and not {known.required}",
        )
        self._trace.require(stored.is_ready == known.is_ready, "a column contradicts the document:", stored.id)
        self._trace.require(
            set(stored.waiting) == waiting, "who is waited for:", stored.id, stored.waiting, waiting
        )

    def _compare(self, known: Known, name: str, expected: Held) -> None:
        condition = known.document.status.condition(name)
        if condition is None:
            self._trace.violation(f"{name} is missing from {known.document.id}")
            return
        updated = condition.last_updated_time if expected.updated is not None else None
        seen = Held(condition.is_true, condition.observed_generation, updated, condition.last_transition_time)
        self._trace.require(
            seen == expected,
            f"{name} contradicts the reports on {known.document.id}@{known.document.generation}:",
            f"it is {seen}, and should be {expected}, from",
            *_told(known),
        )

    def _require_no_leftovers(self) -> None:
        """What nothing keeps any longer went with the last thing that kept it."""
        parents = {known.parent for known in self.resources.values()}
        for resource_id, known in self.resources.items():
            if known.document.is_deleting and resource_id not in parents and not self._waiting_for(known):
                self._trace.violation(f"{resource_id} is finalised, and still there")

    def _waiting_for(self, known: Known) -> set[str]:
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
        self._trace.require(document.is_deleting, "a resource that nobody has deleted is gone:", resource_id)
        for each in self.resources.values():
            self._trace.require(each.parent != resource_id, "a parent goes before its child:", resource_id)
        if {resource_id, known.parent} & self._forced:
            return
        for adapter in self._required[known.plural]:
            self._trace.require(
                self._reports.was_finalized(resource_id, adapter, document.generation),
                "a resource is gone that an adapter has not finalised:",
                resource_id,
                adapter,
            )


def _all_said(known: Known) -> dict[str, Said]:
    return {adapter: _said(status) for adapter, status in known.statuses.items()}


def _said(status: AdapterStatus) -> Said:
    available = status.condition(documents.AVAILABLE)
    assert available is not None
    return Said(
        status.observed_generation, status.last_report_time, str(available.status), available.last_transition_time
    )


def _marks(document: ResourceDocument) -> tuple[object, ...]:
    return document.paused, document.pulse_requested_time


def _told(known: Known) -> list[str]:
    return [
        f"{adapter}={status.status_of(documents.AVAILABLE)}@{status.observed_generation}"
        for adapter, status in known.statuses.items()
    ]
