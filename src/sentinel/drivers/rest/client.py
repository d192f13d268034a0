"""HTTP requests to one REST server, with a bearer token, a proxy, timeouts and readable errors.

A request is sent once unless the client has a retry policy. Redirects are not followed, because the token would go
to any server that a response names. Errors never contain the token or the proxy's password, even if the server
echoes them.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path

import aiohttp
from yarl import URL

from sentinel.drivers.rest import problem, responses
from sentinel.drivers.rest.errors import (
    ErrorResponse,
    RequestRejected,
    StreamIdle,
    TooLarge,
    UnexpectedContent,
    Unreachable,
    UnreachableReason,
    is_temporary,
)
from sentinel.drivers.rest.proxies import NO_PROXIES, Proxies
from sentinel.drivers.rest.responses import LineSplitter, RestResponse, excerpt
from sentinel.drivers.rest.retries import IDEMPOTENT_METHODS, NO_RETRIES, Retries
from sentinel.drivers.rest.tls import Tls, TlsSettings
from sentinel.drivers.rest.token import BearerToken
from sentinel.drivers.rest.url import parse_base_url
from sentinel.runtime.secrets import Redactor, Secret
from sentinel.runtime.tracing import NO_TRACING, Tracer

MAX_BODY = 64 * 1024 * 1024
MAX_LINE = 8 * 1024 * 1024
KEEP_ALIVE = timedelta(seconds=15)

_MAX_ERROR_BODY = 256 * 1024
_TLS_CONTEXT = re.compile(r" ssl:(<[^>]*>|\S+)")
"""What aiohttp writes about TLS. It contains a memory address, so equal failures would have different texts."""
_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError)
"""What requests raise without a response; TimeoutError is an OSError."""


class RestClient:
    """A client of one server; it keeps connections open between requests."""

    def __init__(
        self,
        *,
        base_url: str,
        user_agent: str,
        token: BearerToken | None = None,
        ca_file: Path | None = None,
        tls: Tls | None = None,
        proxies: Proxies = NO_PROXIES,
        gzip: bool = False,
        connections: int = 100,
        keep_alive: timedelta = KEEP_ALIVE,
        retries: Retries = NO_RETRIES,
        jitter: Callable[[], float] = random.random,
        tracer: Tracer = NO_TRACING,
    ) -> None:
        """Raises `InvalidUrl`, and `Misconfigured` for an invalid proxy.

        `ca_file` replaces the system's certificate authorities; `tls` is for all that a CA file cannot express.
        Files are read before the first connection, and again after they changed or a certificate was refused. A
        request carries the `traceparent` of the tracer's current span.
        """
        base = parse_base_url(base_url)
        self.base_url = str(base).rstrip("/")
        """The common prefix of all URLs, without secrets."""
        self._is_tls = base.scheme == "https"
        self._token = token or BearerToken()
        self._tls = tls or Tls(TlsSettings(ca_file=ca_file))
        self._proxy = proxies.choose(base)
        self._proxy_url = URL(self._proxy.url) if self._proxy is not None else None
        self._proxy_headers = _proxy_headers(self._proxy.authorization if self._proxy is not None else None)
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip" if gzip else "identity",
            "User-Agent": user_agent,
        }
        self._connections = connections
        self._keep_alive = keep_alive
        self._retries = retries
        self._jitter = jitter
        self._tracer = tracer
        self._session: aiohttp.ClientSession | None = None
        self._streams: set[aiohttp.ClientResponse] = set()

    def request(
        self,
        method: str,
        path: str,
        *,
        timeout: timedelta,
        limit: int = MAX_BODY,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[RestResponse]:
        """Send a request and return the response if its status is 200 to 299, or 304.

        `path` follows the base URL; it is encoded and includes the query. `timeout` bounds each attempt until
        the last byte of the response, `limit` the bytes of its body. Raises `Unreachable`, `RequestRejected`,
        `TooLarge` and `Misconfigured`.
        """
        if self._retries.attempts <= 1:
            return self._send(method, path, timeout, limit, body, headers)
        return self._retry(method, partial(self._send, method, path, timeout, limit, body, headers))

    async def stream_lines(
        self,
        method: str,
        path: str,
        *,
        timeout: timedelta,
        idle_timeout: timedelta,
        limit: int = MAX_LINE,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the lines of the response as they arrive, without their ends.

        `timeout` bounds the time until the response begins, `idle_timeout` the time between two parts of it,
        `limit` the bytes of a line. Closing the generator ends the request. It is never retried. Raises the errors
        of `request`, and `StreamIdle`. A response that ends within a line is `Unreachable`.
        """
        splitter = LineSplitter(limit)
        async with aclosing(
            self.stream(method, path, timeout=timeout, idle_timeout=idle_timeout, headers=headers)
        ) as chunks:
            async for chunk in chunks:
                for line in splitter.feed(chunk):
                    yield line
        if splitter.has_rest:
            detail = "the response ended within a line"
            raise Unreachable(detail, reason=UnreachableReason.BROKEN, detail=detail)

    async def stream(
        self,
        method: str,
        path: str,
        *,
        timeout: timedelta,
        idle_timeout: timedelta,
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the response in chunks as they arrive; the first is empty and says that it has
        begun.

        As `stream_lines`, which see. With a `content_type`, any other raises `UnexpectedContent`, and the response
        is not read.
        """
        token = self._token.read()
        async with AsyncExitStack() as opened:
            response = await self._begin_stream(opened, method, path, token, timeout, headers)
            if content_type and response.content_type != content_type:
                response.close()  # a list may be long
                raise UnexpectedContent(expected=content_type, got=self._excerpt(response.content_type, token))
            self._streams.add(response)
            opened.callback(self._streams.discard, response)
            yield b""
            while chunk := await self._read_chunk(response, token, idle_timeout):
                yield chunk

    async def close(self) -> None:
        """Close the connections, also those of open streams. Idempotent; a request opens them again."""
        for response in tuple(self._streams):
            response.close()  # the session alone would not wake those who wait for its next line
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _retry(self, method: str, send: Callable[[], Awaitable[RestResponse]]) -> RestResponse:
        attempt = 0
        while True:
            try:
                return await send()
            except Unreachable as error:
                if error.needs_operator or (error.was_sent and method not in IDEMPOTENT_METHODS):
                    raise
                delay = self._retries.delay(attempt, random=self._jitter())
                if delay is None:
                    raise
            except RequestRejected as error:
                if not error.is_retryable or method not in IDEMPOTENT_METHODS:
                    raise
                delay = self._retries.delay(attempt, random=self._jitter(), retry_after=error.response.retry_after)
                if delay is None:
                    raise
            attempt += 1
            await asyncio.sleep(delay.total_seconds())

    async def _send(
        self,
        method: str,
        path: str,
        timeout: timedelta,
        limit: int,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> RestResponse:
        token = self._token.read()
        try:
            async with (
                asyncio.timeout(timeout.total_seconds()),
                self._start(method, path, token, body, headers) as response,
            ):
                if response.status >= 300 and response.status != HTTPStatus.NOT_MODIFIED:
                    raise await self._rejection(response, token)
                content = await responses.read_up_to(response, limit)
                if len(content) > limit:
                    raise TooLarge(limit)
                return RestResponse(response.status, content, response.headers)
        except _TRANSPORT_ERRORS as error:
            raise self._unreachable(error, token, timeout) from _as_cause(error)

    def _start(
        self, method: str, path: str, token: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        request_headers = {"Authorization": f"{self._token.scheme} {token}"} if token else {}
        if traceparent := self._tracer.traceparent():
            request_headers["traceparent"] = traceparent
        if headers is not None:
            request_headers |= headers
        if not self._is_tls:
            # The proxy reads the request itself. With TLS it sees only CONNECT, which has its own headers.
            request_headers |= self._proxy_headers
        # Not in the session: connections that are in use keep their context when a new one is built.
        context = self._tls.context() if self._is_tls else True
        return self._open().request(
            method,
            URL(f"{self.base_url}{path}", encoded=True),
            data=body,
            headers=request_headers,
            allow_redirects=False,
            proxy=self._proxy_url,
            proxy_headers=self._proxy_headers if self._is_tls else None,
            ssl=context,
            server_hostname=self._tls.server_name,
        )

    async def _begin_stream(
        self,
        opened: AsyncExitStack,
        method: str,
        path: str,
        token: str,
        timeout: timedelta,
        headers: Mapping[str, str] | None,
    ) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                response = await opened.enter_async_context(self._start(method, path, token, None, headers))
                if response.status != HTTPStatus.OK:
                    raise await self._rejection(response, token)
                return response
        except _TRANSPORT_ERRORS as error:
            raise self._unreachable(error, token, timeout) from _as_cause(error)

    async def _read_chunk(self, response: aiohttp.ClientResponse, token: str, idle_timeout: timedelta) -> bytes:
        """Return what has arrived, or b"" at the end of the response."""
        try:
            async with asyncio.timeout(idle_timeout.total_seconds()):
                return await response.content.readany()
        except TimeoutError as error:
            raise StreamIdle(idle_timeout) from error
        except _TRANSPORT_ERRORS as error:
            raise self._unreachable(error, token, idle_timeout) from _as_cause(error)

    def _unreachable(self, error: Exception, token: str, timeout: timedelta) -> Unreachable:
        """Translate an error of the connection."""
        if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
            # The server's certificate was refused, or ours. The files may have been replaced.
            self._tls.discard()
        match error:
            case TimeoutError():
                text = f"no complete response within {timeout.total_seconds():.3g} s"
                return Unreachable(text, reason=UnreachableReason.TIMEOUT)
            case aiohttp.ClientConnectorCertificateError():
                detail = getattr(error.certificate_error, "verify_message", "") or "verification failed"
                text = f"the server's certificate is not trusted ({detail})"
                return Unreachable(text, reason=UnreachableReason.CERTIFICATE, detail=detail, needs_operator=True)
            case aiohttp.ClientProxyConnectionError():
                detail = self._excerpt(error.os_error.strerror or str(error.os_error), token).lower()
                text = f"cannot reach the proxy {self._proxy}: {detail}"
                return Unreachable(text, reason=UnreachableReason.PROXY, detail=detail)
            case aiohttp.ClientConnectorError():
                detail = self._excerpt(error.os_error.strerror or str(error.os_error), token).lower()
                text = self._excerpt(_TLS_CONTEXT.sub("", str(error)), token)
                return Unreachable(text, reason=UnreachableReason.CONNECTION, detail=detail)
            case aiohttp.ClientHttpProxyError():
                detail = f"{error.status} {self._excerpt(error.message, token)}".rstrip()
                return Unreachable(
                    f"the proxy {self._proxy} refuses: {detail}",
                    reason=UnreachableReason.PROXY,
                    detail=detail,
                    needs_operator=not is_temporary(error.status),
                )
            case aiohttp.ClientResponseError():
                detail = self._excerpt(error.message, token)
                return Unreachable(f"malformed HTTP: {detail}", reason=UnreachableReason.MALFORMED, detail=detail)
            case _:
                detail = self._excerpt(str(error), token) or type(error).__name__
                return Unreachable(detail, reason=UnreachableReason.BROKEN, detail=detail)

    async def _rejection(self, response: aiohttp.ClientResponse, token: str) -> RequestRejected:
        body = b""
        with suppress(aiohttp.ClientError):  # the status matters more than a truncated explanation
            body = await responses.read_up_to(response, _MAX_ERROR_BODY)
        status = response.status
        received = problem.read_problem(body)
        rejection = ErrorResponse(
            status,
            phrase=self._redacted(response.reason or "", token),
            explanation=self._redacted(
                problem.explanation(received, body, content_type=response.content_type), token
            ),
            problem=None if received is None else received.redacted(lambda text: self._redacted(text, token)),
            origin=_origin(response.headers.get("Location", "")) if 300 <= status < 400 else "",
            retry_after=responses.retry_after(response.headers) if is_temporary(status) else timedelta(0),
            has_new_token=status == HTTPStatus.UNAUTHORIZED and self._token.read() != token,
        )
        line = f"{status} {excerpt(rejection.phrase)}".rstrip()
        if rejection.is_redirect:
            return RequestRejected(f"{line} to {rejection.origin}; redirects are not followed", rejection)
        explanation = excerpt(rejection.explanation)
        return RequestRejected(f"{line}: {explanation}" if explanation else line, rejection, body=body)

    def _excerpt(self, text: str, token: str) -> str:
        return excerpt(self._redacted(text, token))

    def _redacted(self, text: str, token: str) -> str:
        """The text without the secrets of this request."""
        secrets = self._proxy.secrets if self._proxy is not None else ()
        return Redactor((token, *(secret.reveal() for secret in secrets))).redact(text)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections,
                    keepalive_timeout=self._keep_alive.total_seconds(),
                ),
                # Not the token: aiohttp would send it to the proxy in the headers of CONNECT.
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request has its own
                trust_env=False,  # it would send credentials from .netrc
            )
        return self._session


def _as_cause(error: Exception) -> Exception | None:
    """The error, unless its repr contains the headers of the request."""
    return None if isinstance(error, aiohttp.ClientResponseError) else error


def _proxy_headers(authorization: Secret | None) -> dict[str, str]:
    return {} if authorization is None else {"Proxy-Authorization": authorization.reveal()}


def _origin(location: str) -> str:
    try:
        return str(URL(location).origin())
    except ValueError:
        return "elsewhere"
