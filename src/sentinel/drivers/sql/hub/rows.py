"""Encoding of instances, versions, samples and events as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from sentinel.core.hub.instance import Drain, Instance
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Assignment, Sync
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.sql.engine.columns import from_micros, to_micros
from sentinel.drivers.sql.engine.statements import Row, SqlValue
from sentinel.ports.hub_store import (
    THINNED_INTERVAL,
    Config,
    ConfigVersion,
    Heartbeats,
    HubEvent,
    HubEventType,
    InstanceRecord,
    ReportedStatus,
)


class _Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What heartbeats change, besides the columns that queries use."""

    message: str
    status: ReportedStatus


class _Description(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What only transactions change, besides the columns that queries use."""

    registered: datetime
    deployment_id: str | None
    drain: Drain | None
    assignment: Assignment | None
    hub: str
    owner: str
    name: str
    hostname: str
    capabilities: Sequence[str]
    agent_version: str
    sentinel_version: str


class _Details(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A version without its name and content."""

    hash: str
    change_summary: str
    restart_required: bool
    secrets: tuple[str, ...]
    warnings: tuple[bytes, ...]
    created_time: datetime
    created_by: str


_INTERVAL: Final = THINNED_INTERVAL // timedelta(microseconds=1)

encode = msgspec.json.Encoder().encode
decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_decode_report = msgspec.json.Decoder(_Report).decode
_decode_description = msgspec.json.Decoder(_Description).decode
_decode_details = msgspec.json.Decoder(_Details).decode


def json_texts(texts: Iterable[str]) -> str:
    """Encode ids as a parameter, without those that have a NUL.

    Such ids are never stored, and PostgreSQL does not accept a NUL in JSON.
    """
    return encode([each for each in texts if "\0" not in each]).decode()


def to_instance(row: Row) -> InstanceRecord:
    """Decode a row of all columns of `tables.instances`."""
    instance_id, state, since, incarnation, session, last_seen, _, _, _, reported_hash, last_in_sync = row[:11]
    labels, report, description = decode_labels(row[11]), _decode_report(row[12]), _decode_description(row[13])
    return InstanceRecord(
        id=instance_id,
        life=Instance(
            state=State(state),
            since=from_micros(since),
            incarnation=incarnation,
            session=session,
            registered=description.registered,
            last_seen=from_micros(last_seen),
            message=report.message,
            deployment_id=description.deployment_id,
            drain=description.drain,
        ),
        hub=description.hub,
        owner=description.owner,
        name=description.name,
        hostname=description.hostname,
        labels=labels,
        capabilities=tuple(description.capabilities),
        agent_version=description.agent_version,
        sentinel_version=description.sentinel_version,
        status=report.status,
        sync=Sync(
            assignment=description.assignment,
            reported_hash=bytes(reported_hash).decode(),
            last_in_sync=None if last_in_sync is None else from_micros(last_in_sync),
        ),
    )


def instance_values(instance: InstanceRecord) -> dict[str, SqlValue]:
    """The values of all columns of `tables.instances`."""
    life, assignment = instance.life, instance.sync.assignment
    return {
        "id": instance.id,
        "state": life.state.value,
        "since": to_micros(life.since),
        "incarnation": life.incarnation,
        "session": life.session,
        "last_seen": to_micros(life.last_seen),
        "drain_deadline": None if life.drain is None else to_micros(life.drain.deadline),
        "assigned_config": None if assignment is None else assignment.version.config_id,
        "assigned_hash": None if assignment is None else assignment.hash.encode(),
        "reported_hash": instance.sync.reported_hash.encode(),
        "last_in_sync": _optional_micros(instance.sync.last_in_sync),
        "labels": encode(instance.labels),
        "report": encode(_Report(life.message, instance.status)),
        "description": encode(
            _Description(
                registered=life.registered,
                deployment_id=life.deployment_id,
                drain=life.drain,
                assignment=assignment,
                hub=instance.hub,
                owner=instance.owner,
                name=instance.name,
                hostname=instance.hostname,
                capabilities=instance.capabilities,
                agent_version=instance.agent_version,
                sentinel_version=instance.sentinel_version,
            )
        ),
    }


def heartbeat_values(beats: Heartbeats) -> dict[str, SqlValue]:
    """The parameters of `statements.HEAR`."""
    return {
        "of": beats.instance_id,
        "of_incarnation": beats.incarnation,
        "of_session": beats.session,
        "last_seen": to_micros(beats.last_seen),
        "reported_hash": beats.reported_hash.encode(),
        "last_in_sync": _optional_micros(beats.last_in_sync),
        "report": encode(_Report(beats.message, beats.status)),
    }


def sample_values(beats: Heartbeats, sample: Sample) -> dict[str, SqlValue]:
    """The parameters of `statements.ADD_SAMPLE`."""
    metrics = sample.metrics
    return {
        "interval_number": interval_number(sample.time),
        "instance_id": beats.instance_id,
        "incarnation": beats.incarnation,
        "time": to_micros(sample.time),
        "requests_total": metrics.requests_total,
        "requests_failed": metrics.requests_failed,
        "latency_p50_ms": metrics.latency_p50_ms,
        "latency_p99_ms": metrics.latency_p99_ms,
        "bytes_sent": metrics.bytes_sent,
        "bytes_received": metrics.bytes_received,
    }


def interval_number(time: datetime) -> int:
    """The interval that a sample of this time belongs to."""
    return to_micros(time) // _INTERVAL


def to_sample(row: Row) -> Sample:
    """Decode a row of the columns that are measured, the time first."""
    return Sample(
        from_micros(row[0]),
        Metrics(
            requests_total=row[1],
            requests_failed=row[2],
            latency_p50_ms=row[3],
            latency_p99_ms=row[4],
            bytes_sent=row[5],
            bytes_received=row[6],
        ),
    )


def to_config(row: Row) -> Config:
    """Decode a row of all columns of `tables.configs`."""
    config_id, created_by, latest_version, created, updated = row
    return Config(
        id=config_id,
        latest_version=latest_version,
        created_time=from_micros(created),
        created_by=created_by,
        updated_time=from_micros(updated),
    )


def config_values(config: Config) -> dict[str, SqlValue]:
    """The values of all columns of `tables.configs`."""
    return {
        "id": config.id,
        "created_by": config.created_by,
        "latest_version": config.latest_version,
        "created_time": to_micros(config.created_time),
        "updated_time": to_micros(config.updated_time),
    }


def to_version(row: Row) -> ConfigVersion:
    """Decode a row of the columns of `tables.versions`, with or without its content."""
    details = _decode_details(row[2])
    return ConfigVersion(
        config_id=row[0],
        version=row[1],
        hash=details.hash,
        content=bytes(row[3]).decode() if len(row) > 3 else "",
        change_summary=details.change_summary,
        restart_required=details.restart_required,
        secrets=details.secrets,
        warnings=details.warnings,
        created_time=details.created_time,
        created_by=details.created_by,
    )


def version_values(version: ConfigVersion) -> dict[str, SqlValue]:
    """The values of all columns of `tables.versions`."""
    details = _Details(
        hash=version.hash,
        change_summary=version.change_summary,
        restart_required=version.restart_required,
        secrets=tuple(version.secrets),
        warnings=tuple(version.warnings),
        created_time=version.created_time,
        created_by=version.created_by,
    )
    return {
        "config_id": version.config_id,
        "number": version.version,
        "details": encode(details),
        "content": version.content.encode(),
    }


def secret_use_values(secret: str, version: ConfigVersion) -> dict[str, SqlValue]:
    """The values of all columns of `tables.secret_uses`."""
    return {
        "secret": secret,
        "config_id": version.config_id,
        "number": version.version,
        "hash": version.hash.encode(),
    }


def assigned_values(instance_id: str, incarnation: int, name: VersionName) -> Mapping[str, SqlValue]:
    """The values of all columns of `tables.assigned`."""
    return {
        "instance_id": instance_id,
        "incarnation": incarnation,
        "config_id": name.config_id,
        "number": name.number,
    }


def to_event(row: Row) -> HubEvent:
    """Decode a row of `statements.EVENTS`."""
    number, time, event_type, subject, data = row
    return HubEvent(
        number=number, time=from_micros(time), type=HubEventType(event_type), subject=subject, data=bytes(data)
    )


def _optional_micros(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)
