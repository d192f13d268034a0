"""The handlers of the hub's REST routes: they decode requests, call the use cases, and encode responses."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from sentinel.core.hub.versions import MAX_NUMBER, VersionName
from sentinel.hub import instance_documents
from sentinel.hub.configs import Configs, NewVersion
from sentinel.hub.dead_letters import DeadLetters
from sentinel.hub.event_streams import EventStreams
from sentinel.hub.instance_reads import InstanceReads
from sentinel.hub.instances import Instances
from sentinel.hub.schemas import (
    CheckDocument,
    ConfigDocument,
    ConfigList,
    DeadLetterDocument,
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
    SampleDocument,
    SecretDocument,
    SecretList,
    Text,
    VersionDocument,
    VersionList,
)
from sentinel.hub.secrets import Secrets
from sentinel.ports.hub_store import InstanceQuery, InstanceRecord
from sentinel.web import etag, lists, server_sent_events
from sentinel.web.errors import NotFound
from sentinel.web.etag import versioned_response
from sentinel.web.problem import shown
from sentinel.web.routing import Request, Response, Stream

_encode = msgspec.json.Encoder().encode


class InstanceHandlers:
    """Serves instances, and what happens to them."""

    def __init__(self, *, reads: InstanceReads, instances: Instances, streams: EventStreams) -> None:
        self._reads = reads
        self._instances = instances
        self._streams = streams

    async def list(self, request: Request) -> Response:
        parameters = request.query(InstanceParameters)
        selector = lists.parse_selector(parameters.labels)
        query = ("instances", parameters.labels, parameters.state)
        page = await self._reads.find(
            InstanceQuery(
                after=lists.text_position(parameters.after, query=query),
                limit=parameters.size,
                states=() if parameters.state is None else (parameters.state,),
                matches=selector.matches if selector else None,
            )
        )
        items = [instance_documents.document(each) for each in page.instances]
        following = None if page.is_last else lists.encode_cursor(items[-1].id, query=query)
        return Response(200, _encode(InstanceList(len(items), page.total, items, following)))

    async def get(self, request: Request) -> Response:
        return _instance(200, await self._reads.get(request.path["id"]))

    async def metrics(self, request: Request) -> Response:
        since = request.query(MetricsParameters).since
        samples = await self._reads.metrics(request.path["id"], since=since)
        return Response(200, _encode(MetricsList([SampleDocument.of(sample) for sample in samples])))

    async def assign(self, request: Request) -> Response:
        given = await request.decode(NewAssignment)
        version = VersionName(given.config_id, given.version)
        return _instance(200, await self._instances.assign(request.caller, request.path["id"], version))

    async def unassign(self, request: Request) -> Response:
        return _instance(200, await self._instances.unassign(request.caller, request.path["id"]))

    async def drain(self, request: Request) -> Response:
        given = await request.decode(Reason)
        return _instance(202, await self._instances.drain(request.caller, request.path["id"], given.reason))

    async def remove(self, request: Request) -> Response:
        return _instance(202, await self._instances.remove(request.caller, request.path["id"]))

    async def events(self, request: Request) -> Stream:
        last_event_id = server_sent_events.last_event_id(request)
        return await self._streams.open(last_event_id=last_event_id, credential=request.credential)


class ConfigHandlers:
    """Serves configurations and their versions."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs

    async def list(self, request: Request) -> Response:
        parameters = request.query(PageParameters)
        after = lists.text_position(parameters.after, query="configs")
        found, total = await self._configs.find(after=after, limit=parameters.size + 1)
        page, following = lists.cut_page(found, parameters.size, lambda each: each.config.id, query="configs")
        items = [ConfigDocument.of(each.config, assigned=each.assigned) for each in page]
        return Response(200, _encode(ConfigList(len(items), total, items, following)))

    async def create(self, request: Request) -> Response:
        given = await request.decode(NewConfig)
        new = NewVersion(content=given.content, change_summary=given.change_summary)
        version = await self._configs.create(request.caller, given.id, new)
        location = {"Location": f"/api/v1/configs/{version.config_id}/versions/{version.version}"}
        return Response(201, _encode(VersionDocument.of(version)), location)

    async def get(self, request: Request) -> Response:
        found = await self._configs.get(request.path["id"])
        document = ConfigDocument.of(found.config, assigned=found.assigned)
        return versioned_response(200, _encode(document), version=found.config.latest_version)

    async def remove(self, request: Request) -> Response:
        await self._configs.remove(request.caller, request.path["id"])
        return Response(204)

    async def list_versions(self, request: Request) -> Response:
        parameters = request.query(PageParameters)
        config_id = request.path["id"]
        query = ("versions", config_id)
        before = lists.decode_cursor(parameters.after, int, query=query) if parameters.after else None
        total = (await self._configs.get(config_id)).config.latest_version
        found = await self._configs.versions(config_id, before=before, limit=parameters.size + 1)
        page, following = lists.cut_page(found, parameters.size, lambda each: each.version, query=query)
        items = [VersionDocument.of(each, has_content=False) for each in page]
        return Response(200, _encode(VersionList(len(items), total, items, following)))

    async def add_version(self, request: Request) -> Response:
        if_match = etag.parse(request.header("If-Match"), name="If-Match")
        given = await request.decode(NewConfigVersion)
        new = NewVersion(
            content=None if given.content is UNSET else given.content,
            copy_of=None if given.copy_of is UNSET else given.copy_of,
            change_summary=given.change_summary,
        )
        version = await self._configs.add_version(request.caller, request.path["id"], new, if_match=if_match)
        location = {"Location": f"/api/v1/configs/{version.config_id}/versions/{version.version}"}
        return versioned_response(
            201, _encode(VersionDocument.of(version)), version=version.version, headers=location
        )

    async def get_version(self, request: Request) -> Response:
        version = await self._configs.version(request.path["id"], _number(request))
        return Response(200, _encode(VersionDocument.of(version)))

    async def compare(self, request: Request) -> Response:
        base = request.query(DiffParameters).base
        found = await self._configs.compare(request.path["id"], _number(request), base=base)
        return Response(200, _encode(DifferenceDocument(found.diff, found.restart_required)))

    async def check(self, request: Request) -> Response:
        given = await request.decode(Text)
        report = await self._configs.check(given.content)
        return Response(200, _encode(CheckDocument(report.is_valid, report.problems)))


