"""Three adapters of which each waits for the one before it, and that have nothing to do but that.

What the loop itself costs is measured with these: no service is asked, and nothing fails on purpose.
"""

from __future__ import annotations

from sentinel.adapter import Adapter, Context, Done, Outcome, PreconditionsNotMet, Resource

CHAIN = ("validation", "dns", "provision")

validation, dns, provision = (Adapter(name) for name in CHAIN)


@validation.task(kinds=["Cluster"])
async def accept(cluster: Resource, context: Context) -> Outcome:
    """Needs nobody."""
    return Done("accepted")


@dns.task(kinds=["Cluster"])
async def name(cluster: Resource, context: Context) -> Outcome:
    """Needs what was accepted."""
    return _after("validation", cluster)


@provision.task(kinds=["Cluster"])
async def provide(cluster: Resource, context: Context) -> Outcome:
    """Needs what was named."""
    return _after("dns", cluster)


def _after(needed: str, cluster: Resource) -> Outcome:
    if not cluster.is_available(needed):
        return PreconditionsNotMet(f"Waiting for {needed} to complete")
    return Done("done")
