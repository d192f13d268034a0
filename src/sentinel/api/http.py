"""HTTP handlers of the fleet API: they turn requests into calls of `FleetService`, and results into responses.

A list does not decode the resources it lists: it joins the stored bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Annotated

import msgspec
from msgspec import Meta

from sentinel.api import request_bodies
from sentinel.api.change import WrittenResource
from sentinel.api.kinds import Kinds
from sentinel.api.request_bodies import ForceDeletion, NewResource, ResourcePatch
from sentinel.api.resource_events import StreamQuery
from sentinel.api.resource_streams import ResourceStreams
from sentinel.api.schemas import (
    DiscardedList,
    GenerationList,
    KindList,
    ListParameters,
    NumberedPageParameters,
    ResourceParameters,
    StatusList,
    WatchableResourceParameters,
)
from sentinel.api.service import FleetService, ResourcePath
from sentinel.core import access
from sentinel.core.fleet import reports, versions
from sentinel.core.fleet.documents import KindRules, Report
from sentinel.core.projection import Projection
from sentinel.ports.fleet_store import ListPosition, ListQuery, ListResult, OrderBy, StoredResource
from sentinel.web import etag, idempotency, lists, problem, server_sent_events
from sentinel.web.routing import Request, Response, Stream

_MAX_COPIED_BYTES = 256 * 1024
MAX_PAGE_BYTES = 8 * 1024 * 1024
"""The maximum size of all documents of a page that is requested by cursor. A larger one is a page of its own."""


class _Cursor(msgspec.Struct, frozen=True):
    """The content of `next`: where the following page begins."""

    page: Annotated[int, Meta(ge=1, le=2**53)]
    total: Annotated[int, Meta(ge=0, le=2**53)]
    place: ListPosition


_encode = msgspec.json.Encoder().encode


class KindHandlers:
    """The operations on resources of one kind."""

    def __init__(self, *, kind: KindRules, service: FleetService, streams: ResourceStreams) -> None:
        self.kind = kind
        self._service = service
        self._streams = streams

    async def list(self, request: Request) -> Response | Stream:
        """Return a page, or the stream of all of them."""
        parameters = request.query(ListParameters)
        if parameters.watch:
            return await self._watch(request, parameters)
        parent = request.path.get("parent_id")
        selected = lists.parse_selector(parameters.labels).requirements
        search = lists.parse_search(parameters.search)
        order_by, is_descending = _parse_order(parameters.order)
        wanted = lists.parse_fields(parameters.fields)
        query = (self.kind.plural, parent, selected, search, order_by, is_descending)
        cursor: _Cursor | None = None
        if parameters.after:
            if parameters.page is not None:
                raise problem.bad_field("page", "expected page or after, got both")
            cursor = lists.decode_cursor(parameters.after, _Cursor, query=query)
            if isinstance(cursor.place.value, int) is not (order_by in (OrderBy.CREATED, OrderBy.UPDATED)):
                raise problem.bad_field("after", "expected the value of next from an earlier page of this list")
        page = cursor.page if cursor else parameters.page or 1
        found = await self._service.find(
            ListQuery(
                plural=self.kind.plural,
                parent=parent,
                requirements=selected,
                search=search,
                order_by=order_by,
                is_descending=is_descending,
                limit=parameters.size,
                offset=0 if cursor else (page - 1) * parameters.size,
                after=cursor.place if cursor else None,
                wants_total=cursor is None,
                # Clients compute the number of pages from size and total, so numbered pages are never cut.
                max_bytes=MAX_PAGE_BYTES if cursor else None,
                may_join=True,
            )
        )
        total = cursor.total if cursor else found.total or 0
        following = (
            None if found.last is None else lists.encode_cursor(_Cursor(page + 1, total, found.last), query=query)
        )
        head = b'{"page":%d,"size":%d,"total":%d,"items":[' % (page, found.count, total)
        tail = b'],"next":' + _encode(following) + b"}"
        documents = found.documents if wanted is None else (_project(wanted, found),)
        return Response(200, _joined(head, documents, tail))

    async def _watch(self, request: Request, parameters: ListParameters) -> Stream:
        for name in ("page", "after", "order", "search"):
            if getattr(parameters, name):
                raise problem.bad_field(name, "expected no such parameter with watch")
        query = StreamQuery(
            plural=self.kind.plural,
            parent=request.path.get("parent_id"),
            selector=lists.parse_selector(parameters.labels),
            projection=lists.parse_fields(parameters.fields),
        )
        if query.parent is not None:
            await self._service.get(ResourcePath(self.kind.parent, query.parent))
        return await self._open_stream(request, query)

    async def _watch_one(self, request: Request, parameters: WatchableResourceParameters) -> Stream:
        if parameters.statuses:
            raise problem.bad_field("statuses", "expected no such parameter with watch")
        path = self._path(request)
        if server_sent_events.last_event_id(request) is None:
            await self._service.get(path)  # afterwards, its removal is an event
        return await self._open_stream(
            request, StreamQuery(plural=path.plural, parent=path.parent, resource_id=path.id)
        )

    async def _open_stream(self, request: Request, query: StreamQuery) -> Stream:
        return await self._streams.open(
            query,
            last_event_id=server_sent_events.last_event_id(request),
            credential=request.credential,
        )

    async def create(self, request: Request) -> Response:
        parent = request.path.get("parent_id")
        draft = request_bodies.parse_draft(await request.decode(NewResource), self.kind, parent=parent)
        sorted_draft = msgspec.structs.replace(draft, labels=sorted(draft.labels.items()))
        key = idempotency.read(request, self.kind.plural, parent, sorted_draft)
        created = await self._service.create(self.kind, draft, parent=parent, caller=request.caller, key=key)
        headers = {"Location": msgspec.json.decode(created.written.document, type=_Located).href}
        if created.is_replayed:
            headers[idempotency.REPLAYED] = "true"
        return _response(201, created.written, headers)

    async def get(self, request: Request) -> Response | Stream:
        parameters = request.query(WatchableResourceParameters)
        if parameters.watch:
            return await self._watch_one(request, parameters)
        stored = await self._service.get(self._path(request))
        return _resource_response(request, stored, with_statuses=parameters.statuses)

    async def patch(self, request: Request) -> Response:
        written = await self._service.patch(
            self._path(request),
            await request.decode(ResourcePatch),
            if_match=etag.parse(request.header("If-Match"), name="If-Match"),
            caller=request.caller,
        )
        return _response(200, written)

    async def delete(self, request: Request) -> Response:
        written = await self._service.delete(
            self._path(request),
            if_match=etag.parse(request.header("If-Match"), name="If-Match"),
            caller=request.caller,
        )
        return _response(202, written)

    async def force_delete(self, request: Request) -> Response:
        reason = (await request.decode(ForceDeletion)).reason.strip()
        if not reason:
            raise problem.bad_field("reason", "expected a reason, got only spaces")
        await self._service.force_delete(self._path(request), reason=reason, caller=request.caller)
        return Response(204)

    async def pulse(self, request: Request) -> Response:
        return _response(202, await self._service.request_pulse(self._path(request), caller=request.caller))

    async def pause(self, request: Request) -> Response:
        return _response(202, await self._service.pause(self._path(request), caller=request.caller))

    async def resume(self, request: Request) -> Response:
        return _response(202, await self._service.resume(self._path(request), caller=request.caller))

    async def report(self, request: Request) -> Response:
        """Store or discard an adapter's report."""
        report = _to_utc(await request.decode(Report))
        if not access.may_report_as(request.caller.identity, report.adapter):
            raise problem.forbidden(f'expected reports as "{request.caller.identity.adapter}" only')
        outcome = await self._service.report(self._path(request), report, caller=request.caller)
        if isinstance(outcome, reports.Discarded):
            return Response(204, headers={"Discard-Reason": outcome.reason.value})
        return Response(201, _encode(outcome.status))

    async def statuses(self, request: Request) -> Response:
        parameters = request.query(NumberedPageParameters)
        statuses = await self._service.statuses(self._path(request))
        items = statuses[parameters.offset : parameters.offset + parameters.size]
        return Response(200, _encode(StatusList(parameters.page, len(items), len(statuses), items)))

    async def waiting(self, request: Request) -> Response:
        return Response(200, _encode(await self._service.waiting(self._path(request))))

    async def discarded(self, request: Request) -> Response:
        parameters = request.query(NumberedPageParameters)
        items, total = await self._service.discarded(
            self._path(request), limit=parameters.size, offset=parameters.offset
        )
        return Response(200, _encode(DiscardedList(parameters.page, len(items), total, items)))

    async def history(self, request: Request) -> Response:
        parameters = request.query(NumberedPageParameters)
        items, total = await self._service.history(
            self._path(request), limit=parameters.size, offset=parameters.offset
        )
        return Response(200, _encode(GenerationList(parameters.page, len(items), total, items)))

    def _path(self, request: Request) -> ResourcePath:
        return ResourcePath(self.kind.plural, request.path["id"], request.path.get("parent_id"))


