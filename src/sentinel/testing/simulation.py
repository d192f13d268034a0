"""The people and the adapters that make a `FakeFleet` live.

Adapters answer events after some work: as a rule promptly and with success, sometimes late, sometimes with a
failure, sometimes not at all. Owners change what they ask for, add resources and take some away. Both live on
a given clock and on given randomness, so that the same seed on driven time is the same history, and a
demonstration on real time shows in a minute what a fleet shows in a week.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import assert_never

import msgspec

from sentinel import ports
from sentinel.ports.subscription import Delivery, Subscriber
from sentinel.testing.fleet import Document, FakeFleet


class Manner(StrEnum):
    """How adapters answer an event."""

    PROMPT = "prompt"
    SLOW = "slow"
    FAILING = "failing"
    SILENT = "silent"


class Temper(msgspec.Struct, frozen=True, kw_only=True):
    """How often adapters answer in which manner, and how long they work."""

    work: timedelta = timedelta(milliseconds=800)
    """A prompt answer takes between half and one and a half times as long."""
    slow_work: timedelta = timedelta(seconds=6)
    slow: float = 0.1
    """The share of events that are answered late."""
    failing: float = 0.15
    """The share that is answered with a failure."""
    silent: float = 0.05
    """The share that is not answered."""


class SimulatedAdapters:
    """Every adapter of one fleet, taken together: what they report is the aggregated status."""

    def __init__(
        self, *, fleet: FakeFleet, clock: ports.Clock, random: Random, temper: Temper, concurrency: int = 16
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._random = random
        self._temper = temper
        self._concurrency = concurrency

    async def serve(self, subscriber: Subscriber) -> None:
        """Answers deliveries until there are no more, several at a time.

        An event is acked when it has been answered, so that one which was being worked on when the subscriber
        closed is delivered again.
        """
        free = asyncio.Semaphore(self._concurrency)

        async def handle(delivery: Delivery) -> None:
            try:
                await self.answer(delivery.message.attributes.get("subject", ""))
                await delivery.ack()
            finally:
                free.release()

        async with asyncio.TaskGroup() as workers:
            async for delivery in subscriber.deliveries():
                await free.acquire()
                workers.create_task(handle(delivery))

    async def answer(self, resource_id: str) -> Manner | None:
        """Looks at a resource, works, and reports; None where this fleet has no such resource."""
        document = self._fleet.get(resource_id)
        if document is None:
            return None
        manner = self._manner()
        typical = self._temper.slow_work if manner is Manner.SLOW else self._temper.work
        await self._clock.sleep(typical * self._random.uniform(0.5, 1.5))
        match manner:
            case Manner.PROMPT | Manner.SLOW:
                self._report(document, is_ready=True, reason="Applied", message="all adapters are done")
            case Manner.FAILING:
                self._report(document, is_ready=False, reason="Failed", message="an adapter will try again")
            case Manner.SILENT:
                pass
            case _:
                assert_never(manner)
        return manner

    def _manner(self) -> Manner:
        shares = (self._temper.slow, self._temper.failing, self._temper.silent)
        drawn = self._random.random()
        for manner, share in zip((Manner.SLOW, Manner.FAILING, Manner.SILENT), shares, strict=True):
            if drawn < share:
                return manner
            drawn -= share
        return Manner.PROMPT

    def _report(self, document: Document, *, is_ready: bool, reason: str, message: str) -> None:
        self._fleet.report(
            document.id,
            generation=document.generation,  # the one they worked on; a newer one is news for the next event
            is_ready=is_ready,
            at=self._clock.now(),
            reason=reason,
            message=message,
        )


class SimulatedOwners:
    """Those who ask: at random times one of them changes a spec, adds a resource, or takes one away."""

    def __init__(
        self, *, fleets: Sequence[FakeFleet], clock: ports.Clock, random: Random, pause: timedelta
    ) -> None:
        """`pause` is the typical time from one change to the next."""
        self._fleets = fleets
        self._clock = clock
        self._random = random
        self._pause = pause
        self._added = 0
        self._sizes = [len(fleet.documents()) for fleet in fleets]

    async def live(self) -> None:
        """Goes on for ever."""
        while True:
            await self._clock.sleep(self._pause * self._random.uniform(0.5, 1.5))
            self.change_something()

    def change_something(self) -> None:
        """One change, somewhere; the fleets keep about the size they had."""
        number = self._random.randrange(len(self._fleets))
        fleet, size = self._fleets[number], self._sizes[number]
        documents = fleet.documents()
        surplus = len(documents) - size
        chance = self._random.random()
        if not documents or chance < 0.1 - 0.05 * surplus:
            self._add(fleet, documents)
        elif chance > 0.9 - 0.05 * surplus:
            fleet.remove(self._random.choice(documents).id)
        else:
            chosen = self._random.choice(documents)
            fleet.change_spec(chosen.id, {"replicas": self._random.randint(1, 9)}, at=self._clock.now())

    def _add(self, fleet: FakeFleet, documents: Sequence[Document]) -> None:
        self._added += 1
        like = self._random.choice(documents) if documents else None
        fleet.put(
            f"new-{fleet.kind.lower()}-{self._added}",
            labels=like.labels if like else None,
            owner=like.owner if like else None,
            spec={"replicas": 3},
            at=self._clock.now(),
        )
