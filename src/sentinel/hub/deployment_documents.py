"""Deployments as users see them, in the REST API, in events and in webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.hub.deployment import (
    Canary,
    ConfigVersion,
    Count,
    Metric,
    OfflinePolicy,
    Order,
    Rolling,
    Strategy,
    Targets,
)
from sentinel.core.hub.rollout_row import Row, RowState
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.ports.rollout_store import DeploymentRecord
from sentinel.runtime import durations


class TargetsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Which instances it is for: ids, or what a selector matched at the start."""

    ids: Sequence[str] | UnsetType = UNSET
    selector: str | UnsetType = UNSET


class RegionsDocument(msgspec.Struct, frozen=True):
    """The label that says in which region an instance is, and the order of its values."""

    label: str
    values: Sequence[str]


class OrderDocument(msgspec.Struct, frozen=True):
    """In which order the targets are reached."""

    spread_by: str
    regions: RegionsDocument | None


class RollingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How batches follow each other."""

    batch_size: int | str
    batch_delay: str
    failure_threshold: int | str
    min_healthy_time: str
    max_unavailable: int | str | None


class CriterionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the canaries that must not be above a limit."""

    metric: Metric
    max: float | UnsetType = UNSET
    max_vs_baseline: float | UnsetType = UNSET


class CanarySelectorDocument(msgspec.Struct, frozen=True):
    """Canaries by their labels."""

    selector: str


class CanaryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How the first instances are watched."""

    instances: int | str | CanarySelectorDocument
    duration: str
    interval: str
    min_requests: int
    success_criteria: Sequence[CriterionDocument]
    steps: Sequence[int | str]


class BatchDocument(msgspec.Struct, frozen=True):
    """The current batch."""

    position: int
    """0 before the first."""
    total: int


class DeploymentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment: what was asked for, and how far it is."""

    id: str
    config_id: str
    version: int
    targets: TargetsDocument
    strategy: Strategy
    offline: OfflinePolicy
    queue: bool
    order: OrderDocument
    progress_deadline: str | None
    rolling: RollingDocument
    canary: CanaryDocument
    retry_of: str | None
    state: RolloutState
    rollback: RollbackState
    reason: str
    """Why it is paused, has failed or was aborted; empty otherwise."""
    batch: BatchDocument
    counts: Mapping[RowState, int]
    """How many instances are in which state."""
    created_time: datetime
    created_by: str
    started_time: datetime | None
    finished_time: datetime | None
    """When it, and a rollback that began before, was over."""
    analysis: AnalysisDocument | None
    """What the last analysis of the canaries has found."""


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the canaries beside its limit."""

    metric: Metric
    value: float
    limit: float
    baseline: float | None
    """The mean of the instances that were not touched, if the limit is a ratio to it."""


class AnalysisDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an analysis of the canaries has found."""

    outcome: str
    reason: str
    requests: int
    findings: Sequence[FindingDocument]


class DeploymentInstanceDocument(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """What has become of one target."""

    instance_id: str
    batch: int
    from_: str | None
    """What was assigned when its event was sent; null if nothing was, or none was sent."""
    to: str
    state: RowState
    message: str
    updated_time: datetime


class DeploymentInstanceEvent(DeploymentInstanceDocument, frozen=True, kw_only=True, rename={"from_": "from"}):
    """What has become of one target, in an event."""

    deployment_id: str


def document(record: DeploymentRecord) -> DeploymentDocument:
    """Return a deployment as users see it."""
    request, rollout = record.request, record.rollout
    return DeploymentDocument(
        id=record.id,
        config_id=request.config_id,
        version=request.version,
        targets=_targets(request.targets),
        strategy=request.strategy,
        offline=request.offline,
        queue=request.queue,
        order=_order(request.order),
        progress_deadline=_duration(request.progress_deadline),
        rolling=_rolling(request.rolling),
        canary=_canary(request.canary),
        retry_of=record.retry_of,
        state=rollout.state,
        rollback=rollout.rollback,
        reason=rollout.reason,
        batch=BatchDocument(rollout.batch, record.batches),
        counts=record.counts,
        created_time=rollout.created,
        created_by=record.created_by,
        started_time=rollout.started,
        finished_time=rollout.finished,
        analysis=_analysis(record),
    )


def row_document(row: Row, to: ConfigVersion) -> DeploymentInstanceDocument:
    """Return a target as users see it. `to` is the version of the deployment."""
    return DeploymentInstanceDocument(
        instance_id=row.instance_id,
        batch=row.batch,
        from_=None if row.previous is None else str(row.previous.name),
        to=str(to.name),
        state=row.state,
        message=row.message,
        updated_time=row.updated,
    )


def row_event(deployment_id: str, row: Row, to: ConfigVersion) -> DeploymentInstanceEvent:
    """Return the data of `deployment.instance`."""
    shown = msgspec.structs.asdict(row_document(row, to))
    return DeploymentInstanceEvent(deployment_id=deployment_id, **shown)


encode = msgspec.json.Encoder().encode


def _targets(targets: Targets) -> TargetsDocument:
    if targets.selector is not None:
        return TargetsDocument(selector=str(targets.selector))
    return TargetsDocument(ids=targets.ids)


def _order(order: Order) -> OrderDocument:
    regions = order.regions
    shown = None if regions is None else RegionsDocument(regions.label, regions.values)
    return OrderDocument(order.spread_by, shown)


def _rolling(rolling: Rolling) -> RollingDocument:
    return RollingDocument(
        batch_size=_count(rolling.batch_size),
        batch_delay=durations.render(rolling.batch_delay),
        failure_threshold=_count(rolling.failure_threshold),
        min_healthy_time=durations.render(rolling.min_healthy_time),
        max_unavailable=None if rolling.max_unavailable is None else _count(rolling.max_unavailable),
    )


def _canary(canary: Canary) -> CanaryDocument:
    by_labels = None if canary.selector is None else CanarySelectorDocument(str(canary.selector))
    return CanaryDocument(
        instances=by_labels or _count(canary.instances),
        duration=durations.render(canary.duration),
        interval=durations.render(canary.interval),
        min_requests=canary.min_requests,
        success_criteria=[
            CriterionDocument(
                metric=each.metric,
                max=UNSET if each.max is None else each.max,
                max_vs_baseline=UNSET if each.max_vs_baseline is None else each.max_vs_baseline,
            )
            for each in canary.success_criteria
        ],
        steps=[_count(each) for each in canary.steps],
    )


def _analysis(record: DeploymentRecord) -> AnalysisDocument | None:
    wait = record.rollout.canary_wait
    if wait is None or wait.verdict is None:
        return None
    verdict = wait.verdict
    return AnalysisDocument(
        outcome=verdict.outcome,
        reason=verdict.reason,
        requests=verdict.requests,
        findings=[
            FindingDocument(metric=each.metric, value=each.value, limit=each.limit, baseline=each.baseline)
            for each in verdict.findings
        ],
    )


def _count(count: Count) -> int | str:
    return str(count) if count.is_percent else count.number


def _duration(duration: timedelta | None) -> str | None:
    return None if duration is None else durations.render(duration)
