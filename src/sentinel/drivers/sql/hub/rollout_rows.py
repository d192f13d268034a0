"""Encoding of deployments, their targets and their events as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from sentinel.core.hub import rollout_queries
from sentinel.core.hub.deployment import Request
from sentinel.core.hub.rollout_row import Row as Target
from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import Rollout
from sentinel.drivers.sql.engine.columns import from_micros, to_micros
from sentinel.drivers.sql.engine.statements import Row, SqlValue
from sentinel.ports.rollout_store import DeploymentEvent, DeploymentRecord, Offer, RolloutRow


class _Progress(msgspec.Struct, frozen=True):
    """What steps change."""

    rollout: Rollout
    batches: int
    counts: Mapping[RowState, int]
    events: int


class _Request(msgspec.Struct, frozen=True):
    """What never changes."""

    request: Request
    created_by: str
    retry_of: str | None


_encode: Final = msgspec.json.Encoder().encode
_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_request = msgspec.json.Decoder(_Request).decode
_decode_target = msgspec.json.Decoder(Target).decode


def to_deployment(row: Row) -> DeploymentRecord:
    """Decode a row of `rollout_statements.HEAD`."""
    revision, progress, request = row
    asked, reached = _decode_request(request), _decode_progress(progress)
    return DeploymentRecord(
        request=asked.request,
        created_by=asked.created_by,
        retry_of=asked.retry_of,
        rollout=reached.rollout,
        batches=reached.batches,
        counts=reached.counts,
        revision=revision,
        events=reached.events,
    )


def progress_values(deployment: DeploymentRecord) -> dict[str, SqlValue]:
    """The values of all columns of `rollout_tables.deployments` that may change."""
    rollout, selector = deployment.rollout, deployment.request.targets.selector
    is_offered = selector is not None and rollout.is_offered_to_new_instances and rollout.finished is not None
    offered = None if rollout.finished is None or not is_offered else to_micros(rollout.finished)
    return {
        "state": rollout.state.value,
        "revision": deployment.revision,
        "is_over": rollout.is_over,
        "holds_all": rollout_queries.holds_all_targets(rollout),
        "selector": None if selector is None else str(selector),
        "offered": offered,
        "progress": _encode(_Progress(rollout, deployment.batches, deployment.counts, deployment.events)),
    }


def deployment_values(deployment: DeploymentRecord) -> dict[str, SqlValue]:
    """The values of all columns of `rollout_tables.deployments`."""
    return {
        **progress_values(deployment),
        "id": deployment.id,
        "config_id": deployment.request.config_id,
        "request": _encode(_Request(deployment.request, deployment.created_by, deployment.retry_of)),
    }


def to_row(row: Row) -> RolloutRow:
    """Decode a position and the details."""
    return RolloutRow(row[0], _decode_target(row[1]))


def row_values(deployment: DeploymentRecord, row: RolloutRow) -> dict[str, SqlValue]:
    """The values of all columns of `rollout_tables.rows`."""
    target = row.row
    return {
        "deployment_id": deployment.id,
        "position": row.position,
        "instance_id": target.instance_id,
        "state": target.state.value,
        "is_open": target.is_open,
        "previous_config": None if target.previous is None else target.previous.name.config_id,
        "revision": deployment.revision,
        "details": _encode(target),
    }


def to_event(row: Row) -> DeploymentEvent:
    """Decode a row of all columns of `rollout_tables.events`."""
    deployment_id, number, time, event_type, data = row
    return DeploymentEvent(
        deployment_id=deployment_id, number=number, time=from_micros(time), type=event_type, data=bytes(data)
    )


def event_values(event: DeploymentEvent) -> dict[str, SqlValue]:
    """The values of all columns of `rollout_tables.events`."""
    return {
        "deployment_id": event.deployment_id,
        "number": event.number,
        "time": to_micros(event.time),
        "type": event.type,
        "data": event.data,
    }


def to_offer(row: Row) -> Offer | None:
    """Decode a row of `rollout_statements.OFFERS`."""
    deployment_id, finished, progress, request = row
    selector = _decode_request(request).request.targets.selector
    if selector is None:
        return None
    to = _decode_progress(progress).rollout.to
    return Offer(deployment_id=deployment_id, selector=selector, version=to, finished=from_micros(finished))
