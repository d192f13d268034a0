"""The table of the fleet API's routes. They are made for each kind, so that the OpenAPI document names what is
really there."""

from __future__ import annotations

from sentinel.api import access
from sentinel.api.http import Collection, Everything
from sentinel.api.kinds import Kinds
from sentinel.api.request_bodies import NewResource, Reason, ResourcePatch
from sentinel.api.schemas import (
    DiscardedList,
    GenerationList,
    KindList,
    ListParameters,
    PageParameters,
    ResourceList,
    StatusList,
    WaitingList,
)
from sentinel.api.service import FleetService
from sentinel.core.fleet.documents import AdapterStatus, DiscardReason, Report, ResourceDocument
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.web import idempotency
from sentinel.web.routing import JSON, MERGE_PATCH, Body, Method, Parameter, ResponseSpec, Route

REPORT_LIMIT = 256 * 1024
"""A report is loaded whenever its resource is; so it is kept smaller than a spec may be."""

_ID = Parameter(name="id", description="Of the resource.")
_PARENT = Parameter(name="parent_id", description="Of the resource that it belongs to.")
_IF_MATCH = Parameter(name="If-Match", description="The ETag that the client has seen; otherwise 412.")
_IF_NONE_MATCH = Parameter(
    name="If-None-Match", description="The ETag that the client has; 304 if it still holds."
)
_ETAG = {"ETag": "The version of the resource."}
_WAITING = ResponseSpec(
    status=200, description="The adapters in the way, by name; none where it is ready.", type=WaitingList
)


def routes(kinds: Kinds, service: FleetService) -> list[Route]:
    """Everything the fleet API answers."""
    made = [route for kind in kinds for route in _of_kind(Collection(kind=kind, service=service))]
    return made + _across_kinds(Everything(kinds=kinds, service=service))


def _of_kind(collection: Collection) -> list[Route]:
    kind = collection.kind
    flat = _collection(collection, f"{API_ROOT}/{kind.plural}", ()) + _singular_only(collection)
    if not kind.parent:
        return flat
    nested = f"{API_ROOT}/{kind.parent}/{{parent_id}}/{kind.plural}"
    return flat + _collection(collection, nested, (_PARENT,))


