"""Two adapters whose work is done by the test's fake backend.

The file is copied next to a settings file and loaded from there, like a user's adapter.
"""

from __future__ import annotations

import os

from sentinel import adapter
from sentinel.adapter import Adapter, Context, Outcome, Resource

quota = Adapter("quota")
zones = Adapter("zones")


@quota.task(kinds=["Cluster"])
async def reserve(cluster: Resource, context: Context) -> Outcome:
    return await _run_task(cluster, context)


@zones.task(kinds=["Cluster"])
async def ensure_zone(cluster: Resource, context: Context) -> Outcome:
    is_chained = isinstance(cluster.spec, dict) and cluster.spec.get("chained") is True
    if is_chained and not cluster.is_available("quota"):
        await _call_backend("waits", cluster, context)
        return adapter.PreconditionsNotMet("Waiting for quota")
    return await _run_task(cluster, context)


@zones.task(kinds=["Workload", "Manifest"])
async def ensure_record(resource: Resource, context: Context) -> Outcome:
    return await _run_task(resource, context)


@zones.finalizer(kinds=["Cluster", "Workload", "Manifest"])
async def remove(resource: Resource, context: Context) -> Outcome:
    await _call_backend("removals", resource, context)
    return adapter.Finalized()


async def _run_task(resource: Resource, context: Context) -> Outcome:
    state = await _call_backend("tasks", resource, context)
    match state:
        case "succeeded":
            return adapter.Done()
        case "failed":
            return adapter.Failed("the backend failed")
        case "in progress":
            return adapter.InProgress("the backend is working")
    raise ValueError(f"unexpected state {state}")


async def _call_backend(operation: str, resource: Resource, context: Context) -> str:
    """Put the task, which is idempotent, and return its state."""
    url = f"{os.environ['BACKEND_URL']}/{operation}/{context.adapter}/{resource.id}/{resource.generation}"
    event = context.event
    response = await context.http.put(url, json={"event_id": event.id, "event_time": event.time})
    return response.raise_for_status().text()
