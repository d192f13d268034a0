"""Bodies and queries of the REST API of deployments. The docstrings appear in its OpenAPI document.

Decoding a body finds wrong types and unknown fields. `to_request` reads what the types cannot express, such as
counts and durations, and reports everything that is wrong at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sentinel.core import labels
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    Criterion,
    Metric,
    OfflinePolicy,
    Regions,
    Request,
    Rolling,
    Strategy,
    TargetOrder,
    Targets,
    parse_count,
    problems,
)
from sentinel.core.hub.rollout_state import RolloutState
from sentinel.core.labels import Selector
from sentinel.hub.deployment_documents import DeploymentDocument, DeploymentInstanceDocument
from sentinel.hub.schemas import PageParameters, VersionNumber
from sentinel.ports.rollout_store import DeploymentEvent
from sentinel.runtime import durations
from sentinel.web.errors import Unprocessable
from sentinel.web.lists import Page
from sentinel.web.problem import FieldError, shown

MAX_DURATION: Final = timedelta(days=365)
"""A longer one is a typing error."""

CountField: TypeAlias = Annotated[
    int | str, Meta(description="A number from 1 on, or a percentage of all targets such as `25%`.")
]
DurationField: TypeAlias = Annotated[str, Meta(description="A duration in Go's syntax, such as `30s` or `1h30m`.")]
SelectorField: TypeAlias = Annotated[str, Meta(description="A label selector in Kubernetes syntax.")]


class NewTargets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which instances it is for: either `ids` or a `selector`. They are fixed when the deployment is created."""

    ids: Annotated[
        Sequence[str] | UnsetType, Meta(description="Instances, in the order in which they are reached.")
    ] = UNSET
    selector: SelectorField | UnsetType = UNSET


class NewRegions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One region after the other: those that `values` lists, in that order, then all others."""

    label: Annotated[str, Meta(description="The label that says in which region an instance is.")]
    values: Sequence[str] = ()


class NewOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which order the targets are reached."""

    spread_by: Annotated[
        str, Meta(description="A label such as `zone`: each batch has its share of every value of it.")
    ] = ""
    regions: NewRegions | None = None


class NewRolling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How batches follow each other, also after a canary."""

    batch_size: CountField = 1
    batch_delay: Annotated[DurationField, Meta(description="How long to wait after a batch.")] = "30s"
    failure_threshold: Annotated[
        CountField, Meta(description="It fails, and is rolled back, when as many instances have failed.")
    ] = 1
    min_healthy_time: Annotated[
        DurationField,
        Meta(description="How long an instance must stay healthy before it counts as completed."),
    ] = "0s"
    max_unavailable: Annotated[
        CountField | None, Meta(description="A batch waits while as many targets are not online.")
    ] = None


class NewCriterion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric of the canaries that must not be above a limit, or above both."""

    metric: Metric
    max: Annotated[float | None, Meta(description="The highest value allowed. An error rate is from 0 to 1.")] = (
        None
    )
    max_vs_baseline: Annotated[
        float | None,
        Meta(description="The highest ratio allowed to the mean of the instances that are not touched yet."),
    ] = None


class CanarySelector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Canaries by their labels, among the targets."""

    selector: SelectorField


class NewCanary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the first instances are watched. They are batch 1."""

    instances: Annotated[
        int | str | CanarySelector,
        Meta(description="How many: a number, a percentage such as `10%`, or a selector among the targets."),
    ] = "10%"
    duration: Annotated[DurationField, Meta(description="How long the canaries are watched.")] = "5m"
    interval: Annotated[
        DurationField, Meta(description="How often their metrics are analysed. A violation ends it at once.")
    ] = "30s"
    min_requests: Annotated[
        int,
        Meta(ge=0, le=2**53, description="How many requests all canaries together need; fewer are inconclusive."),
    ] = 100
    success_criteria: Sequence[NewCriterion] = (NewCriterion(metric=Metric.ERROR_RATE, max=0.05),)
    steps: Annotated[
        Sequence[CountField],
        Meta(description="How many canaries there are in all after each further step, analysed like the first."),
    ] = ()


class NewDeployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to bring to instances."""

    config_id: str
    version: VersionNumber
    targets: NewTargets = NewTargets()
    strategy: Annotated[
        Strategy,
        Meta(
            description="`all_at_once` is one batch, and what fails stays; `rolling` goes batch after batch;"
            " `canary` analyses a few first. The last two are rolled back when they fail."
        ),
    ] = Strategy.ROLLING
    offline: Annotated[
        OfflinePolicy,
        Meta(
            description="An instance that is offline takes the version when it returns (`later`), is left out"
            " (`skip`), or counts as a failure (`fail`)."
        ),
    ] = OfflinePolicy.LATER
    queue: Annotated[
        bool, Meta(description="Wait for other deployments of the same instances, instead of being refused.")
    ] = False
    order: NewOrder | None = None
    progress_deadline: Annotated[
        DurationField | None, Meta(description="How long the whole may take, pauses not counted.")
    ] = None
    rolling: NewRolling = NewRolling()
    canary: NewCanary = NewCanary()


class CreationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a new deployment."""

    dry_run: Annotated[bool, Meta(description="Only return the plan. Nothing is stored and nothing starts.")] = (
        False
    )


