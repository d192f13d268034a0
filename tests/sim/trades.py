"""What the four adapters of the simulation do: a chain of three, and one that depends on nobody.

Their work is somebody else's code at its worst. In a bad mood it is slow, fails, raises, never ends, or does not
know; in a good one it does what a real task does: waits for what must come first, begins something that takes a
while, and finds it done when it looks again.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from random import Random
from typing import assert_never

import msgspec

from sentinel.adapter import (
    Adapter,
    Context,
    Done,
    Failed,
    Finalized,
    InProgress,
    Outcome,
    PreconditionsNotMet,
    Resource,
)
from sentinel.core.fleet.documents import FINALIZED, KindRules


class Trade(msgspec.Struct, frozen=True):
    """An adapter of the simulation."""

    name: str
    kinds: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Whom it waits for, as far as they are required."""
    is_asynchronous: bool = False
    """Its work goes on elsewhere, and is done when it is looked at a second time."""
    cleans_up: bool = False
    """It leaves something behind that has to go with the resource."""
    leaves_after: tuple[str, ...] = ()
    """Who has to clean up before it does."""


TRADES = (
    Trade("validation", ("Cluster", "NodePool")),
    Trade(
        "dns",
        ("Cluster",),
        needs=("validation",),
        is_asynchronous=True,
        cleans_up=True,
        leaves_after=("provision",),
    ),
    Trade("provision", ("Cluster", "NodePool"), needs=("validation", "dns"), cleans_up=True),
    Trade("backup", ("Cluster",), is_asynchronous=True),
)
CLUSTERS = KindRules("clusters", "Cluster", required_adapters=("validation", "dns", "provision", "backup"))
NODEPOOLS = KindRules("nodepools", "NodePool", "clusters", required_adapters=("validation", "provision"))


class Mishap(Exception):
    """What a task raises in a bad mood."""


class Mood(StrEnum):
    """How a task behaves."""

    GOOD = "good"
    SLOW = "slow"
    FAILING = "failing"
    RAISING = "raising"
    HANGING = "hanging"
    STUBBORN = "stubborn"
    """It hangs, and ignores that it is cancelled."""
    UNSURE = "unsure"
    """It says that it is still at work, whatever it did before."""


_BAD = tuple(mood for mood in Mood if mood is not Mood.GOOD)


class Workshop:
    """The world that one adapter works on: it outlives the adapter's processes."""

    def __init__(self, trade: Trade, random: Random) -> None:
        self.trade = trade
        self.bad = 0.0
        """The share of evaluations that meet a bad mood."""
        self.mood = Mood.GOOD
        """The mood of the day, for those that meet none of their own."""
        self._random = random
        self._begun: set[tuple[str, int]] = set()

    def rage(self) -> None:
        """The faults begin."""
        self.bad = self._random.choice((0.0, 0.1, 0.4))

    def turn(self) -> Mood:
        """Another mood of the day."""
        self.mood = self._random.choice((Mood.GOOD, Mood.GOOD, *_BAD))
        return self.mood

    def calm(self) -> None:
        """The faults stop."""
        self.bad = 0.0
        self.mood = Mood.GOOD

    def adapter(self) -> Adapter:
        """The adapter as one process declares it."""
        adapter = Adapter(self.trade.name)
        adapter.task(kinds=self.trade.kinds)(self._work)
        if self.trade.cleans_up:
            adapter.finalizer(kinds=self.trade.kinds)(self._clean_up)
        return adapter

    async def _work(self, resource: Resource, context: Context) -> Outcome:
        awaited = [each for each in _required(resource, self.trade.needs) if not resource.is_available(each)]
        if awaited:
            return PreconditionsNotMet(f"waiting for {', '.join(awaited)}")
        return (
            await self._behave(resource)
            or self._progress(resource)
            or Done(data={"generation": resource.generation})
        )

    async def _clean_up(self, resource: Resource, context: Context) -> Outcome:
        before = _required(resource, self.trade.leaves_after)
        if any(resource.status_of(each, FINALIZED) != "True" for each in before):
            return PreconditionsNotMet(f"waiting for {', '.join(before)} to clean up")
        return await self._behave(resource) or self._progress(resource) or Finalized()

    def _progress(self, resource: Resource) -> Outcome | None:
        if not self.trade.is_asynchronous or (resource.id, resource.generation) in self._begun:
            return None
        self._begun.add((resource.id, resource.generation))
        return InProgress("begun")

    async def _behave(self, resource: Resource) -> Outcome | None:
        """What a mood makes of an evaluation; None where nothing keeps it from its work."""
        is_bad = self.bad and self._random.random() < self.bad
        mood = self._random.choice(_BAD) if is_bad else self.mood
        match mood:
            case Mood.GOOD:
                await asyncio.sleep(0.05 * self._random.random())
            case Mood.SLOW:
                await asyncio.sleep(4 * self._random.random())
            case Mood.FAILING:
                return Failed("by chance")
            case Mood.RAISING:
                raise Mishap(f"by chance, on {resource.id}")
            case Mood.HANGING:
                await asyncio.sleep(3600)
            case Mood.STUBBORN:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    await asyncio.sleep(4 * self._random.random())
            case Mood.UNSURE:
                return InProgress("who knows")
            case _:
                assert_never(mood)
        return None


def _required(resource: Resource, adapters: tuple[str, ...]) -> list[str]:
    """Those of the adapters that have anything to say about such a resource."""
    kind = CLUSTERS if resource.kind == CLUSTERS.kind else NODEPOOLS
    return [each for each in adapters if each in kind.required_adapters]
