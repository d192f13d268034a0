"""Messages of the protocol as values of the port, and back.

Enum values that are not known, and messages without what makes them meaningful, are left out, never an error: a
hub may be newer than its agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from sentinel.core.hub.instance import Health
from sentinel.core.hub.metrics_samples import Metrics
from sentinel.ports.hub_client import (
    AssignmentNotice,
    DeploymentNotice,
    DeploymentReport,
    DrainNotice,
    FetchedConfig,
    Heartbeat,
    HeartbeatResponse,
    Instruction,
    Notice,
    Ping,
    Registration,
    ReportRequest,
    Session,
)
from sentinel.wire.hub.v1 import fleet_pb2 as pb

_HEALTH: Final = {
    Health.UNKNOWN: pb.InstanceStatus.UNKNOWN,
    Health.HEALTHY: pb.InstanceStatus.HEALTHY,
    Health.DEGRADED: pb.InstanceStatus.DEGRADED,
    Health.UNHEALTHY: pb.InstanceStatus.UNHEALTHY,
}
_INSTRUCTIONS: Final = {instruction.value: instruction for instruction in Instruction}
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
DEFAULT_INTERVAL: Final = timedelta(seconds=30)
"""Between heartbeats, if the hub names no interval."""


def register_request(registration: Registration, token: str) -> pb.RegisterRequest:
    return pb.RegisterRequest(
        instance_id=registration.instance_id,
        instance_name=registration.name,
        hostname=registration.hostname,
        agent_version=registration.agent_version,
        sentinel_version=registration.sentinel_version,
        labels=dict(registration.labels),
        capabilities=registration.capabilities,
        registration_token=token,
    )


def session(response: pb.RegisterResponse) -> Session:
    seconds = response.heartbeat_interval
    return Session(
        assigned_version=response.config_version,
        assigned_hash=response.config_hash,
        heartbeat_interval=timedelta(seconds=seconds) if seconds > 0 else DEFAULT_INTERVAL,
        expires=_time(response.token_expires_at),
    )


def heartbeat_request(heartbeat: Heartbeat, instance_id: str, token: str) -> pb.HeartbeatRequest:
    status = heartbeat.status
    return pb.HeartbeatRequest(
        instance_id=instance_id,
        token=token,
        status=pb.InstanceStatus(
            state=_HEALTH[status.health],
            message=status.message,
            uptime_seconds=int(status.uptime.total_seconds()),
            active_connections=min(max(status.active_connections, 0), _MAX_INT32),
        ),
        current_config_version=heartbeat.config_version,
        current_config_hash=heartbeat.config_hash,
        metrics=None if heartbeat.metrics is None else _metrics(heartbeat.metrics),
        buffered=[
            pb.BufferedMetrics(timestamp=int(sample.time.timestamp()), metrics=_metrics(sample.metrics))
            for sample in heartbeat.buffered
        ],
    )


def heartbeat_response(response: pb.HeartbeatResponse) -> HeartbeatResponse:
    return HeartbeatResponse(
        is_update_available=response.config_update_available,
        assigned_version=response.latest_config_version,
        actions=tuple(_actions(response.actions)),
    )


def fetched(response: pb.GetConfigResponse) -> FetchedConfig:
    return FetchedConfig(
        version=response.version,
        hash=response.hash,
        content=response.content,
        secrets=dict(response.secrets),
    )


def fetched_version(response: pb.GetConfigVersionResponse) -> FetchedConfig:
    return FetchedConfig(
        version=f"{response.config_id}@{response.version_number}",
        hash=response.hash,
        content=response.content,
        secrets=dict(response.secrets),
    )


def status_request(report: DeploymentReport, instance_id: str, token: str) -> pb.DeploymentStatusRequest:
    return pb.DeploymentStatusRequest(
        instance_id=instance_id,
        token=token,
        deployment_id=report.deployment_id,
        state=pb.DeploymentStatusRequest.DeploymentState.Value(report.state.value),
        message=report.message,
        error_details=report.error_details,
        rollback=report.is_rollback,
    )


def instruction(text: str) -> Instruction:
    """Read an answer. An unknown one asks for nothing."""
    return _INSTRUCTIONS.get(text, Instruction.NONE)


def event(message: pb.Event) -> Notice | None:
    """Return the notice of an event; None for an unknown event."""
    match message.type:
        case pb.Event.CONFIG_UPDATE if message.HasField("config_update"):
            update = message.config_update
            return AssignmentNotice(
                id=message.event_id,
                is_action=False,
                version=update.config_version,
                hash=update.config_hash,
                change_summary=update.change_summary,
            )
        case pb.Event.DEPLOYMENT if message.deployment.deployment_id:
            deployment = message.deployment
            return DeploymentNotice(
                id=message.event_id,
                deployment_id=deployment.deployment_id,
                is_rollback=deployment.rollback,
                version=deployment.config_version,
                hash=deployment.config_hash,
                deadline=_time(deployment.deadline),
                strategy=_strategy(deployment.strategy),
                batch_position=deployment.batch_position,
                batch_total=deployment.batch_total,
            )
        case pb.Event.DRAIN:
            seconds = message.drain.drain_timeout_seconds
            return DrainNotice(
                id=message.event_id, timeout=_positive_seconds(seconds), reason=message.drain.reason
            )
        case pb.Event.PING:
            return Ping(message.event_id, _time(message.ping.server_time))
        case _:
            return None


def _actions(actions: Iterable[pb.PendingAction]) -> Iterator[Notice]:
    for action in actions:
        notice = _action(action)
        if notice is not None:
            yield notice


def _action(action: pb.PendingAction) -> Notice | None:
    params = action.params
    deployment_id = params.get("deployment_id", "")
    is_rollback = params.get("rollback", "") == "true"
    version, content_hash = params.get("config_version", ""), params.get("config_hash", "")
    match action.type:
        case pb.PendingAction.FETCH_CONFIG:
            return AssignmentNotice(id=action.action_id, is_action=True, version=version, hash=content_hash)
        case pb.PendingAction.APPLY_CONFIG if deployment_id:
            return DeploymentNotice(
                id=action.action_id,
                deployment_id=deployment_id,
                is_rollback=is_rollback,
                version=version,
                hash=content_hash,
                deadline=_time(_integer(params, "deadline")),
            )
        case pb.PendingAction.REPORT_STATUS if deployment_id:
            return ReportRequest(id=action.action_id, deployment_id=deployment_id, is_rollback=is_rollback)
        case pb.PendingAction.DRAIN:
            seconds = _integer(params, "drain_timeout_seconds")
            return DrainNotice(id=action.action_id, timeout=_positive_seconds(seconds))
        case _:
            return None


def _strategy(strategy: pb.DeploymentStrategy.ValueType) -> str:
    """Return the name of a strategy; empty for an unknown one."""
    return pb.DeploymentStrategy.Name(strategy) if strategy in pb.DeploymentStrategy.values() else ""


def _metrics(metrics: Metrics) -> pb.InstanceMetrics:
    return pb.InstanceMetrics(
        requests_total=min(metrics.requests_total, _MAX_INT64),
        requests_failed=min(metrics.requests_failed, _MAX_INT64),
        latency_p50_ms=metrics.latency_p50_ms,
        latency_p99_ms=metrics.latency_p99_ms,
        bytes_sent=min(metrics.bytes_sent, _MAX_INT64),
        bytes_received=min(metrics.bytes_received, _MAX_INT64),
    )


def _integer(params: Mapping[str, str], name: str) -> int:
    text = params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def _positive_seconds(seconds: int) -> timedelta | None:
    """Return a duration; None if it is missing, or longer than any drain."""
    return timedelta(seconds=seconds) if 0 < seconds <= _MAX_INT32 else None


def _time(seconds: int) -> datetime | None:
    """Return a time; None if it is missing, or out of range."""
    if seconds <= 0:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
