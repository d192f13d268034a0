"""Middleware for every request: a request id, a timeout, a limit on concurrent requests, headers that every
response has, and a record for the access log and metrics.

It is plain ASGI around the whole application, so that responses of the framework pass through it too, and cheap
enough not to show in a profile. Streams are sent from here, because neither timeout nor limit applies to them once
their headers are sent; see `web.streams`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final, Protocol, TypedDict, Unpack

import msgspec

from sentinel.core.problem_codes import Code
from sentinel.runtime.log import Log
from sentinel.web import problem, streams
from sentinel.web.asgi import (
    App,
    ClientDisconnected,
    Message,
    Receive,
    Scope,
    Send,
    client_address,
    connection_of,
    encode_headers,
)
from sentinel.web.problem import Problem
from sentinel.web.routing import Method, Route, Stream
from sentinel.web.streams import MAX_STREAMS, Streams

REQUEST_TIMEOUT: Final = timedelta(seconds=30)
MAX_CONCURRENT_REQUESTS: Final = 1000
OTHER: Final = "other"
"""The recorded route of a request that matches no route, and the recorded method if it is not a known one."""

_KEY = "sentinel.request_context"
_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_METHODS = frozenset((*(method.value for method in Method), "HEAD", "OPTIONS"))
_CLIENT_GONE = 499
"""Never sent. As with nginx, logs and metrics use it for a client that disconnected before the response."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Added to every response that does not set them itself."""


class RequestContext:
    """The state of a request while it is handled."""

    __slots__ = ("actor", "observers", "path", "record", "request_id", "route", "stream")

    def __init__(self, *, request_id: str, path: str) -> None:
        self.request_id = request_id
        self.path = path
        """As received, percent-decoded. The router may see a normalized one."""
        self.route: Route | None = None
        """None until the router has matched it."""
        self.observers: Sequence[RequestObserver] = ()
        """Observers of the route, in addition to those of the application."""
        self.actor = ""
        """The name of the caller; empty until it is identified."""
        self.stream: Stream | None = None
        """The response, if it is a stream."""
        self.record: RequestRecord | None = None
        """Set when the request has finished."""

    def found(self, route: Route, observers: Sequence[RequestObserver]) -> None:
        """Set the route that the router has matched, and notify its observers."""
        self.route = route
        self.observers = observers
        for observer in observers:
            observer.began()

    @staticmethod
    def of(scope: Scope) -> RequestContext:
        """Return the context that the middleware has put into the scope."""
        context: RequestContext = scope[_KEY]
        return context


class RequestRecord(msgspec.Struct, frozen=True):
    """A finished request. It holds nothing that might be secret: no query, no headers, no body."""

    method: str
    route: str
    """The path template, or `other`."""
    status: int
    size: int
    """Of the response body, in bytes."""
    duration: timedelta
    actor: str
    """Empty if the caller was not identified."""
    address: str
    request_id: str
    is_quiet: bool


class RequestObserver(Protocol):
    """Is notified when a request starts and when it has finished."""

    def began(self) -> None: ...

    def ended(self, record: RequestRecord) -> None: ...


