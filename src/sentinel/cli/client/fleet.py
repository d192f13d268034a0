"""A fleet API as its users see it: resources by kind and by id, in pages, with what they wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
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
from sentinel.runtime.settings.report import closest_match

T = TypeVar("T")

LARGEST_PAGE = "1000"

_NOT_FOUND = 404
_MOST_PAGES = 100_000
"""A list that has more does not end."""


class FetchedDocument(msgspec.Struct, frozen=True):
    """A resource, decoded and as it came."""

    document: ResourceDocument
    body: bytes
    etag: str

    @property
    def plural(self) -> str:
        """The plural of its kind, which its own address tells."""
        return self.document.href.rsplit("/", 2)[-2]

    @property
    def title(self) -> str:
        """How a message names it."""
        return f"{self.plural}/{self.document.id}"


class ListPage(msgspec.Struct, frozen=True):
    """A page of a list, its items still encoded."""

    items: Sequence[msgspec.Raw]
    total: int
    next: str | None = None


class FleetClient:
    """What can be asked of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._kinds: tuple[KindRules, ...] | None = None

    async def kinds(self) -> tuple[KindRules, ...]:
        """The kinds that the server serves; asked for once."""
        if self._kinds is None:
            self._kinds = tuple(read((await self._ask("GET", "kinds")).body, KindList).items)
        return self._kinds

    async def kind(self, plural: str) -> KindRules:
        """The kind with this plural; one that the server does not tell of requires nothing."""
        return next((kind for kind in await self.kinds() if kind.plural == plural), KindRules(plural, plural))

    async def page(self, plural: str, query: Mapping[str, str], *, parent: str = "") -> bytes:
        """One page of a list, as it came."""
        path = segment(plural)
        if parent:
            path = f"{(await self.kind(plural)).parent}/{segment(parent)}/{path}"
        return (await self._ask("GET", path, plural=plural, query=query)).body

    async def walk(self, plural: str, query: Mapping[str, str], *, parent: str = "") -> AsyncIterator[msgspec.Raw]:
        """Every resource of a list, page after page, each still encoded."""
        after: str | None = ""
        for _ in range(_MOST_PAGES):
            asked = {"size": LARGEST_PAGE, **query, "after": after or ""}
            page = read(await self.page(plural, asked, parent=parent), ListPage)
            for item in page.items:
                yield item
            after = page.next
            if after is None:
                return
        raise ServerError(f"{plural}: expected a list that ends, got {_MOST_PAGES} pages of it")

    async def get(self, plural: str, resource_id: str) -> FetchedDocument:
        """The resource of this kind; `resources` for whichever kind."""
        return _fetched(await self._ask("GET", f"{segment(plural)}/{segment(resource_id)}", plural=plural))

    async def find(self, resource_id: str) -> FetchedDocument:
        """The resource, whatever its kind."""
        return await self.get("resources", resource_id)

    async def get_unless(self, plural: str, resource_id: str, etag: str) -> FetchedDocument | None:
        """The resource, or None where it is still what has this ETag."""
        path = f"{segment(plural)}/{segment(resource_id)}"
        answer = await self._ask("GET", path, plural=plural, headers={"If-None-Match": etag} if etag else {})
        return None if not answer.body else _fetched(answer)

    async def is_gone(self, resource_id: str) -> bool:
        """Whether there is no such resource any longer."""
        try:
            await self.find(resource_id)
        except RequestRejected as refused:
            if is_missing(refused):
                return True
            raise
        return False

    async def waiting(self, resource_id: str) -> WaitingList:
        """What the resource waits for."""
        return read((await self._ask("GET", f"resources/{segment(resource_id)}/waiting")).body, WaitingList)

    async def statuses(self, resource: FetchedDocument) -> tuple[AdapterStatus, ...]:
        """The latest report of each adapter."""
        answer = await self._connection.ask(
            "GET", f"{resource.document.href}/statuses", query={"size": LARGEST_PAGE}
        )
        return tuple(read(answer.body, StatusList).items)

    async def create(self, plural: str, body: object) -> FetchedDocument:
        """A new resource."""
        return _fetched(await self._ask("POST", segment(plural), plural=plural, body=body))

    async def patch(self, plural: str, resource_id: str, body: object, *, etag: str = "") -> FetchedDocument:
        """The resource with a merge patch applied, if it is still what has this ETag."""
        return _fetched(
            await self._ask(
                "PATCH",
                f"{segment(plural)}/{segment(resource_id)}",
                plural=plural,
                body=body,
                headers={"If-Match": etag} if etag else {},
            )
        )

    async def delete(self, plural: str, resource_id: str) -> FetchedDocument:
        """The resource, on its way out."""
        return _fetched(await self._ask("DELETE", f"{segment(plural)}/{segment(resource_id)}", plural=plural))

    async def mark(self, resource: FetchedDocument, verb: str) -> FetchedDocument:
        """The resource after `pulse`, `pause` or `resume`."""
        return _fetched(await self._ask("POST", f"{resource.plural}/{segment(resource.document.id)}/{verb}"))

    async def _ask(
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
            return await self._connection.ask(
                method, f"{API_ROOT}/{path}", query=query, body=content, headers=fields
            )
        except RequestRejected as refused:
            if plural and refused.code == Code.NO_ROUTE:
                raise await self._unknown(plural, refused) from refused
            raise

    async def _unknown(self, plural: str, refused: RequestRejected) -> RequestRejected:
        """The refusal of a plural that the server does not know, with those that it does."""
        try:
            kinds = await self.kinds()
        except ServerError:
            return refused
        known = [kind.plural for kind in kinds]
        if plural in known:
            return refused
        # A kind's own name is the likeliest slip of all, and not always near its plural.
        near = next((kind.plural for kind in kinds if kind.kind.lower() == plural.lower()), None)
        near = near or closest_match(plural, known)
        meant = f" Did you mean {near}?" if near else ""
        text = f'the server has no "{plural}".{meant} It has {", ".join(known)}'
        return RequestRejected(text, refused.response)


def is_missing(refused: RequestRejected) -> bool:
    """Whether this says that a resource is not there, as opposed to the URL being wrong."""
    return refused.status == _NOT_FOUND and refused.code != Code.NO_ROUTE


def _fetched(answer: RestResponse) -> FetchedDocument:
    document = read(answer.body, ResourceDocument)
    if document.href.count("/") < 2:
        raise ServerError("the server's answer is not what a fleet API says: href: expected a path")
    return FetchedDocument(document, answer.body, answer.etag)


def read(encoded: bytes | msgspec.Raw, type_: type[T]) -> T:
    """What an answer, or a part of one, says; raises `ServerError` where it is none of a fleet API."""
    try:
        return msgspec.json.decode(encoded, type=type_)
    except DECODE_ERRORS as error:
        raise ServerError(f"the server's answer is not what a fleet API says: {error}") from error
