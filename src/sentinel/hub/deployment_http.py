"""The handlers of the routes of deployments: they decode requests, call the use cases, and encode responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from sentinel.hub import deployment_documents
from sentinel.hub.deployment_schemas import (
    CreationParameters,
    DeploymentEventDocument,
    DeploymentEventList,
    DeploymentInstanceList,
    DeploymentList,
    DeploymentParameters,
    NewDeployment,
    to_request,
)
from sentinel.hub.plan_documents import PlanDocument
from sentinel.hub.rollout_service import Created, RolloutService
from sentinel.hub.schemas import PageParameters
from sentinel.ports.rollout_store import DeploymentQuery, DeploymentRecord
from sentinel.web import idempotency, lists
from sentinel.web.routing import Caller, Request, Response

_encode = msgspec.json.Encoder().encode


class DeploymentHandlers:
    """Serves deployments, and what users do with them."""

    def __init__(self, rollouts: RolloutService) -> None:
        self._rollouts = rollouts

    async def list(self, request: Request) -> Response:
        parameters = request.query(DeploymentParameters)
        query = ("deployments", parameters.state)
        found, total = await self._rollouts.find(
            DeploymentQuery(
                before=lists.text_position(parameters.after, query=query),
                limit=parameters.size + 1,
                states=() if parameters.state is None else (parameters.state,),
            )
        )
        page, following = lists.cut_page(found, parameters.size, lambda each: each.id, query=query)
        items = [deployment_documents.document(each) for each in page]
        return Response(200, _encode(DeploymentList(len(items), total, items, following)))

    async def create(self, request: Request) -> Response:
        given = await request.decode(NewDeployment)
        wanted = to_request(given)
        if request.query(CreationParameters).dry_run:
            return Response(200, _encode(PlanDocument.of(await self._rollouts.plan(wanted))))
        key = idempotency.read(request, "deployments", given)
        return _created(await self._rollouts.create(request.caller, wanted, key=key))

    async def get(self, request: Request) -> Response:
        return _deployment(200, await self._rollouts.get(request.path["id"]))

    async def instances(self, request: Request) -> Response:
        parameters = request.query(PageParameters)
        deployment_id = request.path["id"]
        query = ("deployment instances", deployment_id)
        record, found = await self._rollouts.instances(
            deployment_id, after=_position(parameters, query, first=-1), limit=parameters.size + 1
        )
        page, following = lists.cut_page(found, parameters.size, lambda each: each.position, query=query)
        items = [deployment_documents.row_document(each.row, record.rollout.to) for each in page]
        total = sum(record.counts.values())
        return Response(200, _encode(DeploymentInstanceList(len(items), total, items, following)))

    async def events(self, request: Request) -> Response:
        parameters = request.query(PageParameters)
        deployment_id = request.path["id"]
        query = ("deployment events", deployment_id)
        found = await self._rollouts.events(
            deployment_id, after=_position(parameters, query, first=0), limit=parameters.size + 1
        )
        total = (await self._rollouts.get(deployment_id)).events
        page, following = lists.cut_page(found, parameters.size, lambda each: each.number, query=query)
        items = [DeploymentEventDocument.of(each) for each in page]
        return Response(200, _encode(DeploymentEventList(len(items), total, items, following)))

    async def pause(self, request: Request) -> Response:
        return await _act(self._rollouts.pause, request)

    async def resume(self, request: Request) -> Response:
        return await _act(self._rollouts.resume, request)

    async def promote(self, request: Request) -> Response:
        return await _act(self._rollouts.promote, request)

    async def abort(self, request: Request) -> Response:
        return await _act(self._rollouts.abort, request)

    async def rollback(self, request: Request) -> Response:
        return await _act(self._rollouts.rollback, request)

    async def retry(self, request: Request) -> Response:
        deployment_id = request.path["id"]
        key = idempotency.read(request, "retry", deployment_id)
        return _created(await self._rollouts.retry(request.caller, deployment_id, key=key))


async def _act(action: Callable[[Caller, str], Awaitable[DeploymentRecord]], request: Request) -> Response:
    return _deployment(202, await action(request.caller, request.path["id"]))


def _created(created: Created) -> Response:
    headers = {"Location": f"/api/v1/deployments/{created.id}"}
    if created.is_replayed:
        headers[idempotency.REPLAYED] = "true"
    return Response(201, created.body, headers)


def _deployment(status: int, record: DeploymentRecord) -> Response:
    return Response(status, _encode(deployment_documents.document(record)))


def _position(parameters: PageParameters, query: object, *, first: int) -> int:
    return lists.decode_cursor(parameters.after, int, query=query) if parameters.after else first