class DeploymentParameters(PageParameters, frozen=True, kw_only=True):
    """The query of the list of deployments."""

    state: Annotated[RolloutState | None, Meta(description="Only deployments in this state.")] = None


class DeploymentEventDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened in a deployment."""

    number: int
    """Counts from 1 in each deployment."""
    time: datetime
    type: Annotated[str, Meta(description="`deployment.state` or `deployment.instance`.")]
    data: msgspec.Raw
    """The deployment, or the target with its `deployment_id`, as it was then."""

    @classmethod
    def of(cls, event: DeploymentEvent) -> DeploymentEventDocument:
        return cls(number=event.number, time=event.time, type=event.type, data=msgspec.Raw(event.data))


class DeploymentEventList(Page[DeploymentEventDocument], frozen=True):
    """A page of what has happened in a deployment, oldest first."""


class DeploymentList(Page[DeploymentDocument], frozen=True):
    """A page of deployments, newest first."""


class DeploymentInstanceList(Page[DeploymentInstanceDocument], frozen=True):
    """A page of the targets of a deployment, in the order of its plan."""


def to_request(given: NewDeployment) -> Request:
    """Return what is asked for. Raises `Unprocessable`, with an error for each field that is wrong."""
    reader = _Reader()
    request = Request(
        config_id=given.config_id,
        version=given.version,
        targets=reader.targets(given.targets),
        strategy=given.strategy,
        offline=given.offline,
        queue=given.queue,
        order=reader.order(given.order),
        progress_deadline=reader.optional_duration("progress_deadline", given.progress_deadline),
        rolling=reader.rolling(given.rolling),
        canary=reader.canary(given.canary),
    )
    # A field that could not be read has a valid value in its place, so no error is about it twice.
    errors = [*reader.errors, *(FieldError(each.field, each.message) for each in problems(request))]
    if errors:
        raise Unprocessable("; ".join(f"{each.field}: {each.message}" for each in errors), errors=errors)
    return request


class _Reader:
    """Reads fields, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def targets(self, given: NewTargets) -> Targets:
        return Targets(
            ids=() if given.ids is UNSET else tuple(given.ids),
            selector=None if given.selector is UNSET else self.selector("targets.selector", given.selector),
        )

    def order(self, given: NewOrder | None) -> TargetOrder:
        if given is None:
            return TargetOrder()
        regions = given.regions
        return TargetOrder(
            spread_by=given.spread_by,
            regions=None if regions is None else Regions(regions.label, tuple(regions.values)),
        )

    def rolling(self, given: NewRolling) -> Rolling:
        limit = given.max_unavailable
        return Rolling(
            batch_size=self.count("rolling.batch_size", given.batch_size),
            batch_delay=self.duration("rolling.batch_delay", given.batch_delay),
            failure_threshold=self.count("rolling.failure_threshold", given.failure_threshold),
            min_healthy_time=self.duration("rolling.min_healthy_time", given.min_healthy_time),
            max_unavailable=None if limit is None else self.count("rolling.max_unavailable", limit),
        )

    def canary(self, given: NewCanary) -> Canary:
        instances, selector = Canary().instances, None
        if isinstance(given.instances, CanarySelector):
            selector = self.selector("canary.instances.selector", given.instances.selector)
        else:
            instances = self.count("canary.instances", given.instances)
        return Canary(
            instances=instances,
            selector=selector,
            duration=self.duration("canary.duration", given.duration),
            interval=self.duration("canary.interval", given.interval),
            min_requests=given.min_requests,
            success_criteria=tuple(
                Criterion(metric=each.metric, max=each.max, max_vs_baseline=each.max_vs_baseline)
                for each in given.success_criteria
            ),
            steps=tuple(self.count(f"canary.steps[{index}]", step) for index, step in enumerate(given.steps)),
        )

    def count(self, field: str, given: int | str) -> Count:
        count = parse_count(given)
        if count is None or count.number > 2**31:
            got = shown(given) if isinstance(given, str) else str(given)
            self._add(field, f'expected a number from 1 on or a percentage such as "25%", got {got}')
            return Count(1)
        return count

    def duration(self, field: str, given: str) -> timedelta:
        try:
            duration = durations.parse(given)
        except ValueError:
            self._add(field, f"expected a duration such as 30s, got {shown(given)}")
            return timedelta(seconds=1)
        if duration > MAX_DURATION:
            self._add(field, f"expected at most {durations.render(MAX_DURATION)}, got {shown(given)}")
            return MAX_DURATION
        return duration

    def optional_duration(self, field: str, given: str | None) -> timedelta | None:
        return None if given is None else self.duration(field, given)

    def selector(self, field: str, given: str) -> Selector:
        try:
            return labels.parse(given)
        except labels.SelectorError as error:
            self._add(field, str(error))
            return labels.parse("")

    def _add(self, field: str, message: str) -> None:
        self.errors.append(FieldError(field, message))
