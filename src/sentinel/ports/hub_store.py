"""The store of the hub: instances, configurations with immutable versions, metrics, and the log of events.

A heartbeat never costs a write of its own: `flush` writes what many heartbeats reported. Everything else is a
transaction. The implementations are SQLite, PostgreSQL, and memory in `sentinel.testing`; all pass one contract
suite.

Several hubs may share one database. The events of all transactions are in one log, and their numbers are in the
order in which they become visible: a reader that has read up to a number has missed nothing before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol, TypeVar

import msgspec

from sentinel.core.hub.instance import Instance
from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Sync
from sentinel.core.hub.versions import VersionName
from sentinel.ports.audit import AuditWriter
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import StoredResponses
from sentinel.ports.rollout_store import RolloutStore, RolloutTransaction

T = TypeVar("T")

THINNED_INTERVAL: Final = timedelta(minutes=5)
"""Metrics are thinned out by such intervals, which are counted since 1970. A store may depend on their width."""


class ReportedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about itself. It changes with heartbeats."""

    version: str = ""
    """`<config>@<n>` as the agent reports it; empty if it runs none of ours."""
    uptime_seconds: int = 0
    active_connections: int = 0
    metrics: Sample | None = None
    """The latest sample."""


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy instance with its agent."""

    id: str
    life: Instance
    """Its state, incarnation, session and deployment. `last_seen` and `message` are as of the last `flush`."""
    hub: str = ""
    """The hub process that the latest session belongs to."""
    owner: str
    """What first registered this incarnation: `token:<name>` or `certificate:<CN>`; empty without either."""
    name: str
    hostname: str = ""
    labels: Mapping[str, str] = {}
    capabilities: Sequence[str] = ()
    agent_version: str = ""
    sentinel_version: str = ""
    status: ReportedStatus = ReportedStatus()
    sync: Sync = Sync()


class Heartbeats(msgspec.Struct, frozen=True, kw_only=True):
    """What the heartbeats of one instance have reported since the last flush."""

    instance_id: str
    incarnation: int
    session: int
    last_seen: datetime
    message: str
    status: ReportedStatus
    reported_hash: str = ""
    last_in_sync: datetime | None = None
    """As in `Sync`."""
    samples: Sequence[Sample] = ()
    """New samples of metrics, with their times."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration. Its content is in its versions."""

    id: str
    latest_version: int
    created_time: datetime
    created_by: str
    updated_time: datetime


class ConfigVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a configuration. It never changes."""

    config_id: str
    version: int
    hash: str
    """The SHA-256 of `content` in lower-case hexadecimal."""
    content: str
    change_summary: str = ""
    restart_required: bool = False
    """Whether an instance that runs the version before has to restart."""
    secrets: Sequence[str] = ()
    """References in order: `secret:api-cert`, `env:API_CERT_PATH`, `vault:secret/data/api/tls#key`."""
    warnings: Sequence[bytes] = ()
    """The warnings of its validation, each a JSON object."""
    created_time: datetime
    created_by: str


class HubEventType(StrEnum):
    """What an event of the log is about."""

    INSTANCE_STATE = "instance.state"
    DEPLOYMENT_STATE = "deployment.state"
    DEPLOYMENT_INSTANCE = "deployment.instance"
    CONFIG_VERSION = "config.version"
    INSTANCE_CHANGED = "instance.changed"
    """An instance has a new session, assignment or drain request. For hubs only, not for users."""
    DEPLOYMENT_CHANGED = "deployment.changed"
    """A deployment was stored. For hubs only, not for users."""


INTERNAL_TYPES: Final = (HubEventType.INSTANCE_CHANGED, HubEventType.DEPLOYMENT_CHANGED)
"""Events between hubs, which users do not see."""


class HubEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the log."""

    number: int
    time: datetime
    type: HubEventType
    subject: str
    """The id of the instance, the deployment, or `<config>@<n>`."""
    data: bytes = b""
    """What users see: a JSON object; empty for events between hubs."""


class ConfigTaken(AlreadyExists):
    """Another configuration has this id."""


class VersionTaken(AlreadyExists):
    """Another transaction has stored this version."""


class HubTransaction(RolloutTransaction, AuditWriter, StoredResponses, Protocol):
    """A transaction: all of its writes take effect, or none.

    The work is a plain function, which a store may run on any thread, and again after a lost race. Work that locks
    several instances locks them in the order of their ids, a deployment before them and configurations after them,
    so that transactions do not wait for each other in a circle.
    """

    def instance(self, instance_id: str) -> InstanceRecord | None:
        """Return an instance, removed or not, and lock it until the transaction ends."""

    def save_instance(self, instance: InstanceRecord) -> None:
        """Store an instance that was read, or is new, in this transaction."""

    def note_assigned(self, instance_id: str, incarnation: int, version: VersionName) -> None:
        """Remember that a version was assigned to this incarnation. Idempotent."""

    def config(self, config_id: str) -> Config | None:
        """Return a configuration and lock it until the transaction ends."""

    def keep_config(self, config_id: str) -> bool:
        """Whether there is this configuration, which is not deleted before the transaction ends. Several
        transactions can do this at the same time."""

    def add_config(self, config: Config) -> None:
        """Raises `ConfigTaken`, which ends the transaction."""

    def save_config(self, config: Config) -> None:
        """Store a configuration that was read in this transaction."""

    def remove_config(self, config_id: str) -> None:
        """Delete a configuration with its versions. That they were assigned is forgotten, too: another
        configuration may get the same id."""

    def version(self, name: VersionName) -> ConfigVersion | None: ...

    def add_version(self, version: ConfigVersion) -> None:
        """Raises `VersionTaken`, which ends the transaction."""

    def count_assigned(self, config_id: str) -> int:
        """How many instances, removed ones excluded, have a version of this configuration assigned."""

    def append_event(self, event_type: HubEventType, subject: str, data: bytes, time: datetime) -> None:
        """Append to the log, in the order of these calls."""


class InstanceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of instances in the order of their ids."""

    after: str = ""
    limit: int
    states: Collection[State] = ()
    """Empty for all that are not removed."""
    matches: Callable[[Mapping[str, str]], bool] | None = None
    """A selector over labels; None selects everything."""


class InstancePage(msgspec.Struct, frozen=True):
    """Instances, and how many match in all."""

    instances: Sequence[InstanceRecord]
    total: int
    is_last: bool


class HubStore(RolloutStore, Protocol):
    """Instances, configurations, deployments, metrics and events. Every call may raise `Unavailable`."""

    async def transact(self, work: Callable[[HubTransaction], T]) -> T:
        """Run the work in a transaction and return its result once that is durable. Wakes readers of the log of
        every hub if it appended an event."""

    async def instance(self, instance_id: str) -> InstanceRecord | None: ...

    async def instances(self, query: InstanceQuery) -> InstancePage: ...

    async def instances_by_id(self, instance_ids: Collection[str]) -> Mapping[str, InstanceRecord]: ...

    async def silent(self, before: datetime, *, limit: int) -> Sequence[InstanceRecord]:
        """Return connected instances (`states.CONNECTED`) that were last seen before this time, those first that
        have been silent for longest."""

    async def leaving(self, *, offline_before: datetime, drain_before: datetime, limit: int) -> Sequence[str]:
        """Return ids of instances that have been offline since before one time, or that are draining with a
        deadline before the other; these first."""

    async def count_by_state(self) -> Mapping[State, int]:
        """How many instances are in each state, removed ones included. States without instances are left out."""

    async def out_of_sync(self, *, limit: int) -> Sequence[InstanceRecord]:
        """Return instances, removed ones excluded, that do not run what is assigned to them, in the order of their
        ids."""

    async def expire_removed(self, before: datetime, *, limit: int) -> int:
        """Delete instances that were removed before this time, in the order of their ids.

        What they were ever assigned is forgotten, too: another Register of such an id begins with the first
        incarnation. Their samples are left to `expire_metrics`.
        """

    async def flush(self, heartbeats: Sequence[Heartbeats]) -> None:
        """Write what heartbeats reported, in one transaction, without events. Idempotent.

        An earlier incarnation changes nothing. An earlier session, or heartbeats older than what is stored, add
        only their samples. A sample of a time that the incarnation already has one of is ignored.
        """

    async def metrics(self, instance_id: str, *, since: datetime, limit: int) -> Sequence[Sample]:
        """Return the samples of the present incarnation from this time on, oldest first."""

    async def thin_metrics(self, before: datetime, *, limit: int) -> int:
        """Thin out samples as `core.hub.metrics_samples.thin_out` says, in intervals of `THINNED_INTERVAL` that
        ended before this time. Each is seen with the one before, because of resets between them. One call is about
        the intervals of the `limit` oldest samples that were not thinned out yet.

        Returns how many samples it has dealt with: at least `limit`, if there are that many.
        """

    async def expire_metrics(self, before: datetime, *, limit: int) -> int:
        """Delete the oldest samples, of the oldest intervals first."""

    async def config(self, config_id: str) -> Config | None: ...

    async def configs(self, *, after: str, limit: int) -> Sequence[Config]: ...

    async def count_configs(self) -> int: ...

    async def assigned_counts(self, config_ids: Collection[str]) -> Mapping[str, int]:
        """How many instances, removed ones excluded, have a version of each configuration assigned. Those without
        any are left out."""

    async def version(self, name: VersionName) -> ConfigVersion | None: ...

    async def versions(self, config_id: str, *, before: int | None, limit: int) -> Sequence[ConfigVersion]:
        """Return versions lower than `before`, newest first, without their contents."""

    async def was_assigned(self, instance_id: str, incarnation: int, version: VersionName) -> bool: ...

    async def newest_event(self) -> int:
        """Return the number of the newest event; 0 if there is none."""

    async def events(self, after: int, *, limit: int) -> Sequence[HubEvent]:
        """Return events in the order of their numbers."""

    async def oldest_event(self) -> int:
        """Return the number of the oldest event that is kept, or the number that the next event will get."""

    async def expire_events(self, before: datetime, *, limit: int) -> int:
        """Delete the oldest events, up to the first that is not older than `before`."""

    def wakeups(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set when the log may have grown, by any hub."""
