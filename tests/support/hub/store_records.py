"""Builders for tests of the hub's store: instances, versions, samples, and transactions that write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from sentinel.core.hub.instance import Drain, DrainCause, Instance
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Assignment, Sync
from sentinel.core.hub.versions import VersionName, content_hash
from sentinel.ports.hub_store import (
    Config,
    ConfigVersion,
    Heartbeats,
    HubEvent,
    HubEventType,
    HubStore,
    HubTransaction,
    InstanceQuery,
    InstanceRecord,
    ReportedStatus,
)
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import MOMENT, SECOND, StoreSuite

MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)


class HubSuite(StoreSuite):
    """Fixtures of the contract of a hub's store."""

    @pytest.fixture
    def hub(self, backend: Backend) -> HubStore:
        return backend.hub


def instance(
    instance_id: str,
    state: State = State.ONLINE,
    *,
    incarnation: int = 1,
    session: int = 1,
    since: datetime = MOMENT,
    last_seen: datetime = MOMENT,
    deadline: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    assigned: VersionName | None = None,
    reported_hash: str = "",
) -> InstanceRecord:
    """An instance. It is draining with `deadline`; `assigned` is out of sync unless its hash is reported."""
    drain = None if deadline is None else Drain(DrainCause.REQUESTED, "because", since, deadline)
    assignment = None if assigned is None else Assignment(assigned, hash_of(assigned), MOMENT - SECOND / 7)
    return InstanceRecord(
        id=instance_id,
        life=Instance(
            state=state,
            since=since,
            incarnation=incarnation,
            session=session,
            registered=MOMENT - SECOND,
            last_seen=last_seen,
            drain=drain,
        ),
        owner="token:fleet",
        name=f"Name of {instance_id}",
        labels=labels or {},
        sync=Sync(assignment=assignment, reported_hash=reported_hash),
    )


def full_instance(instance_id: str) -> InstanceRecord:
    """An instance with a value in every field."""
    return InstanceRecord(
        id=instance_id,
        life=Instance(
            state=State.DRAINING,
            since=MOMENT + MICROSECOND,
            incarnation=3,
            session=4,
            registered=MOMENT + 2 * MICROSECOND,
            last_seen=MOMENT + 3 * MICROSECOND,
            message="two of three upstreams answer, «slowly»",
            deployment_id="dep-1",
            drain=Drain(DrainCause.DEREGISTERED, "rebuilt", MOMENT + SECOND, MOMENT + MINUTE),
        ),
        hub="hub-1",
        owner="certificate:edge-1",
        name="Edge 1 \N{SNOWMAN}",
        hostname="edge-1.example",
        labels={"zone": "a", "tier": ""},
        capabilities=("reload", "drain"),
        agent_version="1.2.3",
        sentinel_version="0.6.20",
        status=ReportedStatus(
            version="api@7",
            uptime_seconds=2**40,
            active_connections=12,
            metrics=sample(5, requests_total=2**62, latency_p50_ms=0.1, latency_p99_ms=1e300),
        ),
        sync=Sync(
            assignment=Assignment(VersionName("api", 8), "ab" * 32, MOMENT + 5 * MICROSECOND),
            reported_hash="cd" * 32,
            last_in_sync=MOMENT + 6 * MICROSECOND,
        ),
    )


def sample(seconds: float, requests_total: int = 0, **metrics: float) -> Sample:
    """A sample that was taken so long after `MOMENT`."""
    return Sample(
        MOMENT + seconds * SECOND,
        msgspec.convert({"requests_total": requests_total, **metrics}, Metrics, strict=False),
    )


def heartbeats(
    record: InstanceRecord, seconds: int = 0, *, samples: Sequence[Sample] = (), message: str = "serving"
) -> Heartbeats:
    """Heartbeats of this session of an instance until so long after `MOMENT`."""
    return Heartbeats(
        instance_id=record.id,
        incarnation=record.life.incarnation,
        session=record.life.session,
        last_seen=MOMENT + seconds * SECOND,
        message=message,
        status=ReportedStatus(version="api@1", uptime_seconds=seconds, active_connections=seconds),
        reported_hash=f"{seconds:x}",
        samples=samples,
    )


def config(config_id: str, latest_version: int = 1) -> Config:
    return Config(
        id=config_id,
        latest_version=latest_version,
        created_time=MOMENT,
        created_by="ann",
        updated_time=MOMENT + SECOND / 7,
    )


def hash_of(name: VersionName) -> str:
    return content_hash(f"content of {name}")


def version(config_id: str, number: int) -> ConfigVersion:
    name = VersionName(config_id, number)
    return ConfigVersion(
        config_id=config_id,
        version=number,
        hash=hash_of(name),
        content=f"content of {name}",
        change_summary=f"change {number} \N{SNOWMAN}",
        restart_required=number % 2 == 0,
        secrets=("secret:api-cert", "env:KEY", "secret:api-cert")[: number - 1],
        warnings=(b'{"line":3}', b'{"line":1}')[: number - 1],
        created_time=MOMENT + number * SECOND,
        created_by="ben",
    )


def saving(*instances: InstanceRecord) -> Callable[[HubTransaction], None]:
    def work(transaction: HubTransaction) -> None:
        for each in sorted(instances, key=lambda each: each.id):
            transaction.instance(each.id)
            transaction.save_instance(each)

    return work


def adding(*rows: Config | ConfigVersion) -> Callable[[HubTransaction], None]:
    def work(transaction: HubTransaction) -> None:
        for row in rows:
            if isinstance(row, Config):
                transaction.add_config(row)
            else:
                transaction.add_version(row)

    return work


def removing(config_id: str) -> Callable[[HubTransaction], None]:
    def work(transaction: HubTransaction) -> None:
        transaction.config(config_id)
        transaction.remove_config(config_id)

    return work


def appending(*subjects: str, time: datetime = MOMENT) -> Callable[[HubTransaction], None]:
    def work(transaction: HubTransaction) -> None:
        for subject in subjects:
            transaction.append_event(HubEventType.INSTANCE_STATE, subject, b"{}", time)

    return work


def opening_session(instance_id: str) -> Callable[[HubTransaction], int]:
    """Register: a new session, an event, and a lost update shows in the number of sessions."""

    def work(transaction: HubTransaction) -> int:
        found = transaction.instance(instance_id) or instance(instance_id, session=0)
        session = found.life.session + 1
        transaction.append_event(HubEventType.INSTANCE_STATE, instance_id, b"%d" % session, MOMENT)
        transaction.save_instance(
            msgspec.structs.replace(found, life=msgspec.structs.replace(found.life, session=session))
        )
        return session

    return work


# A store may return any sequence. These return lists, which can be compared.


async def listed(hub: HubStore, query: InstanceQuery) -> tuple[list[str], int, bool]:
    """Return the ids of a page, how many match in all, and whether it is the last."""
    page = await hub.instances(query)
    return [each.id for each in page.instances], page.total, page.is_last


async def samples_of(
    hub: HubStore, instance_id: str, *, since: datetime = MOMENT, limit: int = 1000
) -> list[float]:
    """Return the seconds after `MOMENT` of the samples of an instance."""
    found = await hub.metrics(instance_id, since=since, limit=limit)
    return [(each.time - MOMENT) / SECOND for each in found]


async def all_events(hub: HubStore, after: int = 0) -> list[HubEvent]:
    return list(await hub.events(after, limit=10_000))
