"""Follows the log of changes once for all streams of this process.

The feed reads each change and its resource once, and keeps the latest of each kind of resource for the streams
to take. It only reads while there are streams. A stream that is slower than the changes finds its place gone and
reads the log by itself. So memory is bounded, however many streams there are and however slow they are.

A stream joins the feed first and then reads the log up to now. That includes all that the feed has read before,
so nothing is missing when the stream goes on with the feed. What it has then read twice is skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import islice
from typing import Final

from sentinel.api.resource_events import ChangedEntry, StreamQuery
from sentinel.core.fleet.change_position import Position, PositionLost
from sentinel.ports.change_log import Change, ChangeLog
from sentinel.ports.errors import Unavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.event_wait import wait_for_event
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

PAGE_SIZE: Final = 500
"""How many changes are read from the log at once."""
_BATCH_SIZE: Final = 16
"""How many resources are read at once."""
_POLL_INTERVAL: Final = timedelta(seconds=1)
"""How long a change may stay unseen whose announcement was lost."""
_PAUSE: Final = timedelta(milliseconds=10)
"""Between two reads of the log, so that changes that follow each other are read together."""
_MAX_ENTRIES: Final = 2000
_MAX_BYTES: Final = 4 * 1024 * 1024
"""The documents that are kept for each kind of resource."""
_RETRY: Final = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5), jitter=0.0)


class PlaceLost(Exception):
    """The reader was too slow: the entries that it has not taken are no longer kept."""


class _Recent:
    """The latest changes of one kind of resource, and the readers that take them."""

    def __init__(self) -> None:
        self.readers: dict[FeedReader, None] = {}
        self.end = 0
        """How many entries there were in all."""
        self._entries: deque[ChangedEntry] = deque()
        self._bytes = 0

    @property
    def start(self) -> int:
        return self.end - len(self._entries)

    def append(self, entry: ChangedEntry) -> None:
        """Add an entry, and wake the readers that it matters to."""
        self._entries.append(entry)
        self.end += 1
        for reader in self.readers:
            reader.appended(entry)
        self._bytes += entry.size
        while len(self._entries) > _MAX_ENTRIES or (self._bytes > _MAX_BYTES and len(self._entries) > 1):
            self._bytes -= self._entries.popleft().size

    def since(self, index: int, limit: int) -> Sequence[ChangedEntry]:
        first = index - self.start
        return list(islice(self._entries, first, first + limit))


class FeedReader:
    """The place of one stream in the feed."""

    __slots__ = ("_feed", "_index", "_query", "_recent", "_seen", "_woken", "is_over")

    def __init__(self, query: StreamQuery, feed: ChangeFeed, recent: _Recent) -> None:
        self._query = query
        self._feed = feed
        self._recent = recent
        self._index = recent.end
        self._seen: Position | None = None
        self._woken = asyncio.Event()
        self.is_over = False
        """Whether the stream has to end."""

    def restart(self) -> None:
        """Take only entries that are new from now on. The stream reads the log up to now by itself."""
        self._index = self._recent.end

    def caught_up(self, position: Position) -> None:
        """Skip entries that this position includes: the stream has read them from the log."""
        self._seen = position

    def appended(self, entry: ChangedEntry) -> None:
        """Wake the stream, unless it has taken everything and the new entry does not matter to it."""
        if self._index == self._recent.end - 1 and entry.event_type(self._query) is None:
            self._index += 1
        else:
            self._woken.set()

    def take(self, limit: int) -> Sequence[ChangedEntry]:
        """Return the next entries. Raises `PlaceLost`."""
        if self._index < self._recent.start:
            raise PlaceLost
        entries = self._recent.since(self._index, limit)
        self._index += len(entries)
        # The stream waits if none of these concern it, so it must be woken at once while there are more.
        if self._index == self._recent.end:
            self._woken.clear()
        else:
            self._woken.set()
        seen = self._seen
        return entries if seen is None else [each for each in entries if not seen.includes(each.change.number)]

    def reached(self) -> Position | None:
        """Return the position of a reader that has taken every entry; None if there are more."""
        return self._feed.position if self._index == self._recent.end else None

    def wake(self) -> None:
        """Let the stream notice that it is over."""
        self._woken.set()

    async def wait(self, timeout: timedelta) -> bool:
        """Wait until there may be something to do. Return False after the timeout."""
        return await wait_for_event(self._woken, timeout)


class ChangeFeed:
    """The changes that streams take."""

    def __init__(self, changes: ChangeLog, *, log: Log) -> None:
        self._changes = changes
        self._log = log
        self._recent: dict[str, _Recent] = {}
        """By plural; only those that have readers."""
        self._is_needed = asyncio.Event()
        self._is_following = asyncio.Event()
        self._failure: Unavailable | None = None
        """Why the log cannot be read; None after every success, and while no stream needs it."""
        self._failures = 0
        """In a row."""
        self.position: Position | None = None
        """Up to where the log was read; None while no stream needs it."""

    def require_available(self) -> None:
        """Raise `Unavailable` if the feed could not begin to follow the log when it last tried."""
        if self._failure is not None and not self._is_following.is_set():
            raise self._failure

    @asynccontextmanager
    async def joined(self, query: StreamQuery, *, timeout: timedelta) -> AsyncIterator[FeedReader]:
        """Take part in the feed. Waits until the feed has begun to follow the log, or raises `TimeoutError`."""
        recent = self._recent.setdefault(query.plural, _Recent())
        reader = FeedReader(query, self, recent)
        recent.readers[reader] = None
        self._is_needed.set()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._is_following.wait()
            reader.restart()
            yield reader
        finally:
            del recent.readers[reader]
            if not recent.readers and self._recent.get(query.plural) is recent:
                del self._recent[query.plural]

    async def run(self, stopping: Stopping) -> None:
        """Follow the log until stopped. Failures are logged and retried."""
        await stopping.interrupts(self._run())

    async def _run(self) -> None:
        while True:
            await self._is_needed.wait()
            try:
                async with self._changes.wakeups() as committed:
                    await self._follow(committed)
                continue
            except PositionLost as error:
                self._log.warning("changes.lost", error=error)
                self._end_all()
            except Unavailable as error:
                self._log.warning("changes.failed", error=error)
                self._failure = error
            except Exception as error:
                self._log.exception("changes.failed", error=error)
                self._failure = Unavailable("the log of changes cannot be read")
            await asyncio.sleep(_RETRY.delay(self._failures, 0.0).total_seconds())
            self._failures += 1

    async def _follow(self, committed: asyncio.Event) -> None:
        """Read the log until no stream is left."""
        while True:
            committed.clear()
            if self.position is None:
                self.position = await self._changes.newest()
                self._is_following.set()
            is_complete = await self._read(self.position)
            self._failure, self._failures = None, 0
            await asyncio.sleep(_PAUSE.total_seconds())
            if is_complete:
                await wait_for_event(committed, _POLL_INTERVAL)
            if not self._recent:
                self._stop_following()
                return

    async def _read(self, after: Position) -> bool:
        """Read a page of the log for those who need it. Return whether it was the last one."""
        page = await self._changes.read(after, limit=PAGE_SIZE)
        readers = dict(self._recent)
        wanted = [change for change in page.changes if change.resource.plural in readers]
        async for entry in read_entries(self._changes, wanted):
            readers[entry.change.resource.plural].append(entry)
            self.position = entry.change.position
        self.position = page.position
        return page.is_complete

    def _stop_following(self) -> None:
        self._is_needed.clear()
        self._is_following.clear()
        self._failure = self.position = None

    def _end_all(self) -> None:
        """End every stream: changes are missing. Clients begin again."""
        for recent in self._recent.values():
            for reader in recent.readers:
                reader.is_over = True
                reader.wake()
        self._recent.clear()
        self._stop_following()


async def read_entries(
    log: ChangeLog, changes: Sequence[Change], *, timeout: timedelta | None = None
) -> AsyncGenerator[ChangedEntry, None]:
    """Read the resources of changes, a few at a time. Raises `TimeoutError` if one read takes longer."""
    for batch in _batches(changes):
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
            found = await log.current([change.resource.resource_id for change in batch])
        for change in batch:
            yield ChangedEntry(change, found.get(change.resource.resource_id))


def _batches(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    for start in range(0, len(changes), _BATCH_SIZE):
        yield changes[start : start + _BATCH_SIZE]
