"""Instances as the hub's API shows them."""

from __future__ import annotations

from collections.abc import Mapping

from sentinel.core.hub.states import State
from sentinel.hub.instance_documents import InstanceDocument, RunningVersion
from sentinel.testing.clock import START


def make_instance(
    instance_id: str,
    *,
    state: State = State.ONLINE,
    zone: str = "",
    running: str | None = "edge@1",
    assigned: str | None = "edge@1",
    in_sync: bool = True,
    message: str = "",
) -> InstanceDocument:
    """Return an instance; the hash of what it runs is that of the version's name."""
    labels: Mapping[str, str] = {"zone": zone} if zone else {}
    return InstanceDocument(
        id=instance_id,
        name=instance_id,
        hostname="here",
        labels=labels,
        capabilities=(),
        state=state,
        message=message,
        agent_version="1.0.0",
        sentinel_version="",
        registered_time=START,
        last_seen_time=START,
        uptime_seconds=0,
        active_connections=0,
        current=None if running is None else RunningVersion(running, f"hash of {running}"),
        assigned=assigned,
        in_sync=in_sync,
        deployment_id=None,
        metrics=None,
    )
