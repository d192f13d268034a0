"""What the lists of all components share: page size, cursors, and the parameters `labels`, `search` and `fields`.

A cursor holds the values that the next page begins after, and a fingerprint of the query, because with another
query it would silently skip or repeat items. Clients treat it as opaque. It is neither secret nor signed, so a
cursor that comes back is checked as strictly as a body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from sentinel.core import labels, projection, search
from sentinel.core.labels import Selector
from sentinel.core.projection import Projection
from sentinel.core.search import Expression
from sentinel.web import problem, strict_json

T = TypeVar("T")

MAX_PAGE_SIZE = 1000
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE, description="The maximum number of items in a page.")]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list that has a total."""

    size: int
    total: int
    items: Sequence[T]
    next: str | None
    """The cursor of the next page."""


_FINGERPRINT_BYTES = 8
_MAX_CURSOR_LENGTH = 4096


def encode_cursor(position: object, *, query: object) -> str:
    """Encode a position in the list that this query selects. Both are values that msgspec encodes."""
    content = _fingerprint(query) + msgspec.json.encode(position)
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode_cursor(text: str, type: type[T], *, query: object) -> T:  # noqa: A002  # msgspec's own name
    """Return the position in a cursor. An invalid cursor, or one of another query, is a 400 that names `after`."""
    try:
        if len(text) > _MAX_CURSOR_LENGTH:
            raise ValueError("too long")
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        position = content[_FINGERPRINT_BYTES:]
        strict_json.check(position)
        decoded = msgspec.json.decode(position, type=type)
    except (ValueError, binascii.Error, problem.Problem):
        message = "expected the value of next from an earlier page of this list, got something else"
        raise problem.bad_field("after", message) from None
    if content[:_FINGERPRINT_BYTES] != _fingerprint(query):
        raise problem.bad_field(
            "after", "expected a cursor of the same query; start a changed query without a cursor"
        )
    return decoded


def text_position(after: str, *, query: object) -> str:
    """Return the key that a page begins after; empty for the first page. For lists in the order of one text."""
    return decode_cursor(after, str, query=query) if after else ""


def cut_page(
    found: Sequence[T], size: int, position: Callable[[T], object], *, query: object
) -> tuple[Sequence[T], str | None]:
    """Return the page and the cursor of the next one. `found` has one more, if another page follows."""
    page = found[:size]
    return page, encode_cursor(position(page[-1]), query=query) if len(found) > size else None


def parse_selector(text: str) -> Selector:
    """Parse `labels`, a label selector in Kubernetes syntax. Empty text selects everything."""
    try:
        return labels.parse(text)
    except labels.SelectorError as error:
        raise problem.bad_field("labels", str(error)) from None


def parse_search(text: str) -> Expression | None:
    """Parse `search`, an expression in the form of the public API. None selects everything."""
    try:
        return search.parse(text)
    except search.SearchError as error:
        raise problem.bad_field("search", str(error)) from None


def parse_fields(text: str) -> Projection | None:
    """Parse `fields`, the members to return. None means all of them."""
    if not text:
        return None
    try:
        return projection.compile_fields(text)
    except ValueError as error:
        raise problem.bad_field("fields", str(error)) from None


def _fingerprint(query: object) -> bytes:
    encoded = msgspec.json.encode(query, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=_FINGERPRINT_BYTES).digest()
