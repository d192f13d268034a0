"""The stream of changes from the API to one pulse: it breaks, lags, repeats itself, loses changes, and lies.

The changes are the commits of the store. A lie is a change that never was, which the next poll contradicts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from random import Random

import msgspec

from sentinel.core.pulse.observation import read_resource
from sentinel.ports import fleet_stream
from sentinel.ports.fleet_store import StoredResource
from tests.sim.faults import FaultRates
from tests.sim.network import Network
from tests.sim.trace import Trace

_KEPT = 20
"""How many changes may be repeated."""
_MAX_LAG = timedelta(seconds=15)
_MAX_LIE = 3
"""How many generations a lie is ahead at most."""


class SimulatedStream:
    """A `FleetStream` over several kinds."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        network: Network,
        faults: FaultRates,
        plurals: Sequence[str],
        random: Random,
    ) -> None:
        self.on_items: Callable[[Sequence[fleet_stream.StreamItem]], None] = lambda items: None
        """Called with what the pulse gets, just before it does."""
        self._name = name
        self._trace = trace
        self._network = network
        self._faults = faults
        self._plurals = plurals
        self._random = random
        self._present: dict[str, bytes] = {}
        self._unsent: deque[fleet_stream.StreamItem] = deque()
        self._recent: deque[fleet_stream.StreamItem] = deque(maxlen=_KEPT)
        self._is_followed = False
        self._has_changes = asyncio.Event()

    def committed(self, before: StoredResource | None, after: StoredResource | None) -> None:
        """Take a change from the store."""
        resource = after or before
        if resource is None or resource.plural not in self._plurals:
            return
        if after is None:
            self._present.pop(resource.id, None)
            self._enqueue(fleet_stream.Removed(resource.id))
        else:
            self._present[resource.id] = after.document
            self._enqueue(_changed(after.document))

    async def follow(self) -> AsyncGenerator[Sequence[fleet_stream.StreamItem], None]:
        self._unsent.clear()
        is_resumed, self._is_followed = False, True
        try:
            while True:
                if not self._network.is_cut:
                    yield (fleet_stream.Connected(is_resumed=is_resumed),)
                    if not is_resumed:
                        yield self._sent(*map(_changed, self._present.values()), fleet_stream.Synced())
                    is_resumed = True
                    while not self._breaks():
                        yield self._sent(*await self._next_items())
                retry_after = timedelta(seconds=5 * self._random.random())
                yield (fleet_stream.Disconnected(fleet_stream.StreamEnd.CLOSED, "simulated", retry_after),)
                await asyncio.sleep(retry_after.total_seconds())
        finally:
            self._is_followed = False

    def _enqueue(self, item: fleet_stream.StreamItem) -> None:
        if self._is_followed:
            self._unsent.append(item)
            self._has_changes.set()

    def _sent(self, *items: fleet_stream.StreamItem) -> Sequence[fleet_stream.StreamItem]:
        self.on_items(items)
        return items

    async def _next_items(self) -> list[fleet_stream.StreamItem]:
        while not self._unsent:
            self._has_changes.clear()
            await self._has_changes.wait()
        # Not `faults.delay()`: its random numbers are those of all other messages.
        lag = self._faults.latency * (0.5 + self._random.random())
        if self._is_faulty(0.1):
            lag = _MAX_LAG.total_seconds() * self._random.random()
        await asyncio.sleep(lag)
        # Often one by one, so that an older state of a resource comes after a poll has seen a newer one.
        count = 1 if self._random.random() < 0.7 else len(self._unsent)
        items = [self._unsent.popleft() for _ in range(count)]
        self._recent.extend(items)
        if self._is_faulty(0.2):
            self._trace.note(self._name, "repeats a change")
            items.append(self._random.choice(self._recent))
        if self._is_faulty(0.1) and self._present:
            items.append(self._lie())
        return items

    def _breaks(self) -> bool:
        if self._network.is_cut:
            return True
        if not self._is_faulty(0.1):
            return False
        for _ in range(self._random.choice((0, 0, 2))):
            if self._unsent:
                self._unsent.popleft()  # a change that is lost with the connection
        return True

    def _lie(self) -> fleet_stream.StreamItem:
        resource_id = self._random.choice(sorted(self._present))
        document = msgspec.json.decode(self._present[resource_id])
        document["generation"] += self._random.randint(1, _MAX_LIE)
        self._trace.note(self._name, f"lies about {resource_id}@{document['generation']}")
        return _changed(msgspec.json.encode(document))

    def _is_faulty(self, share: float) -> bool:
        return self._faults.failed > 0 and self._random.random() < share


def _changed(document: bytes) -> fleet_stream.StreamItem:
    return fleet_stream.Changed(read_resource(msgspec.Raw(document)))
