"""How a list that is served in pages is read to its end.

Servers answer in three shapes: numbered pages with a total, cursor pages, or one bare list. None of them holds
still while it is read. An insert between two pages repeats resources, a deletion moves some back over the page
boundary and out of sight, totals are counted apart from the items, and an answer may simply lack items. All
of that is judged here, without I/O: `decode_page` turns a body into a `DecodedPage`, and `advance` takes it at a
`Position` of the walk and says what is new and what to ask for next. That a list has ended is only ever the
server's word, never a guess from a page that came back short.

Items are decoded in one pass, as far as a decision needs; a page splits itself into documents only for somebody
who wants a whole one. Reading item by item, which costs half as much again, is left for pages that contain a
malformed item, so that the others survive it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Generic, TypeVar, assert_never, overload

import msgspec

from sentinel.core.json import DECODE_ERRORS, Malformed
from sentinel.core.pulse.observation import (
    FetchedResource,
    Observation,
    WireResource,
    observation,
    observe,
    plain_observation,
)

T = TypeVar("T")

GROWTH = 10_000
"""How many more items than twice its first total a list may yield before it counts as endless."""
UNCOUNTED = 10_000_000
"""How many items a list may yield that does not say how many it has."""


class BadPage(ValueError):
    """An answer that cannot be used; asking again may help."""


class ShortPage(BadPage):
    """An answer with fewer items than it promises."""

    def __init__(self, text: str, *, count: int) -> None:
        super().__init__(text)
        self.count = count


class NeedsAllFields(BadPage):
    """An answer with an item that is not plain, where only what is read of a plain one was asked for."""


class EndlessList(ValueError):
    """A list that would never end; asking again is what must not be done."""


class PageShape(StrEnum):
    """The shapes in which servers answer."""

    WHOLE = "whole"
    """A bare list: everything there is, whatever page was asked for."""
    NUMBERED = "numbered"
    """Items and a total; the next page is asked for by its number."""
    CURSOR = "cursor"
    """A member `next`; the next page is asked for by what it says, and null ends the list."""


class DecodedPage(msgspec.Struct, frozen=True):
    """One answer, whichever shape it had."""

    shape: PageShape
    count: int
    """How many items came, readable or not."""
    resources: Sequence[FetchedResource]
    malformed: Sequence[str] = ()
    """One text for each item that could not be read, with its place and without its values."""
    total: int | None = None
    page: object = None
    """The number that the server gave to its page; only worth comparing."""
    next: str = ""
    """Where to go on; empty where nothing follows."""
    is_plain: bool = False
    """Whether every item has labels and a flat status, see `model.plain_observation`."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a walk stands: what to ask for, and what must be remembered to judge the answer."""

    size: int
    """How many items to ask for."""
    number: int = 1
    """Which page to ask for; where there is a cursor, only how many pages came before."""
    after: str = ""
    """The cursor to ask with; empty to ask by number."""
    span: int = 0
    """How many items a full page of this server has."""
    total: int = 0
    seen: int = 0
    allowance: int = UNCOUNTED
    """How many items may be seen before the list counts as endless."""
    frontier: int = 0
    """During a second look at a page, the highest page that has been read; otherwise 0."""
    landmark: str = ""
    """An earlier cursor; to meet it again is to walk in a circle."""
    recent: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """The ids of the last two pages."""
    is_plain: bool = False
    """Whether every item so far was plain, so that of the rest no more need be asked for than of such."""


class NextPage(msgspec.Struct, frozen=True):
    """What a page has brought."""

    new_resources: Sequence[FetchedResource]
    """Its resources, without those of the two pages before it."""
    next_position: Position | None
    """Where the walk goes on; None where the server has said that there is no more."""
    ended_early_at: int | None = None
    """How many items were seen, where a cursor ended before the total it began with. Only a fresh total can say
    whether the rest was deleted meanwhile or is being kept from us."""


class _Envelope(msgspec.Struct, Generic[T], gc=False):
    items: list[T] | None  # null is how Go writes an empty list that was never made
    total: int | None = None
    page: object = None
    next: str | None | msgspec.UnsetType = msgspec.UNSET


