"""The routes of deployments."""

from __future__ import annotations

from typing import Final

import msgspec

from sentinel.hub.access import READ, WRITE
from sentinel.hub.deployment_documents import DeploymentDocument
from sentinel.hub.deployment_http import DeploymentHandlers
from sentinel.hub.deployment_schemas import (
    CreationParameters,
    DeploymentEventList,
    DeploymentInstanceList,
    DeploymentList,
    DeploymentParameters,
    NewDeployment,
)
from sentinel.hub.plan_documents import PlanDocument
from sentinel.hub.routes import ROOT
from sentinel.hub.schemas import PageParameters
from sentinel.hub.version_problems import DeploymentProblem
from sentinel.web import idempotency
from sentinel.web.body import Body
from sentinel.web.routing import Handler, Method, Parameter, ResponseSpec, Route

TAGS: Final = {"deployments": "Rollouts of a version to many instances, and back."}

_DEPLOYMENTS: Final = f"{ROOT}/deployments"
_ONE: Final = f"{_DEPLOYMENTS}/{{id}}"
_ID: Final = Parameter(name="id", description="The id of the deployment.")
_CREATED: Final = ResponseSpec(
    status=201,
    description="Created, now or by an earlier request with this Idempotency-Key.",
    type=DeploymentDocument,
    headers={
        "Location": "The path of the deployment.",
        idempotency.REPLAYED: "`true` if an earlier request created it.",
    },
)
_EXAMPLE: Final = msgspec.Raw(
    b'{"config_id":"edge","version":8,"targets":{"selector":"tier=web"},"strategy":"canary",'
    b'"canary":{"instances":"5%","duration":"10m","success_criteria":[{"metric":"error_rate","max":0.01},'
    b'{"metric":"latency_p99_ms","max_vs_baseline":1.5}]},"rolling":{"batch_size":"25%","batch_delay":"1m"}}'
)


def deployment_routes(handlers: DeploymentHandlers) -> list[Route]:
    """Return the routes of deployments."""
    return [*_reads(handlers), *_creations(handlers), *_actions(handlers)]


def _reads(handlers: DeploymentHandlers) -> list[Route]:
    return [
        Route(
            method=Method.GET,
            path=_DEPLOYMENTS,
            action=READ,
            handler=handlers.list,
            summary="List deployments",
            tag="deployments",
            query=DeploymentParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=DeploymentList),),
        ),
        Route(
            method=Method.GET,
            path=_ONE,
            action=READ,
            handler=handlers.get,
            summary="Read a deployment",
            description="What was asked for with all defaults, and how far it is.",
            tag="deployments",
            path_parameters=(_ID,),
            responses=(ResponseSpec(status=200, description="The deployment.", type=DeploymentDocument),),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{_ONE}/instances",
            action=READ,
            handler=handlers.instances,
            summary="List the targets of a deployment",
            tag="deployments",
            path_parameters=(_ID,),
            query=PageParameters,
            responses=(
                ResponseSpec(
                    status=200, description="A page, in the order of the plan.", type=DeploymentInstanceList
                ),
            ),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{_ONE}/events",
            action=READ,
            handler=handlers.events,
            summary="List what has happened in a deployment",
            description="To follow it as it happens, use `/api/v1/events`.",
            tag="deployments",
            path_parameters=(_ID,),
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, oldest first.", type=DeploymentEventList),),
            problems=(404,),
        ),
    ]


def _creations(handlers: DeploymentHandlers) -> list[Route]:
    return [
        Route(
            method=Method.POST,
            path=_DEPLOYMENTS,
            action=WRITE,
            handler=handlers.create,
            summary="Roll out a version, or plan to",
            description="The version is checked once more, with what the hub knows now: names that do not resolve,"
            " certificates that have expired and missing secrets refuse it. One deployment at a time has an"
            " instance; with `queue`, it waits for the others.",
            tag="deployments",
            headers=(idempotency.PARAMETER,),
            query=CreationParameters,
            body=Body(type=NewDeployment, example=_EXAMPLE),
            responses=(
                _CREATED,
                ResponseSpec(status=200, description="The plan, with `dry_run`.", type=PlanDocument),
            ),
            problems=(404, 409, 422),
            error_type=DeploymentProblem,
        ),
        Route(
            method=Method.POST,
            path=f"{_ONE}/retry",
            action=WRITE,
            handler=handlers.retry,
            summary="Try again what was unsuccessful",
            description="A new deployment of the same version over every target whose own attempt failed, was"
            " rejected or timed out, even if it was rolled back.",
            tag="deployments",
            path_parameters=(_ID,),
            headers=(idempotency.PARAMETER,),
            responses=(_CREATED,),
            problems=(404, 409, 422),
            error_type=DeploymentProblem,
        ),
    ]


def _actions(handlers: DeploymentHandlers) -> list[Route]:
    return [
        _action("pause", handlers.pause, "Pause a deployment", "No further batch starts; the current one ends."),
        _action(
            "resume",
            handlers.resume,
            "Resume a paused deployment",
            "Canaries that are watched are watched for a new duration.",
        ),
        _action(
            "promote",
            handlers.promote,
            "Trust the canaries",
            "Ends the watch over them, or the pause after one that was inconclusive.",
        ),
        _action(
            "abort",
            handlers.abort,
            "Abort a deployment",
            "Instances in flight finish, the others are skipped, and nothing is rolled back.",
        ),
        _action(
            "rollback",
            handlers.rollback,
            "Roll a deployment back",
            "Every instance that it has touched goes back to what that instance ran before. One that is running"
            " or paused is aborted first.",
        ),
    ]


def _action(name: str, handler: Handler, summary: str, description: str) -> Route:
    return Route(
        method=Method.POST,
        path=f"{_ONE}/{name}",
        action=WRITE,
        handler=handler,
        summary=summary,
        description=description,
        tag="deployments",
        path_parameters=(_ID,),
        responses=(ResponseSpec(status=202, description="As it is now.", type=DeploymentDocument),),
        problems=(404, 409),
    )
