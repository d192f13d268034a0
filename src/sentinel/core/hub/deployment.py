"""What a user asks for: which version, for which instances, by which strategy.

A `Request` has the defaults of the API. `problems` says what is wrong with one before anything is planned. Counts
may be percentages, which always mean all targets, also those of the batches that follow a canary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.hub.states import CONNECTED, State
from sentinel.core.hub.versions import MAX_NUMBER, VersionName, is_config_id
from sentinel.core.labels import Selector

_PERCENT = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)
_ZERO: Final = timedelta(0)


class Strategy(StrEnum):
    """How the targets are reached."""

    ALL_AT_ONCE = "all_at_once"
    """One batch. What fails is not rolled back."""
    ROLLING = "rolling"
    """Batch after batch. Too many failures stop the deployment and roll it back."""
    CANARY = "canary"
    """A few first, whose metrics are analysed; then as rolling."""


class OfflinePolicy(StrEnum):
    """What happens to a target that is offline when its batch begins."""

    LATER = "later"
    """It is skipped, and assigned the version when the deployment has completed."""
    SKIP = "skip"
    FAIL = "fail"
    """It has failed, and counts as a failure."""


class TargetVersion(msgspec.Struct, frozen=True):
    """A version of a configuration, with the hash of its content."""

    name: VersionName
    hash: str


class Count(msgspec.Struct, frozen=True):
    """A number of instances, or a percentage of all targets."""

    number: int
    is_percent: bool = False

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percent else str(self.number)

    def of(self, total: int) -> int:
        """Return how many of `total` this is. A percentage is rounded up, so it is at least one."""
        return -(-total * self.number // 100) if self.is_percent else self.number


def parse_count(value: int | str) -> Count | None:
    """Read a positive number, or a percentage such as `25%`; None if it is neither."""
    if isinstance(value, int):
        return Count(value) if value > 0 else None
    match = _PERCENT.fullmatch(value)
    return Count(int(match[1]), is_percent=True) if match is not None else None


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Which instances it is for: these ids, or what the selector matches at the start. One of both is given."""

    ids: tuple[str, ...] = ()
    selector: Selector | None = None


class Regions(msgspec.Struct, frozen=True):
    """The label that says in which region an instance is, and the order of its values. Others come last."""

    label: str
    values: tuple[str, ...] = ()


class TargetOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which the targets are reached."""

    spread_by: str = ""
    """A label, such as `zone`. Each batch has its share of every value, so that no batch is one whole zone."""
    regions: Regions | None = None
    """A region begins when the one before is done."""


class Rolling(msgspec.Struct, frozen=True, kw_only=True):
    """How batches follow each other."""

    batch_size: Count = Count(1)
    batch_delay: timedelta = timedelta(seconds=30)
    """How long to wait after a batch."""
    failure_threshold: Count = Count(1)
    """The deployment fails when as many instances have failed, counted over all batches."""
    min_healthy_time: timedelta = _ZERO
    """How long an instance must be online after its report until it counts as completed."""
    max_unavailable: Count | None = None
    """A batch waits while as many targets are not online."""


class Metric(StrEnum):
    """What an analysis can look at."""

    ERROR_RATE = "error_rate"
    """The share of failed requests, from 0 to 1."""
    LATENCY_P50_MS = "latency_p50_ms"
    LATENCY_P99_MS = "latency_p99_ms"


class Criterion(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the canaries that must not be above a limit, or above both."""

    metric: Metric
    max: float | None = None
    max_vs_baseline: float | None = None
    """The limit as a ratio to the mean of the instances that the deployment has not touched."""


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """How the first instances are watched."""

    instances: Count = Count(10, is_percent=True)
    selector: Selector | None = None
    """Takes the place of `instances`."""
    duration: timedelta = timedelta(minutes=5)
    interval: timedelta = timedelta(seconds=30)
    """How often the metrics are analysed. A violation ends the wait at once."""
    min_requests: int = 100
    """How many requests all canaries together need. With fewer, an analysis is inconclusive."""
    success_criteria: tuple[Criterion, ...] = (Criterion(metric=Metric.ERROR_RATE, max=0.05),)
    steps: tuple[Count, ...] = ()
    """How many canaries there are in all after each further step. Each step is analysed like the first."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks for."""

    config_id: str
    version: int
    targets: Targets
    strategy: Strategy
    offline: OfflinePolicy = OfflinePolicy.LATER
    queue: bool = False
    """Whether to wait for other deployments that have the same targets, instead of being refused."""
    order: TargetOrder = TargetOrder()
    progress_deadline: timedelta | None = None
    """How long the whole may take, pauses not counted."""
    rolling: Rolling = Rolling()
    canary: Canary = Canary()


class InstanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment has to know about an instance."""

    instance_id: str
    state: State
    incarnation: int = 1
    """A removed id that registers again is another instance."""
    assigned: TargetVersion | None = None
    labels: Mapping[str, str] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the hub hears of it."""
        return self.state in CONNECTED

    @property
    def has_left(self) -> bool:
        """Whether it takes no more configuration."""
        return self.state in (State.UNKNOWN, State.DRAINING, State.REMOVED)


class RequestProblem(msgspec.Struct, frozen=True):
    """What is wrong with a field of a request."""

    field: str
    """The path of the field in the request."""
    message: str


def problems(request: Request) -> Sequence[RequestProblem]:
    """Return everything that is wrong with a request by itself. Each count was read by `parse_count`."""
    return [RequestProblem(field, message) for field, message in _problems(request)]


def _problems(request: Request) -> Iterator[tuple[str, str]]:
    if not is_config_id(request.config_id):
        yield "config_id", f"expected the id of a configuration, got {request.config_id!r}"
    if not 1 <= request.version <= MAX_NUMBER:
        yield "version", f"expected the number of a version, got {request.version}"
    if bool(request.targets.ids) == (request.targets.selector is not None):
        yield "targets", "expected either ids or a selector"
    if request.progress_deadline is not None and request.progress_deadline <= _ZERO:
        yield "progress_deadline", "expected a duration greater than 0s"
    regions = request.order.regions
    if regions is not None and not regions.label:
        yield "order.regions.label", "expected the key of a label"
    for name in ("batch_delay", "min_healthy_time"):
        if getattr(request.rolling, name) < _ZERO:
            yield f"rolling.{name}", "expected a duration of at least 0s"
    yield from _canary_problems(request.canary)


def _canary_problems(canary: Canary) -> Iterator[tuple[str, str]]:
    for name in ("duration", "interval"):
        if getattr(canary, name) <= _ZERO:
            yield f"canary.{name}", "expected a duration greater than 0s"
    if canary.min_requests < 0:
        yield "canary.min_requests", f"expected a number of at least 0, got {canary.min_requests}"
    for index, criterion in enumerate(canary.success_criteria):
        for problem in _criterion_problems(criterion):
            yield f"canary.success_criteria[{index}]", problem


def _criterion_problems(criterion: Criterion) -> Iterator[str]:
    limits = [limit for limit in (criterion.max, criterion.max_vs_baseline) if limit is not None]
    if not limits:
        yield "expected max, max_vs_baseline or both"
    if any(not math.isfinite(limit) or limit < 0 for limit in limits):
        yield "expected limits of at least 0"
    elif criterion.metric is Metric.ERROR_RATE and criterion.max is not None and criterion.max > 1:
        yield f"expected an error rate from 0 to 1, got {criterion.max:g}"
