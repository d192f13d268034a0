"""ETags and the conditions that clients attach to them (RFC 9110, sections 8.8.3 and 13.1).

An ETag here is a version that rises with every write, so it is strong. `If-Match` makes a write conditional on
nobody's having written since; `If-None-Match` spares a reader what it has already.
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
    """The ETag of this version, as the header `ETag` has it."""
    return f'"{version}"'


class Precondition(msgspec.Struct, frozen=True):
    """What a client says of the versions it knows."""

    is_any: bool
    """It said `*`: whichever version there is."""
    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()

    def matches(self, etag: str | None) -> bool:
        """For `If-Match`: by the strong comparison, for which a weak ETag equals nothing. None: there is none."""
        return etag is not None and (self.is_any or etag in self.strong)

    def matches_weakly(self, etag: str | None) -> bool:
        """For `If-None-Match`: by the weak comparison."""
        return self.matches(etag) or etag in self.weak


def parse(header: str | None, *, name: str) -> Precondition | None:
    """The condition in a header; None where it was not sent. What is none is a 400 that names the header.

    An ETag whose quotes are missing counts as the one that is meant: a shell takes them away.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return Precondition(is_any=True)
    strong_tags: set[str] = set()
    weak_tags: set[str] = set()
    position = _skip(header, 0)
    while position < len(header):
        tag = _TAG.match(header, position)
        if tag is None:
            raise _unreadable(name)
        (weak_tags if tag["weak"] else strong_tags).add(f'"{tag["opaque"] or tag["bare"] or ""}"')
        position = _skip(header, tag.end())
        if position < len(header) and "," not in header[tag.end() : position]:
            raise _unreadable(name)
    if not strong_tags and not weak_tags:
        raise _unreadable(name)
    return Precondition(is_any=False, strong=frozenset(strong_tags), weak=frozenset(weak_tags))


def is_not_modified(if_none_match: str | None, etag: str) -> bool:
    """Whether a GET with this header `If-None-Match` is answered with 304."""
    condition = parse(if_none_match, name="If-None-Match")
    return condition is not None and condition.matches_weakly(etag)


def answer(status: int, body: bytes, *, version: int | str, headers: Mapping[str, str] | None = None) -> Response:
    """A response that carries its ETag."""
    return Response(status, body, {"ETag": strong(version), **(headers or {})})


def unless_known(request: Request, body: bytes, *, version: int | str) -> Response:
    """A response to a GET: 304 without the body where the client has this version."""
    if is_not_modified(request.header("If-None-Match"), strong(version)):
        return Response(304, headers={"ETag": strong(version)})
    return answer(200, body, version=version)


def require_match(if_match: Precondition | None, *, version: int | str, name: str) -> None:
    """Raises `PreconditionFailed` where a write is meant for another version. `name` is what the text calls it."""
    current = strong(version)
    if if_match is not None and not if_match.matches(current):
        raise PreconditionFailed(f"If-Match: {name} has changed; its ETag is {current} now")


def _skip(header: str, position: int) -> int:
    matched = _SEPARATOR.match(header, position)
    return position if matched is None else matched.end()


def _unreadable(name: str) -> problem.Problem:
    return problem.bad_field(name, 'expected * or a list of ETags in quotes such as "7"')
