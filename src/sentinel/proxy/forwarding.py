"""Forwards a request to a target and its response to the client.

Bodies are streamed in both directions: what a side does not read stays in the other side's socket. A request is
repeated only if its method allows that, it has no body, and no response has begun.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp import hdrs, web

from sentinel.core.proxy import forwarded_headers
from sentinel.core.proxy.forwarded_headers import Headers
from sentinel.core.proxy.model import Route
from sentinel.proxy.responses import Response, ResponseHeaders, abort, problem
from sentinel.proxy.telemetry import ProxyTelemetry
from sentinel.proxy.upstreams import PooledTarget, UpstreamPool
from sentinel.runtime.log import Log

_IDEMPOTENT: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class _AttemptFailed(Exception):
    """A target did not respond."""

    def __init__(self, error: Exception, *, reason: str, status: HTTPStatus, is_repeatable: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.reason = reason
        """The label of the metric: a closed set."""
        self.status = status
        self.is_repeatable = is_repeatable


class Forwarder:
    """Forwards requests."""

    def __init__(self, *, telemetry: ProxyTelemetry, log: Log) -> None:
        self._telemetry = telemetry
        self._log = log

    async def forward(
        self, request: web.BaseRequest, *, route: Route, pool: UpstreamPool, scheme: str, request_id: str
    ) -> ResponseHeaders:
        """Return the response, already sent, or an error to send."""
        with pool.in_use():
            headers = _request_headers(request, route, scheme=scheme, request_id=request_id)
            has_body = request.body_exists
            attempts = route.max_attempts if request.method in _IDEMPOTENT and not has_body else 1
            tried: list[PooledTarget] = []
            failure: _AttemptFailed | None = None
            while len(tried) < attempts:
                target = pool.choose(tried)
                if target is None:
                    break
                tried.append(target)
                try:
                    return await self._attempt(request, route, pool, target, headers)
                except _AttemptFailed as error:
                    failure = error
                    self._telemetry.record_failure(upstream=pool.upstream.id, route=route.id, reason=error.reason)
                    self._log.warning(
                        "upstream.failed",
                        upstream=pool.upstream.id,
                        target=str(target.target.address),
                        route=route.id,
                        error=error.error,
                    )
                    if not error.is_repeatable:
                        break
            if failure is None:
                self._telemetry.record_failure(upstream=pool.upstream.id, route=route.id, reason="unavailable")
                return problem(
                    HTTPStatus.SERVICE_UNAVAILABLE, f'no target of upstream "{pool.upstream.id}" is healthy'
                )
            return problem(failure.status, f'upstream "{pool.upstream.id}" did not respond')

    async def _attempt(
        self, request: web.BaseRequest, route: Route, pool: UpstreamPool, target: PooledTarget, headers: Headers
    ) -> ResponseHeaders:
        """Send the request to one target and stream the response. Raises `_AttemptFailed` if none began."""
        target.active += 1
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._send(request, pool, target, headers)
            return await self._stream(request, response, route, pool)
        finally:
            target.active -= 1
            if response is not None:
                response.release()  # closes the connection if the body was not read to its end

    async def _send(
        self, request: web.BaseRequest, pool: UpstreamPool, target: PooledTarget, headers: Headers
    ) -> aiohttp.ClientResponse:
        url = request.rel_url
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0  # so that a failure can still be reported: no response has begun
        try:
            return await pool.session.request(
                request.method,
                target.url(url.raw_path, url.raw_query_string),
                headers=headers,
                data=request.content if request.body_exists else None,
                allow_redirects=False,
                server_hostname=pool.server_name,
                timeout=pool.timeout,
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise _AttemptFailed(
                error, reason="timeout", status=HTTPStatus.GATEWAY_TIMEOUT, is_repeatable=True
            ) from error
        except aiohttp.ServerTimeoutError as error:
            raise _AttemptFailed(
                error, reason="timeout", status=HTTPStatus.GATEWAY_TIMEOUT, is_repeatable=False
            ) from error
        except aiohttp.ClientConnectionError as error:
            raise _AttemptFailed(
                error, reason="connection", status=HTTPStatus.BAD_GATEWAY, is_repeatable=True
            ) from error
        except (aiohttp.ClientError, ValueError) as error:  # what came is not HTTP
            raise _AttemptFailed(
                error, reason="protocol", status=HTTPStatus.BAD_GATEWAY, is_repeatable=False
            ) from error

    async def _stream(
        self, request: web.BaseRequest, response: aiohttp.ClientResponse, route: Route, pool: UpstreamPool
    ) -> ResponseHeaders:
        content = response.content
        status, reason, headers = response.status, response.reason, _response_headers(response)
        if content.is_eof() and content.exception() is None:
            # The body is here already. In one piece with the headers it costs one system call less.
            whole = Response(status=status, reason=reason, headers=headers, body=content.read_nowait() or None)
            whole.policy = route.response_headers
            await whole.prepare(request)
            await whole.write_eof()
            return whole
        sent = ResponseHeaders(status=status, reason=reason, headers=headers)
        sent.policy = route.response_headers
        await sent.prepare(request)
        while True:
            try:
                chunk = await content.readany()
            except (aiohttp.ClientError, TimeoutError) as error:
                self._telemetry.record_failure(upstream=pool.upstream.id, route=route.id, reason="interrupted")
                self._log.warning("upstream.interrupted", upstream=pool.upstream.id, route=route.id, error=error)
                abort(request)
                return sent
            if not chunk:
                break
            await sent.write(chunk)
        await sent.write_eof()
        return sent


def _request_headers(request: web.BaseRequest, route: Route, *, scheme: str, request_id: str) -> Headers:
    received = request.headers
    headers = forwarded_headers.end_to_end(received.items(), connection=received.get(hdrs.CONNECTION, ""))
    headers = forwarded_headers.with_forwarding(
        headers, client=request.remote or "unknown", host=received.get(hdrs.HOST, ""), scheme=scheme
    )
    if "X-Request-Id" not in received:
        headers.append(("X-Request-Id", request_id))
    return forwarded_headers.apply(route.request_headers, headers)


def _response_headers(response: aiohttp.ClientResponse) -> Headers:
    received = response.headers
    return forwarded_headers.end_to_end(received.items(), connection=received.get(hdrs.CONNECTION, ""))
