"""The HyperFleet API in memory, as adapters use it: a verified fake of `ports.adapter_api.AdapterApi`.

Reports are judged by the same rules as by the real API, so a test learns what the API would have made of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import KnownReport, Owner, Resource
from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import AdapterStatus, Report, ReportedCondition
from sentinel.core.fleet.lifecycle import ROOT
from sentinel.core.pulse.observation import Json
from sentinel.ports.adapter_api import ReportOutcome, ReportRefused, ReportResult
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable

Failure: TypeAlias = Callable[[str, str], "ApiUnavailable | None"]
"""The trouble that an operation (`read` or `report`) meets on a resource, or None. The id is empty where the
question is only whether the API can be reached."""


class FakeAdapterApi:
    """Resources that a test edits, and the reports on them."""

    def __init__(self, *, clock: Clock) -> None:
        self.sent: list[Report] = []
        """Every report that came in, whatever became of it."""
        self.answers: list[ReportResult] = []
        """What became of those that were judged."""
        self.reads = 0
        self._clock = clock
        self._resources: dict[str, Resource] = {}
        self._statuses: dict[str, dict[str, AdapterStatus]] = {}
        self._failure: Failure = lambda operation, resource_id: None
        self._refusal: Callable[[Report], str] = lambda report: ""
        self._sent_on: dict[str, list[Report]] = {}

    # --- what a test does -------------------------------------------------------------------------------------

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
        """A resource as it is created, or one that has changed: then its generation rises by one."""
        before = self._resources.get(resource_id)
        resource = Resource(
            id=resource_id,
            kind=kind,
            name=resource_id,
            href=f"{ROOT}/{plural}/{resource_id}",
            generation=1 if before is None else before.generation + 1,
            labels=labels or {},
            spec={} if spec is None else spec,
            owner=owner,
        )
        self._resources[resource_id] = resource
        return resource

    def delete(self, resource_id: str) -> None:
        """Asks for its deletion, which is a new generation, too."""
        before = self._resources[resource_id]
        self._resources[resource_id] = msgspec.structs.replace(
            before, generation=before.generation + 1, deleted_time=self._clock.now()
        )

    def remove(self, resource_id: str) -> None:
        """It is gone for good."""
        del self._resources[resource_id]
        self._statuses.pop(resource_id, None)

    def fail(self, trouble: ApiUnavailable | Failure) -> None:
        """Every call from now on meets this trouble, or what the function says."""
        self._failure = (
            (lambda operation, resource_id: trouble) if isinstance(trouble, ApiUnavailable) else trouble
        )

    def refuse(self, refusal: str | Callable[[Report], str]) -> None:
        """Every report from now on is refused, or those for which the function gives a reason."""
        self._refusal = (lambda report: refusal) if isinstance(refusal, str) else refusal

    def heal(self) -> None:
        """Calls are answered again."""
        self.fail(lambda operation, resource_id: None)
        self.refuse("")

    def sent_on(self, resource_id: str) -> list[Report]:
        """Every report on this resource that came in, whatever became of it."""
        return self._sent_on.get(resource_id, [])

    def status(self, resource_id: str, adapter: str) -> AdapterStatus | None:
        """What this adapter's latest report on a resource came to."""
        return self._statuses.get(resource_id, {}).get(adapter)

    # --- the port ---------------------------------------------------------------------------------------------

    async def probe(self, kind: str) -> None:
        await self._answer("read", "")

    async def get(self, pointer: ResourceRef) -> Resource | None:
        self.reads += 1
        await self._answer("read", pointer.id)
        resource = self._resources.get(pointer.id)
        if resource is None:
            return None
        known = tuple(_known(status) for status in self._statuses.get(pointer.id, {}).values())
        return msgspec.structs.replace(resource, reports=known)

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        await self._answer("report", resource.id)
        self.sent.append(report)
        self._sent_on.setdefault(resource.id, []).append(report)
        stored = self._resources.get(resource.id)
        if stored is None:
            return self._said(ReportResult(ReportOutcome.GONE))
        if refusal := self._refusal(report):
            raise ReportRefused(refusal)
        statuses = self._statuses.setdefault(resource.id, {})
        verdict = reports.judge(
            report, generation=stored.generation, stored=statuses.get(report.adapter), now=self._clock.now()
        )
        if isinstance(verdict, reports.Rejected):
            text = "; ".join(f"{field}: {message}" for field, message in verdict.errors)
            if any(field == "observed_time" for field, _ in verdict.errors):
                raise ApiUnavailable(f"{text}; is this machine's clock right?", needs_operator=True)
            raise ReportRefused(text)
        if isinstance(verdict, reports.Discarded):
            return self._said(ReportResult(ReportOutcome.DISCARDED, verdict.reason))
        statuses[report.adapter] = verdict.status
        return self._said(ReportResult(ReportOutcome.STORED))

    async def close(self) -> None:
        """Nothing is held, so that a closed fake can be used again."""

    async def _answer(self, operation: str, resource_id: str) -> None:
        await asyncio.sleep(0)  # a call that never suspends would hide races that a server shows
        trouble = self._failure(operation, resource_id)
        if trouble is not None:
            raise trouble

    def _said(self, answer: ReportResult) -> ReportResult:
        self.answers.append(answer)
        return answer


def _known(status: AdapterStatus) -> KnownReport:
    return KnownReport(
        status.adapter,
        status.observed_generation,
        tuple(ReportedCondition(each.type, each.status, each.reason, each.message) for each in status.conditions),
        _in_utc(status.last_report_time),
        status.data,
    )


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
