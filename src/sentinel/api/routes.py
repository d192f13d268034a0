"""The route table of the fleet API.

Each kind has its own routes, so that the OpenAPI document names the kinds that are served.
"""

from __future__ import annotations

from functools import partial

import msgspec

from sentinel.api import access
from sentinel.api.http import AllKindsHandlers, KindHandlers
from sentinel.api.kinds import Kinds
from sentinel.api.request_bodies import ForceDeletion, NewResource, ResourcePatch
from sentinel.api.resource_streams import ResourceStreams
from sentinel.api.schemas import (
    DiscardedList,
    GenerationList,
    KindList,
    ListParameters,
    NumberedPageParameters,
    ResourceList,
    ResourceParameters,
    ResourceWithStatuses,
    StatusList,
    WaitingList,
    WatchableResourceParameters,
)
from sentinel.api.service import FleetService
from sentinel.core.fleet.documents import AdapterStatus, DiscardReason, Report, ResourceDocument
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.web import idempotency, server_sent_events
from sentinel.web.body import JSON, MERGE_PATCH, Body
from sentinel.web.routing import Method, Parameter, ResponseSpec, Route

MAX_REPORT_BYTES = 256 * 1024
"""Less than a spec may have, because reports are loaded with their resource."""

_ID = Parameter(name="id", description="The id of the resource.")
_PARENT = Parameter(name="parent_id", description="The id of the parent.")
_IF_MATCH = Parameter(name="If-Match", description="The ETag that the client knows; 412 if it is outdated.")
_IF_NONE_MATCH = Parameter(
    name="If-None-Match", description="The ETag that the client knows; 304 if it is current."
)
_ETAG = {"ETag": "The version of the resource."}
_FOUND = ResponseSpec(
    status=200,
    description="The resource.",
    type=ResourceWithStatuses,
    headers={"ETag": "The version of the resource or, with `statuses`, of both; `If-Match` takes either."},
)
_UNCHANGED = ResponseSpec(status=304, description="The client's version is current.", headers=_ETAG)
_FOUND_OR_STREAM = msgspec.structs.replace(
    _FOUND,
    description="The resource. With `watch`, a stream like that of a list, of this resource alone.",
    stream_type=server_sent_events.CONTENT_TYPE,
)
_LIST = (
    ResponseSpec(
        status=200,
        description="A page. With `watch`, a stream: every present resource as `resource.changed`, then "
        "`resource.synced`, then changes as `resource.changed` (the resource) and `resource.removed` (its `id`). "
        "With `Last-Event-ID`, only what follows that event.",
        type=ResourceList,
        is_partial=True,
        stream_type=server_sent_events.CONTENT_TYPE,
    ),
)
_WAITING = ResponseSpec(
    status=200,
    description="The adapters that it waits for, sorted by name; none if it is ready.",
    type=WaitingList,
)

_get = partial(Route, method=Method.GET, action=access.READ)
_post = partial(Route, method=Method.POST, action=access.WRITE)


def routes(kinds: Kinds, service: FleetService, streams: ResourceStreams) -> list[Route]:
    """Return all routes of the fleet API."""
    of_kinds = [
        route
        for kind in kinds
        for route in _kind_routes(KindHandlers(kind=kind, service=service, streams=streams))
    ]
    return of_kinds + _all_kinds_routes(AllKindsHandlers(kinds=kinds, service=service))


def _kind_routes(handlers: KindHandlers) -> list[Route]:
    kind = handlers.kind
    flat = _resource_routes(handlers, f"{API_ROOT}/{kind.plural}", ()) + _flat_only_routes(handlers)
    if not kind.parent:
        return flat
    nested = f"{API_ROOT}/{kind.parent}/{{parent_id}}/{kind.plural}"
    return flat + _resource_routes(handlers, nested, (_PARENT,))


