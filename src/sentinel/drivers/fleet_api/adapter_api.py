"""`ports.adapter_api.AdapterApi` over HTTP.

The resource and the reports of adapters come in one response from our own API, which knows `?statuses=true`. Other
servers ignore the parameter, so their reports take another request.

An event may contain the path of its resource, and the path may be wrong. It is tried first, because it saves a
request. If nothing is found there, the resource is looked up by its id alone (`resources/{id}`), which our own
API answers for every kind. On servers without that endpoint it is looked up by kind: the event's, or else each
kind that the adapter handles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from http import HTTPStatus

import msgspec

from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import KnownReport, Resource, read_document, read_statuses, with_reports
from sentinel.core.fleet.documents import DiscardReason, Report
from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern
from sentinel.core.json import DECODE_ERRORS, Malformed
from sentinel.core.problem_codes import Code
from sentinel.drivers.fleet_api.connection import REQUEST_FAILURES, api_unavailable
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.drivers.rest.problem import ReceivedProblem
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable

_MAX_BODY = 16 * 1024 * 1024
_MAX_SEGMENTS = 16
_MAX_PAGES = 100
_PAGE_SIZE = 100
"""The maximum of the public API."""
_UNKNOWN_ID = "00000000-0000-0000-0000-000000000000"
_ANY_KIND = "resources"
_SEGMENT = re.compile(segment_pattern(MAX_ID_LENGTH))
_JSON = {"Content-Type": "application/json"}
_WITH_STATUSES = "?statuses=true"
_ACCESS_ERRORS = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.MISDIRECTED_REQUEST,
    }
)


class _Response(msgspec.Struct, frozen=True):
    """A response whose status says something about the resource; its meaning depends on the request."""

    status: int
    body: bytes
    discard_reason: str
    problem: ReceivedProblem | None
    """The body of an error response, if it is problem+json."""
    text: str
    """The status and the server's explanation, for error messages."""


class HttpAdapterApi:
    """Reads resources and reports on them."""

    def __init__(self, client: RestClient, *, timeout: timedelta, kinds: Sequence[str] = ()) -> None:
        """`timeout` bounds each request. `kinds` are tried when an event does not name one.

        Closing this closes the client.
        """
        self._client = client
        self._timeout = timeout
        self._kinds = kinds
        self._has_any_kind = True
        """Whether the server may have the endpoint `resources/{id}`."""
        self._report_method = "PUT"
        """Older servers know only POST."""
        self._query = _WITH_STATUSES
        """Older servers reject unknown parameters."""

    async def probe(self, kind: str) -> None:
        await self._find(ResourceRef(_UNKNOWN_ID, kind=kind), requires_problem=False)

    async def get(self, ref: ResourceRef) -> Resource | None:
        found = await self._find(ref, requires_problem=True)
        if found is None:
            return None
        path, response = found
        try:
            read = read_document(response.body)
        except Malformed as error:
            raise ApiUnavailable(f"the resource cannot be read: {error}") from error
        path = _resource_path(read.resource.href, read.resource.id) or path
        resource = msgspec.structs.replace(read.resource, href=f"{API_ROOT}/{path}")
        if read.has_reports:
            return resource
        reports = await self._reports(path)
        return None if reports is None else with_reports(resource, reports)

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        path = f"{_resource_path(resource.href, resource.id)}/statuses"
        body = msgspec.json.encode(report)
        response = await self._request(self._report_method, path, body)
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED and self._report_method == "PUT":
            self._report_method = "POST"
            response = await self._request(self._report_method, path, body)
        return _report_result(response)

    async def close(self) -> None:
        await self._client.close()

    async def _request(self, method: str, path: str, body: bytes | None = None) -> _Response:
        """Send a request. Raises `ApiUnavailable` if the response says nothing about the resource: the server
        denies access, is overloaded or redirects."""
        headers = _JSON if body is not None else None
        try:
            response = await self._client.request(
                method, f"/{path}", timeout=self._timeout, limit=_MAX_BODY, body=body, headers=headers
            )
        except REQUEST_FAILURES as failure:
            if isinstance(failure, RequestRejected) and _is_about_resource(failure):
                return _Response(failure.status, b"", "", failure.response.problem, str(failure))
            raise api_unavailable(failure) from failure.__cause__
        discard_reason = response.headers.get("Discard-Reason", "")
        return _Response(response.status, response.body, discard_reason, None, response.line)

    async def _find(self, ref: ResourceRef, *, requires_problem: bool) -> tuple[str, _Response] | None:
        """Return the path of the resource and the response; None if it does not exist."""
        href = _resource_path(ref.href, ref.id)
        if href:
            response = await self._read(href)
            if response.status == HTTPStatus.OK:
                return href, response
            if response.status != HTTPStatus.NOT_FOUND:
                raise ApiUnavailable(response.text)
        text, is_gone = "", False
        for path in self._lookup_paths(ref):
            response = await self._read(path)
            if response.status == HTTPStatus.OK:
                return path, response
            is_any_kind = path.startswith(f"{_ANY_KIND}/")
            if _is_gone(response, requires_problem=requires_problem):
                if is_any_kind:
                    return None
                is_gone = True
            elif response.status != HTTPStatus.NOT_FOUND:
                raise ApiUnavailable(response.text)
            elif is_any_kind and _is_no_route(response) and ref.kind:
                self._has_any_kind = False
            text = response.text
        if is_gone:
            return None
        raise ApiUnavailable(f"{text}; is endpoint right?", needs_operator=True)

    async def _read(self, path: str) -> _Response:
        """Request a resource and, if the server can, its reports."""
        response = await self._request("GET", f"{path}{self._query}")
        if self._query and response.status == HTTPStatus.BAD_REQUEST:
            response = await self._request("GET", path)
            if response.status != HTTPStatus.BAD_REQUEST:
                self._query = ""
        return response

    def _lookup_paths(self, ref: ResourceRef) -> list[str]:
        """The paths to try by id; those by kind only matter if the server lacks the first."""
        paths = [f"{_ANY_KIND}/{ref.id}"] if self._has_any_kind else []
        plurals = [_plural(kind) for kind in ([ref.kind] if ref.kind else self._kinds)]
        paths += [f"{plural}/{ref.id}" for plural in plurals if _SEGMENT.fullmatch(plural)]
        return paths or [f"{_ANY_KIND}/{ref.id}"]

    async def _reports(self, path: str) -> list[KnownReport] | None:
        """Return the latest report of each adapter; None if the resource does not exist any more."""
        reports: list[KnownReport] = []
        for number in range(1, _MAX_PAGES + 1):
            response = await self._request("GET", f"{path}/statuses?page={number}&size={_PAGE_SIZE}")
            if _is_gone(response, requires_problem=True):
                return None
            if response.status != HTTPStatus.OK:
                raise ApiUnavailable(response.text)
            try:
                page = read_statuses(response.body)
            except Malformed as error:
                raise ApiUnavailable(f"the reports cannot be read: {error}") from error
            reports += page.items
            if not page.items or len(reports) >= page.total:
                break
        return reports


