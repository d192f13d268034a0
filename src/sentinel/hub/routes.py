"""The routes of the hub's REST API."""

from __future__ import annotations

from typing import Final

from sentinel.core.kdl import MAX_BYTES
from sentinel.hub.access import READ, SECRETS, WRITE
from sentinel.hub.http import ConfigHandlers, DeadLetterHandlers, InstanceHandlers, SecretHandlers
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.hub.schemas import (
    CheckDocument,
    ConfigDocument,
    ConfigList,
    DeadLetterList,
    DifferenceDocument,
    DiffParameters,
    InstanceList,
    InstanceParameters,
    MetricsList,
    MetricsParameters,
    NewAssignment,
    NewConfig,
    NewConfigVersion,
    NewValue,
    PageParameters,
    Reason,
    RefusedText,
    RefusedVersion,
    SecretDocument,
    SecretList,
    Text,
    VersionDocument,
    VersionList,
)
from sentinel.hub.secrets import MAX_VALUE_LENGTH
from sentinel.web.body import Body
from sentinel.web.routing import Method, Parameter, ResponseSpec, Route
from sentinel.web.server_sent_events import CONTENT_TYPE, LAST_EVENT_ID

ROOT: Final = "/api/v1"
TAGS: Final = {
    "configs": "Configurations of proxies, with immutable versions.",
    "instances": "Proxy instances and their agents.",
    "events": "What happens in the hub, as it happens.",
    "webhooks": "What webhooks did not take.",
    "secrets": "Values that configurations name. They are encrypted, and never shown.",
}
_TEXT_LIMIT: Final = 3 * MAX_BYTES
"""JSON escapes line breaks and quotes. The text itself may have `MAX_BYTES`, which its check says."""

_SECRET_LIMIT: Final = 12 * MAX_VALUE_LENGTH
"""JSON may escape every character."""

_SECRET = Parameter(name="name", description="The name of the secret.")
_DEAD_LETTER = Parameter(name="id", description="The id of the dead letter.")
_INSTANCE = Parameter(name="id", description="The id of the instance.")
_ID = Parameter(name="id", description="The id of the configuration.")
_VERSION = Parameter(name="version", description="The number of the version.")
_IF_MATCH = Parameter(name="If-Match", description="The ETag of the configuration that the version is based on.")
_NEW_VERSION_HEADERS = {"Location": "The path of the version."}


def instance_routes(handlers: InstanceHandlers) -> list[Route]:
    """Return the routes of instances and events."""
    one = f"{ROOT}/instances/{{id}}"
    return [
        Route(
            method=Method.GET,
            path=f"{ROOT}/instances",
            action=READ,
            handler=handlers.list,
            summary="List instances",
            tag="instances",
            query=InstanceParameters,
            responses=(ResponseSpec(status=200, description="A page, by id.", type=InstanceList),),
        ),
        Route(
            method=Method.GET,
            path=one,
            action=READ,
            handler=handlers.get,
            summary="Read an instance",
            tag="instances",
            path_parameters=(_INSTANCE,),
            responses=(ResponseSpec(status=200, description="The instance.", type=InstanceDocument),),
            problems=(404,),
        ),
        Route(
            method=Method.DELETE,
            path=one,
            action=WRITE,
            handler=handlers.remove,
            summary="Remove an instance",
            description="It drains first. One that is offline is removed at once.",
            tag="instances",
            path_parameters=(_INSTANCE,),
            responses=(ResponseSpec(status=202, description="Begun.", type=InstanceDocument),),
            problems=(404, 409),
        ),
        Route(
            method=Method.GET,
            path=f"{one}/metrics",
            action=READ,
            handler=handlers.metrics,
            summary="Read the metrics of an instance",
            description="At most 10,000 samples; go on with `since` as the time of the last one.",
            tag="instances",
            path_parameters=(_INSTANCE,),
            query=MetricsParameters,
            responses=(ResponseSpec(status=200, description="Samples, oldest first.", type=MetricsList),),
            problems=(404,),
        ),
        Route(
            method=Method.POST,
            path=f"{one}/drain",
            action=WRITE,
            handler=handlers.drain,
            summary="Drain an instance",
            description="It finishes its connections and leaves the fleet.",
            tag="instances",
            path_parameters=(_INSTANCE,),
            body=Body(type=Reason, is_required=False),
            responses=(ResponseSpec(status=202, description="Begun.", type=InstanceDocument),),
            problems=(404, 409),
        ),
        Route(
            method=Method.PUT,
            path=f"{one}/assignment",
            action=WRITE,
            handler=handlers.assign,
            summary="Assign a version to an instance",
            description="The instance takes it at once, without a deployment.",
            tag="instances",
            path_parameters=(_INSTANCE,),
            body=Body(type=NewAssignment),
            responses=(ResponseSpec(status=200, description="The instance.", type=InstanceDocument),),
            problems=(404, 409),
        ),
        Route(
            method=Method.DELETE,
            path=f"{one}/assignment",
            action=WRITE,
            handler=handlers.unassign,
            summary="Assign nothing to an instance",
            description="It goes on with what it runs.",
            tag="instances",
            path_parameters=(_INSTANCE,),
            responses=(ResponseSpec(status=200, description="The instance.", type=InstanceDocument),),
            problems=(404, 409),
        ),
        Route(
            method=Method.GET,
            path=f"{ROOT}/events",
            action=READ,
            handler=handlers.events,
            summary="Follow what happens",
            description="Server-sent events from now on, or after `Last-Event-ID`. Their types are"
            " `instance.state`, `config.version`, `deployment.state` and `deployment.instance`.",
            tag="events",
            headers=(LAST_EVENT_ID,),
            responses=(ResponseSpec(status=200, description="The events.", content_type=CONTENT_TYPE),),
            problems=(410,),
        ),
    ]


