"""The API for writing adapters, which respond to pulses and report the status of a fleet's resources.

    from sentinel.adapter import Adapter, Done, InProgress, PreconditionsNotMet

    dns = Adapter("dns")

    @dns.task(kinds=["Cluster"])
    async def ensure_zone(cluster, context):
        if not cluster.is_available("validation"):
            return PreconditionsNotMet("Waiting for validation to complete")
        zone = await context.http.put(f"http://dns.internal/zones/{cluster.id}", json=cluster.spec)
        return InProgress("zone is being created") if zone.status == 202 else Done()

A task may run at any time and any number of times: it checks the state, does what is missing and returns an
outcome. Every run is reported, including one that fails. `sentinel adapter --config F` runs an adapter,
`sentinel.testing.adapter` tests it.
"""

from sentinel.adapter.declaration import Adapter, Context, Task
from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.core.adapter.resource import KnownReport, Owner, Resource, ResourceCondition
from sentinel.core.adapter.task import Done, Failed, Finalized, InProgress, Outcome, PreconditionsNotMet
from sentinel.core.fleet.documents import ConditionStatus
from sentinel.ports.task_http import HttpClient, HttpFailure, HttpResponse

__all__ = [
    "Adapter",
    "ConditionStatus",
    "Context",
    "Done",
    "Failed",
    "Finalized",
    "HttpClient",
    "HttpFailure",
    "HttpResponse",
    "InProgress",
    "KnownReport",
    "Outcome",
    "Owner",
    "PreconditionsNotMet",
    "ReceivedEvent",
    "Resource",
    "ResourceCondition",
    "Task",
]