_observed: msgspec.json.Decoder[_Envelope[WireResource] | list[WireResource]] = msgspec.json.Decoder(
    _Envelope[WireResource] | list[WireResource]
)
_encoded: msgspec.json.Decoder[_Envelope[msgspec.Raw] | list[msgspec.Raw]] = msgspec.json.Decoder(
    _Envelope[msgspec.Raw] | list[msgspec.Raw]
)


class _Documents(Sequence[msgspec.Raw]):
    """The documents of a page, split from each other when the first of them is asked for."""

    __slots__ = ("_body", "_split")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._split: Sequence[msgspec.Raw] | None = None

    def _documents(self) -> Sequence[msgspec.Raw]:
        if self._split is None:
            self._split = _items(_encoded.decode(self._body))
        return self._split

    def __len__(self) -> int:
        return len(self._documents())

    @overload
    def __getitem__(self, index: int) -> msgspec.Raw: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[msgspec.Raw]: ...
    def __getitem__(self, index: int | slice) -> msgspec.Raw | Sequence[msgspec.Raw]:
        return self._documents()[index]


def decode_page(body: bytes) -> DecodedPage:
    """Reads an answer; raises `BadPage` where it is none."""
    try:
        answer = _observed.decode(body)
    except DECODE_ERRORS:
        return _read_item_by_item(body)
    return _listing(answer, plain_observation, observation, _Documents(body))


def _read_item_by_item(body: bytes) -> DecodedPage:
    try:
        answer = _encoded.decode(body)
    except DECODE_ERRORS as error:
        raise BadPage(f"expected a page of resources: {error}") from error
    return _listing(answer, lambda document: None, observe, _items(answer))


def _items(answer: _Envelope[T] | list[T]) -> list[T]:
    return answer if isinstance(answer, list) else answer.items or []


def _listing(
    answer: _Envelope[T] | list[T],
    glance: Callable[[T], Observation | None],
    look: Callable[[T], Observation],
    documents: Sequence[msgspec.Raw],
) -> DecodedPage:
    """`glance` is for those that are plain, and quick; `look` for any."""
    resources: list[FetchedResource] = []
    malformed: list[str] = []
    is_plain = True
    items = _items(answer)
    for index, item in enumerate(items):
        seen = glance(item)
        if seen is None:
            is_plain = False
            try:
                seen = look(item)
            except Malformed as error:
                malformed.append(f"items[{index}]: {error}")
                continue
        resources.append(FetchedResource(seen, documents, index))
    if isinstance(answer, list):
        return DecodedPage(PageShape.WHOLE, len(items), resources, malformed, is_plain=is_plain)
    if answer.total is not None and answer.total < 0:
        raise BadPage(f"total: expected a number of items, got {answer.total}")
    shape, following = PageShape.NUMBERED, ""
    if answer.next is not msgspec.UNSET:
        shape, following = PageShape.CURSOR, answer.next or ""
    return DecodedPage(shape, len(items), resources, malformed, answer.total, answer.page, following, is_plain)


def advance(position: Position, listing: DecodedPage, *, previous_count: int | None = None) -> NextPage:
    """Takes the answer to what `position` asked for.

    `previous_count` is the number of items of an earlier response to the same request that was a `ShortPage`.
    Raises `BadPage` or `ShortPage` if the page cannot be right, `NeedsAllFields` if more fields must be requested,
    and `EndlessList` if the walk would not end.
    """
    if position.is_plain and not listing.is_plain:
        raise NeedsAllFields("an item is of another shape than those before it")
    match listing.shape:
        case PageShape.WHOLE:
            if position.number > 1:
                raise BadPage(f"expected page {position.number}, got a bare list")
            following = None
        case PageShape.NUMBERED if not position.after:
            following = _after_numbered(position, listing)
        case PageShape.NUMBERED | PageShape.CURSOR:  # asked with a cursor, a page without `next` is the last one
            following = _after_cursor(position, listing, previous_count)
        case _:
            assert_never(listing.shape)

    earlier, latest = position.recent
    fresh = listing.resources
    ids = frozenset([resource.observation.id for resource in fresh])
    if len(ids) < len(fresh) or not ids.isdisjoint(latest) or not ids.isdisjoint(earlier):
        fresh = _without(earlier | latest, fresh)
        if not fresh and _is_another_page(position, listing):
            raise BadPage(f"expected page {position.number}, got page {listing.page!r} again")
    if following is not None:
        # A second look is at the page before the latest, and takes its place.
        recent = (ids, latest) if position.frontier else (latest, ids)
        following = msgspec.structs.replace(following, recent=recent)
        if following.seen > following.allowance:
            raise EndlessList(f"{following.seen} items were read and more are announced than can be true")
        return NextPage(fresh, following)
    seen = position.seen + listing.count
    return NextPage(
        fresh, None, seen if position.after and listing.total is not None and seen < listing.total else None
    )