def config_routes(handlers: ConfigHandlers) -> list[Route]:
    """Return the routes of configurations."""
    one = f"{ROOT}/configs/{{id}}"
    version = f"{one}/versions/{{version}}"
    return [
        Route(
            method=Method.GET,
            path=f"{ROOT}/configs",
            action=READ,
            handler=handlers.list,
            summary="List configurations",
            tag="configs",
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, by id.", type=ConfigList),),
        ),
        Route(
            method=Method.POST,
            path=f"{ROOT}/configs",
            action=WRITE,
            handler=handlers.create,
            summary="Create a configuration",
            description="A text with errors of level 1 or 2 is refused. Nothing runs it until it is assigned.",
            tag="configs",
            body=Body(type=NewConfig, limit=_TEXT_LIMIT),
            responses=(
                ResponseSpec(
                    status=201,
                    description="Its first version.",
                    type=VersionDocument,
                    headers=_NEW_VERSION_HEADERS,
                ),
            ),
            problems=(409, 422),
            error_type=RefusedText,
        ),
        Route(
            method=Method.POST,
            path=f"{ROOT}/configs/validate",
            action=READ,
            handler=handlers.check,
            summary="Check a text",
            description="Finds every problem of all levels. Nothing is stored.",
            tag="configs",
            body=Body(type=Text, limit=_TEXT_LIMIT),
            responses=(ResponseSpec(status=200, description="What was found.", type=CheckDocument),),
        ),
        Route(
            method=Method.GET,
            path=one,
            action=READ,
            handler=handlers.get,
            summary="Read a configuration",
            tag="configs",
            path_parameters=(_ID,),
            responses=(
                ResponseSpec(
                    status=200,
                    description="The configuration.",
                    type=ConfigDocument,
                    headers={"ETag": "For If-Match of a new version."},
                ),
            ),
            problems=(404,),
        ),
        Route(
            method=Method.DELETE,
            path=one,
            action=WRITE,
            handler=handlers.remove,
            summary="Delete a configuration with its versions",
            description="Refused while one of them is assigned.",
            tag="configs",
            path_parameters=(_ID,),
            responses=(ResponseSpec(status=204, description="Deleted."),),
            problems=(404, 409),
        ),
        Route(
            method=Method.GET,
            path=f"{one}/versions",
            action=READ,
            handler=handlers.list_versions,
            summary="List the versions of a configuration",
            tag="configs",
            path_parameters=(_ID,),
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, newest first.", type=VersionList),),
            problems=(404,),
        ),
        Route(
            method=Method.POST,
            path=f"{one}/versions",
            action=WRITE,
            handler=handlers.add_version,
            summary="Add a version",
            description="A text with errors of level 1 or 2 is refused. Nothing runs it until it is assigned.",
            tag="configs",
            path_parameters=(_ID,),
            headers=(_IF_MATCH,),
            body=Body(type=NewConfigVersion, limit=_TEXT_LIMIT),
            responses=(
                ResponseSpec(
                    status=201, description="The version.", type=VersionDocument, headers=_NEW_VERSION_HEADERS
                ),
            ),
            problems=(404, 412, 422),
            error_type=RefusedVersion,
        ),
        Route(
            method=Method.GET,
            path=version,
            action=READ,
            handler=handlers.get_version,
            summary="Read a version",
            tag="configs",
            path_parameters=(_ID, _VERSION),
            responses=(ResponseSpec(status=200, description="The version.", type=VersionDocument),),
            problems=(404,),
        ),
        Route(
            method=Method.GET,
            path=f"{version}/diff",
            action=READ,
            handler=handlers.compare,
            summary="Compare a version with another",
            tag="configs",
            path_parameters=(_ID, _VERSION),
            query=DiffParameters,
            responses=(ResponseSpec(status=200, description="The difference.", type=DifferenceDocument),),
            problems=(404,),
        ),
    ]


