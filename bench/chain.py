"""Three adapters, each waiting for the one before it. They do no other work, to measure the cost of the loop
itself."""

from __future__ import annotations

from sentinel.adapter import Adapter, Context, Done, Outcome, PreconditionsNotMet, Resource

CHAIN = ("validation", "dns", "provision")

validation, dns, provision = (Adapter(name) for name in CHAIN)


@validation.task(kinds=["Cluster"])
async def accept(cluster: Resource, context: Context) -> Outcome:
    return Done("accepted")


@dns.task(kinds=["Cluster"])
async def name(cluster: Resource, context: Context) -> Outcome:
    return _after("validation", cluster)


@provision.task(kinds=["Cluster"])
async def provide(cluster: Resource, context: Context) -> Outcome:
    return _after("dns", cluster)


def _after(needed: str, cluster: Resource) -> Outcome:
    if not cluster.is_available(needed):
        return PreconditionsNotMet(f"Waiting for {needed} to complete")
    return Done("done")
