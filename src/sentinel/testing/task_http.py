"""A verified fake of `context.http`: it returns the responses of a test and records the requests.

http = FakeHttp()
http.answer("PUT", "http://dns.internal/zones/c1", status=202)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import msgspec
from msgspec import UNSET

from sentinel.core.json import Json
from sentinel.ports.task_http import HttpClient, HttpFailure, HttpResponse, RequestOptions


class SentRequest(msgspec.Struct, frozen=True):
    """A request of a task."""

    method: str
    url: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    params: Mapping[str, str] = {}

    def json(self) -> Json:
        """The body, decoded as JSON."""
        decoded: Json = msgspec.json.decode(self.body)
        return decoded


class FakeHttp(HttpClient):
    """Returns responses by method and URL. Any other request fails like one to an unreachable server."""

    def __init__(self) -> None:
        self.requests: list[SentRequest] = []
        self._responses: dict[tuple[str, str], list[HttpResponse]] = {}

    def answer(
        self,
        method: str,
        url: str,
        *,
        status: int = 200,
        json: object = UNSET,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Set the response to this request. Several are returned one after the other, and the last repeats."""
        lower_case = {name.lower(): value for name, value in (headers or {}).items()}
        content = body if json is UNSET else msgspec.json.encode(json)
        responses = self._responses.setdefault((method.upper(), url), [])
        responses.append(HttpResponse(status, content, lower_case, url))

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        method = method.upper()
        body = msgspec.json.encode(options["json"]) if "json" in options else options.get("data", b"")
        self.requests.append(
            SentRequest(method, url, body, dict(options.get("headers") or {}), dict(options.get("params") or {}))
        )
        responses = self._responses.get((method, url))
        if not responses:
            raise HttpFailure(f"{method} {url}: the test has no response for this request")
        return responses.pop(0) if len(responses) > 1 else responses[0]
