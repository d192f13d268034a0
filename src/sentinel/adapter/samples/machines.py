"""The sample `provision`: machines for each resource, from a stock that never has them at the first attempt.

It remembers nothing itself. How often it has tried is in its own last report, which comes with every evaluation:
so it is true after a restart, and for any number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sentinel.adapter.context import Context
from sentinel.adapter.declaration import Adapter
from sentinel.core.task import Done, Failed, Finalized, Outcome, PreconditionsNotMet
from sentinel.core.task_resource import Resource

NAME: Final = "provision"

_TRIED = "attempts"


def declare(kinds: Sequence[str]) -> Adapter:
    """The adapter, for these kinds."""
    adapter = Adapter(NAME)
    adapter.task(kinds=kinds)(ensure_machines)
    adapter.finalizer(kinds=kinds)(return_machines)
    return adapter


async def ensure_machines(resource: Resource, context: Context) -> Outcome:
    """Fails the first attempt at a generation, and succeeds from the second on."""
    if not resource.is_available("dns"):
        return PreconditionsNotMet("Waiting for dns to complete")
    attempts = _attempts(resource, context)
    if attempts == 0:
        return Failed("no machines were free; the next attempt will find some", "NoCapacity", {_TRIED: 1})
    count = _machines(resource)
    return Done(f"{count} machines are running", "Provisioned", {_TRIED: attempts, "machines": count})


async def return_machines(resource: Resource, context: Context) -> Outcome:
    """Gives back what the last report speaks of."""
    said = None if context.previous is None else context.previous.read_data()
    count = said.get("machines", 0) if isinstance(said, Mapping) else 0
    return Finalized(f"{count} machines were given back")


def _attempts(resource: Resource, context: Context) -> int:
    """How often it was tried at this generation."""
    previous = context.previous
    if previous is None or previous.observed_generation != resource.generation:
        return 0
    said = previous.read_data()
    tried = said.get(_TRIED) if isinstance(said, Mapping) else None
    return tried if isinstance(tried, int) else 0


def _machines(resource: Resource) -> int:
    replicas = resource.spec.get("replicas") if isinstance(resource.spec, Mapping) else None
    return replicas if isinstance(replicas, int) else 1
