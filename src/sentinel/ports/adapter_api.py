"""The HyperFleet API as an adapter uses it.

Two implementations ship: one over HTTP, and one in memory in `sentinel.testing`. Both pass one contract suite.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.fleet.documents import DiscardReason, Report


class ReportResult(msgspec.Struct, frozen=True):
    """The API's response to a report."""

    outcome: ReportOutcome
    reason: DiscardReason | str | None = None
    """Why it was discarded, if the server says so, or refused; without secrets."""


class ReportOutcome(StrEnum):
    """How the API responded to a report."""

    STORED = "stored"
    DISCARDED = "discarded"
    """Deliberately: it came too late or too early, or its status is `Unknown`."""
    GONE = "gone"
    """The resource does not exist any more."""
    REFUSED = "refused"
    """The API will never accept this report."""


class AdapterApi(Protocol):
    """Reads resources and reports on them. Calls may overlap; each returns or raises within the driver's
    timeout."""

    async def probe(self, kind: str) -> None:
        """Return if the API responds and permits us to read resources of this kind; otherwise raise
        `ApiUnavailable`."""

    async def get(self, ref: ResourceRef) -> Resource | None:
        """Return the resource with the latest report of each adapter, or None if it does not exist.

        `href` and `kind` of the reference are hints and not trusted: requests go to the configured API only.
        Reports may be newer than the resource, never older. Raises `ApiUnavailable`.
        """

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        """Report on a resource that `get` returned. When this returns, the API has stored its decision durably.

        Raises `ApiUnavailable`, after which the report may or may not be stored.
        """

    async def close(self) -> None:
        """Release all connections. Idempotent."""
