"""A client of the fleet API: resources by kind and by id, page by page, and what they wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar

import msgspec

from sentinel.api.schemas import KindList, StatusList, WaitingList
from sentinel.cli.client.connection import ServerConnection
from sentinel.core.fleet.documents import AdapterStatus, KindRules, ResourceDocument
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.core.json import DECODE_ERRORS
from sentinel.core.problem_codes import Code
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.drivers.rest.responses import RestResponse
from sentinel.drivers.rest.url import segment
from sentinel.ports.fleet_stream import FleetStream
from sentinel.runtime.settings.report import closest_match

T = TypeVar("T")

MAX_PAGE_SIZE = "1000"

_MAX_PAGES = 100_000
"""Protects against a server whose list never ends."""


class FetchedDocument(msgspec.Struct, frozen=True):
    """A resource, decoded and as received."""

    document: ResourceDocument
    body: bytes
    etag: str

    @property
    def plural(self) -> str:
        """The plural of its kind, taken from its path."""
        return self.document.href.rsplit("/", 2)[-2]

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.plural}/{self.document.id}"


class ListPage(msgspec.Struct, frozen=True):
    """A page of a list, its items still encoded."""

    items: Sequence[msgspec.Raw]
    total: int
    next: str | None = None


class FleetClient:
    """The operations of the fleet API. Every method raises `ServerError`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._kinds: tuple[KindRules, ...] | None = None

    async def kinds(self) -> tuple[KindRules, ...]:
        """Return the kinds that the server serves; fetched once."""
        if self._kinds is None:
            self._kinds = tuple(decode((await self._request("GET", "kinds")).body, KindList).items)
        return self._kinds

    async def kind(self, plural: str) -> KindRules:
        """Return the kind with this plural; an unknown one requires no adapters."""
        return next((kind for kind in await self.kinds() if kind.plural == plural), KindRules(plural, plural))

    async def list_page(self, plural: str, query: Mapping[str, str], *, parent: str = "") -> bytes:
        """Return one page of a list, still encoded."""
        path = segment(plural)
        if parent:
            path = f"{(await self.kind(plural)).parent}/{segment(parent)}/{path}"
        return (await self._request("GET", path, plural=plural, query=query)).body

    async def list_all(
        self, plural: str, query: Mapping[str, str], *, parent: str = ""
    ) -> AsyncIterator[msgspec.Raw]:
        """Yield every resource of a list, page after page, each still encoded."""
        after: str | None = ""
        for _ in range(_MAX_PAGES):
            page_query = {"size": MAX_PAGE_SIZE, **query, "after": after or ""}
            page = decode(await self.list_page(plural, page_query, parent=parent), ListPage)
            for item in page.items:
                yield item
            after = page.next
            if after is None:
                return
        raise ServerError(f"{plural}: expected at most {_MAX_PAGES} pages, got more")

    def stream(self, plural: str, query: Mapping[str, str]) -> FleetStream | None:
        """Return the stream of a list, or None if the query asks for more than streams can do."""
        if any(value for name, value in query.items() if name not in ("labels", "fields")):
            return None
        return self._connection.stream(plural, labels=query.get("labels", ""), fields=query.get("fields", ""))

    def stream_of(self, plural: str, resource_id: str) -> FleetStream:
        """Return the stream of one resource."""
        return self._connection.stream(plural, resource_id)

    async def get(self, plural: str, resource_id: str) -> FetchedDocument:
        """Return the resource of this kind; `resources` stands for any kind."""
        return _decode_document(await self._request("GET", _path(plural, resource_id), plural=plural))

    async def find(self, resource_id: str) -> FetchedDocument:
        """Return the resource, whatever its kind."""
        return await self.get("resources", resource_id)

    async def get_if_changed(self, plural: str, resource_id: str, etag: str) -> FetchedDocument | None:
        """Return the resource, or None if it still has this ETag."""
        headers = {"If-None-Match": etag} if etag else {}
        response = await self._request("GET", _path(plural, resource_id), plural=plural, headers=headers)
        return _decode_document(response) if response.body else None

    async def find_or_none(self, resource_id: str) -> FetchedDocument | None:
        """Return the resource, whatever its kind, or None if it does not exist."""
        return await self.get_or_none("resources", resource_id)

    async def get_or_none(self, plural: str, resource_id: str) -> FetchedDocument | None:
        """Return the resource of this kind, or None if it does not exist."""
        try:
            return await self.get(plural, resource_id)
        except RequestRejected as rejected:
            if is_not_found(rejected):
                return None
            raise

    async def waiting(self, resource_id: str) -> WaitingList:
        """Return what the resource waits for."""
        response = await self._request("GET", f"{_path('resources', resource_id)}/waiting")
        return decode(response.body, WaitingList)

    async def statuses(self, resource: FetchedDocument) -> tuple[AdapterStatus, ...]:
        """Return the latest report of each adapter."""
        response = await self._connection.request(
            "GET", f"{resource.document.href}/statuses", query={"size": MAX_PAGE_SIZE}
        )
        return tuple(decode(response.body, StatusList).items)

    async def create(self, plural: str, body: object) -> FetchedDocument:
        """Create a resource."""
        return _decode_document(await self._request("POST", segment(plural), plural=plural, body=body))

    async def patch(self, plural: str, resource_id: str, body: object, *, etag: str = "") -> FetchedDocument:
        """Apply a merge patch; with an ETag, only if the resource still has it."""
        headers = {"If-Match": etag} if etag else {}
        path = _path(plural, resource_id)
        return _decode_document(await self._request("PATCH", path, plural=plural, body=body, headers=headers))

    async def delete(self, plural: str, resource_id: str) -> FetchedDocument:
        """Start deleting the resource; return it as it is now."""
        return _decode_document(await self._request("DELETE", _path(plural, resource_id), plural=plural))

    async def post_action(self, resource: FetchedDocument, action: str) -> FetchedDocument:
        """Post `pulse`, `pause` or `resume`; return the resource as it is now."""
        path = f"{resource.plural}/{segment(resource.document.id)}/{action}"
        return _decode_document(await self._request("POST", path))

    async def _request(
        self,
        method: str,
        path: str,
        *,
        plural: str = "",
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> RestResponse:
        fields = dict(headers or {})
        content = None
        if body is not None:
            fields["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
            content = msgspec.json.encode(body)
        try:
            return await self._connection.request(
                method, f"{API_ROOT}/{path}", query=query, body=content, headers=fields
            )
        except RequestRejected as rejected:
            if plural and rejected.code == Code.NO_ROUTE:
                raise await self._unknown_plural(plural, rejected) from rejected
            raise

    async def _unknown_plural(self, plural: str, rejected: RequestRejected) -> RequestRejected:
        """Replace the message with one that lists the plurals that the server has."""
        try:
            kinds = await self.kinds()
        except ServerError:
            return rejected
        known = [kind.plural for kind in kinds]
        if plural in known:
            return rejected
        # The kind's name is the most common mistake, and may differ a lot from the plural.
        suggestion = next((kind.plural for kind in kinds if kind.kind.lower() == plural.lower()), None)
        suggestion = suggestion or closest_match(plural, known)
        did_you_mean = f" Did you mean {suggestion}?" if suggestion else ""
        text = f'the server has no "{plural}".{did_you_mean} It has {", ".join(known)}'
        return RequestRejected(text, rejected.response)


def is_not_found(rejected: RequestRejected) -> bool:
    """Whether the resource does not exist, as opposed to the URL being wrong."""
    return rejected.status == HTTPStatus.NOT_FOUND and rejected.code != Code.NO_ROUTE


def decode(encoded: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Decode a response or a part of one; raises `ServerError` if it is not of this type."""
    try:
        return msgspec.json.decode(encoded, type=type_)
    except DECODE_ERRORS as error:
        raise ServerError(f"expected a response of a fleet API, got something else: {error}") from error


def _decode_document(response: RestResponse) -> FetchedDocument:
    document = decode(response.body, ResourceDocument)
    if document.href.count("/") < 2:
        raise ServerError("expected a response of a fleet API, got something else: href: expected a path")
    return FetchedDocument(document, response.body, response.etag)


def _path(plural: str, resource_id: str) -> str:
    return f"{segment(plural)}/{segment(resource_id)}"
