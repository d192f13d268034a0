"""The metrics of the pulses of one process, and which pulse may write which series.

A metric family is registered once per process. A pulse claims the series with its labels, `shard` and
`resource_type`. The claim outlives the pulse: one that is rebuilt for new settings goes on counting in the same
series. When the claim is released, the series are removed. Two pulses with equal labels would count into the same
series and publish every event twice, so a second claim is refused.

Labels are closed sets: reasons, states and broker types are enumerations, and a resource's id or an error's text
is never a label.
"""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from sentinel.core.pulse.decision import Reason
from sentinel.ports.errors import Misconfigured

_PREFIX = "hyperfleet_sentinel_"
_LABELS = ("shard", "resource_type")
_CYCLE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CONFIRM_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

_Family = TypeVar("_Family", bound=MetricWrapperBase)


class DuplicatePulse(Misconfigured):
    """A pulse of the same shard and resource type runs in this process already."""


class PulseMetrics:
    """The families, in a registry of their own or one that other families share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(_PREFIX + name, text, (*_LABELS, *more), registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(_PREFIX + name, text, _LABELS, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(_PREFIX + name, text, _LABELS, registry=registry, buckets=buckets)

        self.pending_resources = gauge("pending_resources", "Resources in this shard.")
        self.published = counter("events_published_total", "Events confirmed by the broker.")
        self.skipped = counter(
            "resources_skipped_total", "Resources that were looked at and not due.", "ready_state"
        )
        self.cycle_seconds = histogram("reconcile_duration_seconds", "Time spent in a cycle.", _CYCLE_BUCKETS)
        self.api_errors = counter("api_errors_total", "Errors of the API, by operation.", "operation")
        self.broker_errors = counter(
            "broker_errors_total", "Events that the broker refused or did not confirm.", "broker_type"
        )
        self.config_reloads = counter("config_reloads_total", "Times the configuration was loaded anew.")
        self.last_success = gauge(
            "last_successful_poll_timestamp_seconds",
            "When a walk last reached the end of the fleet, in seconds since 1970.",
        )
        self.decisions = counter(
            "decisions_total", "Decisions before pacing, by outcome and reason.", "decision", "reason"
        )
        self.paced = counter("paced_total", "Due resources whose last event is too recent.")
        self.deferred = counter(
            "deferred_total", "Due resources held back by the ceiling or by trouble at the broker."
        )
        self.unroutable = counter("unroutable_total", "Events for which the broker had no destination.")
        self.malformed = counter("malformed_resources_total", "Items that could not be read.")
        self.template_errors = counter(
            "template_errors_total", "Fields of message_data that could not be evaluated."
        )
        self.confirm_seconds = histogram(
            "publish_confirm_seconds", "From sending an event to the broker's answer.", _CONFIRM_BUCKETS
        )
        self._claimed: set[tuple[str, str]] = set()

    def claim(self, *, shard: str, resource_type: str) -> PulseSeries:
        """The series with these labels, all of them at zero. Raises `DuplicatePulse` until they are released."""
        labels = shard, resource_type
        if labels in self._claimed:
            raise DuplicatePulse(
                f"expected one pulse for each resource type and selector, got two for {resource_type} ({shard});"
                " change one selector, or remove one of the two"
            )
        self._claimed.add(labels)
        return PulseSeries(self, shard=shard, resource_type=resource_type)

    def _released(self, labels: tuple[str, str]) -> None:
        self._claimed.remove(labels)


class PulseSeries:
    """The series of one pulse. `PulseMetrics.claim` makes them; `release` removes them."""

    def __init__(self, metrics: PulseMetrics, *, shard: str, resource_type: str) -> None:
        self.shard = shard
        self.resource_type = resource_type
        self._metrics = metrics
        self._series: dict[tuple[MetricWrapperBase, tuple[str, ...]], None] = {}

        self.pending_resources = self._get(metrics.pending_resources)
        self.published = self._get(metrics.published)
        self.skipped = {
            True: self._get(metrics.skipped, "ready"),
            False: self._get(metrics.skipped, "not_ready"),
        }
        """By whether the resource is ready."""
        self.cycle_seconds = self._get(metrics.cycle_seconds)
        self.fetch_errors = self._get(metrics.api_errors, "fetch_resources")
        self._load_errors = self._get(metrics.api_errors, "config_load")
        self._reloads = self._get(metrics.config_reloads)
        self.last_success = self._get(metrics.last_success)
        self.decisions = {
            reason: self._get(metrics.decisions, "publish" if reason.is_due else "skip", reason.value)
            for reason in Reason
        }
        self.paced = self._get(metrics.paced)
        self.deferred = self._get(metrics.deferred)
        self.unroutable = self._get(metrics.unroutable)
        self.malformed = self._get(metrics.malformed)
        self.template_errors = self._get(metrics.template_errors)
        self.confirm_seconds = self._get(metrics.confirm_seconds)

    def broker_errors(self, broker_type: str) -> Counter:
        """Counts events that a broker of this type did not take. New settings may name another type."""
        return self._get(self._metrics.broker_errors, broker_type)

    def reloaded(self) -> None:
        """Counts that the pulse was rebuilt because its configuration changed."""
        self._reloads.inc()

    def load_failed(self) -> None:
        """Counts a configuration that could not be loaded; a running pulse goes on with the one before."""
        self._load_errors.inc()

    def release(self) -> None:
        """Removes the series, so that another pulse may claim these labels. Releasing twice does no harm."""
        if self._series:
            for family, labels in self._series:
                family.remove(*labels)
            self._series.clear()
            self._metrics._released((self.shard, self.resource_type))

    def _get(self, family: _Family, *more: str) -> _Family:
        labels = (self.shard, self.resource_type, *more)
        self._series[family, labels] = None
        return family.labels(*labels)
