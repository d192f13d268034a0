"""Requests to the API server, and what their paths mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube.errors import ApiError

_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_COLLECTION_VERBS = {"POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class ApiRequest(msgspec.Struct, frozen=True):
    """An HTTP request."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    """Headers with names in lower case."""
    body: bytes = b""
    certificate_subject: Mapping[str, Sequence[str]] = {}
    """The subject of the client certificate, such as `{"commonName": ["admin"]}`."""

    @property
    def content_type(self) -> str:
        """The content type without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def flag(self, name: str) -> bool:
        """Whether a parameter is set."""
        return self.query.get(name, "") in ("true", "1")

    def number(self, name: str) -> int:
        """Return a parameter as a number; 0 if it is absent. Raises `ApiError`."""
        value = self.query.get(name) or "0"
        if not (value.isascii() and value.isdigit()):
            raise ApiError.bad_request(f'{name}: Invalid value: "{value}": expected a number')
        return int(value)

    def json(self) -> Json:
        """Return the decoded body. Raises `ApiError`."""
        try:
            decoded: Json = msgspec.json.decode(self.body)
        except DECODE_ERRORS as error:
            raise ApiError.bad_request(f"error decoding JSON: {error}") from error
        return decoded

    def object(self) -> KubeObject:
        """Return the body if it is a JSON object. Raises `ApiError`."""
        decoded = self.json()
        if not isinstance(decoded, dict):
            raise ApiError.bad_request("error decoding JSON: expected an object")
        return decoded


class ApiResponse(msgspec.Struct, frozen=True):
    """A complete response."""

    status: int
    body: KubeObject | str
    headers: Mapping[str, str] = {}


class StreamedResponse(msgspec.Struct, frozen=True):
    """A response to a watch: 200, and lines as they come."""

    lines: AsyncIterator[bytes]
    status: int = HTTPStatus.OK


class Target(msgspec.Struct, frozen=True):
    """What a request is about, as authorization and the request log name it."""

    verb: str
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def is_resource(self) -> bool:
        """Whether the path is one of objects, rather than of the server itself."""
        return bool(self.plural)


def target_of(request: ApiRequest) -> Target:
    """Read the path of a request. Raises `ApiError` if it cannot be one of objects nor of the server."""
    segments = request.path.strip("/").split("/")
    match segments:
        case ["api", version, *rest] if rest:
            return _resource_target(request, "", version, rest)
        case ["apis", group, version, *rest] if rest:
            return _resource_target(request, group, version, rest)
        case _:
            return Target(request.method.lower())


def _resource_target(request: ApiRequest, group: str, version: str, segments: Sequence[str]) -> Target:
    namespace = ""
    if segments[0] == "namespaces" and len(segments) > 1:
        namespace = segments[1]
        if len(segments) > 2 and segments[2] not in _NAMESPACE_SUBRESOURCES:
            segments = segments[2:]
        else:
            namespace = ""
    plural, name, subresource, *excess = (*segments, "", "", "")[: max(len(segments), 3)]
    if excess or "" in segments:
        raise ApiError.no_such_path()
    return Target(_verb(request, has_name=bool(name)), group, version, plural, namespace, name, subresource)


def _verb(request: ApiRequest, *, has_name: bool) -> str:
    if request.method == "GET" and request.flag("watch"):
        return "watch"
    if request.method == "GET" and not has_name:
        return "list"
    verbs = _OBJECT_VERBS if has_name else _COLLECTION_VERBS
    verb = verbs.get(request.method)
    if verb is None:
        raise ApiError.method_not_allowed(None, request.method)
    return verb
