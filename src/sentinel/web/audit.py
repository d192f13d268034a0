"""The audit of every server: how an entry is made from a request, and the route that reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from sentinel.core.ids import uuid7
from sentinel.ports.audit import AuditEntry, AuditLog, AuditQuery
from sentinel.web import cursor
from sentinel.web.access import AUDIT
from sentinel.web.cursor import PageSize
from sentinel.web.routing import Caller, Method, Request, Response, ResponseSpec, Route

_COUNTER = 0xFFF
"""What a UUIDv7 has room for behind its milliseconds."""

_encode = msgspec.json.Encoder().encode


class Auditor:
    """Makes the entries of a server. One for all of its components: entries of one moment then sort in the order
    in which they were made."""

    def __init__(self, *, randomness: Callable[[int], bytes] = os.urandom) -> None:
        self._randomness = randomness
        self._made = 0

    def entry(
        self, caller: Caller, *, action: str, kind: str, resource_id: str, now: datetime, detail: str = ""
    ) -> AuditEntry:
        """What this caller has done, to be recorded in the transaction that does it."""
        self._made = (self._made + 1) & _COUNTER
        return AuditEntry(
            id=uuid7(now, self._made.to_bytes(2, "big") + self._randomness(8)),
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
    """What the audit can be asked for."""

    size: PageSize = 100
    after: Annotated[str, Meta(description="Where to go on: `next` of the page before.")] = ""
    actor: Annotated[str, Meta(description="Only what this one did.")] = ""
    action: Annotated[str, Meta(description="Only this: create, patch, delete, report, …")] = ""
    resource_id: Annotated[str, Meta(description="Only what was done to this resource.")] = ""


class AuditList(msgspec.Struct, frozen=True):
    """A page of the audit, newest first."""

    size: int
    items: Sequence[AuditEntry]
    next: str | None


def audit_routes(log: AuditLog) -> list[Route]:
    """The route that reads the audit of all components."""

    async def read(request: Request) -> Response:
        asked = request.query(AuditParameters)
        query = ("audit", asked.actor, asked.action, asked.resource_id)
        before = cursor.decode(asked.after, str, query=query) if asked.after else ""
        # One more than is shown tells whether more follow.
        entries = await log.find(
            AuditQuery(
                limit=asked.size + 1,
                before=before,
                actor=asked.actor,
                action=asked.action,
                resource_id=asked.resource_id,
            )
        )
        shown = entries[: asked.size]
        following = cursor.encode(shown[-1].id, query=query) if len(entries) > len(shown) else None
        return Response(200, _encode(AuditList(len(shown), shown, following)))

    return [
        Route(
            method=Method.GET,
            path="/api/v1/audit",
            action=AUDIT,
            handler=read,
            summary="Read who has written what",
            tag="audit",
            query=AuditParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=AuditList),),
        )
    ]
