"""Messages of the protocol as values of the hub, and back.

Unknown enum values and times that do not exist are ignored, never an error: an agent may be newer than the hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.instance import Health
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.core.hub.sync import Action, ActionType, Assignment
from sentinel.hub.agent_reports import HeartbeatReport, Registration, ReportedHealth
from sentinel.hub.agents import Begun, HeartbeatResponse
from sentinel.hub.deployments import Acknowledgement, Progress
from sentinel.hub.fetching import FetchedVersion
from sentinel.hub.subscriptions import ConfigUpdate, DeploymentNotice, DrainNotice, Notice, Ping
from sentinel.wire.hub.v1 import fleet_pb2 as pb

_HEALTH: Final = {
    pb.InstanceStatus.HEALTHY: Health.HEALTHY,
    pb.InstanceStatus.DEGRADED: Health.DEGRADED,
    pb.InstanceStatus.UNHEALTHY: Health.UNHEALTHY,
}
_ACTIONS: Final = {
    ActionType.FETCH_CONFIG: pb.PendingAction.FETCH_CONFIG,
    ActionType.APPLY_CONFIG: pb.PendingAction.APPLY_CONFIG,
    ActionType.REPORT_STATUS: pb.PendingAction.REPORT_STATUS,
    ActionType.DRAIN: pb.PendingAction.DRAIN,
}
_STRATEGIES: Final = {
    Strategy.ALL_AT_ONCE: pb.ALL_AT_ONCE,
    Strategy.ROLLING: pb.ROLLING,
    Strategy.CANARY: pb.CANARY,
}


def registration(request: pb.RegisterRequest) -> Registration:
    return Registration(
        instance_id=request.instance_id,
        name=request.instance_name,
        hostname=request.hostname,
        agent_version=request.agent_version,
        sentinel_version=request.sentinel_version,
        labels=dict(request.labels),
        capabilities=tuple(request.capabilities),
    )


def begun(session: Begun, heartbeat_interval: timedelta) -> pb.RegisterResponse:
    return pb.RegisterResponse(
        token=session.token,
        config_version=_version(session.assignment),
        config_hash="" if session.assignment is None else session.assignment.hash,
        # Whole seconds, and never 0, which an agent would take for unset.
        heartbeat_interval=max(1, int(heartbeat_interval.total_seconds())),
        token_expires_at=_unix(session.expires),
    )


def heartbeat_report(request: pb.HeartbeatRequest) -> HeartbeatReport:
    return HeartbeatReport(
        status=_status(request.status) if request.HasField("status") else None,
        version=request.current_config_version,
        hash=request.current_config_hash,
        metrics=_metrics(request.metrics) if request.HasField("metrics") else None,
        buffered=tuple(_samples(request)),
    )


def heartbeat_response(answer: HeartbeatResponse) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(
        config_update_available=answer.is_update_available,
        latest_config_version=_version(answer.assignment),
        actions=[_action(action) for action in answer.actions],
        token=answer.token,
        token_expires_at=0 if answer.token_expires is None else _unix(answer.token_expires),
    )


def config(fetched: FetchedVersion) -> pb.GetConfigResponse:
    version = fetched.version
    return pb.GetConfigResponse(
        version=f"{version.config_id}@{version.version}",
        hash=version.hash,
        content=version.content,
        created_at=_unix(version.created_time),
        config_id=version.config_id,
        secrets=fetched.secrets,
    )


def config_version(fetched: FetchedVersion) -> pb.GetConfigVersionResponse:
    version = fetched.version
    return pb.GetConfigVersionResponse(
        config_id=version.config_id,
        version_number=version.version,
        hash=version.hash,
        content=version.content,
        change_summary=version.change_summary,
        created_at=_unix(version.created_time),
        secrets=fetched.secrets,
    )


def acknowledgement(request: pb.AckDeploymentRequest) -> Acknowledgement:
    return Acknowledgement(
        deployment_id=request.deployment_id,
        is_rollback=request.rollback,
        is_accepted=request.accepted,
        rejection_reason=request.rejection_reason,
    )


def progress(request: pb.DeploymentStatusRequest) -> Progress:
    state = request.state
    names = pb.DeploymentStatusRequest.DeploymentState
    return Progress(
        deployment_id=request.deployment_id,
        is_rollback=request.rollback,
        state=names.Name(state) if state in names.values() else "",
        message=request.message,
        error_details=request.error_details,
    )


def config_update(notice: ConfigUpdate, change_summary: str) -> pb.Event:
    assignment = notice.assignment
    return pb.Event(
        event_id=f"config/{assignment.version}/{_microseconds(assignment.assigned)}",
        type=pb.Event.CONFIG_UPDATE,
        timestamp=_unix(assignment.assigned),
        config_update=pb.ConfigUpdateEvent(
            config_version=str(assignment.version), config_hash=assignment.hash, change_summary=change_summary
        ),
    )


def deployment(notice: DeploymentNotice) -> pb.Event:
    direction = "rollback" if notice.is_rollback else "deploy"
    return pb.Event(
        event_id=f"deployment/{notice.deployment_id}/{direction}/{_microseconds(notice.begun)}",
        type=pb.Event.DEPLOYMENT,
        timestamp=_unix(notice.begun),
        deployment=pb.DeploymentEvent(
            deployment_id=notice.deployment_id,
            config_version=str(notice.version.name),
            strategy=_STRATEGIES[notice.strategy],
            batch_position=notice.batch_position,
            batch_total=notice.batch_total,
            deadline=_unix(notice.deadline),
            rollback=notice.is_rollback,
            config_id=notice.version.name.config_id,
            config_hash=notice.version.hash,
        ),
    )


def drain(notice: DrainNotice) -> pb.Event:
    started = notice.drain.started
    return pb.Event(
        event_id=f"drain/{_microseconds(started)}",
        type=pb.Event.DRAIN,
        timestamp=_unix(started),
        drain=pb.DrainEvent(drain_timeout_seconds=notice.drain.timeout_seconds, reason=notice.drain.reason),
    )


def ping(notice: Ping) -> pb.Event:
    seconds = _unix(notice.time)
    return pb.Event(
        event_id=f"ping/{_microseconds(notice.time)}",
        type=pb.Event.PING,
        timestamp=seconds,
        ping=pb.PingEvent(server_time=seconds),
    )


def event_type(notice: Notice) -> str:
    """Return the name of the event that tells about this, as in the protocol."""
    match notice:
        case ConfigUpdate():
            return "CONFIG_UPDATE"
        case DeploymentNotice():
            return "DEPLOYMENT"
        case DrainNotice():
            return "DRAIN"
        case Ping():
            return "PING"
        case _:
            assert_never(notice)


def _status(status: pb.InstanceStatus) -> ReportedHealth:
    return ReportedHealth(
        health=_HEALTH.get(status.state, Health.UNKNOWN),
        message=status.message,
        uptime_seconds=status.uptime_seconds,
        active_connections=status.active_connections,
    )


def _metrics(metrics: pb.InstanceMetrics) -> Metrics:
    return Metrics(
        requests_total=metrics.requests_total,
        requests_failed=metrics.requests_failed,
        latency_p50_ms=metrics.latency_p50_ms,
        latency_p99_ms=metrics.latency_p99_ms,
        bytes_sent=metrics.bytes_sent,
        bytes_received=metrics.bytes_received,
    )


def _samples(request: pb.HeartbeatRequest) -> Iterator[Sample]:
    for buffered in request.buffered:
        try:
            time = datetime.fromtimestamp(buffered.timestamp, UTC)
        except (ValueError, OverflowError, OSError):
            continue
        yield Sample(time, _metrics(buffered.metrics))


def _action(action: Action) -> pb.PendingAction:
    return pb.PendingAction(type=_ACTIONS[action.type], action_id=action.id, params=action.params)


def _version(assignment: Assignment | None) -> str:
    return "" if assignment is None else str(assignment.version)


def _unix(time: datetime) -> int:
    return int(time.timestamp())


def _microseconds(time: datetime) -> int:
    return int(time.timestamp() * 1_000_000)
