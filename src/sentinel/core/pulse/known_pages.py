"""Decode a page of a list only if its body has changed since the last walk.

Most pages of a large fleet are the same from poll to poll, and decoding them is most of the cost of a poll. Of
each page of the last walk, `KnownPages` keeps what the next walk needs: the numbers and the cursor around its
items, not the items. `read` returns what `listing.decode_page` and `listing.advance` return, but the resources of
a known body are decoded only if they are read.

A walk also drops resources that are repeated from the two pages before. To find out without decoding that there
are none, the fingerprints of the ids of the three pages are compared with those of the last walk. An update of a
resource changes the body of its page, but no ids, so the pages around it are not decoded either. If the ids have
changed, too, the bodies of the two pages are still there.

A body is recognized by `hash`: 64 bits of SipHash with a secret key that Python chooses for each process. So two
bodies collide only by chance (with 100,000 resources, once in a million years), even if they were chosen to
collide. A cryptographic hash takes two to five times as long.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from sentinel.core.deferred import DeferredSequence
from sentinel.core.pulse import listing
from sentinel.core.pulse.listing import DecodedPage, NextPage, PageIds, PageShape, Position

T = TypeVar("T")


class PageTable(Generic[T]):
    """Values by the version of a page. A page that one walk does not find is forgotten at the end of the next."""

    def __init__(self) -> None:
        self._last_walk: dict[int, T] = {}
        self._this_walk: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._last_walk) + len(self._this_walk)

    def begin_walk(self) -> None:
        self._last_walk, self._this_walk = self._this_walk, {}

    def find(self, version: int) -> T | None:
        """Return what the last walk kept."""
        return self._last_walk.get(version)

    def keep(self, version: int, value: T) -> None:
        """Keep a value for the next walk."""
        self._this_walk[version] = value


class ReadPage(msgspec.Struct, frozen=True):
    """A page and the step to the next one."""

    page: DecodedPage
    step: NextPage
    version: int | None
    """Two pages with the same version have the same new resources. None if the page has a repeated resource or a
    malformed item."""


class _KnownPage(msgspec.Struct, frozen=True, gc=False):
    """A `DecodedPage` without its items. None of them was malformed."""

    shape: PageShape
    count: int
    total: int | None
    page: int | None
    next: str
    is_plain: bool
    fingerprint: int

    def of(self, body: bytes) -> DecodedPage:
        resources = DeferredSequence(lambda: listing.decode_page(body, expects_plain=self.is_plain).resources)
        return DecodedPage(
            self.shape,
            self.count,
            resources,
            PageIds(resources, self.fingerprint),
            total=self.total,
            page=self.page,
            next=self.next,
            is_plain=self.is_plain,
        )


class KnownPages:
    """Reads the pages of one list, walk after walk."""

    def __init__(self) -> None:
        self._pages = PageTable[_KnownPage]()
        self._distinct_after = PageTable[tuple[int, int]]()
        """By the fingerprint of a page's ids; see `listing.advance`."""
        self._expects_plain = True

    def begin_walk(self) -> None:
        self._pages.begin_walk()
        self._distinct_after.begin_walk()

    def read(self, position: Position, body: bytes, *, previous_count: int | None = None) -> ReadPage:
        """Decode the response to the request at `position`, and advance; see `listing` for what it raises."""
        version = hash(body)
        known = self._pages.find(version)
        page = listing.decode_page(body, expects_plain=self._expects_plain) if known is None else known.of(body)
        self._expects_plain = page.is_plain
        fingerprint = page.ids.fingerprint
        distinct_after = self._distinct_after.find(fingerprint)
        step = listing.advance(position, page, previous_count=previous_count, distinct_after=distinct_after)
        # What the server writes as `page` may be any JSON. Keep only what is small.
        if step.new_resources is not page.resources or page.malformed or not isinstance(page.page, int | None):
            return ReadPage(page, step, None)
        if known is None:
            known = _KnownPage(
                page.shape, page.count, page.total, page.page, page.next, page.is_plain, fingerprint
            )
        self._pages.keep(version, known)
        self._distinct_after.keep(fingerprint, position.recent_fingerprints)
        return ReadPage(page, step, version)
