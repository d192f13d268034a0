"""Walk a paginated list to its end.

Servers return numbered pages with a total, cursor pages, or one bare list. The list changes during the walk: an
insert between two pages repeats resources, a deletion moves resources back across the page boundary, totals are
counted apart from the items, and a response may lack items. This module handles that without I/O: `decode_page`
turns a body into a `DecodedPage`, and `advance` takes it at a `Position` of the walk and returns the new resources
and the next position. A list ends only when the server says so, never because a page is short.

Items are decoded in one pass, and only the fields that a decision needs. A page is split into documents when a
whole document is needed. Decoding item by item costs half as much again, so it is used only for pages with a
malformed item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Generic, TypeVar, assert_never

import msgspec

from sentinel.core.deferred import DeferredSequence
from sentinel.core.json import DECODE_ERRORS, Malformed
from sentinel.core.pulse.observation import (
    CompleteResource,
    FetchedResource,
    MalformedItem,
    Observation,
    WireResource,
    complete_observation,
    malformed_item,
    observation,
    observe,
    plain_observation,
)

T = TypeVar("T")

MAX_GROWTH = 10_000
"""A list counts as endless if it returns more than twice its first total plus this many items."""
MAX_UNCOUNTED = 10_000_000
"""How many items a list without a total may return."""


class PageShape(StrEnum):
    """The shape of a response."""

    WHOLE = "whole"
    """A bare list of all items, whichever page was requested."""
    NUMBERED = "numbered"
    """Items and a total. The next page is requested by its number."""
    CURSOR = "cursor"
    """Items and `next`, the cursor of the next page. Null ends the list."""


class BadPage(ValueError):
    """A response that cannot be used. A retry may help."""


class ShortPage(BadPage):
    """A page with fewer items than its total promises."""

    def __init__(self, message: str, *, count: int) -> None:
        super().__init__(message)
        self.count = count


class NeedsAllFields(BadPage):
    """A page with an item that is not plain, although only the fields of plain items were requested."""


class EndlessList(ValueError):
    """A list that would never end. Do not retry."""


class PageIds:
    """The ids of the resources of a page, with a fingerprint that is equal for the same number of the same ids.

    It is as safe as the hash of a body; see `known_pages`.
    """

    __slots__ = ("_ids", "_resources", "fingerprint")

    def __init__(self, resources: Sequence[FetchedResource], fingerprint: int | None = None) -> None:
        """With a fingerprint, the resources are read only when the ids are."""
        self._ids: frozenset[str] | None = None
        self._resources = resources
        self.fingerprint = hash((len(resources), self.all)) if fingerprint is None else fingerprint

    @property
    def all(self) -> frozenset[str]:
        if self._ids is None:
            self._ids = frozenset([resource.observation.id for resource in self._resources])
            self._resources = ()  # each holds its page in memory
        return self._ids


NO_IDS = PageIds(())


class DecodedPage(msgspec.Struct, frozen=True):
    """One response, whichever shape it had."""

    shape: PageShape
    count: int
    """The number of items, malformed ones included."""
    resources: Sequence[FetchedResource]
    ids: PageIds
    malformed: Sequence[MalformedItem] = ()
    """The malformed items, each with its index."""
    total: int | None = None
    page: object = None
    """The page number that the server wrote. It is only compared, so it may be any JSON."""
    next: str = ""
    """The cursor of the next page; empty if there is none."""
    is_plain: bool = False
    """Whether every item is plain; see `observation.plain_observation`."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a walk: which page to request, and what is needed to check the response."""

    size: int
    """The page size to request."""
    number: int = 1
    """The page to request. With a cursor it only counts pages."""
    after: str = ""
    """The cursor to request; empty to request by number."""
    page_size: int = 0
    """The number of items in a full page of this server."""
    total: int = 0
    seen: int = 0
    max_items: int = MAX_UNCOUNTED
    """How many items may be seen before the list counts as endless."""
    highest_page: int = 0
    """While a page is read a second time, the highest page that has been read; otherwise 0."""
    checkpoint: str = ""
    """An earlier cursor. If it comes again, the walk is in a cycle."""
    recent: tuple[PageIds, PageIds] = (NO_IDS, NO_IDS)
    """The ids of the last two pages."""
    is_plain: bool = False
    """Whether every item so far was plain, so only the fields of plain items are requested."""

    @property
    def recent_fingerprints(self) -> tuple[int, int]:
        earlier, latest = self.recent
        return earlier.fingerprint, latest.fingerprint


