"""`ports.kube.KubeApi` on an authenticated connection. Objects are decoded to plain JSON and nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus
from typing import Unpack

from sentinel.core.json import Json, Malformed
from sentinel.drivers.kube import status
from sentinel.drivers.kube.connection import JSON, ApiConnection
from sentinel.drivers.kube.decoding import decode_event, decode_list, decode_object
from sentinel.drivers.kube.status import Status
from sentinel.drivers.rest.url import InvalidSegment, query, segment
from sentinel.ports.kube import (
    ApplyOptions,
    InvalidObject,
    KubeApi,
    KubeKind,
    KubeObject,
    ListChunk,
    ListOptions,
    PatchOptions,
    WatchEvent,
)

WATCH_TIMEOUT = timedelta(seconds=290)
"""After this the server ends a watch, before load balancers do."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"


class KubeClient(KubeApi):
    """A client of one API server; see `ports.kube.KubeApi`."""

    def __init__(self, connection: ApiConnection, *, watch_timeout: timedelta = WATCH_TIMEOUT) -> None:
        """The server ends a watch after `watch_timeout`."""
        self._connection = connection
        self._watch_timeout = watch_timeout

    async def get(self, kind: KubeKind, name: str, *, namespace: str = "") -> KubeObject:
        return await self._call("GET", _path(kind, namespace, name))

    async def list(
        self, kind: KubeKind, *, chunk_size: int = 500, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[ListChunk, None]:
        path = _path(kind, options.get("namespace", ""))
        parameters = {**_selectors(options), "limit": str(chunk_size) if chunk_size > 0 else ""}
        token = ""
        while True:
            body = await self._connection.send("GET", f"{path}{query({**parameters, 'continue': token})}")
            try:
                chunk, token = decode_list(body, kind)
            except Malformed as error:
                raise self._connection.unavailable(error) from None
            yield chunk
            if not token:
                return

    async def watch(
        self, kind: KubeKind, *, resource_version: str, **options: Unpack[ListOptions]
    ) -> AsyncGenerator[WatchEvent, None]:
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(self._watch_timeout.total_seconds())),
            "resourceVersion": resource_version,
            **_selectors(options),
        }
        path = f"{_path(kind, options.get('namespace', ''))}{query(parameters)}"
        async with aclosing(self._connection.stream(path)) as lines:
            async for line in lines:
                event = self._event(line)
                if event is not None:
                    yield event
                del line, event  # an object may take megabytes: release it before the next one is read

    async def create(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", is_dry_run: bool = False
    ) -> KubeObject:
        parameters = {"fieldValidation": "Strict", "dryRun": "All" if is_dry_run else ""}
        return await self._call("POST", f"{_path(kind, namespace)}{query(parameters)}", body=body)

    async def replace(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", subresource: str = ""
    ) -> KubeObject:
        return await self._call("PUT", _path(kind, namespace, _name(body), subresource), body=body)

    async def apply(self, kind: KubeKind, body: KubeObject, **options: Unpack[ApplyOptions]) -> KubeObject:
        parameters = {
            "fieldManager": options["field_manager"],
            "fieldValidation": "Strict",
            "force": "true" if options.get("is_forced") else "",
            "dryRun": "All" if options.get("is_dry_run") else "",
        }
        path = _path(kind, options.get("namespace", ""), _name(body), options.get("subresource", ""))
        return await self._call("PATCH", f"{path}{query(parameters)}", body=body, content_type=_APPLY)

    async def merge_patch(
        self, kind: KubeKind, name: str, patch: Mapping[str, Json], **options: Unpack[PatchOptions]
    ) -> KubeObject:
        return await self._call("PATCH", _patched(kind, name, options), body=patch, content_type=_MERGE_PATCH)

    async def json_patch(
        self, kind: KubeKind, name: str, patch: Sequence[Mapping[str, Json]], **options: Unpack[PatchOptions]
    ) -> KubeObject:
        return await self._call("PATCH", _patched(kind, name, options), body=patch, content_type=_JSON_PATCH)

    async def delete(
        self, kind: KubeKind, name: str, *, namespace: str = "", uid: str = "", resource_version: str = ""
    ) -> None:
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        await self._connection.send("DELETE", _path(kind, namespace, name), body=options)

    async def close(self) -> None:
        await self._connection.close()

    async def _call(self, method: str, path: str, *, body: object = None, content_type: str = JSON) -> KubeObject:
        """Send a request and return the object in the response."""
        content = await self._connection.send(method, path, body=body, content_type=content_type)
        try:
            return decode_object(content)
        except Malformed as error:
            raise self._connection.unavailable(error) from None

    def _event(self, line: bytes) -> WatchEvent | None:
        """Return the event of a line, if it has one. Raises the error that it reports."""
        try:
            event = decode_event(line)
        except Malformed as error:
            raise self._connection.unavailable(error) from None
        if isinstance(event, Status):
            raise status.reported(event, self._connection.redact)
        return event


def _path(kind: KubeKind, namespace: str = "", name: str | None = None, subresource: str = "") -> str:
    """The path of an object, or of all objects if `name` is None."""
    parts = ["apis", kind.group] if kind.group else ["api"]
    parts.append(kind.version)
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(kind.plural)
    if name is not None:
        parts.append(name)
    if subresource:
        parts.append(subresource)
    try:
        return "/" + "/".join(map(segment, parts))
    except InvalidSegment as error:
        raise InvalidObject(str(error), status=HTTPStatus.BAD_REQUEST, reason="BadRequest") from None


def _selectors(options: ListOptions) -> dict[str, str]:
    return {
        "labelSelector": options.get("label_selector", ""),
        "fieldSelector": options.get("field_selector", ""),
    }


def _patched(kind: KubeKind, name: str, options: PatchOptions) -> str:
    path = _path(kind, options.get("namespace", ""), name, options.get("subresource", ""))
    return f"{path}{query({'fieldManager': options.get('field_manager', '')})}"


def _name(body: KubeObject) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
