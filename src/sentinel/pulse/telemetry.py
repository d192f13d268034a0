"""A pulse's reports, rendered as log lines and metrics.

Labels are closed sets: reasons, states and broker types are enumerations, and a resource's id or an error's text
is never a label. What could come once per resource comes once per field or once per cycle instead.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sentinel.core.decision import OBSERVED_AHEAD, Reason
from sentinel.core.pacing import Verdict
from sentinel.ports.publisher import Outcome
from sentinel.pulse.report import Answer, CycleReport, PageReport, Pending
from sentinel.runtime.telemetry import Log

_PREFIX = "hyperfleet_sentinel_"
_SHARD = ("shard", "resource_type")
_CYCLE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CONFIRM_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_MALFORMED_LOGGED_PER_CYCLE = 10


class PulseTelemetry:
    """An observer that counts and logs."""

    def __init__(
        self, *, registry: CollectorRegistry, log: Log, shard: str, resource_type: str, broker_type: str
    ) -> None:
        self._log = log
        self._shard = shard
        labels = (shard, resource_type)

        def counter(name: str, text: str, *more: str) -> Counter:
            return Counter(_PREFIX + name, text, (*_SHARD, *more), registry=registry)

        self._pending_resources = Gauge(
            _PREFIX + "pending_resources", "Resources in this shard.", _SHARD, registry=registry
        ).labels(*labels)
        self._published = counter("events_published_total", "Events confirmed by the broker.").labels(*labels)
        skipped = counter("resources_skipped_total", "Resources that were looked at and not due.", "ready_state")
        self._skipped = {
            is_ready: skipped.labels(*labels, "ready" if is_ready else "not_ready") for is_ready in (True, False)
        }
        self._duration = Histogram(
            _PREFIX + "reconcile_duration_seconds",
            "Time spent in a cycle.",
            _SHARD,
            registry=registry,
            buckets=_CYCLE_BUCKETS,
        ).labels(*labels)
        api_errors = counter("api_errors_total", "Errors of the API, by operation.", "operation")
        self._fetch_errors = api_errors.labels(*labels, "fetch_resources")
        api_errors.labels(*labels, "config_load")
        self._broker_errors = counter(
            "broker_errors_total", "Events that the broker refused or did not confirm.", "broker_type"
        ).labels(*labels, broker_type)
        counter("config_reloads_total", "Times the configuration was loaded anew.").labels(*labels)
        self._last_success = Gauge(
            _PREFIX + "last_successful_poll_timestamp_seconds",
            "When a walk last reached the end of the fleet, in seconds since 1970.",
            _SHARD,
            registry=registry,
        ).labels(*labels)
        decisions = counter(
            "decisions_total", "Decisions before pacing, by outcome and reason.", "decision", "reason"
        )
        self._decisions = {
            reason: decisions.labels(*labels, "publish" if reason.is_due else "skip", reason.value)
            for reason in Reason
        }
        self._paced = counter("paced_total", "Due resources whose last event is too recent.").labels(*labels)
        self._deferred = counter(
            "deferred_total", "Due resources held back by the ceiling or by trouble at the broker."
        ).labels(*labels)
        self._unroutable = counter("unroutable_total", "Events for which the broker had no destination.").labels(
            *labels
        )
        self._malformed = counter("malformed_resources_total", "Items that could not be read.").labels(*labels)
        self._template_errors = counter(
            "template_errors_total", "Fields of message_data that could not be evaluated."
        ).labels(*labels)
        self._confirm = Histogram(
            _PREFIX + "publish_confirm_seconds",
            "From sending an event to the broker's answer.",
            _SHARD,
            registry=registry,
            buckets=_CONFIRM_BUCKETS,
        ).labels(*labels)
        self._fields_warned: set[str] = set()
        self._first_ahead = ""
        self._ahead_count = 0
        self._malformed_logged = 0

    def judged(self, page: PageReport) -> None:
        """Counts a page's decisions; logs skips where someone debugs."""
        # Once for every resource of every walk: what is counted in one go costs half of what a loop does.
        skip, paced, repeated = Verdict.SKIP, Verdict.PACED, Verdict.REPEATED
        judgements = [each for each in page.judgements if each.verdict is not repeated]
        for reason, count in Tally([each.decision.reason for each in judgements]).items():
            self._decisions[reason].inc(count)
        skipped = [each.resource.is_ready for each in judgements if each.verdict is skip]
        for is_ready, series in self._skipped.items():
            series.inc(skipped.count(is_ready))
        self._paced.inc(len([each for each in judgements if each.verdict is paced]))
        ahead = [each.resource.id for each in judgements if each.decision.warning]
        self._ahead_count += len(ahead)
        self._first_ahead = self._first_ahead or next(iter(ahead), "")
        self._malformed.inc(len(page.malformed))
        for problem in page.malformed:
            if self._malformed_logged < _MALFORMED_LOGGED_PER_CYCLE:
                self._malformed_logged += 1
                self._log.warning("resource.malformed", problem=problem)
        if self._log.is_debug:
            self._log_skips(page)

    def answered(self, answer: Answer) -> None:
        """Counts and logs what became of a batch."""
        self._warn_of_fields(answer.pending)
        for pending, outcome in zip(answer.pending, answer.outcomes, strict=True):
            resource, decision = pending.judgement.resource, pending.judgement.decision
            if outcome is Outcome.CONFIRMED:
                self._log.info(
                    "event.published",
                    resource_id=resource.id,
                    reason=decision.reason,
                    generation=resource.generation,
                    event_id=pending.event.id,
                )
        failed = self._count(answer.outcomes)
        for seconds in answer.seconds:
            self._confirm.observe(seconds)
        if failed:
            first = next(
                pending
                for pending, outcome in zip(answer.pending, answer.outcomes, strict=True)
                if outcome is not Outcome.CONFIRMED
            )
            self._log.error(
                "event.failed",
                events=failed,
                first_resource_id=first.judgement.resource.id,
                error=answer.error,
            )

    def finished(self, report: CycleReport) -> None:
        """One line a cycle, and the cycle's gauges."""
        self._duration.observe(report.seconds)
        self._deferred.inc(report.deferred)
        if self._ahead_count:
            self._log.warning(
                "resource.ahead",
                problem=OBSERVED_AHEAD,
                resources=self._ahead_count,
                first_resource_id=self._first_ahead,
            )
        self._first_ahead, self._ahead_count, self._malformed_logged = "", 0, 0
        if report.is_complete:
            self._pending_resources.set(report.fetched)
            self._last_success.set(report.started.timestamp() + report.seconds)
        if report.fetch_error:
            self._fetch_errors.inc()
            self._log.error("fetch.failed", error=report.fetch_error)
        self._log.info(
            "cycle.done" if report.is_complete else "cycle.broken_off",
            resources=report.fetched,
            selector=self._shard,
            published=report.published,
            skipped=report.skipped,
            paced=report.paced,
            deferred=report.deferred,
            failed=report.failed,
            unroutable=report.unroutable,
            seconds=round(report.seconds, 3),
            **({} if report.is_complete else {"cause": report.fetch_error or "asked to stop"}),
        )

    def crashed(self, error: BaseException) -> None:
        """A fault of our own: the traceback, so that it can be mended."""
        self._log.unexpected("cycle.crashed", error=error)

    def _count(self, outcomes: Iterable[Outcome]) -> int:
        """Counts outcomes; says how many were not confirmed."""
        tally = Tally(outcomes)
        errors = tally[Outcome.REFUSED] + tally[Outcome.UNCONFIRMED] + tally[Outcome.UNSENDABLE]
        self._published.inc(tally[Outcome.CONFIRMED])
        self._unroutable.inc(tally[Outcome.UNROUTABLE])
        self._broker_errors.inc(errors)
        return errors + tally[Outcome.UNROUTABLE]

    def _warn_of_fields(self, batch: Iterable[Pending]) -> None:
        for pending in batch:
            for field in pending.missing:
                self._warn_once(field, "message_data.missing", pending, problem="the resource has no such field")
            for field, problem in pending.failed:
                self._template_errors.inc()
                self._warn_once(field, "message_data.failed", pending, problem=problem)

    def _warn_once(self, field: str, event: str, pending: Pending, *, problem: str) -> None:
        key = f"{event} {field}"
        if key not in self._fields_warned:
            self._fields_warned.add(key)
            self._log.warning(event, field=field, problem=problem, first_resource_id=pending.judgement.resource.id)

    def _log_skips(self, page: PageReport) -> None:
        for judgement in page.judgements:
            if judgement.verdict is not Verdict.PUBLISH:
                self._log.debug(
                    "resource.skipped" if judgement.verdict is Verdict.SKIP else f"resource.{judgement.verdict}",
                    resource_id=judgement.resource.id,
                    reason=judgement.decision.reason,
                    next_event_time=judgement.decision.next_event_time,
                )
