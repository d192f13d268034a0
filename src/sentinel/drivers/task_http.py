"""`context.http` over aiohttp: timeouts on every attempt, and retries where repeating cannot do harm.

A task talks to servers that we know nothing about, so nothing is assumed about them: an answer is handed on as it
came, and only where none came, or the server asks to be left alone for a moment, is a request repeated.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Unpack

import aiohttp
import msgspec

from sentinel.drivers.rest.retries import REPEATABLE, Retries
from sentinel.ports.task_http import HttpClient, HttpFailure, HttpResponse, RequestOptions, redact_url
from sentinel.runtime.log import describe

MAX_BODY = 16 * 1024 * 1024
RETRIES = Retries(attempts=3)

_FOLLOWED = frozenset({"GET", "HEAD"})
_BUSY = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_JSON = "application/json"


class TaskHttp(HttpClient):
    """One client for all tasks of an adapter; connections are kept alive between requests."""

    def __init__(
        self,
        *,
        user_agent: str,
        timeout: timedelta = timedelta(seconds=10),
        connections: int = 100,
        retries: Retries = RETRIES,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        """`timeout` bounds each attempt where a request brings none of its own."""
        self._user_agent = user_agent
        self._timeout = timeout
        self._connections = connections
        self._retries = retries
        self._random = random
        self._session: aiohttp.ClientSession | None = None

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        method = method.upper()
        headers = dict(options.get("headers") or {})
        body = options.get("data")
        if "json" in options:
            body = msgspec.json.encode(options["json"])
            if not any(name.lower() == "content-type" for name in headers):
                headers["Content-Type"] = _JSON
        timeout = options.get("timeout") or self._timeout
        attempt = 0
        while True:
            try:
                response = await self._send(method, url, body, headers, options.get("params"), timeout)
                if method not in REPEATABLE or response.status not in _BUSY:
                    return response
                wait = self._retries.wait(attempt, random=self._random(), asked=_asked(response))
                if wait is None:
                    return response
            except aiohttp.InvalidURL:
                # Not chained: it quotes the URL with all that is in it.
                raise HttpFailure(f"{method} {redact_url(url)}: not a URL") from None
            except (aiohttp.ClientError, OSError) as error:  # which includes timeouts
                was_sent = not isinstance(error, aiohttp.ClientConnectorError)
                wait = self._retries.wait(attempt, random=self._random())
                if wait is None or (was_sent and method not in REPEATABLE):
                    # Not chained: the representation of some of these errors shows the headers of the request.
                    said = _said(error, timeout).replace(url, redact_url(url))
                    raise HttpFailure(f"{method} {redact_url(url)}: {said}") from None
            attempt += 1
            await asyncio.sleep(wait.total_seconds())

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        params: object,
        timeout: timedelta,
    ) -> HttpResponse:
        async with (
            asyncio.timeout(timeout.total_seconds()),
            self._open().request(
                method,
                url,
                data=body,
                headers=headers,
                params=params,  # type: ignore[arg-type]  # a mapping of texts is one of the many it takes
                allow_redirects=method in _FOLLOWED,
            ) as response,
        ):
            received = bytearray()
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > MAX_BODY:
                    raise HttpFailure(f"{method} {redact_url(url)}: expected at most {MAX_BODY} bytes, got more")
            return HttpResponse(
                response.status,
                bytes(received),
                {name.lower(): value for name, value in response.headers.items()},
                url,
            )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                headers={"User-Agent": self._user_agent},
                cookie_jar=aiohttp.DummyCookieJar(),  # one task's session is none of another's business
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request brings its own
            )
        return self._session


def _asked(response: HttpResponse) -> timedelta:
    """How long the server asks to be left alone."""
    asked = response.headers.get("retry-after", "").strip()
    return timedelta(seconds=int(asked)) if asked.isdecimal() and len(asked) < 6 else timedelta(0)


def _said(error: Exception, timeout: timedelta) -> str:
    if isinstance(error, TimeoutError):
        return f"no complete answer within {timeout.total_seconds():g} s"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"malformed HTTP: {error.message}"
    return describe(error)
