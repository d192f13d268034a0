"""Requests to one server: with the token, through the proxy, within a time, and with errors in plain words.

A request is sent once unless the client is given a policy for retries. Redirects are not followed: that would give
the token to any server that a response names. Errors never contain the token or the proxy's password, not even
where a server echoes them.
"""

from __future__ import annotations

import asyncio
import random as randomness
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
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
    TooLarge,
    Unreachable,
    UnreachableReason,
    is_temporary,
)
from sentinel.drivers.rest.proxies import NO_PROXIES, Proxies
from sentinel.drivers.rest.responses import RestResponse, excerpt
from sentinel.drivers.rest.retries import IDEMPOTENT_METHODS, NO_RETRIES, Retries
from sentinel.drivers.rest.token import BearerToken
from sentinel.drivers.rest.url import base_url as checked
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.secrets import Secret

LARGEST_BODY = 64 * 1024 * 1024
KEEP_ALIVE = timedelta(seconds=15)

_LARGEST_REFUSAL = 256 * 1024


class RestClient:
    """The way to one server, kept open between requests."""

    def __init__(
        self,
        *,
        base_url: str,
        user_agent: str,
        token: BearerToken | None = None,
        ca_file: Path | None = None,
        proxies: Proxies = NO_PROXIES,
        gzip: bool = False,
        connections: int = 100,
        keep_alive: timedelta = KEEP_ALIVE,
        retries: Retries = NO_RETRIES,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        """Raises `InvalidUrl`, and `Misconfigured` for a proxy that cannot be used.

        `ca_file` replaces the system's authorities; it is read when a connection is first made, and again after a
        certificate was not trusted.
        """
        base = checked(base_url)
        self.base_url = str(base).rstrip("/")
        """What every URL begins with; free of secrets."""
        self._is_tls = base.scheme == "https"
        self._token = token or BearerToken()
        self._ca_file = ca_file
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
        self._random = random
        self._session: aiohttp.ClientSession | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        timeout: timedelta,
        limit: int = LARGEST_BODY,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[RestResponse]:
        """The response, if its status is one of 200 to 299, or 304.

        `path` is what comes behind the base URL, encoded, with its query. `timeout` is for each attempt, from its
        beginning to the last byte of the response, `limit` for the bytes of its body. Raises `Unreachable`,
        `RequestRejected`, `TooLarge` and `Misconfigured`.
        """
        send = partial(self._send, method, path, timeout, limit, body, headers)
        return send() if self._retries.attempts <= 1 else self._retry(send, method)

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _retry(self, send: Callable[[], Awaitable[RestResponse]], method: str) -> RestResponse:
        attempt = 0
        while True:
            try:
                return await send()
            except Unreachable as error:
                if error.needs_operator or (error.was_sent and method not in IDEMPOTENT_METHODS):
                    raise
                wait = self._retries.wait(attempt, random=self._random())
                if wait is None:
                    raise
            except RequestRejected as error:
                if not error.is_retryable or method not in IDEMPOTENT_METHODS:
                    raise
                wait = self._retries.wait(attempt, random=self._random(), asked=error.response.retry_after)
                if wait is None:
                    raise
            attempt += 1
            await asyncio.sleep(wait.total_seconds())

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
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        if headers is not None:
            sent |= headers
        if not self._is_tls:
            # The proxy reads the request itself. With TLS it sees no more than CONNECT, which has its own headers.
            sent |= self._proxy_headers
        try:
            async with (
                asyncio.timeout(timeout.total_seconds()),
                self._open().request(
                    method,
                    URL(f"{self.base_url}{path}", encoded=True),
                    data=body,
                    headers=sent,
                    allow_redirects=False,
                    proxy=self._proxy_url,
                    proxy_headers=self._proxy_headers if self._is_tls else None,
                ) as response,
            ):
                if response.status >= 300 and response.status != HTTPStatus.NOT_MODIFIED:
                    raise await self._refusal(response, token)
                content = await responses.read_up_to(response, limit)
                if len(content) > limit:
                    raise TooLarge(limit)
                return RestResponse(response.status, content, response.headers)
        except TimeoutError as error:
            text = f"no complete answer within {timeout.total_seconds():.3g} s"
            raise Unreachable(text, reason=UnreachableReason.TIMEOUT) from error
        except aiohttp.ClientConnectorCertificateError as error:
            # The file may have been replaced since it was read; the next request reads it again.
            await self.close()
            detail = getattr(error.certificate_error, "verify_message", "") or "verification failed"
            text = f"the server's certificate is not trusted ({detail})"
            raise Unreachable(
                text, reason=UnreachableReason.CERTIFICATE, detail=detail, needs_operator=True
            ) from error
        except aiohttp.ClientProxyConnectionError as error:
            detail = self._shown(error.os_error.strerror or str(error.os_error), token).lower()
            text = f"cannot reach the proxy {self._proxy}: {detail}"
            raise Unreachable(text, reason=UnreachableReason.PROXY, detail=detail) from error
        except aiohttp.ClientConnectorError as error:
            detail = self._shown(error.os_error.strerror or str(error.os_error), token).lower()
            raise Unreachable(
                self._shown(str(error), token), reason=UnreachableReason.CONNECTION, detail=detail
            ) from error
        # Errors of this family are not chained: their representation shows the headers of the request.
        except aiohttp.ClientHttpProxyError as error:
            detail = f"{error.status} {self._shown(error.message, token)}".rstrip()
            raise Unreachable(
                f"the proxy {self._proxy} refuses: {detail}",
                reason=UnreachableReason.PROXY,
                detail=detail,
                needs_operator=not is_temporary(error.status),
            ) from None
        except aiohttp.ClientResponseError as error:
            detail = self._shown(error.message, token)
            raise Unreachable(
                f"malformed HTTP: {detail}", reason=UnreachableReason.MALFORMED, detail=detail
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            detail = self._shown(str(error), token) or type(error).__name__
            raise Unreachable(detail, reason=UnreachableReason.BROKEN, detail=detail) from error

    async def _refusal(self, response: aiohttp.ClientResponse, token: str) -> RequestRejected:
        body = b""
        with suppress(aiohttp.ClientError):  # the status says more than an explanation that breaks off
            body = await responses.read_up_to(response, _LARGEST_REFUSAL)
        status = response.status
        found = problem.read_problem(body)
        refusal = ErrorResponse(
            status,
            phrase=self._redacted(response.reason or "", token),
            explanation=self._redacted(
                problem.explanation(found, body, content_type=response.content_type), token
            ),
            problem=None if found is None else found.redacted(lambda text: self._redacted(text, token)),
            origin=_origin(response.headers.get("Location", "")) if 300 <= status < 400 else "",
            retry_after=responses.retry_after(response.headers) if is_temporary(status) else timedelta(0),
            has_new_token=status == HTTPStatus.UNAUTHORIZED and self._token.read() != token,
        )
        line = f"{status} {excerpt(refusal.phrase)}".rstrip()
        if refusal.is_redirect:
            return RequestRejected(f"{line} to {refusal.origin}; redirects are not followed", refusal)
        said = excerpt(refusal.explanation)
        return RequestRejected(f"{line}: {said}" if said else line, refusal)

    def _shown(self, text: str, token: str) -> str:
        return excerpt(self._redacted(text, token))

    def _redacted(self, text: str, token: str) -> str:
        """The text without what this request carried."""
        secrets = self._proxy.secrets if self._proxy is not None else ()
        return Redactor((token, *(secret.reveal() for secret in secrets))).redact(text)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._authorities() if self._is_tls else True,
                    limit=self._connections,
                    keepalive_timeout=self._keep_alive.total_seconds(),
                ),
                # Never the token: aiohttp would send it to a proxy, as the headers of CONNECT.
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request brings its own
                trust_env=False,  # which would send what .netrc has
            )
        return self._session

    def _authorities(self) -> ssl.SSLContext | bool:
        try:
            return ssl_context(self._ca_file)
        except OSError as error:  # which includes ssl.SSLError
            raise Misconfigured(f"ca_file {self._ca_file}: {error.strerror or error}") from error


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """The certificate authorities to trust: those in the file, or the system's. Raises `OSError`."""
    return True if ca_file is None else ssl.create_default_context(cafile=ca_file)


def _proxy_headers(authorization: Secret | None) -> dict[str, str]:
    return {} if authorization is None else {"Proxy-Authorization": authorization.reveal()}


def _origin(location: str) -> str:
    try:
        return str(URL(location).origin())
    except ValueError:
        return "elsewhere"
