"""A pulse's reports, rendered as metrics and log lines.

`PulseMetrics` registers the metric families, once per process. A pulse claims the series with its labels, `shard`
and `resource_type`. The claim outlives the pulse: a pulse rebuilt for new settings continues the same series. When
the claim is released, the series are removed. Two pulses with equal labels would count into the same series and
publish every event twice, so a second claim is rejected.

Labels are closed sets: reasons, states and broker types. A resource's id or an error text is never a label.
Problems that may concern every resource are logged once per field or once per cycle. A malformed item is logged
when it is found, and again only if its problem changes.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter as Tally
from collections.abc import Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from sentinel.core.pulse import quiet_pages
from sentinel.core.pulse.decision import OBSERVED_AHEAD, Reason
from sentinel.core.pulse.observation import MalformedItem
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.errors import Misconfigured
from sentinel.ports.fleet_stream import Connected, Disconnected, StreamEnd
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PendingEvent, PublishedBatch, StreamReport
from sentinel.runtime.log import Log

_PREFIX = "hyperfleet_sentinel_"
_LABELS = ("shard", "resource_type")
_CYCLE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CONFIRM_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_MALFORMED_LOGGED_PER_CYCLE = 10

_Family = TypeVar("_Family", bound=MetricWrapperBase)


class DuplicatePulse(Misconfigured):
    """A pulse with the same shard and resource type already runs in this process."""


class PulseMetrics:
    """The metric families of all pulses of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(_PREFIX + name, text, (*_LABELS, *more), registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(_PREFIX + name, text, _LABELS, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(_PREFIX + name, text, _LABELS, registry=registry, buckets=buckets)

        self.pending_resources = gauge("pending_resources", "Resources in this shard.")
        self.published = counter("events_published_total", "Events confirmed by the broker.")
        self.skipped = counter("resources_skipped_total", "Resources that were not due.", "ready_state")
        self.cycle_seconds = histogram("reconcile_duration_seconds", "Time spent in a cycle.", _CYCLE_BUCKETS)
        self.api_errors = counter("api_errors_total", "API errors, by operation.", "operation")
        self.broker_errors = counter(
            "broker_errors_total", "Events that the broker refused or did not confirm.", "broker_type"
        )
        self.config_reloads = counter("config_reloads_total", "Times the configuration was reloaded.")
        self.last_success = gauge(
            "last_successful_poll_timestamp_seconds",
            "When a walk last reached the end of the fleet, in seconds since 1970.",
        )
        self.decisions = counter(
            "decisions_total", "Decisions before pacing, by outcome and reason.", "decision", "reason"
        )
        self.paced = counter("paced_total", "Due resources whose last event is too recent.")
        self.deferred = counter("deferred_total", "Due resources deferred by the rate limit or a broker error.")
        self.unroutable = counter("unroutable_total", "Events for which the broker had no destination.")
        self.malformed = counter("malformed_resources_total", "Items that could not be read.")
        self.template_errors = counter(
            "template_errors_total", "Fields of message_data that could not be evaluated."
        )
        self.confirm_seconds = histogram(
            "publish_confirm_seconds", "From sending an event to the broker's response.", _CONFIRM_BUCKETS
        )
        self.stream_connected = gauge(
            "stream_connected", "Whether the API's stream of changes is connected: 1, otherwise 0."
        )
        self.stream_items = counter("stream_items_total", "Items of the stream, by type.", "type")
        self.stream_disconnects = counter(
            "stream_disconnects_total", "Ended or failed connections of the stream, by reason.", "reason"
        )
        self.claimed: set[tuple[str, str]] = set()
        """Shard and resource type of each pulse."""

    def claim(self, *, shard: str, resource_type: str) -> PulseSeries:
        """Create the series with these labels, all at zero. Raises `DuplicatePulse` until they are released."""
        labels = shard, resource_type
        if labels in self.claimed:
            raise DuplicatePulse(
                f"expected one pulse for each resource type and selector, got two for {resource_type} ({shard});"
                " change one selector, or remove one of the two"
            )
        self.claimed.add(labels)
        return PulseSeries(self, shard=shard, resource_type=resource_type)

    def load_failed(self, *, shard: str, resource_type: str) -> None:
        """Count a configuration that could not be loaded and has no pulse."""
        self.api_errors.labels(shard, resource_type, "config_load").inc()


class PulseSeries:
    """The series of one pulse. `PulseMetrics.claim` creates them, `release` removes them."""

    def __init__(self, metrics: PulseMetrics, *, shard: str, resource_type: str) -> None:
        self.shard = shard
        self.resource_type = resource_type
        self._metrics = metrics
        self._series: dict[tuple[MetricWrapperBase, tuple[str, ...]], None] = {}

        self.pending_resources = self._series_of(metrics.pending_resources)
        self.published = self._series_of(metrics.published)
        self.skipped = {
            True: self._series_of(metrics.skipped, "ready"),
            False: self._series_of(metrics.skipped, "not_ready"),
        }
        """By whether the resource is ready."""
        self.cycle_seconds = self._series_of(metrics.cycle_seconds)
        self.fetch_errors = self._series_of(metrics.api_errors, "fetch_resources")
        self._load_errors = self._series_of(metrics.api_errors, "config_load")
        self._reloads = self._series_of(metrics.config_reloads)
        self.last_success = self._series_of(metrics.last_success)
        self.decisions = {
            reason: self._series_of(metrics.decisions, "publish" if reason.is_due else "skip", reason.value)
            for reason in Reason
        }
        self.paced = self._series_of(metrics.paced)
        self.deferred = self._series_of(metrics.deferred)
        self.unroutable = self._series_of(metrics.unroutable)
        self.malformed = self._series_of(metrics.malformed)
        self.template_errors = self._series_of(metrics.template_errors)
        self.confirm_seconds = self._series_of(metrics.confirm_seconds)
        self.stream_connected = self._series_of(metrics.stream_connected)
        self.stream_items = {
            item: self._series_of(metrics.stream_items, item)
            for item in ("changed", "removed", "synced", "malformed")
        }
        self.stream_disconnects = {
            reason: self._series_of(metrics.stream_disconnects, reason.value) for reason in StreamEnd
        }

    def broker_errors(self, broker_type: str) -> Counter:
        """The counter of failed events for this broker type; a reload may change the type."""
        return self._series_of(self._metrics.broker_errors, broker_type)

    def reloaded(self) -> None:
        """Count a rebuild of the pulse for a changed configuration."""
        self._reloads.inc()

    def load_failed(self) -> None:
        """Count a configuration that could not be loaded; a running pulse keeps the previous one."""
        self._load_errors.inc()

    def release(self) -> None:
        """Remove the series, so that another pulse may claim these labels. Idempotent."""
        if self._series:
            for family, labels in self._series:
                family.remove(*labels)
            self._series.clear()
            self._metrics.claimed.remove((self.shard, self.resource_type))

    def _series_of(self, family: _Family, *more: str) -> _Family:
        labels = (self.shard, self.resource_type, *more)
        self._series[family, labels] = None
        return family.labels(*labels)


class PulseTelemetry:
    """A `PulseObserver` that counts and logs. A rebuilt pulse gets a new one on the same series."""

    def __init__(self, *, series: PulseSeries, log: Log, broker_type: str) -> None:
        self._series = series
        self._broker_errors = series.broker_errors(broker_type)
        self._log = log
        self._fields_warned: set[str] = set()
        self._first_ahead = ""
        self._ahead_count = 0
        self._malformed_known: set[int] = set()
        """Hashes of the malformed items that have been logged, each with its problem."""
        self._malformed_seen: set[int] = set()
        """The same, of all malformed items of this cycle."""
        self._malformed_logged = 0
        """How many were logged in this cycle."""
        self._stream_problem = ""
        """The last problem of the stream that was logged."""

    @property
    def needs_every_decision(self) -> bool:
        return self._log.is_debug

    def decided(self, page: PageReport) -> None:
        """Count the decisions on a page; log skipped resources at debug level."""
        counts = page.counts
        for reason, count in counts.by_reason:
            self._series.decisions[reason].inc(count)
        self._series.skipped[True].inc(counts.skipped_ready)
        self._series.skipped[False].inc(counts.skipped_not_ready)
        self._series.paced.inc(counts.paced)
        ahead = [
            each.resource.id
            for each in page.paced_decisions
            if each.decision.warning and each.verdict is not PacingVerdict.REPEATED
        ]
        self._ahead_count += len(ahead)
        self._first_ahead = self._first_ahead or next(iter(ahead), "")
        self._series.malformed.inc(len(page.malformed))
        for item in page.malformed:
            self._log_malformed(item)
        if self._log.is_debug:
            self._log_skips(page)

    def published(self, batch: PublishedBatch) -> None:
        """Count and log the outcomes of a batch."""
        self._warn_about_fields(batch.pending)
        self._log_published(batch)
        failed = self._count(batch.outcomes)
        for seconds in batch.seconds:
            self._series.confirm_seconds.observe(seconds)
        if failed:
            first = next(
                pending
                for pending, outcome in zip(batch.pending, batch.outcomes, strict=True)
                if outcome is not PublishOutcome.CONFIRMED
            )
            self._log.error(
                "event.failed",
                events=failed,
                first_resource_id=first.paced.resource.id,
                error=batch.error,
            )

    def finished(self, report: CycleReport) -> None:
        """Log one line for the cycle and set its gauges."""
        self._series.cycle_seconds.observe(report.seconds)
        self._series.deferred.inc(report.deferred)
        if self._ahead_count:
            self._log.warning(
                "resource.ahead",
                problem=OBSERVED_AHEAD,
                resources=self._ahead_count,
                first_resource_id=self._first_ahead,
            )
        self._first_ahead, self._ahead_count, self._malformed_logged = "", 0, 0
        if report.is_complete:
            self._malformed_known &= self._malformed_seen
        self._malformed_seen.clear()
        if report.is_complete:
            self._series.pending_resources.set(report.fetched)
            self._series.last_success.set(report.started.timestamp() + report.seconds)
        if report.fetch_error:
            self._series.fetch_errors.inc()
            wait = {"retry_after": report.retry_after} if report.retry_after else {}
            self._log.error("fetch.failed", error=report.fetch_error, **wait)
        self._log.info(
            "cycle.done" if report.is_complete else "cycle.broken_off",
            resources=report.fetched,
            selector=self._series.shard,
            published=report.published,
            skipped=report.skipped,
            paced=report.paced,
            deferred=report.deferred,
            failed=report.failed,
            unroutable=report.unroutable,
            malformed=report.malformed,
            **({"withheld": report.withheld} if report.withheld else {}),
            seconds=round(report.seconds, 3),
            **({} if report.is_complete else {"cause": report.fetch_error or "asked to stop"}),
        )

    def streamed(self, report: StreamReport) -> None:
        """Count the items of a stream, and log how its connection changes."""
        series = self._series
        series.stream_items["changed"].inc(report.changed)
        series.stream_items["removed"].inc(report.removed)
        series.stream_items["synced"].inc(report.synced)
        series.stream_items["malformed"].inc(len(report.malformed))
        counts = quiet_pages.count(report.decided)
        for reason, count in counts.by_reason:
            series.decisions[reason].inc(count)
        series.paced.inc(counts.paced)
        series.deferred.inc(report.deferred)
        series.malformed.inc(len(report.malformed))
        for item in report.malformed:
            self._log_malformed(item)
        match report.connection:
            case Connected(is_resumed=is_resumed):
                series.stream_connected.set(1)
                self._stream_problem = ""
                self._log.info("stream.connected", resumed=is_resumed)
            case Disconnected() as ended:
                series.stream_connected.set(0)
                series.stream_disconnects[ended.reason].inc()
                self._log_disconnected(ended)
            case None:
                pass

    def _log_disconnected(self, ended: Disconnected) -> None:
        """Log the end of a connection, once for each problem: an outage is logged when it begins."""
        fields = {"reason": ended.reason, "problem": ended.problem, "retry_after": ended.retry_after}
        if ended.problem == self._stream_problem:
            self._log.debug("stream.lost", **fields)
        elif ended.reason is StreamEnd.UNSUPPORTED:
            self._log.info("stream.unsupported", **fields)
        else:
            self._log.warning("stream.lost", **fields)
        self._stream_problem = ended.problem

    def crashed(self, error: BaseException) -> None:
        """Log an unexpected error with its traceback."""
        self._log.exception("cycle.crashed", error=error)

    def _log_published(self, batch: PublishedBatch) -> None:
        """Log the confirmed events, all in one write: this is a large part of the cost of an event."""
        confirmed = [
            pending
            for pending, outcome in zip(batch.pending, batch.outcomes, strict=True)
            if outcome is PublishOutcome.CONFIRMED
        ]
        if not confirmed:
            return
        paced = [pending.paced for pending in confirmed]
        resources = [each.resource for each in paced]
        self._log.info_each(
            "event.published",
            resource_id=[resource.id for resource in resources],
            reason=[each.decision.reason for each in paced],
            generation=[resource.generation for resource in resources],
            event_id=[pending.event.id for pending in confirmed],
        )

    def _count(self, outcomes: Iterable[PublishOutcome]) -> int:
        """Count outcomes and return how many events were not confirmed."""
        tally = Tally(outcomes)
        errors = (
            tally[PublishOutcome.REFUSED] + tally[PublishOutcome.UNCONFIRMED] + tally[PublishOutcome.UNSENDABLE]
        )
        self._series.published.inc(tally[PublishOutcome.CONFIRMED])
        self._series.unroutable.inc(tally[PublishOutcome.UNROUTABLE])
        self._broker_errors.inc(errors)
        return errors + tally[PublishOutcome.UNROUTABLE]

    def _warn_about_fields(self, batch: Iterable[PendingEvent]) -> None:
        for pending in batch:
            for field in pending.missing:
                self._warn_once(field, "message_data.missing", pending, problem="the resource has no such field")
            for field, problem in pending.failed:
                self._series.template_errors.inc()
                self._warn_once(field, "message_data.failed", pending, problem=problem)

    def _warn_once(self, field: str, event: str, pending: PendingEvent, *, problem: str) -> None:
        key = f"{event} {field}"
        if key not in self._fields_warned:
            self._fields_warned.add(key)
            self._log.warning(event, field=field, problem=problem, first_resource_id=pending.paced.resource.id)

    def _log_malformed(self, item: MalformedItem) -> None:
        key = hash((item.id, item.message))
        self._malformed_seen.add(key)
        if key not in self._malformed_known and self._malformed_logged < _MALFORMED_LOGGED_PER_CYCLE:
            self._malformed_known.add(key)
            self._malformed_logged += 1
            self._log.warning(
                "resource.malformed", resource_id=item.id, problem=item.message, position=item.position
            )

    def _log_skips(self, page: PageReport) -> None:
        for paced in page.paced_decisions:
            if paced.verdict is not PacingVerdict.PUBLISH:
                self._log.debug(
                    "resource.skipped" if paced.verdict is PacingVerdict.SKIP else f"resource.{paced.verdict}",
                    resource_id=paced.resource.id,
                    reason=paced.decision.reason,
                    next_event_time=paced.decision.next_event_time,
                )


def unread_telemetry(*, shard: str, resource_type: str) -> PulseTelemetry:
    """Return telemetry that counts like that of a running pulse, for nobody to read, and logs nothing."""
    silent = logging.Logger("sentinel.pulse", sys.maxsize)  # noqa: LOG001  # nothing may set its level
    series = PulseMetrics(CollectorRegistry()).claim(shard=shard, resource_type=resource_type)
    return PulseTelemetry(series=series, log=Log(silent, {}), broker_type="null")
