"""A verified fake of `context.http`: it answers what a test tells it to, and remembers what it was asked.

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
    """A request that a task made."""

    method: str
    url: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    params: Mapping[str, str] = {}

    def json(self) -> Json:
        """What was sent as JSON."""
        decoded: Json = msgspec.json.decode(self.body)
        return decoded


class FakeHttp(HttpClient):
    """Answers by method and URL. What it was not told to answer fails, as a server that is not there does."""

    def __init__(self) -> None:
        self.requests: list[SentRequest] = []
        self._answers: dict[tuple[str, str], list[HttpResponse]] = {}

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
        """What this request gets. Told several times, one answer comes after the other, and the last for ever."""
        named = {name.lower(): value for name, value in (headers or {}).items()}
        content = body if json is UNSET else msgspec.json.encode(json)
        answers = self._answers.setdefault((method.upper(), url), [])
        answers.append(HttpResponse(status, content, named, url))

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        method = method.upper()
        body = msgspec.json.encode(options["json"]) if "json" in options else options.get("data", b"")
        self.requests.append(
            SentRequest(method, url, body, dict(options.get("headers") or {}), dict(options.get("params") or {}))
        )
        answers = self._answers.get((method, url))
        if not answers:
            raise HttpFailure(f"{method} {url}: the test has no answer to this")
        return answers.pop(0) if len(answers) > 1 else answers[0]