class NextPage(msgspec.Struct, frozen=True):
    """The result of one page of the walk."""

    new_resources: Sequence[FetchedResource]
    """The resources of the page, without those of the two pages before it."""
    next_position: Position | None
    """Where the walk continues; None at the end of the list."""
    ended_early_at: int | None = None
    """The number of items seen, if a cursor ended before the total it began with. Only a new total can tell
    whether the rest was deleted meanwhile or is missing."""


class _Envelope(msgspec.Struct, Generic[T], gc=False):
    items: list[T] | None  # Go writes a nil slice as null
    total: int | None = None
    page: object = None
    next: str | None | msgspec.UnsetType = msgspec.UNSET


_observed: msgspec.json.Decoder[_Envelope[WireResource] | list[WireResource]] = msgspec.json.Decoder(
    _Envelope[WireResource] | list[WireResource]
)
_completed: msgspec.json.Decoder[_Envelope[CompleteResource] | list[CompleteResource]] = msgspec.json.Decoder(
    _Envelope[CompleteResource] | list[CompleteResource]
)
_encoded: msgspec.json.Decoder[_Envelope[msgspec.Raw] | list[msgspec.Raw]] = msgspec.json.Decoder(
    _Envelope[msgspec.Raw] | list[msgspec.Raw]
)


def _documents(body: bytes) -> Sequence[msgspec.Raw]:
    """Return the documents of a page, which is split when the first of them is read."""
    return DeferredSequence(lambda: _items(_encoded.decode(body)))


def decode_page(body: bytes, *, expects_plain: bool = True) -> DecodedPage:
    """Decode a response. Raises `BadPage` if it is not a page of resources.

    The result does not depend on `expects_plain`, only the time does. Pass whether the page before was plain.
    """
    if not expects_plain:
        with suppress(*DECODE_ERRORS):  # perhaps in a member that need not be decoded
            return _decoded(_completed.decode(body), plain_observation, complete_observation, _documents(body))
    try:
        response = _observed.decode(body)
    except DECODE_ERRORS:
        return _decode_item_by_item(body)
    return _decoded(response, plain_observation, observation, _documents(body))


def _decode_item_by_item(body: bytes) -> DecodedPage:
    try:
        response = _encoded.decode(body)
    except DECODE_ERRORS as error:
        raise BadPage(f"expected a page of resources: {error}") from error
    return _decoded(response, lambda document: None, observe, _items(response))


def _items(response: _Envelope[T] | list[T]) -> list[T]:
    return response if isinstance(response, list) else response.items or []


def _decoded(
    response: _Envelope[T] | list[T],
    observe_plain: Callable[[T], Observation | None],
    observe_any: Callable[[T], Observation],
    documents: Sequence[msgspec.Raw],
) -> DecodedPage:
    """`observe_plain` is the fast path; it returns None for an item that is not plain."""
    resources: list[FetchedResource] = []
    malformed: list[MalformedItem] = []
    is_plain = True
    items = _items(response)
    for index, item in enumerate(items):
        seen = observe_plain(item)
        if seen is None:
            is_plain = False
            try:
                seen = observe_any(item)
            except Malformed as error:
                malformed.append(malformed_item(documents[index], error, f"items[{index}]"))
                continue
        resources.append(FetchedResource(seen, documents, index))
    ids = PageIds(resources)
    if isinstance(response, list):
        return DecodedPage(PageShape.WHOLE, len(items), resources, ids, malformed, is_plain=is_plain)
    if response.total is not None and response.total < 0:
        raise BadPage(f"total: expected a number of items, got {response.total}")
    shape, cursor = PageShape.NUMBERED, ""
    if response.next is not msgspec.UNSET:
        shape, cursor = PageShape.CURSOR, response.next or ""
    return DecodedPage(
        shape, len(items), resources, ids, malformed, response.total, response.page, cursor, is_plain
    )