class AllKindsHandlers:
    """The operations that are not about one kind."""

    def __init__(self, *, kinds: Kinds, service: FleetService) -> None:
        self._kinds = kinds
        self._service = service

    async def get(self, request: Request) -> Response:
        stored = await self._service.get(ResourcePath("", request.path["id"]))
        return _resource_response(request, stored, with_statuses=request.query(ResourceParameters).statuses)

    async def waiting(self, request: Request) -> Response:
        return Response(200, _encode(await self._service.waiting(ResourcePath("", request.path["id"]))))

    async def kinds(self, request: Request) -> Response:
        return Response(200, _encode(KindList(tuple(self._kinds))))


def _project(wanted: Projection, found: ListResult) -> bytes:
    if found.count == len(found.documents):
        return wanted.apply_all(found.documents)
    return b",".join(map(wanted.apply_joined, found.documents))


def _joined(head: bytes, documents: Sequence[bytes], tail: bytes) -> bytes | tuple[bytes, ...]:
    """Join the parts of a list with few copies and in few pieces: each piece is a write to the socket.

    Several documents have to be joined anyway. A single large one is cheaper to send by itself than to copy.
    """
    match documents:
        case []:
            return head + tail
        case [joined]:
            return (head, joined, tail) if len(joined) > _MAX_COPIED_BYTES else b"".join((head, joined, tail))
        case [first, *middle, last]:
            return b",".join((head + first, *middle, last + tail))
        case _:
            raise AssertionError("a sequence has these lengths only")


