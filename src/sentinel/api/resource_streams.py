"""Streams of resources: every present resource, then every change. Or one resource, and its changes.

A stream is a list, then the changes of the log from the position that was read before the list. A reader that
goes on after an event gets what follows its id: the rest of the list, then the changes; or only the changes.
Changes come from the feed that all streams share, or from the log where a stream is behind the feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from sentinel.api.change_feed import PAGE_SIZE, ChangeFeed, FeedReader, PlaceLost, read_entries
from sentinel.api.resource_events import (
    EventId,
    EventType,
    ResourceEvent,
    StreamQuery,
    encode,
    parse_event_id,
    project,
)
from sentinel.core.fleet.change_position import PositionLost
from sentinel.ports.change_log import ChangedResource, ChangeLog
from sentinel.ports.errors import Unavailable
from sentinel.ports.fleet_store import FleetStore, ListQuery
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.web import problem, server_sent_events
from sentinel.web.credential import Credential
from sentinel.web.routing import Stream

COMMENT_INTERVAL: Final = timedelta(seconds=10)
"""Between two comments while nothing happens. Clients expect one at least every 15 seconds."""
_TOKEN_INTERVAL: Final = timedelta(seconds=1)
"""How often tokens are checked."""
_TOKEN_TIMEOUT: Final = timedelta(seconds=5)
"""For one check. A token counts as valid until a check says otherwise."""
_READ_TIMEOUT: Final = timedelta(seconds=12)
"""For one read of the database. A stream that waits longer ends, so that no client waits without a comment. One
that is being opened gets a 503."""
_MAX_SILENCE: Final = timedelta(seconds=2)
"""Before a read of the log. Together with the read, it is shorter than what clients expect between comments."""
_LIST_SIZE: Final = 200
_LIST_BYTES: Final = 512 * 1024
_CHUNK_BYTES: Final = 64 * 1024
"""Events are joined to chunks of about this size."""
_TAKEN: Final = 64
"""How many changes are taken from the feed at once."""


class StreamObserver(Protocol):
    """Counts streams and events."""

    def stream_opened(self, plural: str) -> None: ...

    def stream_closed(self, plural: str) -> None: ...

    def stream_cut_off(self, plural: str) -> None:
        """The client has read nothing for too long."""

    def event_sent(self, event_type: EventType) -> None: ...


class _Sources(msgspec.Struct, frozen=True):
    """What all streams of a server share."""

    store: FleetStore
    changes: ChangeLog
    feed: ChangeFeed
    observer: StreamObserver
    id_interval: timedelta
    """A stream sends an id after this time, even if nothing has changed for it."""


class ResourceStreams:
    """The streams of resources of one server."""

    def __init__(
        self,
        *,
        store: FleetStore,
        changes: ChangeLog,
        feed: ChangeFeed,
        observer: StreamObserver,
        retention: timedelta,
        log: Log,
    ) -> None:
        """`retention` is how long changes are kept."""
        self._log = log
        # A reader that selects little may get no event for longer than changes are kept. It needs a newer id then.
        self._sources = _Sources(store, changes, feed, observer, id_interval=retention / 4)
        self._changes, self._feed, self._observer = changes, feed, observer
        self._open: dict[_ResourceStream, None] = {}

    async def open(self, query: StreamQuery, *, last_event_id: str | None, credential: Credential) -> Stream:
        """Open a stream that begins, or goes on after an event.

        Raises a 410 `Problem` if it cannot go on, and `Unavailable` while the database fails.
        """
        self._feed.require_available()
        try:
            async with _read_timeout():
                start = await self._start(last_event_id)
        except PositionLost as error:
            raise problem.gone(f"Last-Event-ID: {error}; list again, or begin without it") from None
        except TimeoutError as error:
            raise Unavailable(
                f"the log of changes was not read within {_READ_TIMEOUT.total_seconds():g} s"
            ) from error
        stream = _ResourceStream(query, start, sources=self._sources, credential=credential)
        return Stream(
            content=self._content(stream),
            content_type=server_sent_events.CONTENT_TYPE,
            headers=server_sent_events.HEADERS,
            on_stalled=lambda: self._observer.stream_cut_off(query.plural),
        )

    async def end_with_tokens(self, stopping: Stopping) -> None:
        """End streams whose tokens are no longer valid, until stopped."""
        while not await stopping.interrupts(asyncio.sleep(_TOKEN_INTERVAL.total_seconds())):
            await stopping.interrupts(self._check_tokens())

    async def _check_tokens(self) -> None:
        by_token: dict[bytes, list[_ResourceStream]] = {}
        for stream in self._open:
            by_token.setdefault(stream.credential.digest, []).append(stream)
        # All at once: a source of identities that does not respond must not delay the others.
        async with asyncio.TaskGroup() as checks:
            for streams in by_token.values():
                checks.create_task(self._end_if_invalid(streams))

    async def _end_if_invalid(self, streams: Sequence[_ResourceStream]) -> None:
        """Check the token that these streams have in common."""
        try:
            async with asyncio.timeout(_TOKEN_TIMEOUT.total_seconds()):
                is_valid = await streams[0].credential.is_valid()
        except TimeoutError:
            return
        except Exception as error:  # a source that fails must not end every stream, nor the server
            self._log.exception("streams.token_check_failed", error=error)
            return
        if not is_valid:
            for stream in streams:
                stream.end()

    async def _start(self, last_event_id: str | None) -> EventId:
        if last_event_id is None:
            return EventId(await self._changes.newest(), is_listing=True)
        start = parse_event_id(last_event_id)
        await self._changes.read(start.position, limit=1)
        return start

    async def _content(self, stream: _ResourceStream) -> AsyncGenerator[bytes, None]:
        plural = stream.query.plural
        self._open[stream] = None
        self._observer.stream_opened(plural)
        try:
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._observer.stream_closed(plural)
            del self._open[stream]


class _ResourceStream:
    """One stream."""

    def __init__(
        self,
        query: StreamQuery,
        start: EventId,
        *,
        sources: _Sources,
        credential: Credential,
    ) -> None:
        self.query = query
        self.credential = credential
        self._start = start
        self._store, self._changes, self._feed = sources.store, sources.changes, sources.feed
        self._observer = sources.observer
        self._id_interval = sources.id_interval
        self._position = start.position
        self._reader: FeedReader | None = None
        self._is_over = False
        self._events: list[bytes] = []
        """Not sent yet."""
        self._size = 0
        self._sent_at = 0.0
        """When the last chunk was made, on the loop's clock."""

    def end(self) -> None:
        """End the stream after the chunk that is being sent."""
        self._is_over = True
        if self._reader is not None:
            self._reader.wake()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body. It ends early if the database fails: the client goes on after the last event."""
        self._sent_at = asyncio.get_running_loop().time()
        try:
            if self._start.is_listing:
                listing = self._list() if self.query.resource_id is None else self._get(self.query.resource_id)
                async with aclosing(listing) as chunks:
                    async for chunk in chunks:
                        yield chunk
            async with self._feed.joined(self.query, timeout=_READ_TIMEOUT) as reader:
                self._reader = reader
                async with aclosing(self._follow(reader)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except (PositionLost, Unavailable, TimeoutError):
            return

    async def _list(self) -> AsyncGenerator[bytes, None]:
        """Yield the present resources. An id in between means that the list goes on after the page before."""
        position, listed = self._start.position, self._start.listed
        while not self._is_over:
            async with _read_timeout():
                found = await self._store.find(
                    ListQuery(
                        plural=self.query.plural,
                        parent=self.query.parent,
                        requirements=self.query.selector.requirements,
                        limit=_LIST_SIZE,
                        after=listed,
                        wants_total=False,
                        max_bytes=_LIST_BYTES,
                    )
                )
            event_id = EventId(position, is_listing=True, listed=listed)
            listed = found.last
            for document in found.documents:
                self._add(encode(EventType.CHANGED, project(document, self.query.projection), event_id))
                if self._size >= _CHUNK_BYTES:
                    yield self._chunk()
            if listed is None:
                self._add(encode(EventType.SYNCED, b"{}", EventId(position)))
            yield self._chunk()
            if listed is None:
                return

    async def _get(self, resource_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the one resource that the reader wants, if it is there."""
        async with _read_timeout():
            found = (await self._changes.current([resource_id])).get(resource_id)
        if found is not None and self.query.may_want(ChangedResource(resource_id, found.plural, found.parent)):
            event_id = EventId(self._start.position, is_listing=True)
            self._add(encode(EventType.CHANGED, project(found.document, self.query.projection), event_id))
        self._add(encode(EventType.SYNCED, b"{}", EventId(self._start.position)))
        yield self._chunk()

    async def _follow(self, reader: FeedReader) -> AsyncGenerator[bytes, None]:
        """Yield changes, and comments while there are none."""
        async with aclosing(self._catch_up(reader)) as chunks:
            async for chunk in chunks:
                yield chunk
        now = asyncio.get_running_loop().time
        last_id = now()
        while not (self._is_over or reader.is_over):
            try:
                for entry in reader.take(_TAKEN):
                    self._position = entry.change.position
                    self._add(entry.event(self.query))
            except PlaceLost:
                async with aclosing(self._catch_up(reader)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                continue
            if self._events:
                last_id = now()
                yield self._chunk()
            elif not await reader.wait(COMMENT_INTERVAL):
                self._position = reader.reached() or self._position
                if now() - last_id > self._id_interval.total_seconds():
                    last_id = now()
                    yield server_sent_events.encode_id(str(EventId(self._position)))
                else:
                    yield self._chunk()

    async def _catch_up(self, reader: FeedReader) -> AsyncGenerator[bytes, None]:
        """Read the log up to now, from where the stream is."""
        is_complete = False
        while not (is_complete or self._is_over or reader.is_over):
            if self._is_silent():  # much of the log may be about other resources
                yield self._chunk()
            reader.restart()
            async with _read_timeout():
                page = await self._changes.read(self._position, limit=PAGE_SIZE)
            wanted = [change for change in page.changes if self.query.may_want(change.resource)]
            async with aclosing(read_entries(self._changes, wanted, timeout=_READ_TIMEOUT)) as entries:
                async for entry in entries:
                    self._add(entry.event(self.query))
                    if self._size >= _CHUNK_BYTES or self._is_silent():
                        yield self._chunk()
            self._position, is_complete = page.position, page.is_complete
            if self._events:
                yield self._chunk()
        reader.caught_up(self._position)

    def _add(self, event: ResourceEvent | None) -> None:
        if event is not None:
            self._events.append(event.encoded)
            self._size += len(event.encoded)
            self._observer.event_sent(event.type)

    def _chunk(self) -> bytes:
        """Return the events that were not sent, or a comment if there are none."""
        chunk = b"".join(self._events) or server_sent_events.COMMENT
        self._events.clear()
        self._size = 0
        self._sent_at = asyncio.get_running_loop().time()
        return chunk

    def _is_silent(self) -> bool:
        return asyncio.get_running_loop().time() - self._sent_at > _MAX_SILENCE.total_seconds()


def _read_timeout() -> asyncio.Timeout:
    return asyncio.timeout(_READ_TIMEOUT.total_seconds())
