"""The HTTP client that adapters' tasks get as `context.http`.

Two implementations ship: a real one, and one in `sentinel.testing` that returns the responses a test sets up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol, TypedDict, Unpack

import msgspec

from sentinel.core.json import Json

_MAX_EXCERPT = 300
_USERINFO = re.compile(r"^([^:/@]*://)?[^/]*@")


def redact_url(url: str) -> str:
    """Remove the query and the user from a URL: errors quote it and end up in reports, and both may hold
    secrets."""
    bare = url.partition("#")[0].partition("?")[0]
    return _USERINFO.sub(r"\1", bare) + ("" if bare == url else "?…")


class HttpFailure(Exception):
    """No response came after all retries, or `raise_for_status` was called on an error."""


class HttpResponse(msgspec.Struct, frozen=True):
    """A response with its whole body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    """By lower-case name."""
    url: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the status is one of 200 to 299."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """Decode the body as UTF-8; invalid bytes are replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Json:
        """Decode the body as JSON; raises `ValueError` if it is invalid."""
        decoded: Json = msgspec.json.decode(self.body)
        return decoded

    def raise_for_status(self) -> HttpResponse:
        """Return self; raise `HttpFailure` with an excerpt of the body if the status is 400 or more."""
        if self.status >= 400:
            excerpt = " ".join(self.text()[:_MAX_EXCERPT].split())
            raise HttpFailure(f"{redact_url(self.url)}: {self.status}{f': {excerpt}' if excerpt else ''}")
        return self


class RequestOptions(TypedDict, total=False):
    """Optional arguments of a request."""

    json: object
    """Sent as JSON."""
    data: bytes
    """Sent unchanged."""
    headers: Mapping[str, str]
    params: Mapping[str, str]
    """The query."""
    timeout: timedelta
    """For each attempt; defaults to the client's."""


class HttpClient(Protocol):
    """Sends requests with timeouts, and with retries if repeating is safe.

    Every response is returned, whatever its status; `HttpFailure` is raised only if none came. GET, HEAD,
    OPTIONS, PUT and DELETE are retried a few times when the connection fails or the server is overloaded (429,
    502, 503, 504), and the last response is returned. POST and PATCH are retried only if they were not sent.
    """

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse: ...

    async def get(self, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        return await self.request("GET", url, **options)

    async def put(self, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        return await self.request("PUT", url, **options)

    async def post(self, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        return await self.request("POST", url, **options)

    async def patch(self, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        return await self.request("DELETE", url, **options)