def advance(
    position: Position,
    page: DecodedPage,
    *,
    previous_count: int | None = None,
    distinct_after: tuple[int, int] | None = None,
) -> NextPage:
    """Take the page that was requested at `position`.

    `previous_count` is the number of items of an earlier response to the same request that was a `ShortPage`.
    `distinct_after` are the fingerprints of two pages after which a page with these ids repeats no resource, if
    such are known.
    Raises `BadPage` or `ShortPage` if the page cannot be right, `NeedsAllFields` if more fields must be requested,
    and `EndlessList` if the walk would not end.
    """
    if position.is_plain and not page.is_plain:
        raise NeedsAllFields("an item has another shape than those before it")
    match page.shape:
        case PageShape.WHOLE:
            if position.number > 1:
                raise BadPage(f"expected page {position.number}, got a bare list")
            following = None
        case PageShape.NUMBERED if not position.after:
            following = _after_numbered(position, page)
        case PageShape.NUMBERED | PageShape.CURSOR:  # with a cursor, a page without `next` is the last one
            following = _after_cursor(position, page, previous_count)
        case _:
            assert_never(page.shape)

    fresh = page.resources
    if distinct_after != position.recent_fingerprints:
        earlier, latest = (each.all for each in position.recent)
        ids = page.ids.all
        if len(ids) < len(fresh) or not ids.isdisjoint(latest) or not ids.isdisjoint(earlier):
            fresh = _without(earlier | latest, fresh)
            if not fresh and _is_another_page(position, page):
                raise BadPage(f"expected page {position.number}, got page {page.page!r} again")
    if following is not None:
        # A page that is read a second time is the one before the latest, and replaces it.
        latest_ids = position.recent[1]
        recent = (page.ids, latest_ids) if position.highest_page else (latest_ids, page.ids)
        following = msgspec.structs.replace(following, recent=recent)
        if following.seen > following.max_items:
            raise EndlessList(
                f"expected at most {following.max_items} items, got {following.seen} and a next page"
            )
        return NextPage(fresh, following)
    seen = position.seen + page.count
    return NextPage(fresh, None, seen if position.after and page.total is not None and seen < page.total else None)


def _is_another_page(position: Position, page: DecodedPage) -> bool:
    """Whether the server itself numbers the page differently; relevant only for pages without a new resource."""
    by_number = not position.after and not position.highest_page
    return by_number and page.page not in (None, position.number)


def _without(known: frozenset[str], resources: Sequence[FetchedResource]) -> list[FetchedResource]:
    ids = set(known)
    fresh = []
    for resource in resources:
        if resource.observation.id not in ids:
            ids.add(resource.observation.id)
            fresh.append(resource)
    return fresh


def _after_numbered(position: Position, page: DecodedPage) -> Position | None:
    number, total, count = position.number, page.total, page.count
    if total is None:
        raise BadPage("expected a page of resources with `total` or `next`, got neither")
    # A server that returns more items than requested numbers its pages by what it returns.
    page_size = position.page_size or max(position.size, count)
    promised = min(page_size, total - (number - 1) * page_size)
    if count < promised:
        hint = "; does the server cap its pages below page_size?" if number == 1 and count else ""
        raise ShortPage(f"expected {promised} items of a total of {total}, got {count}{hint}", count=count)

    if position.highest_page:
        highest_page, highest_total, seen = position.highest_page, max(total, position.total), position.seen
    else:
        highest_page, highest_total, seen = number, total, position.seen + count
        if total < position.total:
            # Something was deleted since the previous page was read. An unseen item may have moved from this page
            # to the previous one. Read that page again.
            return msgspec.structs.replace(
                position, number=number - 1, highest_page=number, total=total, seen=seen
            )
    if highest_page * page_size >= total:
        return None
    return msgspec.structs.replace(
        position,
        number=highest_page + 1,
        page_size=page_size,
        total=highest_total,
        seen=seen,
        max_items=_max_items(position, page),
        highest_page=0,
    )


def _after_cursor(position: Position, page: DecodedPage, previous_count: int | None) -> Position | None:
    number, total, count = position.number, page.total, page.count
    if total is not None:
        # Cursor pages may have any length, and the total was counted when the walk began: resources deleted since
        # then are missing legitimately. So a short page is retried once and accepted if it comes again, unless its
        # own total contradicts it.
        promised = min(position.page_size or position.size, total - position.seen)
        contradicts_itself = number == 1 and not page.next
        if count < promised and (count != previous_count or contradicts_itself):
            raise ShortPage(f"expected {promised} items of a total of {total}, got {count}", count=count)
    if not page.next:
        return None
    if page.next in (position.after, position.checkpoint):
        raise EndlessList(f"page {number} leads back to a page that has been read")
    return msgspec.structs.replace(
        position,
        number=number + 1,
        after=page.next,
        page_size=max(position.page_size, count),
        seen=position.seen + max(count, 1),
        max_items=_max_items(position, page),
        # Brent's cycle detection: the checkpoint moves at every power of two, so a cycle of any length is found.
        checkpoint=position.checkpoint if number & (number - 1) else page.next,
        is_plain=page.is_plain and (position.is_plain or number == 1),
    )


def _max_items(position: Position, page: DecodedPage) -> int:
    if position.number > 1 or position.highest_page or page.total is None:
        return position.max_items
    return 2 * page.total + MAX_GROWTH