def _report_result(response: _Response) -> ReportResult:
    if response.status == HTTPStatus.NO_CONTENT:
        reason = response.discard_reason
        return ReportResult(
            ReportOutcome.DISCARDED, DiscardReason(reason) if reason in set(DiscardReason) else None
        )
    if response.status == HTTPStatus.CREATED or (response.status == HTTPStatus.OK and _is_json_object(response)):
        return ReportResult(ReportOutcome.STORED)
    if response.status < 300:
        # Another server at this address, such as one that returns a page for every path.
        text = f"{response.text}: expected the response to a report; is endpoint right?"
        raise ApiUnavailable(text, needs_operator=True)
    if _is_gone(response, requires_problem=True):
        return ReportResult(ReportOutcome.GONE)
    if response.status == HTTPStatus.NOT_FOUND:
        raise ApiUnavailable(f"{response.text}; is endpoint right?", needs_operator=True)
    errors = response.problem.field_errors if response.problem is not None else ()
    if any(error.field == "observed_time" for error in errors):
        raise ApiUnavailable(f"{response.text}; is this machine's clock right?", needs_operator=True)
    return ReportResult(ReportOutcome.REFUSED, response.text)


def _is_about_resource(rejected: RequestRejected) -> bool:
    response = rejected.response
    return not (response.is_redirect or response.is_temporary or response.status in _ACCESS_ERRORS)


def _is_gone(response: _Response, *, requires_problem: bool) -> bool:
    """Whether the API says that the resource does not exist. A 404 without problem+json may come from a proxy, so
    it counts only without `requires_problem`."""
    if response.status != HTTPStatus.NOT_FOUND or _is_no_route(response):
        return False
    return response.problem is not None or not requires_problem


def _is_json_object(response: _Response) -> bool:
    try:
        return isinstance(msgspec.json.decode(response.body), dict)
    except DECODE_ERRORS:
        return False


def _is_no_route(response: _Response) -> bool:
    return response.problem is not None and response.problem.code == Code.NO_ROUTE


def _resource_path(href: str, resource_id: str) -> str:
    """The path of the resource relative to the API's root; empty if `href` is not a path of this resource."""
    path = href.partition(f"{API_ROOT}/")[2]
    segments = path.split("/", _MAX_SEGMENTS)
    is_safe = all(_SEGMENT.fullmatch(segment) for segment in segments)
    return path if is_safe and segments[-1] == resource_id else ""


def _plural(kind: str) -> str:
    singular = kind.lower()
    if singular.endswith("y") and singular[-2:-1] not in "aeiou":
        return f"{singular[:-1]}ies"
    return f"{singular}es" if singular.endswith(("s", "x")) else f"{singular}s"
