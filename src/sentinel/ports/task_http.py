"""The HTTP client that adapters' tasks are given, as `context.http`.

Two implementations ship: one that speaks HTTP, and one in `sentinel.testing` that answers what a test tells it to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol, TypedDict, Unpack

import msgspec

from sentinel.core.pulse.observation import Json

_EXCERPT = 300
_USERINFO = re.compile(r"^([^:/@]*://)?[^/]*@")


def redact_url(url: str) -> str:
    """A URL as errors quote it, which end up in reports: without its query, where keys and signatures are, and
    without a user, whose name may be a token."""
    bare = url.partition("#")[0].partition("?")[0]
    return _USERINFO.sub(r"\1", bare) + ("" if bare == url else "?…")


class HttpFailure(Exception):
    """No answer came, however often it was asked for; or one came that `raise_for_status` was not happy with."""


class HttpResponse(msgspec.Struct, frozen=True):
    """An answer, read to its end."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    """By their names in lower case."""
    url: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the status is one of 200 to 299."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """The body as text; what is not UTF-8 is replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Json:
        """The body's JSON; raises `ValueError` where it is none."""
        decoded: Json = msgspec.json.decode(self.body)
        return decoded

    def raise_for_status(self) -> HttpResponse:
        """Itself; raises `HttpFailure` with the beginning of the body where the status is 400 or more."""
        if self.status >= 400:
            said = " ".join(self.text()[:_EXCERPT].split())
            raise HttpFailure(f"{redact_url(self.url)}: {self.status}{f': {said}' if said else ''}")
        return self


class RequestOptions(TypedDict, total=False):
    """What a request may have beside its URL."""

    json: object
    """Sent as JSON."""
    data: bytes
    """Sent as it is."""
    headers: Mapping[str, str]
    params: Mapping[str, str]
    """The query."""
    timeout: timedelta
    """For each attempt; the client's own where nothing is said."""


class HttpClient(Protocol):
    """Requests with timeouts, and with retries where repeating cannot do harm.

    An answer is an answer, whatever its status; `HttpFailure` is raised only where none came. GET, HEAD, OPTIONS,
    PUT and DELETE are repeated a few times when the connection fails or the server is overloaded (429, 502, 503,
    504); the last answer is then the answer. POST and PATCH are sent again only if they were never sent.
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
