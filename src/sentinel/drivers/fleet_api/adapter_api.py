"""The HyperFleet API as an adapter uses it: `ports.adapter_api.AdapterApi` over HTTP.

Which URL a resource has, an event may say, and may be wrong about. So its path is tried first, because a resource
that is found there costs one request less to report on; and nothing is believed to be gone before the API has been
asked by the id alone. Our own API answers that for every kind; where a server has no such endpoint, the kind has
to do, or where an event does not say it, each kind that the adapter looks after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import KnownReport, Resource, read_document, read_statuses, with_reports
from sentinel.core.fleet.documents import DiscardReason, Report
from sentinel.core.fleet.lifecycle import LONGEST_ID, ROOT, segment
from sentinel.core.problem_codes import Code
from sentinel.core.pulse.observation import UNREADABLE, Malformed
from sentinel.drivers.fleet_api.session import FleetSession, Reply
from sentinel.ports.adapter_api import ReportOutcome, ReportRefused, ReportResult
from sentinel.ports.errors import ApiUnavailable

_NOBODY = "00000000-0000-0000-0000-000000000000"
_ANY_KIND = "resources"
_SEGMENT = re.compile(segment(LONGEST_ID))
_MOST_SEGMENTS = 16
_PAGE = 100
"""What the public API gives at most."""
_MOST_PAGES = 100


class HttpAdapterApi:
    """Reads resources and reports on them."""

    def __init__(self, session: FleetSession, *, kinds: Sequence[str] = ()) -> None:
        """`kinds` are those that resources may be of about which an event does not say it."""
        self._session = session
        self._kinds = kinds
        self._has_any_kind = True
        self._verb = "PUT"
        """What today's servers know; older ones know POST alone."""

    async def probe(self, kind: str) -> None:
        await self._find(ResourceRef(_NOBODY, kind=kind), is_strict=False)

    async def get(self, pointer: ResourceRef) -> Resource | None:
        found = await self._find(pointer, is_strict=True)
        if found is None:
            return None
        path, reply = found
        try:
            resource = read_document(reply.body)
        except Malformed as error:
            raise ApiUnavailable(f"a resource came that cannot be read: {error}") from error
        path = _path(resource.href, resource.id) or path
        reports = await self._statuses(path)
        if reports is None:
            return None
        return with_reports(msgspec.structs.replace(resource, href=f"{ROOT}/{path}"), reports)

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        path = f"{_path(resource.href, resource.id)}/statuses"
        body = msgspec.json.encode(report)
        reply = await self._session.request(self._verb, path, body=body)
        if reply.status == HTTPStatus.METHOD_NOT_ALLOWED and self._verb == "PUT":
            self._verb = "POST"
            reply = await self._session.request(self._verb, path, body=body)
        return _answer(reply)

    async def close(self) -> None:
        await self._session.close()

    async def _find(self, pointer: ResourceRef, *, is_strict: bool) -> tuple[str, Reply] | None:
        """The path of the resource and what is there; None where the API knows of none."""
        href = _path(pointer.href, pointer.id)
        if href:
            reply = await self._session.request("GET", href)
            if reply.status == HTTPStatus.OK:
                return href, reply
            if reply.status != HTTPStatus.NOT_FOUND:
                raise ApiUnavailable(reply.text)
        said, is_gone = "", False
        for path in self._paths(pointer):
            reply = await self._session.request("GET", path)
            if reply.status == HTTPStatus.OK:
                return path, reply
            is_any_kind = path.startswith(f"{_ANY_KIND}/")
            if _is_gone(reply, is_strict=is_strict):
                if is_any_kind:
                    return None
                is_gone = True
            elif reply.status != HTTPStatus.NOT_FOUND:
                raise ApiUnavailable(reply.text)
            elif is_any_kind and _is_no_route(reply) and pointer.kind:
                self._has_any_kind = False
            said = reply.text
        if is_gone:
            return None
        raise ApiUnavailable(f"{said}; is endpoint right?", needs_operator=True)

    def _paths(self, pointer: ResourceRef) -> list[str]:
        """Where to look by the id alone; all but the first only where that does not exist."""
        paths = [f"{_ANY_KIND}/{pointer.id}"] if self._has_any_kind else []
        plurals = [_plural(kind) for kind in ([pointer.kind] if pointer.kind else self._kinds)]
        paths += [f"{plural}/{pointer.id}" for plural in plurals if _SEGMENT.fullmatch(plural)]
        return paths or [f"{_ANY_KIND}/{pointer.id}"]

    async def _statuses(self, path: str) -> list[KnownReport] | None:
        found: list[KnownReport] = []
        for number in range(1, _MOST_PAGES + 1):
            reply = await self._session.request("GET", f"{path}/statuses?page={number}&size={_PAGE}")
            if _is_gone(reply, is_strict=True):
                return None
            if reply.status != HTTPStatus.OK:
                raise ApiUnavailable(reply.text)
            try:
                page = read_statuses(reply.body)
            except Malformed as error:
                raise ApiUnavailable(f"reports came that cannot be read: {error}") from error
            found += page.items
            if not page.items or len(found) >= page.total:
                break
        return found


def _answer(reply: Reply) -> ReportResult:
    if reply.status == HTTPStatus.NO_CONTENT:
        reason = reply.discard_reason
        return ReportResult(
            ReportOutcome.DISCARDED, DiscardReason(reason) if reason in set(DiscardReason) else None
        )
    if reply.status == HTTPStatus.CREATED or (reply.status == HTTPStatus.OK and _is_document(reply)):
        return ReportResult(ReportOutcome.STORED)
    if reply.status < 300:
        # Some page that somebody else serves under this address.
        raise ApiUnavailable(
            f"{reply.text}, which no API says to a report; is endpoint right?", needs_operator=True
        )
    if _is_gone(reply, is_strict=True):
        return ReportResult(ReportOutcome.GONE)
    if reply.status == HTTPStatus.NOT_FOUND:
        raise ApiUnavailable(f"{reply.text}; is endpoint right?", needs_operator=True)
    errors = reply.problem.field_errors if reply.problem is not None else ()
    if any(error.field == "observed_time" for error in errors):
        raise ApiUnavailable(f"{reply.text}; is this machine's clock right?", needs_operator=True)
    raise ReportRefused(reply.text)


def _is_gone(reply: Reply, *, is_strict: bool) -> bool:
    """Whether a server that knows the URL says that nothing is there. What some proxy says in its own words is
    not to be relied upon, unless (not `is_strict`) it only matters that somebody answers."""
    if reply.status != HTTPStatus.NOT_FOUND or _is_no_route(reply):
        return False
    return reply.problem is not None or not is_strict


def _is_document(reply: Reply) -> bool:
    try:
        return isinstance(msgspec.json.decode(reply.body), dict)
    except UNREADABLE:
        return False


def _is_no_route(reply: Reply) -> bool:
    return reply.problem is not None and reply.problem.code == Code.NO_ROUTE


def _path(href: str, resource_id: str) -> str:
    """The path of a resource below the API's root; nothing where it is not one of this resource."""
    path = href.partition(f"{ROOT}/")[2]
    segments = path.split("/", _MOST_SEGMENTS)
    is_safe = all(_SEGMENT.fullmatch(segment) for segment in segments)
    return path if is_safe and segments[-1] == resource_id else ""


def _plural(kind: str) -> str:
    singular = kind.lower()
    if singular.endswith("y") and singular[-2:-1] not in "aeiou":
        return f"{singular[:-1]}ies"
    return f"{singular}es" if singular.endswith(("s", "x")) else f"{singular}s"
