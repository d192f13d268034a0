"""`context.http` over aiohttp: timeouts on every attempt, and retries if repeating is safe.

Tasks call servers that we know nothing about. So every response is returned as it is, and a request is retried
only if no response came or the server is overloaded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Unpack

import aiohttp
import msgspec

from sentinel.drivers.rest.retries import IDEMPOTENT_METHODS, Retries
from sentinel.ports.task_http import HttpClient, HttpFailure, HttpResponse, RequestOptions, redact_url
from sentinel.runtime.log_format import describe

MAX_BODY = 16 * 1024 * 1024
RETRIES = Retries(attempts=3)

_FOLLOWS_REDIRECTS = frozenset({"GET", "HEAD"})
_OVERLOADED = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_JSON = "application/json"


class TaskHttp(HttpClient):
    """The client for all tasks of an adapter; it keeps connections alive between requests."""

    def __init__(
        self,
        *,
        user_agent: str,
        timeout: timedelta = timedelta(seconds=10),
        connections: int = 100,
        retries: Retries = RETRIES,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`timeout` limits each attempt of a request that sets none."""
        self._user_agent = user_agent
        self._timeout = timeout
        self._connections = connections
        self._retries = retries
        self._jitter = jitter
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
                if method not in IDEMPOTENT_METHODS or response.status not in _OVERLOADED:
                    return response
                wait = self._retries.delay(attempt, random=self._jitter(), retry_after=_retry_after(response))
                if wait is None:
                    return response
            except aiohttp.InvalidURL:
                # Not chained: it quotes the whole URL.
                raise HttpFailure(f"{method} {redact_url(url)}: not a URL") from None
            except (aiohttp.ClientError, OSError) as error:  # includes timeouts
                was_sent = not isinstance(error, aiohttp.ClientConnectorError)
                wait = self._retries.delay(attempt, random=self._jitter())
                if wait is None or (was_sent and method not in IDEMPOTENT_METHODS):
                    # Not chained: the representation of some of these errors shows the request's headers.
                    cause = _describe(error, timeout).replace(url, redact_url(url))
                    raise HttpFailure(f"{method} {redact_url(url)}: {cause}") from None
            attempt += 1
            await asyncio.sleep(wait.total_seconds())

    async def close(self) -> None:
        """Close the connections. Safe to repeat; the next request opens them again."""
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
            self._open_session().request(
                method,
                url,
                data=body,
                headers=headers,
                params=params,  # type: ignore[arg-type]  # a mapping of strings is one of the accepted types
                allow_redirects=method in _FOLLOWS_REDIRECTS,
            ) as response,
        ):
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_BODY:
                    raise HttpFailure(f"{method} {redact_url(url)}: expected at most {MAX_BODY} bytes, got more")
            return HttpResponse(
                response.status,
                bytes(content),
                {name.lower(): value for name, value in response.headers.items()},
                url,
            )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                headers={"User-Agent": self._user_agent},
                cookie_jar=aiohttp.DummyCookieJar(),  # tasks must not share cookies
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request has its own
            )
        return self._session


def _retry_after(response: HttpResponse) -> timedelta:
    value = response.headers.get("retry-after", "").strip()
    return timedelta(seconds=int(value)) if value.isdecimal() and len(value) < 6 else timedelta(0)


def _describe(error: Exception, timeout: timedelta) -> str:
    if isinstance(error, TimeoutError):
        return f"no complete response within {timeout.total_seconds():g} s"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"malformed HTTP: {error.message}"
    return describe(error)
