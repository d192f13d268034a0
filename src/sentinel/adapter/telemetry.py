"""Logs and metrics of an adapter.

Every label has a fixed set of values, never a resource's id or an error's text. All metrics carry the adapter's
name, because several adapters may run in one process.
"""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sentinel.adapter.observer import ApiOperation, Evaluation, SkipReason
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import OutcomeKind
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.log import Log

PREFIX = "hyperfleet_adapter_"
_DURATION_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_AGE_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600)


class AdapterTelemetry:
    """An observer that counts and logs."""

    def __init__(self, *, registry: CollectorRegistry, log: Log, adapter: str) -> None:
        self._log = log

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, ("adapter", *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            family = Histogram(PREFIX + name, text, ("adapter",), registry=registry, buckets=buckets)
            return family.labels(adapter)

        evaluations = counter("evaluations_total", "Evaluations, by how they ended.", "outcome")
        self._evaluations = {outcome: evaluations.labels(adapter, outcome.value) for outcome in OutcomeKind}
        self._duration = histogram("evaluation_duration_seconds", "Time spent in a task.", _DURATION_BUCKETS)
        reports = counter("reports_total", "Reports, by the API's response.", "answer")
        self._reports = {outcome: reports.labels(adapter, outcome.value) for outcome in ReportOutcome}
        self._queue_age = histogram(
            "queue_age_seconds",
            "Time from an event's publication until a worker starts on its resource.",
            _AGE_BUCKETS,
        )
        self._in_flight = Gauge(
            PREFIX + "in_flight", "Evaluations that are running.", ("adapter",), registry=registry
        ).labels(adapter)
        self._dead_letters = counter("dead_letters_total", "Messages that were dead-lettered.").labels(adapter)
        skipped = counter("skipped_total", "Events acknowledged without an evaluation, by reason.", "reason")
        self._skipped = {reason: skipped.labels(adapter, reason.value) for reason in SkipReason}
        self._returned = counter("returned_total", "Events nacked because the API failed on them.").labels(adapter)
        errors = counter("api_errors_total", "Times the API started to fail, by operation.", "operation")
        self._api_errors = {operation: errors.labels(adapter, operation.value) for operation in ApiOperation}

    def dequeued(self, queue_age: timedelta) -> None:
        # The publisher's clock may be ahead of ours.
        self._queue_age.observe(max(queue_age.total_seconds(), 0.0))

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        # Only at debug level: most events may be about other kinds.
        self._skipped[reason].inc(events)
        self._log.debug("event.skipped", resource_id=resource_id, reason=reason, events=events)

    def started(self) -> None:
        self._in_flight.inc()

    def evaluated(self, evaluation: Evaluation) -> None:
        self._in_flight.dec()
        self._evaluations[evaluation.outcome].inc()
        self._duration.observe(evaluation.duration.total_seconds())
        fields = {
            **_resource(evaluation.resource),
            "outcome": evaluation.outcome,
            "reason": evaluation.reason,
            "message": evaluation.message,
            "seconds": round(evaluation.duration.total_seconds(), 3),
            "events": evaluation.events,
        }
        if evaluation.error is not None:
            self._log.exception("evaluation.broken", error=evaluation.error, **fields)
        elif evaluation.outcome is OutcomeKind.BROKEN:
            self._log.error("evaluation.broken", **fields)
        else:
            self._log.info("evaluation.done", **fields)
        if evaluation.is_lingering:
            self._log.error(
                "evaluation.lingers",
                problem="the task still runs after its cancellation and keeps its worker until it ends",
                **_resource(evaluation.resource),
            )

    def interrupted(self) -> None:
        self._in_flight.dec()

    def reported(self, resource: Resource, result: ReportResult) -> None:
        self._reports[result.outcome].inc()
        match result.outcome:
            case ReportOutcome.REFUSED:
                self._log.error("report.refused", error=result.reason, **_resource(resource))
            case ReportOutcome.DISCARDED:
                self._log.info("report.discarded", reason=result.reason, **_resource(resource))
            case _:
                self._log.debug("report.answered", answer=result.outcome, **_resource(resource))

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None:
        self._dead_letters.inc()
        self._log.error("event.dead_lettered", reason=reason, event_id=event_id, resource_id=resource_id)

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._returned.inc(events)
        self._log.warning("event.returned", reason=reason, resource_id=resource_id, events=events)

    def api_failed(self, operation: ApiOperation, error: ApiUnavailable) -> None:
        self._api_errors[operation].inc()
        write = self._log.error if error.needs_operator else self._log.warning
        write("api.failed", operation=operation, error=str(error), needs_operator=error.needs_operator)

    def api_recovered(self, operation: ApiOperation) -> None:
        self._log.info("api.recovered", operation=operation)

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self._log.exception("evaluation.crashed", error=error, resource_id=resource_id)


def _resource(resource: Resource) -> dict[str, object]:
    return {"resource_id": resource.id, "kind": resource.kind, "generation": resource.generation}