def _collection(collection: Collection, base: str, above: tuple[Parameter, ...]) -> list[Route]:
    kind, tag = collection.kind, collection.kind.plural
    one, here = f"{base}/{{id}}", (*above, _ID)
    owned = f" of one of {kind.parent}" if above else ""
    document = ResourceDocument
    return [
        Route(
            method=Method.GET,
            path=base,
            action=access.READ,
            handler=collection.list,
            summary=f"List {kind.plural}{owned}",
            tag=tag,
            path_parameters=above,
            query=ListParameters,
            responses=(ResponseSpec(status=200, description="A page.", type=ResourceList, is_partial=True),),
            problems=(404,) if above else (),
        ),
        Route(
            method=Method.POST,
            path=base,
            action=access.WRITE,
            handler=collection.create,
            summary=f"Create a {kind.kind}{owned}",
            tag=tag,
            path_parameters=above,
            headers=(idempotency.PARAMETER,),
            body=Body(type=NewResource),
            responses=(
                ResponseSpec(
                    status=201,
                    description="It was created, now or by an earlier request with this Idempotency-Key.",
                    type=document,
                    headers={
                        **_ETAG,
                        "Location": "Where it is found.",
                        idempotency.REPLAYED: "`true` where an earlier request had created it.",
                    },
                ),
            ),
            problems=(404, 409, 422) if above else (409, 422),
        ),
        Route(
            method=Method.GET,
            path=one,
            action=access.READ,
            handler=collection.get,
            summary=f"Get a {kind.kind}",
            tag=tag,
            path_parameters=here,
            headers=(_IF_NONE_MATCH,),
            responses=(
                ResponseSpec(status=200, description="The resource.", type=document, headers=_ETAG),
                ResponseSpec(status=304, description="It is still what the client has.", headers=_ETAG),
            ),
            problems=(404,),
        ),
        Route(
            method=Method.PATCH,
            path=one,
            action=access.WRITE,
            handler=collection.patch,
            summary=f"Change a {kind.kind}",
            description="A JSON merge patch. The generation rises by one if spec or labels really change.",
            tag=tag,
            path_parameters=here,
            headers=(_IF_MATCH,),
            body=Body(type=ResourcePatch, content_types=(MERGE_PATCH, JSON)),
            responses=(ResponseSpec(status=200, description="As it is now.", type=document, headers=_ETAG),),
            problems=(404, 409, 412),
        ),
        Route(
            method=Method.DELETE,
            path=one,
            action=access.WRITE,
            handler=collection.delete,
            summary=f"Delete a {kind.kind}",
            description="It stays until every required adapter has reported Finalized and no child is left.",
            tag=tag,
            path_parameters=here,
            headers=(_IF_MATCH,),
            responses=(ResponseSpec(status=202, description="On its way out.", type=document, headers=_ETAG),),
            problems=(404, 412),
        ),
        Route(
            method=Method.GET,
            path=f"{one}/statuses",
            action=access.READ,
            handler=collection.statuses,
            summary="Read the adapters' latest reports",
            tag=tag,
            path_parameters=here,
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page.", type=StatusList),),
            problems=(404,),
        ),
        *(
            Route(
                method=method,
                path=f"{one}/statuses",
                action=access.REPORT,
                handler=collection.report,
                summary="Report as an adapter",
                tag=tag,
                path_parameters=here,
                body=Body(type=Report, limit=REPORT_LIMIT),
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
            handler=collection.force_delete,
            summary=f"Remove a {kind.kind} that is being deleted, without waiting for adapters",
            tag=tag,
            path_parameters=here,
            body=Body(type=Reason),
            responses=(ResponseSpec(status=204, description="It is gone, and so are its children."),),
            problems=(404, 409),
        ),
    ]


def _singular_only(collection: Collection) -> list[Route]:
    """What is offered below the flat path alone."""
    kind, tag, one = collection.kind, collection.kind.plural, f"{API_ROOT}/{collection.kind.plural}/{{id}}"
    return [
        Route(
            method=Method.GET,
            path=f"{one}/statuses/discarded",
            action=access.READ,
            handler=collection.discarded,
            summary="Read reports that were discarded lately",
            tag=tag,
            path_parameters=(_ID,),
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=DiscardedList),),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{one}/waiting",
            action=access.READ,
            handler=collection.waiting,
            summary=f"Read what a {kind.kind} waits for",
            tag=tag,
            path_parameters=(_ID,),
            responses=(_WAITING,),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{one}/history",
            action=access.READ,
            handler=collection.history,
            summary="Read past generations",
            description="Also of a resource that is gone, as long as retention keeps them.",
            tag=tag,
            path_parameters=(_ID,),
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=GenerationList),),
            problems=(404,),
        ),
        *(
            Route(
                method=Method.POST,
                path=f"{one}/{verb}",
                action=access.WRITE,
                handler=handler,
                summary=summary,
                tag=tag,
                path_parameters=(_ID,),
                responses=(ResponseSpec(status=202, description="Noted.", type=ResourceDocument, headers=_ETAG),),
                problems=(404,),
            )
            for verb, handler, summary in (
                ("pulse", collection.pulse, f"Ask for an event for a {kind.kind} now"),
                ("pause", collection.pause, f"Send no events for a {kind.kind} until it is resumed"),
                ("resume", collection.resume, f"Send events for a {kind.kind} again"),
            )
        ),
    ]


def _across_kinds(everything: Everything) -> list[Route]:
    return [
        Route(
            method=Method.GET,
            path=f"{API_ROOT}/resources/{{id}}",
            action=access.READ,
            handler=everything.get,
            summary="Get a resource of any kind",
            tag="resources",
            path_parameters=(_ID,),
            headers=(_IF_NONE_MATCH,),
            responses=(
                ResponseSpec(status=200, description="The resource.", type=ResourceDocument, headers=_ETAG),
                ResponseSpec(status=304, description="It is still what the client has.", headers=_ETAG),
            ),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{API_ROOT}/resources/{{id}}/waiting",
            action=access.READ,
            handler=everything.waiting,
            summary="Read what a resource of any kind waits for",
            tag="resources",
            path_parameters=(_ID,),
            responses=(_WAITING,),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{API_ROOT}/kinds",
            action=access.READ,
            handler=everything.kinds,
            summary="Read which kinds are served, and whose reports make them ready",
            tag="resources",
            responses=(ResponseSpec(status=200, description="The kinds, in their order.", type=KindList),),
        ),
    ]
