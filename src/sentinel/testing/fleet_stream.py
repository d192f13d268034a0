"""A stream of changes that a test controls: a fake of `ports.fleet_stream.FleetStream`.

    fleet = FakeFleet(has_stream=True)
    stream = FakeFleetStream(fleet)
    fleet.change_spec("cls-1", {"replicas": 3}, at=clock.now())
    stream.announce("cls-1")

It sends what the test says, also what is late, repeated or wrong, and remembers how often it was connected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from sentinel.core.pulse.observation import read_resource
from sentinel.ports.fleet_stream import Changed, Connected, Removed, StreamItem
from sentinel.testing.fleet import FakeFleet


class FakeFleetStream:
    """A `FleetStream` over a fake fleet. What is sent while nobody follows it waits."""

    def __init__(self, fleet: FakeFleet) -> None:
        self._fleet = fleet
        self._batches: asyncio.Queue[Sequence[StreamItem] | Exception] = asyncio.Queue()
        self.connections = 0
        """How many times it has been followed."""

    async def follow(self) -> AsyncGenerator[Sequence[StreamItem], None]:
        self.connections += 1
        yield (Connected(is_resumed=self.connections > 1),)
        while True:
            batch = await self._batches.get()
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def announce(self, *resource_ids: str) -> None:
        """Send the resources as they are now, or that they are gone, in one batch."""
        self.send(*map(self._item, resource_ids))

    def send(self, *items: StreamItem) -> None:
        """Send any items, in one batch."""
        self._batches.put_nowait(items)

    def send_document(self, document: bytes) -> None:
        """Send a document, which may be old or wrong."""
        self.send(Changed(read_resource(msgspec.Raw(document))))

    def crash(self, error: Exception) -> None:
        """Raise an error that no stream may raise."""
        self._batches.put_nowait(error)

    def _item(self, resource_id: str) -> StreamItem:
        if self._fleet.get(resource_id) is None:
            return Removed(resource_id)
        return Changed(read_resource(msgspec.Raw(self._fleet.encoded(resource_id))))
