"""A sidecar's reports as metrics and log lines.

Labels are closed sets: the configured kinds, reasons and classes of failures. The name of an object or of a
manager is never a label, only a field of the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sentinel.core.drift.judgement import Judgement, Reason
from sentinel.core.drift.schedule import Acknowledged
from sentinel.core.drift.trigger import DriftMode
from sentinel.core.times import timestamp
from sentinel.drift.sidecar.report import ConflictFound, FailureClass, Judged, Triggered, TriggerFailed
from sentinel.runtime.log import Log

_PREFIX = "sentinel_drift_"
_LATENCY_BUCKETS = (0.5, 1, 2, 2.1, 2.5, 5, 10, 20, 30, 60, 120, 300)
MAX_PATHS = 20
"""How many changed paths a log line names."""


class DriftTelemetry:
    """Counts and logs. All series exist from the start, at zero."""

    def __init__(self, *, kinds: Iterable[str], registry: CollectorRegistry, log: Log) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, text, labels, registry=registry)

        self._log = log
        events = counter("events_total", "Events that were judged.", "kind")
        ignored = counter("ignored_total", "Events that are not drift, by reason.", "kind", "reason")
        detected = counter("detected_total", "Drift, by reason.", "kind", "reason")
        failures = counter("patch_failures_total", "Triggers that could not be written.", "class")
        self._events = {kind: events.labels(kind) for kind in kinds}
        self._judged = {
            (kind, reason): (detected if reason.is_drift else ignored).labels(kind, reason.value)
            for kind in self._events
            for reason in Reason
        }
        self._triggers = counter("triggers_total", "Triggers that were written, with repeated ones.")
        self._failures = {each: failures.labels(each.value) for each in FailureClass}
        self._relists = counter("relists_total", "How often objects were listed again after the first time.")
        self._conflicts = counter(
            "conflicts_total", "Corrections that wait because a path is changed again and again."
        )
        self._unacknowledged = Gauge(
            f"{_PREFIX}unacknowledged", "Whether the operator has yet to clear a trigger.", registry=registry
        )
        self._latency = Histogram(
            f"{_PREFIX}trigger_latency_seconds",
            "From the first event of a burst to the written trigger.",
            registry=registry,
            buckets=_LATENCY_BUCKETS,
        )

    def judged(self, report: Judged) -> None:
        judgement = report.judgement
        self._events[judgement.kind].inc()
        self._judged[judgement.kind, judgement.reason].inc()
        if judgement.is_drift:
            self._log.warning(
                "drift.detected",
                **describe(judgement),
                mode=report.mode,
                **({"maintenance": True} if report.is_maintenance and report.mode is DriftMode.ENFORCE else {}),
            )
        elif self._log.is_debug:
            self._log.debug("event.ignored", **describe(judgement))

    def triggered(self, report: Triggered) -> None:
        self._triggers.inc()
        burst = report.batch.burst
        if not report.is_repeated:
            self._latency.observe(report.latency.total_seconds())
        self._log.info(
            "trigger.repeated" if report.is_repeated else "trigger.written",
            trigger=report.value,
            resource=burst.first,
            objects=len(burst.objects),
            events=burst.events,
            **({} if report.is_repeated else {"seconds": round(report.latency.total_seconds(), 3)}),
        )

    def trigger_failed(self, report: TriggerFailed) -> None:
        self._failures[report.failure].inc()
        log = self._log.warning if report.failure.is_transient else self._log.error
        log(
            "trigger.failed",
            cause=report.failure,
            error=report.error,
            failures=report.failures,
            retry_in=report.retry_in,
        )

    def acknowledged(self, report: Acknowledged) -> None:
        self._log.info(
            "trigger.acknowledged",
            resource=report.batch.burst.first,
            objects=len(report.batch.burst.objects),
            seconds=round(report.after.total_seconds(), 3),
        )

    def outstanding_changed(self, has_outstanding: bool) -> None:
        self._unacknowledged.set(has_outstanding)

    def conflict_found(self, report: ConflictFound) -> None:
        self._conflicts.inc()
        actor, conflict = report.judgement.actor, report.conflict
        self._log.warning(
            "drift.conflict",
            problem=f"conflict with manager {actor.manager or 'unknown'}",
            resource=conflict.field.resource,
            path=conflict.field.path,
            corrections=conflict.corrections,
            next_correction=timestamp(conflict.until.replace(microsecond=0)),
        )

    def relisted(self) -> None:
        self._relists.inc()


def describe(judgement: Judgement) -> dict[str, object]:
    """Return a judgement as fields of a log line: what, who, how much. No values, which may be secrets."""
    actor = judgement.actor
    paths = [each.path for each in judgement.changes[:MAX_PATHS]]
    return {
        "resource": judgement.resource,
        "reason": judgement.reason,
        **({"rule": judgement.rule} if judgement.rule != judgement.reason else {}),
        "manager": actor.manager or "unknown",
        **({"operation": actor.operation} if actor.operation is not None else {}),
        **({"changed_at": timestamp(actor.time)} if actor.time is not None else {}),
        "added": judgement.added,
        "changed": judgement.changed,
        "removed": judgement.removed,
        "paths": paths,
    }
