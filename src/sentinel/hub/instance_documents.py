"""An instance as users see it, in the REST API and in events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from sentinel.core.hub.metrics_samples import Metrics
from sentinel.core.hub.states import State
from sentinel.ports.hub_store import InstanceRecord


class RunningVersion(msgspec.Struct, frozen=True):
    """What an instance runs, as its agent reports it."""

    version: str
    """`<config>@<n>`; empty if the file is none of ours."""
    hash: str


class InstanceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy instance."""

    id: str
    name: str
    hostname: str
    labels: Mapping[str, str]
    capabilities: Sequence[str]
    state: State
    message: str
    agent_version: str
    sentinel_version: str
    registered_time: datetime
    last_seen_time: datetime
    uptime_seconds: int
    active_connections: int
    current: RunningVersion | None
    assigned: str | None
    in_sync: bool
    deployment_id: str | None
    metrics: Metrics | None


def document(record: InstanceRecord) -> InstanceDocument:
    """Return an instance as users see it."""
    life, status, sync = record.life, record.status, record.sync
    runs_something = bool(status.version or sync.reported_hash)
    return InstanceDocument(
        id=record.id,
        name=record.name,
        hostname=record.hostname,
        labels=record.labels,
        capabilities=record.capabilities,
        state=life.state,
        message=life.message,
        agent_version=record.agent_version,
        sentinel_version=record.sentinel_version,
        registered_time=life.registered,
        last_seen_time=life.last_seen,
        uptime_seconds=status.uptime_seconds,
        active_connections=status.active_connections,
        current=RunningVersion(status.version, sync.reported_hash) if runs_something else None,
        assigned=None if sync.assignment is None else str(sync.assignment.version),
        in_sync=sync.is_in_sync,
        deployment_id=life.deployment_id,
        metrics=None if status.metrics is None else status.metrics.metrics,
    )


encode = msgspec.json.Encoder().encode
