"""The sample `provision`: machines for each resource, from a stock that never has them at the first attempt.

It remembers nothing itself. How often it has tried is in its own last report, which comes with every evaluation:
so it is true after a restart, and for any number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sentinel.adapter.context import Context
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.samples import zones
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Done, Failed, Finalized, Outcome, PreconditionsNotMet

NAME: Final = "provision"
NEEDS: Final = (zones.NAME,)

_TRIED, _RUNNING = "attempts", "machines"


def declare(kinds: Sequence[str]) -> Adapter:
    """The adapter, for these kinds."""
    adapter = Adapter(NAME)
    adapter.task(kinds=kinds)(ensure_machines)
    adapter.finalizer(kinds=kinds)(return_machines)
    return adapter


async def ensure_machines(resource: Resource, context: Context) -> Outcome:
    """Fails the first attempt at a generation, and succeeds from the second on."""
    attempts, running = _attempts(resource, context), _running(context)
    if missing := [name for name in NEEDS if not resource.is_available(name)]:
        # A report is all that is remembered, so even one that says "not now" hands on what is known.
        known = {_TRIED: attempts, _RUNNING: running}
        return PreconditionsNotMet(f"Waiting for {missing[0]} to complete", data=known)
    if attempts == 0:
        known = {_TRIED: 1, _RUNNING: running}
        return Failed("no machines were free; the next attempt will find some", "NoCapacity", known)
    count = _wanted(resource)
    return Done(f"{count} machines are running", "Provisioned", {_TRIED: attempts, _RUNNING: count})


async def return_machines(resource: Resource, context: Context) -> Outcome:
    """Gives back what the last report speaks of."""
    return Finalized(f"{_running(context)} machines were given back")


def _attempts(resource: Resource, context: Context) -> int:
    """How often it was tried at this generation."""
    previous = context.previous
    if previous is None or previous.observed_generation != resource.generation:
        return 0
    return _reported(context, _TRIED)


def _running(context: Context) -> int:
    """How many machines it has, of whichever generation."""
    return _reported(context, _RUNNING)


def _reported(context: Context, what: str) -> int:
    said = None if context.previous is None else context.previous.read_data()
    count = said.get(what) if isinstance(said, Mapping) else None
    return count if isinstance(count, int) else 0


def _wanted(resource: Resource) -> int:
    replicas = resource.spec.get("replicas") if isinstance(resource.spec, Mapping) else None
    return replicas if isinstance(replicas, int) else 1