class SecretHandlers:
    """Serves secrets without their values."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def list(self, request: Request) -> Response:
        parameters = request.query(PageParameters)
        after = lists.text_position(parameters.after, query="secrets")
        found, total = await self._secrets.find(after=after, limit=parameters.size + 1)
        page, following = lists.cut_page(found, parameters.size, lambda each: each.secret.name, query="secrets")
        items = [SecretDocument.of(each) for each in page]
        return Response(200, _encode(SecretList(len(items), total, items, following)))

    async def get(self, request: Request) -> Response:
        return Response(200, _encode(SecretDocument.of(await self._secrets.get(request.path["name"]))))

    async def put(self, request: Request) -> Response:
        given = await request.decode(NewValue)
        await self._secrets.put(request.caller, request.path["name"], given.value)
        return Response(204)

    async def remove(self, request: Request) -> Response:
        await self._secrets.remove(request.caller, request.path["name"])
        return Response(204)


class DeadLetterHandlers:
    """Serves what webhooks did not take."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters

    async def list(self, request: Request) -> Response:
        parameters = request.query(PageParameters)
        query = "dead-letters"
        after = lists.decode_cursor(parameters.after, int, query=query) if parameters.after else 0
        found, total = await self._dead_letters.find(after=after, limit=parameters.size + 1)
        page, following = lists.cut_page(found, parameters.size, lambda each: each.id, query=query)
        items = [DeadLetterDocument.of(each) for each in page]
        return Response(200, _encode(DeadLetterList(len(items), total, items, following)))

    async def retry(self, request: Request) -> Response:
        await self._dead_letters.retry(request.caller, request.path["id"])
        return Response(202)

    async def remove(self, request: Request) -> Response:
        await self._dead_letters.remove(request.caller, request.path["id"])
        return Response(204)


def _instance(status: int, record: InstanceRecord) -> Response:
    return Response(status, _encode(instance_documents.document(record)))


def _number(request: Request) -> int:
    text = request.path["version"]
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MAX_NUMBER)):
        raise NotFound(f"there is no version {shown(text)} of the configuration {shown(request.path['id'])}")
    return int(text)
