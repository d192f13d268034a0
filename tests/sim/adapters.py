"""The four simulated adapters: a chain of three, and one without dependencies.

Their tasks simulate user code. A good task waits for its preconditions, starts work that takes a while,
and finds it done at the next evaluation. A bad one is slow, fails, raises, hangs, or reports that it does not
know.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from random import Random
from typing import assert_never

import msgspec

from sentinel.adapter import Adapter, Context, Done, Failed, Finalized, InProgress, Outcome, PreconditionsNotMet
from sentinel.core.adapter.resource import Resource
from sentinel.core.fleet.documents import FINALIZED, KindRules


class AdapterSpec(msgspec.Struct, frozen=True):
    """A simulated adapter."""

    name: str
    kinds: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """The adapters it waits for, if they are required."""
    is_asynchronous: bool = False
    """Whether its work is done only at the second evaluation."""
    cleans_up: bool = False
    """Whether it has a finalizer."""
    finalizes_after: tuple[str, ...] = ()
    """The adapters that must be finalized first."""


ADAPTERS = (
    AdapterSpec("validation", ("Cluster", "NodePool")),
    AdapterSpec(
        "dns",
        ("Cluster",),
        needs=("validation",),
        is_asynchronous=True,
        cleans_up=True,
        finalizes_after=("provision",),
    ),
    AdapterSpec("provision", ("Cluster", "NodePool"), needs=("validation", "dns"), cleans_up=True),
    AdapterSpec("backup", ("Cluster",), is_asynchronous=True),
)
CLUSTERS = KindRules("clusters", "Cluster", required_adapters=("validation", "dns", "provision", "backup"))
NODEPOOLS = KindRules("nodepools", "NodePool", "clusters", required_adapters=("validation", "provision"))


class TaskError(Exception):
    """Raised by a misbehaving task."""


class Behavior(StrEnum):
    """How a task behaves."""

    GOOD = "good"
    SLOW = "slow"
    FAILING = "failing"
    RAISING = "raising"
    HANGING = "hanging"
    UNCANCELLABLE = "uncancellable"
    """It hangs, and delays its cancellation."""
    UNSURE = "unsure"
    """It reports that it is in progress, whatever it reported before."""


_BAD = tuple(each for each in Behavior if each is not Behavior.GOOD)


class AdapterBackend:
    """The work of one adapter, which outlives the adapter's processes."""

    def __init__(self, spec: AdapterSpec, random: Random) -> None:
        self.spec = spec
        self.misbehaving = 0.0
        """The share of evaluations with a random bad behavior."""
        self.behavior = Behavior.GOOD
        """The behavior of the other evaluations."""
        self._random = random
        self._started: set[tuple[str, int]] = set()

    def start_faults(self) -> None:
        self.misbehaving = self._random.choice((0.0, 0.1, 0.4))

    def change_behavior(self) -> Behavior:
        self.behavior = self._random.choice((Behavior.GOOD, Behavior.GOOD, *_BAD))
        return self.behavior

    def stop_faults(self) -> None:
        self.misbehaving = 0.0
        self.behavior = Behavior.GOOD

    def adapter(self) -> Adapter:
        """Declare the adapter for one process."""
        adapter = Adapter(self.spec.name)
        adapter.task(kinds=self.spec.kinds)(self._work)
        if self.spec.cleans_up:
            adapter.finalizer(kinds=self.spec.kinds)(self._clean_up)
        return adapter

    async def _work(self, resource: Resource, context: Context) -> Outcome:
        missing = [each for each in _required(resource, self.spec.needs) if not resource.is_available(each)]
        if missing:
            return PreconditionsNotMet(f"waiting for {', '.join(missing)}")
        return (
            await self._behave(resource)
            or self._progress(resource)
            or Done(data={"generation": resource.generation})
        )

    async def _clean_up(self, resource: Resource, context: Context) -> Outcome:
        before = _required(resource, self.spec.finalizes_after)
        if any(resource.status_of(each, FINALIZED) != "True" for each in before):
            return PreconditionsNotMet(f"waiting for {', '.join(before)} to be finalized")
        return await self._behave(resource) or self._progress(resource) or Finalized()

    def _progress(self, resource: Resource) -> Outcome | None:
        if not self.spec.is_asynchronous or (resource.id, resource.generation) in self._started:
            return None
        self._started.add((resource.id, resource.generation))
        return InProgress("started")

    async def _behave(self, resource: Resource) -> Outcome | None:
        """Misbehave, or return None to continue."""
        is_bad = self.misbehaving and self._random.random() < self.misbehaving
        behavior = self._random.choice(_BAD) if is_bad else self.behavior
        match behavior:
            case Behavior.GOOD:
                await asyncio.sleep(0.05 * self._random.random())
            case Behavior.SLOW:
                await asyncio.sleep(4 * self._random.random())
            case Behavior.FAILING:
                return Failed("simulated")
            case Behavior.RAISING:
                raise TaskError(f"simulated, on {resource.id}")
            case Behavior.HANGING:
                await asyncio.sleep(3600)
            case Behavior.UNCANCELLABLE:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    await asyncio.sleep(4 * self._random.random())
            case Behavior.UNSURE:
                return InProgress("unknown")
            case _:
                assert_never(behavior)
        return None


def _required(resource: Resource, adapters: tuple[str, ...]) -> list[str]:
    """Those of the adapters that are required for the resource's kind."""
    kind = CLUSTERS if resource.kind == CLUSTERS.kind else NODEPOOLS
    return [each for each in adapters if each in kind.required_adapters]
