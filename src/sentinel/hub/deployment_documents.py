"""A deployment as users see it, in the REST API and in events: what was asked for, and what became of it.

The request is given with all its defaults, in the form in which it can be sent again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sentinel.core.hub.analysis import Finding, Outcome, Verdict
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    Criterion,
    Metric,
    OfflinePolicy,
    Regions,
    Rolling,
    Strategy,
    TargetOrder,
    Targets,
    TargetVersion,
)
from sentinel.core.hub.rollout_row import Row, RowState
from sentinel.core.hub.rollout_state import RollbackState, Rollout, RolloutState, Stage
from sentinel.ports.rollout_store import DeploymentRecord
from sentinel.runtime import durations

CountValue: TypeAlias = int | str
DurationText: TypeAlias = Annotated[str, Meta(description="A duration in Go's syntax, such as `30s` or `1h30m`.")]
VersionText: TypeAlias = Annotated[str, Meta(description="`<config>@<n>`.")]


class TargetsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The instances that a deployment is for: ids or a selector."""

    ids: Sequence[str] | UnsetType = UNSET
    selector: str | UnsetType = UNSET

    @classmethod
    def of(cls, targets: Targets) -> TargetsDocument:
        if targets.selector is not None:
            return cls(selector=str(targets.selector))
        return cls(ids=targets.ids)


class RegionsDocument(msgspec.Struct, frozen=True):
    """The label of the region, and the order of its values."""

    label: str
    values: Sequence[str]

    @classmethod
    def of(cls, regions: Regions) -> RegionsDocument:
        return cls(regions.label, regions.values)


class OrderDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which the targets are reached."""

    spread_by: str
    """A label of which each batch has its share of every value; empty for none."""
    regions: RegionsDocument | None

    @classmethod
    def of(cls, order: TargetOrder) -> OrderDocument:
        regions = None if order.regions is None else RegionsDocument.of(order.regions)
        return cls(spread_by=order.spread_by, regions=regions)


class RollingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How batches follow each other."""

    batch_size: CountValue
    batch_delay: DurationText
    failure_threshold: CountValue
    min_healthy_time: DurationText
    max_unavailable: CountValue | None

    @classmethod
    def of(cls, rolling: Rolling) -> RollingDocument:
        limit = rolling.max_unavailable
        return cls(
            batch_size=_count(rolling.batch_size),
            batch_delay=durations.render(rolling.batch_delay),
            failure_threshold=_count(rolling.failure_threshold),
            min_healthy_time=durations.render(rolling.min_healthy_time),
            max_unavailable=None if limit is None else _count(limit),
        )


class CanarySelectorDocument(msgspec.Struct, frozen=True):
    """The canaries, by their labels."""

    selector: str


class CriterionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the canaries and its limits."""

    metric: Metric
    max: float | UnsetType = UNSET
    max_vs_baseline: float | UnsetType = UNSET

    @classmethod
    def of(cls, criterion: Criterion) -> CriterionDocument:
        return cls(
            metric=criterion.metric,
            max=UNSET if criterion.max is None else criterion.max,
            max_vs_baseline=UNSET if criterion.max_vs_baseline is None else criterion.max_vs_baseline,
        )


class CanaryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How the first instances are watched."""

    instances: int | str | CanarySelectorDocument
    duration: DurationText
    interval: DurationText
    min_requests: int
    success_criteria: Sequence[CriterionDocument]
    steps: Sequence[CountValue]

    @classmethod
    def of(cls, canary: Canary) -> CanaryDocument:
        selector = canary.selector
        return cls(
            instances=_count(canary.instances) if selector is None else CanarySelectorDocument(str(selector)),
            duration=durations.render(canary.duration),
            interval=durations.render(canary.interval),
            min_requests=canary.min_requests,
            success_criteria=list(map(CriterionDocument.of, canary.success_criteria)),
            steps=list(map(_count, canary.steps)),
        )


class BatchDocument(msgspec.Struct, frozen=True):
    """How far a deployment is."""

    position: int
    """The current batch, which counts from 1; 0 before the first."""
    total: int


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the canaries beside its limit."""

    metric: Metric
    value: float
    limit: float
    """The highest value allowed."""
    baseline: float | None
    """The mean of the untouched instances, if the limit is a ratio to it."""
    violated: bool

    @classmethod
    def of(cls, finding: Finding) -> FindingDocument:
        return cls(
            metric=finding.metric,
            value=finding.value,
            limit=finding.limit,
            baseline=finding.baseline,
            violated=finding.is_violated,
        )


class AnalysisDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the metrics of the canaries say, as of the last time they were looked at."""

    outcome: Outcome | None
    """Null before the first look."""
    reason: str
    """Which criterion is violated, or what is missing."""
    requests: int
    """How many requests the canaries have answered in the time that counts."""
    findings: Sequence[FindingDocument]
    since: datetime | None
    """The start of the window of metrics; null when the canaries are no longer watched, like the next two."""
    ends: datetime | None
    """When the watch ends, unless it is extended."""
    extensions: int | None
    """How often it was extended because there was too little data."""


class DeploymentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment: its request, and how far it is."""

    id: str
    config_id: str
    version: int
    targets: TargetsDocument
    strategy: Strategy
    offline: OfflinePolicy
    queue: bool
    order: OrderDocument
    progress_deadline: DurationText | None
    rolling: RollingDocument
    canary: CanaryDocument
    retry_of: str | None
    """The deployment whose unsuccessful targets this one tries again."""
    state: RolloutState
    rollback: RollbackState
    reason: str
    """Why it is paused, has failed or was aborted; empty otherwise."""
    batch: BatchDocument
    canary_batches: int
    """How many of the first batches are canaries."""
    stage: Stage | None
    """What it waits for before the next batch; null unless it is running or paused."""
    next_batch_time: datetime | None
    """The earliest time of the next batch, while it waits for that."""
    analysis: AnalysisDocument | None
    """Null where no canaries were watched yet."""
    counts: Mapping[RowState, int]
    """How many targets are in each state. States without any are left out."""
    created_time: datetime
    created_by: str
    started_time: datetime | None
    finished_time: datetime | None
    """When it, and a rollback that began before, was over."""


class DeploymentInstanceDocument(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One target of a deployment."""

    instance_id: str
    batch: int
    from_: VersionText | None
    """What was assigned when its event was sent; null if nothing was, or none was sent."""
    to: VersionText
    state: RowState
    message: str
    """What the agent or the proxy said, if it said something."""
    updated_time: datetime


class DeploymentInstanceEvent(DeploymentInstanceDocument, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One target of a deployment, in an event."""

    deployment_id: str


def document(record: DeploymentRecord) -> DeploymentDocument:
    """Return a deployment as users see it."""
    request, rollout = record.request, record.rollout
    is_active = rollout.state in (RolloutState.RUNNING, RolloutState.PAUSED)
    is_between_batches = is_active and rollout.stage is Stage.DELAY
    return DeploymentDocument(
        id=record.id,
        config_id=request.config_id,
        version=request.version,
        targets=TargetsDocument.of(request.targets),
        strategy=request.strategy,
        offline=request.offline,
        queue=request.queue,
        order=OrderDocument.of(request.order),
        progress_deadline=_optional_duration(request.progress_deadline),
        rolling=RollingDocument.of(request.rolling),
        canary=CanaryDocument.of(request.canary),
        retry_of=record.retry_of,
        state=rollout.state,
        rollback=rollout.rollback,
        reason=rollout.reason,
        batch=BatchDocument(rollout.batch, record.batches),
        canary_batches=rollout.canary_batches,
        stage=rollout.stage if is_active else None,
        next_batch_time=rollout.next_batch if is_between_batches else None,
        analysis=_analysis(rollout),
        counts=record.counts,
        created_time=rollout.created,
        created_by=record.created_by,
        started_time=rollout.started,
        finished_time=rollout.finished,
    )


def row_document(row: Row, to: TargetVersion) -> DeploymentInstanceDocument:
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


def row_event(deployment_id: str, row: Row, to: TargetVersion) -> DeploymentInstanceEvent:
    """Return the data of `deployment.instance`."""
    shown = msgspec.structs.asdict(row_document(row, to))
    return DeploymentInstanceEvent(deployment_id=deployment_id, **shown)


def _analysis(rollout: Rollout) -> AnalysisDocument | None:
    wait, verdict = rollout.canary_wait, rollout.verdict
    if wait is None and verdict is None:
        return None
    shown = verdict or Verdict(outcome=Outcome.INCONCLUSIVE)
    return AnalysisDocument(
        outcome=None if verdict is None else verdict.outcome,
        reason=shown.reason,
        requests=shown.requests,
        findings=list(map(FindingDocument.of, shown.findings)),
        since=None if wait is None else wait.since,
        ends=None if wait is None else wait.ends,
        extensions=None if wait is None else wait.extensions,
    )


def _count(count: Count) -> CountValue:
    return str(count) if count.is_percent else count.number


def _optional_duration(duration: timedelta | None) -> str | None:
    return None if duration is None else durations.render(duration)


encode = msgspec.json.Encoder().encode
