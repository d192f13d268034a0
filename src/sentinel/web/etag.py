"""ETags and conditional requests (RFC 9110, sections 8.8.3 and 13.1).

An ETag is a version that rises with every write, so it is strong. `If-Match` is an optimistic lock on a write.
`If-None-Match` avoids sending a body that the client already has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from sentinel.web import problem
from sentinel.web.errors import PreconditionFailed
from sentinel.web.routing import Request, Response

_TAG = re.compile(r'(?P<weak>W/)?"(?P<opaque>[\x21\x23-\x7e\x80-\xff]*)"|(?P<bare>[0-9A-Za-z._-]+)')
_SEPARATOR = re.compile(r"[ \t]*(?:,[ \t]*)*")


def strong(version: int | str) -> str:
    """Return the value of the `ETag` header for this version."""
    return f'"{version}"'


class Precondition(msgspec.Struct, frozen=True):
    """The ETags in `If-Match` or `If-None-Match`."""

    is_any: bool
    """`*`: any version."""
    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()

    def matches(self, etag: str | None) -> bool:
        """Compare strongly, for `If-Match`: a weak ETag equals nothing. None means that no version exists."""
        return etag is not None and (self.is_any or etag in self.strong)

    def matches_weakly(self, etag: str | None) -> bool:
        """Compare weakly, for `If-None-Match`."""
        return self.matches(etag) or etag in self.weak


def parse(header: str | None, *, name: str) -> Precondition | None:
    """Parse a header; None if it was not sent. An invalid value is a 400 that names the header.

    ETags without quotes are accepted, because shells tend to remove them.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return Precondition(is_any=True)
    strong_tags: set[str] = set()
    weak_tags: set[str] = set()
    position = _skip_separators(header, 0)
    while position < len(header):
        tag = _TAG.match(header, position)
        if tag is None:
            raise _invalid(name)
        (weak_tags if tag["weak"] else strong_tags).add(f'"{tag["opaque"] or tag["bare"] or ""}"')
        position = _skip_separators(header, tag.end())
        if position < len(header) and "," not in header[tag.end() : position]:
            raise _invalid(name)
    if not strong_tags and not weak_tags:
        raise _invalid(name)
    return Precondition(is_any=False, strong=frozenset(strong_tags), weak=frozenset(weak_tags))


def is_not_modified(if_none_match: str | None, etag: str) -> bool:
    """Return whether the response to a GET with this `If-None-Match` is 304."""
    condition = parse(if_none_match, name="If-None-Match")
    return condition is not None and condition.matches_weakly(etag)


def versioned_response(
    status: int, body: bytes, *, version: int | str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with an ETag."""
    return Response(status, body, {"ETag": strong(version), **(headers or {})})


def conditional_response(request: Request, body: bytes, *, version: int | str) -> Response:
    """Return the response to a GET: 304 without a body if the client has this version."""
    if is_not_modified(request.header("If-None-Match"), strong(version)):
        return Response(304, headers={"ETag": strong(version)})
    return versioned_response(200, body, version=version)


def require_match(if_match: Precondition | None, *, version: int | str, name: str) -> None:
    """Raise `PreconditionFailed` if a write is meant for another version. `name` names the resource in the
    text."""
    current = strong(version)
    if if_match is not None and not if_match.matches(current):
        raise PreconditionFailed(f"If-Match: {name} has changed; its ETag is {current} now")


def _skip_separators(header: str, position: int) -> int:
    matched = _SEPARATOR.match(header, position)
    return position if matched is None else matched.end()


def _invalid(name: str) -> problem.Problem:
    return problem.bad_field(name, 'expected * or a list of ETags in quotes such as "7"')