class _Located(msgspec.Struct):
    href: str


def _resource_response(request: Request, stored: StoredResource, *, with_statuses: bool) -> Response:
    if not with_statuses:
        return etag.conditional_response(request, stored.document, version=versions.of_document(stored.version))
    # Both parts are stored encoded. The version of the row rises with every change of either.
    body = stored.document[:-1] + b',"statuses":' + stored.statuses + b"}"
    return etag.conditional_response(request, body, version=stored.version)


def _response(status: int, written: WrittenResource, headers: Mapping[str, str] | None = None) -> Response:
    return etag.versioned_response(status, written.document, version=written.version, headers=headers)


def _parse_order(text: str) -> tuple[OrderBy, bool]:
    name, _, direction = text.strip().partition(" ")
    direction = direction.strip() or "asc"
    if not name:
        return OrderBy.CREATED, False
    if name not in list(OrderBy) or direction not in ("asc", "desc"):
        raise problem.bad_field("order", f"expected one of {', '.join(OrderBy)}, and asc or desc")
    return OrderBy(name), direction == "desc"


def _to_utc(report: Report) -> Report:
    try:
        return msgspec.structs.replace(report, observed_time=report.observed_time.astimezone(UTC))
    except OverflowError:
        raise problem.bad_field("observed_time", "expected a time that UTC can represent") from None
