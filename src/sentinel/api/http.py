"""From requests to use cases, and from what came of them to answers.

A list never decodes what it lists: the store's bytes are joined into the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Annotated

import msgspec
from msgspec import Meta

from sentinel.api import request_bodies
from sentinel.api.change import WrittenResource
from sentinel.api.kinds import Kinds
from sentinel.api.request_bodies import NewResource, Reason, ResourcePatch
from sentinel.api.schemas import (
    DiscardedList,
    GenerationList,
    KindList,
    ListParameters,
    PageParameters,
    StatusList,
)
from sentinel.api.service import FleetService, ResourcePath
from sentinel.core import access
from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import KindRules, Report
from sentinel.ports.fleet_store import ListPosition, ListQuery, OrderBy
from sentinel.web import cursor, etag, idempotency, list_parameters, problem
from sentinel.web.routing import Request, Response


class _Mark(msgspec.Struct, frozen=True):
    """Where a walk over a list stands."""

    page: Annotated[int, Meta(ge=1, le=2**53)]
    total: Annotated[int, Meta(ge=0, le=2**53)]
    place: ListPosition


_encode = msgspec.json.Encoder().encode


class Collection:
    """The operations on one kind of resource."""

    def __init__(self, *, kind: KindRules, service: FleetService) -> None:
        self.kind = kind
        self._service = service

    # --- Resources ----------------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """A page of resources, joined from their stored bytes."""
        parameters = request.query(ListParameters)
        parent = request.path.get("parent_id")
        if parent is not None:
            await self._service.get(ResourcePath(self.kind.parent, parent))
        selected = list_parameters.selector(parameters.labels).requirements
        order_by, is_descending = _order(parameters.order)
        wanted = list_parameters.projection(parameters.fields)
        query = (self.kind.plural, parent, selected, order_by, is_descending)
        mark: _Mark | None = None
        if parameters.after:
            if parameters.page is not None:
                raise problem.bad_field("page", "expected no page beside after")
            mark = cursor.decode(parameters.after, _Mark, query=query)
            if isinstance(mark.place.value, int) is not (order_by in (OrderBy.CREATED, OrderBy.UPDATED)):
                raise problem.bad_field("after", "expected the value of next from an earlier page of this list")
        page = mark.page if mark else parameters.page or 1
        found = await self._service.find(
            ListQuery(
                plural=self.kind.plural,
                parent=parent,
                requirements=selected,
                order_by=order_by,
                is_descending=is_descending,
                limit=parameters.size,
                offset=0 if mark else (page - 1) * parameters.size,
                after=mark.place if mark else None,
                wants_total=mark is None,
                may_join=wanted is None,
            )
        )
        total = mark.total if mark else found.total or 0
        following = None if found.last is None else cursor.encode(_Mark(page + 1, total, found.last), query=query)
        documents = found.documents if wanted is None else wanted.apply_all(found.documents)
        head = b'{"page":%d,"size":%d,"total":%d,"items":[' % (page, found.count, total)
        tail = b'],"next":' + _encode(following) + b"}"
        return Response(200, (head, b",".join(documents), tail))

    async def create(self, request: Request) -> Response:
        """A new resource."""
        parent = request.path.get("parent_id")
        draft = request_bodies.draft(await request.decode(NewResource), self.kind, parent=parent)
        sorted_draft = msgspec.structs.replace(draft, labels=sorted(draft.labels.items()))
        key = idempotency.read(request, self.kind.plural, parent, sorted_draft)
        created = await self._service.create(self.kind, draft, parent=parent, caller=request.caller, key=key)
        headers = {"Location": msgspec.json.decode(created.written.document, type=_Located).href}
        if created.is_replayed:
            headers[idempotency.REPLAYED] = "true"
        return _answer(201, created.written, headers)

    async def get(self, request: Request) -> Response:
        """One resource, or that it has not changed."""
        stored = await self._service.get(self._target(request))
        return _unless_known(request, WrittenResource(stored.document, stored.version))

    async def patch(self, request: Request) -> Response:
        """A changed resource."""
        written = await self._service.patch(
            self._target(request),
            await request.decode(ResourcePatch),
            if_match=etag.parse(request.header("If-Match"), name="If-Match"),
            caller=request.caller,
        )
        return _answer(200, written)

    async def delete(self, request: Request) -> Response:
        """A resource on its way out."""
        written = await self._service.delete(
            self._target(request),
            if_match=etag.parse(request.header("If-Match"), name="If-Match"),
            caller=request.caller,
        )
        return _answer(202, written)

    async def force_delete(self, request: Request) -> Response:
        """A resource that is gone."""
        reason = (await request.decode(Reason)).reason.strip()
        if not reason:
            raise problem.bad_field("reason", "expected a reason, got nothing but spaces")
        await self._service.force_delete(self._target(request), reason=reason, caller=request.caller)
        return Response(204)

    async def pulse(self, request: Request) -> Response:
        """A resource that an event was asked for."""
        return _answer(202, await self._service.request_pulse(self._target(request), caller=request.caller))

    async def pause(self, request: Request) -> Response:
        """A resource that gets no events."""
        return _answer(202, await self._service.pause(self._target(request), caller=request.caller))

    async def resume(self, request: Request) -> Response:
        """A resource that gets events again."""
        return _answer(202, await self._service.resume(self._target(request), caller=request.caller))

    # --- Reports ------------------------------------------------------------------------------------------------

    async def report(self, request: Request) -> Response:
        """A report, stored or discarded."""
        report = _in_utc(await request.decode(Report))
        if not access.may_report_as(request.caller.identity, report.adapter):
            raise problem.forbidden(f'expected reports as "{request.caller.identity.adapter}" alone')
        outcome = await self._service.report(self._target(request), report, caller=request.caller)
        if isinstance(outcome, reports.Discarded):
            return Response(204, headers={"Discard-Reason": outcome.reason.value})
        return Response(201, _encode(outcome.status))

    async def statuses(self, request: Request) -> Response:
        """The latest report of each adapter."""
        parameters = request.query(PageParameters)
        statuses = await self._service.statuses(self._target(request))
        first = (parameters.page - 1) * parameters.size
        items = statuses[first : first + parameters.size]
        return Response(200, _encode(StatusList(parameters.page, len(items), len(statuses), items)))

    async def waiting(self, request: Request) -> Response:
        """What keeps a resource from being ready, or from going."""
        return Response(200, _encode(await self._service.waiting(self._target(request))))

    async def discarded(self, request: Request) -> Response:
        """Reports that were discarded lately."""
        parameters = request.query(PageParameters)
        items, total = await self._service.discarded(
            self._target(request), limit=parameters.size, offset=(parameters.page - 1) * parameters.size
        )
        return Response(200, _encode(DiscardedList(parameters.page, len(items), total, items)))

    async def history(self, request: Request) -> Response:
        """Past generations, also of a resource that is gone."""
        parameters = request.query(PageParameters)
        items, total = await self._service.history(
            self._target(request), limit=parameters.size, offset=(parameters.page - 1) * parameters.size
        )
        return Response(200, _encode(GenerationList(parameters.page, len(items), total, items)))

    def _target(self, request: Request) -> ResourcePath:
        return ResourcePath(self.kind.plural, request.path["id"], request.path.get("parent_id"))


class Everything:
    """What is offered across kinds."""

    def __init__(self, *, kinds: Kinds, service: FleetService) -> None:
        self._kinds = kinds
        self._service = service

    async def get(self, request: Request) -> Response:
        """One resource, whatever its kind."""
        stored = await self._service.get(ResourcePath("", request.path["id"]))
        return _unless_known(request, WrittenResource(stored.document, stored.version))

    async def waiting(self, request: Request) -> Response:
        """What keeps a resource from being ready, or from going, whatever its kind."""
        return Response(200, _encode(await self._service.waiting(ResourcePath("", request.path["id"]))))

    async def kinds(self, request: Request) -> Response:
        """The kinds that are served."""
        return Response(200, _encode(KindList(tuple(self._kinds))))


class _Located(msgspec.Struct):
    href: str


def _answer(status: int, written: WrittenResource, headers: Mapping[str, str] | None = None) -> Response:
    return etag.answer(status, written.document, version=written.version, headers=headers)


def _unless_known(request: Request, written: WrittenResource) -> Response:
    return etag.unless_known(request, written.document, version=written.version)


def _order(text: str) -> tuple[OrderBy, bool]:
    name, _, direction = text.strip().partition(" ")
    direction = direction.strip() or "asc"
    if not name:
        return OrderBy.CREATED, False
    if name not in list(OrderBy) or direction not in ("asc", "desc"):
        raise problem.bad_field("order", f"expected one of {', '.join(OrderBy)}, and asc or desc")
    return OrderBy(name), direction == "desc"


def _in_utc(report: Report) -> Report:
    try:
        return msgspec.structs.replace(report, observed_time=report.observed_time.astimezone(UTC))
    except OverflowError:
        raise problem.bad_field("observed_time", "expected a time within the calendar") from None
