"""Cursors: where a list goes on, in a form that clients hand back and never look into.

A cursor carries the values that the next page begins behind, and a fingerprint of the query it belongs to: taken
along to another query it would silently skip or repeat items. It is no secret and no proof of anything, so what
comes back is checked as strictly as a body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from sentinel.web import problem, strict_json

T = TypeVar("T")

LARGEST_PAGE = 1000
PageSize = Annotated[int, Meta(ge=1, le=LARGEST_PAGE, description="How many items a page has.")]

_PARAMETER: Final = "after"

_FINGERPRINT = 8
_LONGEST = 4096


def encode(place: object, *, query: object) -> str:
    """The cursor for this place (a struct) in the list that this query (structs, texts, numbers) selects."""
    content = _fingerprint(query) + msgspec.json.encode(place)
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode(text: str, type: type[T], *, query: object) -> T:  # noqa: A002  # msgspec's own word for it
    """The place of a cursor; one of another query, or none at all, is a 400 that names `after`."""
    try:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        place = content[_FINGERPRINT:]
        strict_json.check(place)
        decoded = msgspec.json.decode(place, type=type)
    except (ValueError, binascii.Error, problem.Problem):
        message = "expected the value of next from an earlier page of this list, got something else"
        raise problem.bad_field(_PARAMETER, message) from None
    if content[:_FINGERPRINT] != _fingerprint(query):
        message = "expected a cursor of this very query; begin a changed query without one"
        raise problem.bad_field(_PARAMETER, message)
    return decoded


def _fingerprint(query: object) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(query, order="deterministic"), digest_size=_FINGERPRINT).digest()
