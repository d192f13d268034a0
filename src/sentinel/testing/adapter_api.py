"""A verified in-memory fake of `ports.adapter_api.AdapterApi`.

It admits reports by the rules of the real API, so a test learns how the API would have responded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Owner, Resource, known_report
from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import AdapterStatus, Report
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.core.json import Json
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable

Failure: TypeAlias = Callable[[str, str], "ApiUnavailable | None"]
"""Returns the error of an operation (`read` or `report`) on a resource id, or None. A probe has the id ""."""


class FakeAdapterApi:
    """Resources that a test edits, and the reports on them."""

    def __init__(self, *, clock: Clock) -> None:
        self.sent: list[Report] = []
        """Every report, including those that were discarded or refused."""
        self.results: list[ReportResult] = []
        """The results of all reports."""
        self.reads = 0
        self._clock = clock
        self._resources: dict[str, Resource] = {}
        self._statuses: dict[str, dict[str, AdapterStatus]] = {}
        self._failure: Failure = lambda operation, resource_id: None
        self._refusal: Callable[[Report], str] = lambda report: ""
        self._sent_by_resource: dict[str, list[Report]] = {}

    # --- for tests --------------------------------------------------------------------------------------------

    def put(
        self,
        resource_id: str,
        *,
        kind: str = "Cluster",
        plural: str = "clusters",
        spec: Json = None,
        labels: Mapping[str, str] | None = None,
        owner: Owner | None = None,
    ) -> Resource:
        """Create the resource, or replace it and increment its generation."""
        before = self._resources.get(resource_id)
        resource = Resource(
            id=resource_id,
            kind=kind,
            name=resource_id,
            href=f"{API_ROOT}/{plural}/{resource_id}",
            generation=1 if before is None else before.generation + 1,
            labels=labels or {},
            spec={} if spec is None else spec,
            owner=owner,
        )
        self._resources[resource_id] = resource
        return resource

    def delete(self, resource_id: str) -> None:
        """Request its deletion, which increments the generation."""
        before = self._resources[resource_id]
        self._resources[resource_id] = msgspec.structs.replace(
            before, generation=before.generation + 1, deleted_time=self._clock.now()
        )

    def remove(self, resource_id: str) -> None:
        """Remove it, as after a completed deletion."""
        del self._resources[resource_id]
        self._statuses.pop(resource_id, None)

    def fail(self, failure: ApiUnavailable | Failure) -> None:
        """Make calls raise this error, or the one that the function returns."""
        self._failure = (
            (lambda operation, resource_id: failure) if isinstance(failure, ApiUnavailable) else failure
        )

    def refuse(self, refusal: str | Callable[[Report], str]) -> None:
        """Refuse every report, or those for which the function returns a reason."""
        self._refusal = (lambda report: refusal) if isinstance(refusal, str) else refusal

    def recover(self) -> None:
        """End what `fail` and `refuse` started."""
        self.fail(lambda operation, resource_id: None)
        self.refuse("")

    def reports_on(self, resource_id: str) -> list[Report]:
        """Every report on this resource, including those that were discarded or refused."""
        return self._sent_by_resource.get(resource_id, [])

    def status(self, resource_id: str, adapter: str) -> AdapterStatus | None:
        """The status that this adapter's reports on the resource led to."""
        return self._statuses.get(resource_id, {}).get(adapter)

    # --- the port ---------------------------------------------------------------------------------------------

    async def probe(self, kind: str) -> None:
        await self._call("read", "")

    async def get(self, ref: ResourceRef) -> Resource | None:
        self.reads += 1
        await self._call("read", ref.id)
        resource = self._resources.get(ref.id)
        if resource is None:
            return None
        known = tuple(known_report(status) for status in self._statuses.get(ref.id, {}).values())
        return msgspec.structs.replace(resource, reports=known)

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        await self._call("report", resource.id)
        self.sent.append(report)
        self._sent_by_resource.setdefault(resource.id, []).append(report)
        result = self._admit(resource.id, report)
        self.results.append(result)
        return result

    async def close(self) -> None:
        """Does nothing; a closed fake can still be used."""

    def _admit(self, resource_id: str, report: Report) -> ReportResult:
        stored = self._resources.get(resource_id)
        if stored is None:
            return ReportResult(ReportOutcome.GONE)
        if refusal := self._refusal(report):
            return ReportResult(ReportOutcome.REFUSED, refusal)
        statuses = self._statuses.setdefault(resource_id, {})
        verdict = reports.admit(
            report, generation=stored.generation, stored=statuses.get(report.adapter), now=self._clock.now()
        )
        if isinstance(verdict, reports.Rejected):
            text = "; ".join(f"{field}: {message}" for field, message in verdict.errors)
            if any(field == "observed_time" for field, _ in verdict.errors):
                raise ApiUnavailable(f"{text}; is this machine's clock right?", needs_operator=True)
            return ReportResult(ReportOutcome.REFUSED, text)
        if isinstance(verdict, reports.Discarded):
            if verdict.status is not None:
                statuses[report.adapter] = verdict.status
            return ReportResult(ReportOutcome.DISCARDED, verdict.reason)
        statuses[report.adapter] = verdict.status
        return ReportResult(ReportOutcome.STORED)

    async def _call(self, operation: str, resource_id: str) -> None:
        await asyncio.sleep(0)  # a call that never suspends would hide races that occur with a server
        error = self._failure(operation, resource_id)
        if error is not None:
            raise error