def secret_routes(handlers: SecretHandlers) -> list[Route]:
    """Return the routes of secrets."""
    one = f"{ROOT}/secrets/{{name}}"
    return [
        Route(
            method=Method.GET,
            path=f"{ROOT}/secrets",
            action=SECRETS,
            handler=handlers.list,
            summary="List secrets",
            tag="secrets",
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, by name.", type=SecretList),),
        ),
        Route(
            method=Method.GET,
            path=one,
            action=SECRETS,
            handler=handlers.get,
            summary="Read when a secret was changed, and who uses it",
            tag="secrets",
            path_parameters=(_SECRET,),
            responses=(ResponseSpec(status=200, description="The secret.", type=SecretDocument),),
            problems=(404,),
        ),
        Route(
            method=Method.PUT,
            path=one,
            action=SECRETS,
            handler=handlers.put,
            summary="Store a secret",
            description="Instances whose assigned version names it get the new value. Refused without a key to"
            " encrypt it.",
            tag="secrets",
            path_parameters=(_SECRET,),
            body=Body(type=NewValue, limit=_SECRET_LIMIT),
            responses=(ResponseSpec(status=204, description="Stored."),),
            problems=(409,),
        ),
        Route(
            method=Method.DELETE,
            path=one,
            action=SECRETS,
            handler=handlers.remove,
            summary="Delete a secret",
            description="Instances that have it keep it. No version that names it can be deployed any more.",
            tag="secrets",
            path_parameters=(_SECRET,),
            responses=(ResponseSpec(status=204, description="Deleted."),),
            problems=(404,),
        ),
    ]


def webhook_routes(handlers: DeadLetterHandlers) -> list[Route]:
    """Return the routes of dead letters."""
    root = f"{ROOT}/webhooks/dead-letters"
    return [
        Route(
            method=Method.GET,
            path=root,
            action=READ,
            handler=handlers.list,
            summary="List dead letters",
            description="Events that a webhook did not take after all attempts.",
            tag="webhooks",
            query=PageParameters,
            responses=(ResponseSpec(status=200, description="A page, oldest first.", type=DeadLetterList),),
        ),
        Route(
            method=Method.POST,
            path=f"{root}/{{id}}/retry",
            action=WRITE,
            handler=handlers.retry,
            summary="Send a dead letter once more",
            description="It gets all attempts again.",
            tag="webhooks",
            path_parameters=(_DEAD_LETTER,),
            responses=(ResponseSpec(status=202, description="Begun."),),
            problems=(404,),
        ),
        Route(
            method=Method.DELETE,
            path=f"{root}/{{id}}",
            action=WRITE,
            handler=handlers.remove,
            summary="Delete a dead letter",
            tag="webhooks",
            path_parameters=(_DEAD_LETTER,),
            responses=(ResponseSpec(status=204, description="Deleted."),),
            problems=(404,),
        ),
    ]
