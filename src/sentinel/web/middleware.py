"""What surrounds every request, whichever route it takes: an id, a deadline, a bound on how many are answered
at once, headers that every answer has, and a record of what became of it.

Plain ASGI around the whole application, so that answers of the framework pass through it like our own, and cheap
enough not to show in a profile. A stream is sent from here, because neither deadline nor bound may hold for it
once its head is out; see `web.streams`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from sentinel.core.problem_codes import Code
from sentinel.runtime.log import Log
from sentinel.web import problem, streams
from sentinel.web.asgi import App, Message, Receive, Scope, Send, client_address, connection_of, encode_headers
from sentinel.web.body import Disconnected
from sentinel.web.problem import Problem
from sentinel.web.routing import Method, Route, Stream
from sentinel.web.streams import MOST_STREAMS, Streams

DEADLINE: Final = timedelta(seconds=30)
MOST_AT_ONCE: Final = 1000
OTHER: Final = "other"
"""The route of a request that matches none, and the method of one that nobody has heard of."""

_KEY = "sentinel.request_context"
_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_METHODS = frozenset((*(method.value for method in Method), "HEAD", "OPTIONS"))
_CLIENT_GONE = 499
"""Nobody gets this status; in logs and metrics it stands for a client that did not wait, as with nginx."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer that does not have its own."""


class RequestContext:
    """What is known about a request while it is being answered."""

    __slots__ = ("actor", "observers", "path", "request_id", "route", "stream")

    def __init__(self, *, request_id: str, path: str) -> None:
        self.request_id = request_id
        self.path = path
        """As it came, percent-decoded; the router may see a tidier one."""
        self.route: Route | None = None
        """None until it is found."""
        self.observers: Sequence[RequestObserver] = ()
        """Those of the route, besides the application's."""
        self.actor = ""
        """The name of the caller, set once it is identified."""
        self.stream: Stream | None = None
        """The answer, where it is one."""

    def found(self, route: Route, observers: Sequence[RequestObserver]) -> None:
        """The router has found the route; its observers are told about the request from now on."""
        self.route = route
        self.observers = observers
        for observer in observers:
            observer.began()

    @staticmethod
    def of(scope: Scope) -> RequestContext:
        """The one that the middleware has put into the scope."""
        context: RequestContext = scope[_KEY]
        return context


class RequestRecord(msgspec.Struct, frozen=True):
    """A request and what became of it, without anything that might be secret: no query, no header, no body."""

    method: str
    route: str
    """The template, or `other`."""
    status: int
    size: int
    """Of the answer's body, in bytes."""
    duration: timedelta
    actor: str
    """Empty where nobody was identified."""
    address: str
    request_id: str
    is_quiet: bool


class RequestObserver(Protocol):
    """Hears of every exchange."""

    def began(self) -> None: ...

    def ended(self, exchange: RequestRecord) -> None: ...


class AccessLog:
    """One line for each exchange; those of probes only for whoever debugs."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def began(self) -> None: ...

    def ended(self, exchange: RequestRecord) -> None:
        write = self._log.debug if exchange.is_quiet else self._log.info
        write(
            "http.request",
            method=exchange.method,
            route=exchange.route,
            status=exchange.status,
            bytes=exchange.size,
            milliseconds=round(exchange.duration.total_seconds() * 1000, 2),
            actor=exchange.actor,
            address=exchange.address,
            request_id=exchange.request_id,
        )


class Middleware:
    """Surrounds an application."""

    def __init__(
        self,
        app: App,
        *,
        log: Log,
        observers: Sequence[RequestObserver] = (),
        deadline: timedelta = DEADLINE,
        most_at_once: int = MOST_AT_ONCE,
        most_streams: int = MOST_STREAMS,
        always: Collection[str] = (),
    ) -> None:
        """The paths in `always` are answered however many requests there are: a probe has to be."""
        self._app = app
        self._log = log
        self._observers = tuple(observers)
        self._deadline = deadline.total_seconds()
        self._most_at_once = most_at_once
        self._always = frozenset(always)
        self._in_flight = 0
        self._streams = Streams(most=most_streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise TypeError(f"expected an HTTP request, got {scope['type']}")
        began = time.perf_counter()
        context = RequestContext(request_id=_given_id(scope) or secrets.token_hex(16), path=scope["path"])
        scope[_KEY] = context
        sender = _Sender(send, context.request_id)
        for observer in self._observers:
            observer.began()
        self._in_flight += 1
        try:
            try:
                stream = await self._answer(scope, receive, sender)
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
            exchange = self._exchange(scope, context, sender, timedelta(seconds=time.perf_counter() - began))
            for observer in (*self._observers, *context.observers):
                observer.ended(exchange)

    async def _answer(self, scope: Scope, receive: Receive, sender: _Sender) -> Stream | None:
        """Answer within the deadline. Returns a stream whose head is sent and whose body is not."""
        if self._in_flight > self._most_at_once and scope["path"] not in self._always:
            await sender.refuse(
                problem.unavailable("too many requests are being answered already", code=Code.OVERLOADED)
            )
            return None
        try:
            async with asyncio.timeout(self._deadline) as timeout:
                await self._app(scope, receive, sender)
                stream = RequestContext.of(scope).stream
                return None if stream is None else await self._begin(stream, scope["method"], sender)
        except Disconnected:
            return None
        except TimeoutError:
            if not timeout.expired():
                raise
            # An answer that has begun cannot be taken back; the server cuts it off where it ends.
            if sender.status == _CLIENT_GONE:
                await sender.refuse(problem.unavailable("the request took longer than it may", code=Code.TOO_SLOW))
            self._log.warning("http.slow", path=scope["path"], request_id=RequestContext.of(scope).request_id)
            return None

    async def _begin(self, stream: Stream, method: str, sender: _Sender) -> Stream | None:
        """Send the head of a stream; None if no body follows it."""
        if not self._streams.begin(stream):
            await sender.refuse(problem.unavailable("too many streams are open already", code=Code.OVERLOADED))
            return None
        headers = [(b"content-type", stream.content_type.encode()), *encode_headers(stream.headers)]
        await sender({"type": "http.response.start", "status": stream.status, "headers": headers})
        if method == "HEAD":
            await sender({"type": "http.response.body", "body": b"", "more_body": False})
            return None
        return stream

    def _log_of(self, context: RequestContext) -> Log:
        return self._log.bind(path=context.path, request_id=context.request_id)

    def _exchange(
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
    """Sends what the application sends, with the headers of every answer, and keeps count."""

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

    async def refuse(self, refusal: Problem) -> None:
        """Answers in place of the application."""
        body = refusal.encode()
        headers = [
            (b"content-type", problem.CONTENT_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            *encode_headers(refusal.headers),
        ]
        await self({"type": "http.response.start", "status": refusal.status.value, "headers": headers})
        await self({"type": "http.response.body", "body": body, "more_body": False})


def _given_id(scope: Scope) -> str:
    given: bytes
    for name, given in scope["headers"]:
        if name == b"x-request-id":
            return given.decode() if _ID.fullmatch(given) else ""
    return ""
