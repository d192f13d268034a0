"""Whether the canaries are as good as they have to be, by the metrics of their heartbeats.

Only samples that were taken within the window count, so requests that the old version answered do not. Counters
are compared across restarts of the proxy (`metrics_samples.increase`). A latency counts by the requests since the
sample before: where there were none, it says nothing.

Missing data is not good data: the result is a success only if every canary has samples from the beginning of the
window to its end without a gap, all criteria could be computed, and none is violated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import assert_never

import msgspec

from sentinel.core.counted import counted
from sentinel.core.hub.deployment import Criterion, Metric
from sentinel.core.hub.metrics_samples import Sample, increase


class Outcome(StrEnum):
    """What the metrics say."""

    SUCCESS = "success"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """There is too little data to say it."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the canaries beside its limit."""

    metric: Metric
    value: float
    limit: float
    """The highest value allowed."""
    baseline: float | None = None
    """The mean of the baseline, if the limit is a ratio to it."""

    @property
    def is_violated(self) -> bool:
        """Whether the value is above the limit."""
        return self.value > self.limit

    def __str__(self) -> str:
        relation = "above" if self.is_violated else "within"
        against = "" if self.baseline is None else f" (baseline {self.baseline:g})"
        return f"{self.metric} {self.value:g} is {relation} {self.limit:g}{against}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an analysis."""

    outcome: Outcome
    reason: str = ""
    """Which criterion is violated, or what is missing."""
    requests: int = 0
    """How many requests the canaries answered."""
    findings: tuple[Finding, ...] = ()
    """What could be computed."""


class _Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What one instance, or several together, did in the window."""

    requests: int = 0
    failed: int = 0
    weighted_p50: float = 0.0
    """The sum over all requests of the latency in whose sample they were counted."""
    weighted_p99: float = 0.0

    def plus(self, other: _Traffic) -> _Traffic:
        return _Traffic(
            requests=self.requests + other.requests,
            failed=self.failed + other.failed,
            weighted_p50=self.weighted_p50 + other.weighted_p50,
            weighted_p99=self.weighted_p99 + other.weighted_p99,
        )

    def value(self, metric: Metric) -> float:
        """Return the metric. There must be requests."""
        match metric:
            case Metric.ERROR_RATE:
                return self.failed / self.requests
            case Metric.LATENCY_P50_MS:
                return self.weighted_p50 / self.requests
            case Metric.LATENCY_P99_MS:
                return self.weighted_p99 / self.requests
            case _:
                assert_never(metric)


def judge(
    criteria: Sequence[Criterion],
    *,
    min_requests: int,
    canaries: Mapping[str, Sequence[Sample]],
    baseline: Mapping[str, Sequence[Sample]],
    since: datetime,
    until: datetime,
    max_gap: timedelta,
) -> Verdict:
    """Judge the canaries by their samples, and those of instances that were not touched.

    The samples of each instance are ascending. An instance without any has an empty sequence. A canary may be
    without a sample for `max_gap`.
    """
    if not criteria:
        return Verdict(outcome=Outcome.SUCCESS)
    windows = {instance_id: _window(samples, since, until) for instance_id, samples in canaries.items()}
    total = _Traffic()
    for samples in windows.values():
        total = total.plus(_traffic(samples))
    if not total.requests or total.requests < min_requests:
        reason = f"{counted(total.requests, 'request')}, at least {max(min_requests, 1):,} needed"
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason, requests=total.requests)
    untouched = [_traffic(_window(samples, since, until)) for samples in baseline.values()]
    untouched = [traffic for traffic in untouched if traffic.requests]
    findings = tuple(_findings(criteria, total, untouched))
    outcome, reason = _outcome(criteria, findings, _missing(windows, since, until, max_gap), bool(untouched))
    return Verdict(outcome=outcome, reason=reason, requests=total.requests, findings=findings)


def _window(samples: Sequence[Sample], since: datetime, until: datetime) -> Sequence[Sample]:
    return [sample for sample in samples if since <= sample.time <= until]


def _traffic(samples: Sequence[Sample]) -> _Traffic:
    total = _Traffic()
    for before, after in pairwise(samples):
        grown = increase((before, after))
        total = total.plus(
            _Traffic(
                requests=grown.requests_total,
                failed=grown.requests_failed,
                weighted_p50=grown.requests_total * after.metrics.latency_p50_ms,
                weighted_p99=grown.requests_total * after.metrics.latency_p99_ms,
            )
        )
    return total


def _findings(
    criteria: Sequence[Criterion], canaries: _Traffic, untouched: Sequence[_Traffic]
) -> Iterator[Finding]:
    for criterion in criteria:
        value = canaries.value(criterion.metric)
        if criterion.max is not None:
            yield Finding(metric=criterion.metric, value=value, limit=criterion.max)
        if criterion.max_vs_baseline is not None and untouched:
            mean = sum(traffic.value(criterion.metric) for traffic in untouched) / len(untouched)
            limit = mean * criterion.max_vs_baseline
            yield Finding(metric=criterion.metric, value=value, limit=limit, baseline=mean)


def _outcome(
    criteria: Sequence[Criterion], findings: Sequence[Finding], missing: Sequence[str], has_baseline: bool
) -> tuple[Outcome, str]:
    """A violation counts even where other data is missing."""
    violated = [str(finding) for finding in findings if finding.is_violated]
    if violated:
        return Outcome.FAILED, "; ".join(violated)
    if missing:
        return Outcome.INCONCLUSIVE, f"metrics are missing of {', '.join(missing)}"
    if not has_baseline and any(criterion.max_vs_baseline is not None for criterion in criteria):
        return Outcome.INCONCLUSIVE, "no untouched instance to compare with has had requests"
    return Outcome.SUCCESS, ""


def _missing(
    windows: Mapping[str, Sequence[Sample]], since: datetime, until: datetime, max_gap: timedelta
) -> Sequence[str]:
    return [
        instance_id
        for instance_id, samples in windows.items()
        if len(samples) < 2 or _has_gap(samples, since, until, max_gap)
    ]


def _has_gap(samples: Sequence[Sample], since: datetime, until: datetime, max_gap: timedelta) -> bool:
    times = (since, *(sample.time for sample in samples), until)
    return any(after - before > max_gap for before, after in pairwise(times))