class AccessLog:
    """Writes one line for each request; at debug level for quiet routes."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def began(self) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        write = self._log.debug if record.is_quiet else self._log.info
        write(
            "http.request",
            method=record.method,
            route=record.route,
            status=record.status,
            bytes=record.size,
            milliseconds=round(record.duration.total_seconds() * 1000, 2),
            actor=record.actor,
            address=record.address,
            request_id=record.request_id,
        )


class RequestLimits(TypedDict, total=False):
    """The limits of a server. Only `max_streams` applies to streams."""

    request_timeout: timedelta
    max_concurrent_requests: int
    max_streams: int
    """How many streams may be open."""


class Middleware:
    """Wraps an application."""

    def __init__(
        self,
        app: App,
        *,
        log: Log,
        observers: Sequence[RequestObserver] = (),
        always: Collection[str] = (),
        **limits: Unpack[RequestLimits],
    ) -> None:
        """The limit on concurrent requests does not apply to the paths in `always`, such as probes."""
        self._app = app
        self._log = log
        self._observers = tuple(observers)
        self._request_timeout = limits.get("request_timeout", REQUEST_TIMEOUT).total_seconds()
        self._max_concurrent_requests = limits.get("max_concurrent_requests", MAX_CONCURRENT_REQUESTS)
        self._always = frozenset(always)
        self._in_flight = 0
        self._streams = Streams(limit=limits.get("max_streams", MAX_STREAMS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"expected an HTTP request, got {scope['type']}")
        began = time.perf_counter()
        context = RequestContext(request_id=_client_request_id(scope) or secrets.token_hex(16), path=scope["path"])
        scope[_KEY] = context
        sender = _Sender(send, context.request_id)
        for observer in self._observers:
            observer.began()
        self._in_flight += 1
        try:
            try:
                stream = await self._handle(scope, receive, sender)
            finally:
                self._in_flight -= 1
            if stream is not None:
                await streams.send_body(
                    stream,
                    receive=receive,
                    send=sender,
                    connection=connection_of(scope),
                    log=self._log_of(context),
                )
        finally:
            if context.stream is not None:
                await self._streams.end(context.stream, log=self._log_of(context))
            record = self._record(scope, context, sender, timedelta(seconds=time.perf_counter() - began))
            context.record = record
            for observer in (*self._observers, *context.observers):
                observer.ended(record)

    async def _handle(self, scope: Scope, receive: Receive, sender: _Sender) -> Stream | None:
        """Handle a request within its timeout. Return a stream if its headers are sent but its body is not."""
        if self._in_flight > self._max_concurrent_requests and scope["path"] not in self._always:
            await sender.send_problem(
                problem.unavailable("too many requests are in progress", code=Code.OVERLOADED)
            )
            return None
        try:
            async with asyncio.timeout(self._request_timeout) as timeout:
                await self._app(scope, receive, sender)
                stream = RequestContext.of(scope).stream
                return None if stream is None else await self._begin(stream, scope["method"], sender)
        except ClientDisconnected:
            return None
        except TimeoutError:
            if not timeout.expired():
                raise
            # A response that has started cannot be replaced; the server closes the connection instead.
            if sender.status == _CLIENT_GONE:
                await sender.send_problem(problem.unavailable("the request took too long", code=Code.TOO_SLOW))
            self._log.warning("http.slow", path=scope["path"], request_id=RequestContext.of(scope).request_id)
            return None

    async def _begin(self, stream: Stream, method: str, sender: _Sender) -> Stream | None:
        """Send the headers of a stream. Return None if no body follows."""
        if not self._streams.begin(stream):
            await sender.send_problem(problem.unavailable("too many streams are open", code=Code.OVERLOADED))
            return None
        headers = [(b"content-type", stream.content_type.encode()), *encode_headers(stream.headers)]
        await sender({"type": "http.response.start", "status": stream.status, "headers": headers})
        if method == "HEAD":
            await sender({"type": "http.response.body", "body": b"", "more_body": False})
            return None
        return stream

    def _log_of(self, context: RequestContext) -> Log:
        return self._log.bind(path=context.path, request_id=context.request_id)

    def _record(
        self, scope: Scope, context: RequestContext, sender: _Sender, duration: timedelta
    ) -> RequestRecord:
        route, method = context.route, scope["method"]
        return RequestRecord(
            method=method if method in _METHODS else OTHER,
            route=OTHER if route is None else route.path,
            status=sender.status,
            size=sender.size,
            duration=duration,
            actor=context.actor,
            address=client_address(scope),
            request_id=context.request_id,
            is_quiet=route is not None and route.is_quiet,
        )


class _Sender:
    """Adds the common headers to the application's response, and records its status and size."""

    __slots__ = ("_request_id", "_send", "size", "status")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self.status = _CLIENT_GONE
        self.size = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message["headers"])
            present = {name for name, _ in headers}
            headers += [header for header in _HEADERS if header[0] not in present]
            headers.append((b"x-request-id", self._request_id))
            message["headers"] = headers
        elif message["type"] == "http.response.body":
            self.size += len(message["body"])
        await self._send(message)

    async def send_problem(self, rejection: Problem) -> None:
        """Respond in place of the application."""
        body = rejection.encode()
        headers = [
            (b"content-type", problem.CONTENT_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            *encode_headers(rejection.headers),
        ]
        await self({"type": "http.response.start", "status": rejection.status.value, "headers": headers})
        await self({"type": "http.response.body", "body": body, "more_body": False})


def _client_request_id(scope: Scope) -> str:
    given: bytes
    for name, given in scope["headers"]:
        if name == b"x-request-id":
            return given.decode() if _ID.fullmatch(given) else ""
    return ""
