"""Two adapters as a team would write them, whose work is done by a workshop that the test owns.

Copied next to a settings file and loaded from there, as anybody's own adapter is.
"""

from __future__ import annotations

import os

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

quota = Adapter("quota")
zones = Adapter("zones")


@quota.task(kinds=["Cluster"])
async def reserve(cluster: Resource, context: Context) -> Outcome:
    return await _worked(cluster, context)


@zones.task(kinds=["Cluster"])
async def ensure_zone(cluster: Resource, context: Context) -> Outcome:
    is_chained = isinstance(cluster.spec, dict) and cluster.spec.get("chained") is True
    if is_chained and not cluster.is_available("quota"):
        await _ask("waits", cluster, context)
        return PreconditionsNotMet("Waiting for quota")
    return await _worked(cluster, context)


@zones.task(kinds=["Workload", "Manifest"])
async def ensure_record(resource: Resource, context: Context) -> Outcome:
    return await _worked(resource, context)


@zones.finalizer(kinds=["Cluster", "Workload", "Manifest"])
async def remove(resource: Resource, context: Context) -> Outcome:
    await _ask("removals", resource, context)
    return Finalized()


async def _worked(resource: Resource, context: Context) -> Outcome:
    state = await _ask("tasks", resource, context)
    match state:
        case "succeeded":
            return Done()
        case "failed":
            return Failed("the workshop could not do it")
        case "in progress":
            return InProgress("the workshop is at it")
    raise ValueError(f"the workshop says {state}")


async def _ask(what: str, resource: Resource, context: Context) -> str:
    """Puts the task into the workshop, which is harmless when it is there already; its state."""
    where = f"{os.environ['WORKSHOP_URL']}/{what}/{context.adapter}/{resource.id}/{resource.generation}"
    event = context.event
    answer = await context.http.put(where, json={"event_id": event.id, "event_time": event.time})
    return answer.raise_for_status().text()
