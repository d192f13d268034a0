"""The audit log of every server: builds entries from requests, and serves them.

One route serves the entries of all components, so its permission belongs to the server.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from sentinel.core.access import Action, Permissions, Role, table
from sentinel.core.ids import uuid7
from sentinel.ports.audit import AuditEntry, AuditLog, AuditQuery
from sentinel.web import lists
from sentinel.web.lists import PageSize
from sentinel.web.routing import Caller, Method, Request, Response, ResponseSpec, Route

READ_AUDIT: Final = Action("server.audit")
PERMISSIONS: Final[Permissions] = table("server", {Role.ADMIN: (READ_AUDIT,)})

_MAX_COUNTER = 0xFFF
"""The 12 bits that follow the milliseconds in a UUIDv7."""

_encode = msgspec.json.Encoder().encode


class Auditor:
    """Builds audit entries. A server has one for all components, so that the ids of entries with equal times sort
    in order of creation."""

    def __init__(self, *, randomness: Callable[[int], bytes] = os.urandom) -> None:
        self._randomness = randomness
        self._counter = 0

    def entry(
        self, caller: Caller, *, action: str, kind: str, resource_id: str, now: datetime, detail: str = ""
    ) -> AuditEntry:
        """Build the entry of an action. Record it in the transaction of the action."""
        self._counter = (self._counter + 1) & _MAX_COUNTER
        return AuditEntry(
            id=uuid7(now, self._counter.to_bytes(2, "big") + self._randomness(8)),
            time=now,
            actor=caller.identity.name,
            role=caller.identity.role,
            address=caller.address,
            action=action,
            kind=kind,
            resource_id=resource_id,
            request_id=caller.request_id,
            detail=detail,
        )


class AuditParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of the audit log."""

    size: PageSize = 100
    after: Annotated[str, Meta(description="The cursor from `next` of the previous page.")] = ""
    actor: Annotated[str, Meta(description="Only entries of this actor.")] = ""
    action: Annotated[str, Meta(description="Only entries of this action: create, patch, delete, report, …")] = ""
    resource_id: Annotated[str, Meta(description="Only entries about this resource.")] = ""


class AuditList(msgspec.Struct, frozen=True):
    """A page of the audit log, newest first."""

    size: int
    items: Sequence[AuditEntry]
    next: str | None


def audit_routes(log: AuditLog) -> list[Route]:
    """Return the route that serves the audit log of all components."""

    async def read(request: Request) -> Response:
        parameters = request.query(AuditParameters)
        query = ("audit", parameters.actor, parameters.action, parameters.resource_id)
        before = lists.decode_cursor(parameters.after, str, query=query) if parameters.after else ""
        # One more than the page has, to know whether another page follows.
        found = await log.find(
            AuditQuery(
                limit=parameters.size + 1,
                before=before,
                actor=parameters.actor,
                action=parameters.action,
                resource_id=parameters.resource_id,
            )
        )
        entries = found[: parameters.size]
        following = lists.encode_cursor(entries[-1].id, query=query) if len(found) > len(entries) else None
        return Response(200, _encode(AuditList(len(entries), entries, following)))

    return [
        Route(
            method=Method.GET,
            path="/api/v1/audit",
            action=READ_AUDIT,
            handler=read,
            summary="Read who has changed what",
            tag="audit",
            query=AuditParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=AuditList),),
        )
    ]
