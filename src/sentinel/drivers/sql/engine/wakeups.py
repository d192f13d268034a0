"""Wakes the tasks of this process that wait for something to happen on a channel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Wakeups:
    """Events by channel. Used on one event loop."""

    def __init__(self) -> None:
        self._events: dict[str, list[asyncio.Event]] = {}

    def wake(self, channel: str) -> None:
        """Set the events of everyone who listens to this channel."""
        for event in self._events.get(channel, ()):
            event.set()

    @contextmanager
    def listening(self, channel: str) -> Iterator[asyncio.Event]:
        """An event that is set by `wake`. The task that waits for it clears it."""
        event = asyncio.Event()
        events = self._events.setdefault(channel, [])
        events.append(event)
        try:
            yield event
        finally:
            events.remove(event)
