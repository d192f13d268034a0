"""What an adapter asks of the HyperFleet API: to read a resource, and to say what it found.

Two implementations ship: one that speaks HTTP, and one in memory in `sentinel.testing`. They pass one contract
suite.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.fleet.documents import DiscardReason, Report


class ReportRefused(Exception):
    """The API will never take this report; the text says why, free of secrets."""


class ReportOutcome(StrEnum):
    """What became of a report."""

    STORED = "stored"
    DISCARDED = "discarded"
    """Deliberately: it came too late, too early, or says that nothing is known."""
    GONE = "gone"
    """There is no such resource any more."""


class ReportResult(msgspec.Struct, frozen=True):
    """The API's answer to a report."""

    outcome: ReportOutcome
    reason: DiscardReason | None = None
    """Why it was discarded, where the server says so."""


class AdapterApi(Protocol):
    """The API as an adapter uses it. Calls may overlap; each returns or raises within the driver's timeout."""

    async def probe(self, kind: str) -> None:
        """Returns if the API answers and would let us read a resource of this kind; raises `ApiTrouble` if not."""

    async def get(self, pointer: ResourceRef) -> Resource | None:
        """The resource as it is now, with the latest report of each adapter; None where it is gone.

        `href` and `kind` of the pointer are tried where they help, and never trusted: whatever they say, only
        the API that this is about is asked. Reports may be newer than the resource, never older. Raises
        `ApiTrouble`.
        """

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        """Reports on a resource that was read here; once this returns, the API has it for good.

        Raises `ApiTrouble` (after which it may or may not have it) or `ReportRefused`.
        """

    async def close(self) -> None:
        """Releases everything; harmless when repeated."""