def _resource_routes(handlers: KindHandlers, base: str, parents: tuple[Parameter, ...]) -> list[Route]:
    """Return the routes that exist below the flat path and, if the kind has a parent, below the nested one."""
    kind, tag = handlers.kind, handlers.kind.plural
    one, parameters = f"{base}/{{id}}", (*parents, _ID)
    of_parent = f" of one of {kind.parent}" if parents else ""
    get_one = partial(_get, tag=tag, path_parameters=parameters, problems=(404,))
    write_one = partial(
        Route, path=one, action=access.WRITE, tag=tag, path_parameters=parameters, headers=(_IF_MATCH,)
    )
    return [
        _get(
            path=base,
            handler=handlers.list,
            summary=f"List {kind.plural}{of_parent}",
            tag=tag,
            path_parameters=parents,
            query=ListParameters,
            headers=(server_sent_events.LAST_EVENT_ID,),
            responses=_LIST,
            problems=(404, 410) if parents else (410,),
        ),
        _post(
            path=base,
            handler=handlers.create,
            summary=f"Create a {kind.kind}{of_parent}",
            tag=tag,
            path_parameters=parents,
            headers=(idempotency.PARAMETER,),
            body=Body(type=NewResource),
            responses=(
                ResponseSpec(
                    status=201,
                    description="Created, now or by an earlier request with this Idempotency-Key.",
                    type=ResourceDocument,
                    headers={
                        **_ETAG,
                        "Location": "The path of the resource.",
                        idempotency.REPLAYED: "`true` if an earlier request created it.",
                    },
                ),
            ),
            problems=(404, 409, 422) if parents else (409, 422),
        ),
        get_one(
            path=one,
            handler=handlers.get,
            summary=f"Get a {kind.kind}",
            query=WatchableResourceParameters,
            headers=(_IF_NONE_MATCH, server_sent_events.LAST_EVENT_ID),
            responses=(_FOUND_OR_STREAM, _UNCHANGED),
            problems=(404, 410),
        ),
        write_one(
            method=Method.PATCH,
            handler=handlers.patch,
            summary=f"Change a {kind.kind}",
            description="A JSON merge patch. The generation rises by one if spec or labels change.",
            body=Body(type=ResourcePatch, content_types=(MERGE_PATCH, JSON)),
            responses=(
                ResponseSpec(status=200, description="The resource.", type=ResourceDocument, headers=_ETAG),
            ),
            problems=(404, 409, 412),
        ),
        write_one(
            method=Method.DELETE,
            handler=handlers.delete,
            summary=f"Delete a {kind.kind}",
            description="It is removed when every required adapter has reported Finalized and no child is left.",
            responses=(
                ResponseSpec(status=202, description="Being deleted.", type=ResourceDocument, headers=_ETAG),
            ),
            problems=(404, 412),
        ),
        get_one(
            path=f"{one}/statuses",
            handler=handlers.statuses,
            summary="Read the latest report of each adapter",
            query=NumberedPageParameters,
            responses=(ResponseSpec(status=200, description="A page.", type=StatusList),),
        ),
        *(
            Route(
                method=method,
                path=f"{one}/statuses",
                action=access.REPORT,
                handler=handlers.report,
                summary="Report as an adapter",
                tag=tag,
                path_parameters=parameters,
                body=Body(type=Report, limit=MAX_REPORT_BYTES),
                responses=(
                    ResponseSpec(status=201, description="The report was stored.", type=AdapterStatus),
                    ResponseSpec(
                        status=204,
                        description="The report was discarded.",
                        headers={"Discard-Reason": ", ".join(DiscardReason)},
                    ),
                ),
                problems=(404, 409),
            )
            for method in (Method.POST, Method.PUT)
        ),
        Route(
            method=Method.POST,
            path=f"{one}/force-delete",
            action=access.FORCE_DELETE,
            handler=handlers.force_delete,
            summary=f"Remove a {kind.kind} that is being deleted, without waiting for adapters",
            tag=tag,
            path_parameters=parameters,
            body=Body(type=ForceDeletion),
            responses=(ResponseSpec(status=204, description="Removed, with its children."),),
            problems=(404, 409),
        ),
    ]


def _flat_only_routes(handlers: KindHandlers) -> list[Route]:
    kind, one = handlers.kind, f"{API_ROOT}/{handlers.kind.plural}/{{id}}"
    get = partial(_get, tag=kind.plural, path_parameters=(_ID,), problems=(404,))
    return [
        get(
            path=f"{one}/statuses/discarded",
            handler=handlers.discarded,
            summary="Read recently discarded reports",
            query=NumberedPageParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=DiscardedList),),
        ),
        get(
            path=f"{one}/waiting",
            handler=handlers.waiting,
            summary=f"Read what a {kind.kind} waits for",
            responses=(_WAITING,),
        ),
        get(
            path=f"{one}/history",
            handler=handlers.history,
            summary="Read past generations",
            description="Also those of a removed resource, until they expire.",
            query=NumberedPageParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=GenerationList),),
        ),
        *(
            _post(
                path=f"{one}/{verb}",
                handler=handler,
                summary=summary,
                tag=kind.plural,
                path_parameters=(_ID,),
                responses=(
                    ResponseSpec(status=202, description="Accepted.", type=ResourceDocument, headers=_ETAG),
                ),
                problems=(404,),
            )
            for verb, handler, summary in (
                ("pulse", handlers.pulse, f"Request an event for a {kind.kind} now"),
                ("pause", handlers.pause, f"Publish no events for a {kind.kind} until it is resumed"),
                ("resume", handlers.resume, f"Publish events for a {kind.kind} again"),
            )
        ),
    ]


def _all_kinds_routes(handlers: AllKindsHandlers) -> list[Route]:
    get = partial(_get, tag="resources")
    return [
        get(
            path=f"{API_ROOT}/resources/{{id}}",
            handler=handlers.get,
            summary="Get a resource of any kind",
            path_parameters=(_ID,),
            query=ResourceParameters,
            headers=(_IF_NONE_MATCH,),
            responses=(_FOUND, _UNCHANGED),
            problems=(404,),
        ),
        get(
            path=f"{API_ROOT}/resources/{{id}}/waiting",
            handler=handlers.waiting,
            summary="Read what a resource of any kind waits for",
            path_parameters=(_ID,),
            responses=(_WAITING,),
            problems=(404,),
        ),
        get(
            path=f"{API_ROOT}/kinds",
            handler=handlers.kinds,
            summary="Read which kinds are served, and the adapters that each requires",
            responses=(ResponseSpec(status=200, description="The kinds, in order.", type=KindList),),
        ),
    ]
