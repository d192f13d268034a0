"""Streams of the hub's events for users: what happens from now on, or after an event that a client has seen.

All streams of the process share what the feed has read. A stream that is slower finds its place gone there and
reads the log itself, so memory is bounded, however many streams there are and however slow they are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import INTERNAL_TYPES, HubEvent, HubEventType, HubStore
from sentinel.web import problem, server_sent_events
from sentinel.web.credential import Credential
from sentinel.web.routing import Stream

PUBLIC_TYPES: Final = frozenset(HubEventType) - {*INTERNAL_TYPES}
"""The types of events that users see."""
_COMMENT_INTERVAL: Final = timedelta(seconds=10)
"""Between two comments while nothing happens. Clients expect one at least every 15 seconds."""
_LOOK_INTERVAL: Final = timedelta(seconds=1)
"""How often a token is checked."""
_MAX_RECENT: Final = 2_000
_BATCH: Final = 64
_MAX_DIGITS: Final = 18


class EventStreams:
    """The streams of one hub. An `EventReader` of its feed."""

    def __init__(self, store: HubStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._recent: deque[HubEvent] = deque(maxlen=_MAX_RECENT)
        self._appended = asyncio.Event()
        """Replaced when it is set, so that every stream that waits for it is woken."""

    async def take(self, events: Sequence[HubEvent]) -> None:
        """Keep events for the streams, and wake them."""
        newest = self._recent[-1].number if self._recent else 0
        self._recent.extend(event for event in events if event.number > newest)
        self._wake()

    async def resync(self) -> None:
        """Let streams read the log: events may be missing here."""
        self._recent.clear()
        self._wake()

    async def open(self, *, last_event_id: str | None, credential: Credential) -> Stream:
        """Open a stream. Raises a 410 `Problem` if it cannot go on after this event."""
        newest = await self._store.newest_event()
        position = newest
        if last_event_id is not None:
            position = await self._position(last_event_id, newest)
        return Stream(
            content=self._content(position, credential),
            content_type=server_sent_events.CONTENT_TYPE,
            headers=server_sent_events.HEADERS,
        )

    async def _position(self, event_id: str, newest: int) -> int:
        is_number = event_id.isascii() and event_id.isdecimal() and len(event_id) <= _MAX_DIGITS
        if not is_number or int(event_id) > newest or int(event_id) + 1 < await self._store.oldest_event():
            text = "expected the id of an event that is still kept; read the lists again and begin without it"
            raise problem.gone(f"Last-Event-ID: {text}")
        return int(event_id)

    async def _content(self, position: int, credential: Credential) -> AsyncGenerator[bytes, None]:
        silent_since = self._clock.now()
        yield server_sent_events.COMMENT
        while True:
            appended = self._appended
            try:
                events = await self._after(position)
            except Unavailable:
                return  # the client connects again, and goes on after the last event
            if events is None:
                return
            if events:
                position = events[-1].number
                chunk = b"".join(_encode(event) for event in events if event.type in PUBLIC_TYPES)
                if chunk:
                    silent_since = self._clock.now()
                    yield chunk
                continue
            await _wait(appended)
            if not await credential.is_valid():
                return
            if self._clock.now() - silent_since >= _COMMENT_INTERVAL:
                silent_since = self._clock.now()
                yield server_sent_events.encode_id(str(position))

    async def _after(self, position: int) -> Sequence[HubEvent] | None:
        """Return the next events, from memory if they are there; None if some are no longer kept."""
        if self._recent and self._recent[0].number <= position + 1:
            # Numbers have no gaps, so that the place of an event follows from its number.
            start = position + 1 - self._recent[0].number
            return list(islice(self._recent, start, start + _BATCH))
        events = await self._store.events(position, limit=_BATCH)
        if events and events[0].number != position + 1:
            return None
        return events

    def _wake(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()


def _encode(event: HubEvent) -> bytes:
    return server_sent_events.encode(event.type, event.data, event_id=str(event.number))


async def _wait(event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_LOOK_INTERVAL.total_seconds()):
            await event.wait()
    except TimeoutError:
        pass