def _is_another_page(position: Position, listing: DecodedPage) -> bool:
    """Whether the server says itself that it gave another page; asked only of pages that bring nothing new."""
    by_number = not position.after and not position.frontier
    return by_number and listing.page not in (None, position.number)


def _without(known: frozenset[str], resources: Sequence[FetchedResource]) -> list[FetchedResource]:
    ids = set(known)
    fresh = []
    for resource in resources:
        if resource.observation.id not in ids:
            ids.add(resource.observation.id)
            fresh.append(resource)
    return fresh


def _after_numbered(position: Position, listing: DecodedPage) -> Position | None:
    number, total, count = position.number, listing.total, listing.count
    if total is None:
        raise BadPage("expected a page of resources: neither `total` nor `next` is there")
    # A server that hands out more than it was asked for counts its pages by what it hands out.
    span = position.span or max(position.size, count)
    promised = min(span, total - (number - 1) * span)
    if count < promised:
        hint = "; does the server cap its pages below page_size?" if number == 1 and count else ""
        raise ShortPage(f"expected {promised} items, {total} being the total, got {count}{hint}", count=count)

    if position.frontier:
        frontier, highest, seen = position.frontier, max(total, position.total), position.seen
    else:
        frontier, highest, seen = number, total, position.seen + count
        if total < position.total:
            # Something has been deleted since the page before was read; what stood first on this page then
            # stands on that one now, unseen. A second look at it finds it.
            return msgspec.structs.replace(position, number=number - 1, frontier=number, total=total, seen=seen)
    if frontier * span >= total:
        return None
    return msgspec.structs.replace(
        position,
        number=frontier + 1,
        span=span,
        total=highest,
        seen=seen,
        allowance=_allowance(position, listing),
        frontier=0,
    )


def _after_cursor(position: Position, listing: DecodedPage, previous_count: int | None) -> Position | None:
    number, total, count = position.number, listing.total, listing.count
    if total is not None:
        # Unlike a page number, a cursor allows pages of any length, and its total was counted when the walk
        # began: resources deleted since then are missing rightly. So a page that looks short is doubted once
        # and believed when it comes again, except where its own total contradicts it.
        promised = min(position.span or position.size, total - position.seen)
        contradicts_itself = number == 1 and not listing.next
        if count < promised and (count != previous_count or contradicts_itself):
            raise ShortPage(f"expected {promised} items, {total} being the total, got {count}", count=count)
    if not listing.next:
        return None
    if listing.next in (position.after, position.landmark):
        raise EndlessList(f"page {number} leads back to a page that has been read")
    return msgspec.structs.replace(
        position,
        number=number + 1,
        after=listing.next,
        span=max(position.span, count),
        seen=position.seen + max(count, 1),
        allowance=_allowance(position, listing),
        # Moved at every power of two, the landmark is met again in a circle of any length (Brent).
        landmark=position.landmark if number & (number - 1) else listing.next,
        is_plain=listing.is_plain and (position.is_plain or number == 1),
    )


def _allowance(position: Position, listing: DecodedPage) -> int:
    if position.number > 1 or position.frontier or listing.total is None:
        return position.allowance
    return 2 * listing.total + GROWTH
