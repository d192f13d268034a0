"""`ports.fleet_stream.FleetStream` over HTTP: server-sent events of `GET {plural}?watch=true`, or of one resource.

Beginning costs the server a whole list; resuming by `Last-Event-ID` costs it nothing. So an interrupted stream is
resumed with short delays, and one that ended before it was in sync begins again with long ones. An id counts only
once the stream is in sync: before that, resuming would leave out what had not been sent yet.

A server that does not know streams answers with a list, or rejects the parameter. It is asked again after a long
while, because it may have been upgraded.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import quote

import msgspec

from sentinel.core.json import DECODE_ERRORS, Malformed
from sentinel.core.labels import Selector, SelectorParam
from sentinel.core.pulse.observation import malformed_item, read_resource
from sentinel.core.server_sent_events import EventDecoder, EventTooLarge, ServerSentEvent
from sentinel.drivers.fleet_api.connection import REQUEST_FAILURES, RequestFailure, api_unavailable
from sentinel.drivers.fleet_api.server_wait import MAX_RETRY_AFTER, ServerWait
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, StreamIdle, UnexpectedContent
from sentinel.ports.fleet_stream import (
    Changed,
    Connected,
    Disconnected,
    Removed,
    StreamEnd,
    StreamItem,
    StreamPosition,
    Synced,
    Unreadable,
)
from sentinel.runtime.backoff import Backoff

IDLE_TIMEOUT = timedelta(seconds=40)
"""A server writes something at least every 15 s, so after this time the connection is lost."""
RESUMING = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=30), jitter=0.5)
"""The delays of a stream that can be resumed, or that did not begin."""
BEGINNING = Backoff(initial=timedelta(seconds=5), maximum=timedelta(minutes=5), jitter=0.5)
"""The delays of a stream that has begun and ended before it was in sync: each attempt costs a list."""
UNSUPPORTED = Backoff(initial=timedelta(minutes=15), maximum=timedelta(minutes=15), jitter=0.2)
"""The delays after which a server is asked again that did not know streams."""

STABLE_AFTER = timedelta(seconds=10)
"""A connection that lasted this long worked. The delays begin from the shortest again."""
_EVENT_STREAM = "text/event-stream"
_UNSUPPORTED_STATUSES = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)


_Failure: TypeAlias = RequestFailure | UnexpectedContent | EventTooLarge


class _Removal(msgspec.Struct):
    id: str


_removal = msgspec.json.Decoder(_Removal)


class HttpFleetStream:
    """Follows the resources of one type."""

    def __init__(
        self,
        client: RestClient,
        *,
        resource_type: str,
        resource_id: str = "",
        selector: Selector,
        timeout: timedelta,
        fields: tuple[str, ...] = (),
        root: str = "",
        checks_labels: bool = True,
        wait: ServerWait | None = None,
        position: StreamPosition | None = None,
        idle_timeout: timedelta = IDLE_TIMEOUT,
        resuming: Backoff = RESUMING,
        beginning: Backoff = BEGINNING,
        unsupported: Backoff = UNSUPPORTED,
        stable_after: timedelta = STABLE_AFTER,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`timeout` bounds the time until the stream begins, `idle_timeout` the time in which nothing arrives.

        With `resource_id` it is the stream of this resource, otherwise of all that are selected.
        `fields` are the paths that the consumer reads; without them whole resources are sent. `root` is the path
        of the API below the client's base URL. Without `checks_labels` the server's selection is trusted, so the
        labels need not be among the fields. `wait` is shared with a reader of the same server, `position` with the
        stream that this one replaces. The caller closes the client, which also ends the stream.
        """
        self._client = client
        self._selector = selector
        self._checks_labels = checks_labels
        self._path = f"{root}/{quote(resource_type, safe='')}"
        if resource_id:
            self._path += f"/{quote(resource_id, safe='')}"
        self._path += "?watch=true"
        if selector:
            # Keep `=` and `,` readable: servers split a parameter at its first `=` only.
            self._path += f"&labels={quote(selector.as_parameter(SelectorParam.LABELS), safe='=,')}"
        if fields:
            self._path += f"&fields={quote(','.join(fields), safe=',')}"
        self._timeout = timeout
        self._wait = wait or ServerWait()
        self._idle_timeout = idle_timeout
        self._resuming = resuming
        self._beginning = beginning
        self._unsupported = unsupported
        self._stable_after = stable_after
        self._jitter = jitter
        self._position = position or StreamPosition()
        self._failures = 0
        """How many connections have failed in a row."""

    async def follow(self) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Yield what arrives; see `ports.fleet_stream.FleetStream`."""
        while True:
            if remaining := self._wait.remaining():
                await asyncio.sleep(remaining.total_seconds())
            connection = _Connection(self._position.last_id)
            failure: _Failure | None = None
            try:
                async with aclosing(self._connect(connection)) as batches:
                    async for batch in batches:
                        yield batch
            except (*REQUEST_FAILURES, UnexpectedContent, EventTooLarge) as error:
                failure = error
            ended = self._ended(connection, failure)
            yield (ended,)
            await asyncio.sleep(ended.retry_after.total_seconds())

    async def _connect(self, connection: _Connection) -> AsyncGenerator[Sequence[StreamItem], None]:
        headers = {"Accept": _EVENT_STREAM, "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        if connection.resumed_from:
            headers["Last-Event-ID"] = connection.resumed_from
        decoder = EventDecoder()
        async with aclosing(
            self._client.stream(
                "GET",
                self._path,
                timeout=self._timeout,
                idle_timeout=self._idle_timeout,
                headers=headers,
                content_type=_EVENT_STREAM,
            )
        ) as chunks:
            async for chunk in chunks:
                if not connection.has_begun:
                    connection.has_begun, connection.began_at = True, asyncio.get_running_loop().time()
                    yield (Connected(is_resumed=connection.is_synced),)
                    continue
                items = [item for event in decoder.feed(chunk) for item in self._read(event)]
                connection.is_synced |= any(isinstance(item, Synced) for item in items)
                if connection.is_synced:
                    self._position.last_id = decoder.last_id or self._position.last_id
                if items:
                    yield items

    def _read(self, event: ServerSentEvent) -> list[StreamItem]:
        """Return what an event means: nothing if its type is unknown, because newer servers may add some."""
        match event.type:
            case "resource.changed":
                document = msgspec.Raw(event.data)
                try:
                    resource = read_resource(document)
                except Malformed as problem:
                    return [Unreadable(malformed_item(document, problem, "stream"))]
                if self._checks_labels and not self._selector.matches(resource.observation.labels):
                    return [Removed(resource.observation.id)]
                return [Changed(resource)]
            case "resource.removed":
                try:
                    return [Removed(_removal.decode(event.data).id)]
                except DECODE_ERRORS as error:
                    return [Unreadable(malformed_item(event.data, Malformed(str(error)), "stream"))]
            case "resource.synced":
                return [Synced()]
            case _:
                return []

    def _ended(self, connection: _Connection, failure: _Failure | None) -> Disconnected:
        """Describe the end of a connection, and decide when to try again."""
        reason, problem, retry_after, needs_operator = (
            StreamEnd.CLOSED,
            "the server ended the stream",
            _NONE,
            False,
        )
        match failure:
            case None:
                pass
            case UnexpectedContent():
                reason, problem = StreamEnd.UNSUPPORTED, f"the server does not know streams: {failure}"
            case EventTooLarge():
                reason, problem = StreamEnd.INVALID, str(failure)
            case RequestRejected(status=HTTPStatus.GONE):
                reason, problem = StreamEnd.EXPIRED, str(failure)
            case RequestRejected(status=status) if status in _UNSUPPORTED_STATUSES:
                reason, problem = StreamEnd.UNSUPPORTED, f"the server does not know streams: {failure}"
            case _:
                reason, problem, retry_after, needs_operator = self._request_failed(failure)
        if asyncio.get_running_loop().time() - connection.began_at >= self._stable_after.total_seconds():
            self._failures = 0
        attempt, self._failures = self._failures, self._failures + 1
        if reason in (StreamEnd.EXPIRED, StreamEnd.INVALID):
            self._position.last_id = ""
        if reason is StreamEnd.EXPIRED and connection.resumed_from:
            delay = _NONE  # the list is due now
        elif reason is StreamEnd.UNSUPPORTED:
            delay = self._unsupported.delay(attempt, self._jitter())
        elif connection.has_begun and not connection.is_synced:
            delay = self._beginning.delay(attempt, self._jitter())
        else:
            delay = self._resuming.delay(attempt, self._jitter())
        return Disconnected(reason, problem, max(delay, retry_after), needs_operator)

    def _request_failed(self, failure: RequestFailure) -> tuple[StreamEnd, str, timedelta, bool]:
        error = api_unavailable(failure)
        # Not noted for the polls: a server or proxy that limits streams alone must not stop them.
        retry_after = min(error.retry_after, MAX_RETRY_AFTER)
        reason = StreamEnd.UNREACHABLE
        if isinstance(failure, StreamIdle):
            reason = StreamEnd.IDLE
        elif isinstance(failure, RequestRejected):
            reason = StreamEnd.REFUSED
        return reason, str(error), retry_after, error.needs_operator


_NONE = timedelta(0)


class _Connection:
    """How far one connection has come."""

    def __init__(self, resumed_from: str) -> None:
        self.resumed_from = resumed_from
        self.has_begun = False
        self.began_at = math.inf
        self.is_synced = bool(resumed_from)
        """Whether all resources have been sent, by this connection or an earlier one."""
