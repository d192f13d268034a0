"""A pulse's reports, rendered as log lines and metrics.

What could come once per resource comes once per field or once per cycle instead.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from sentinel.core.pulse.decision import OBSERVED_AHEAD
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.publisher import Outcome
from sentinel.pulse.metrics import PulseSeries
from sentinel.pulse.report import CycleReport, PageReport, PendingEvent, PublishedBatch
from sentinel.runtime.log import Log

_MALFORMED_LOGGED_PER_CYCLE = 10


class PulseTelemetry:
    """An observer that counts and logs. A rebuilt pulse gets a new one, over the same series."""

    def __init__(self, *, series: PulseSeries, log: Log, broker_type: str) -> None:
        self._series = series
        self._broker_errors = series.broker_errors(broker_type)
        self._log = log
        self._fields_warned: set[str] = set()
        self._first_ahead = ""
        self._ahead_count = 0
        self._malformed_logged = 0

    def judged(self, page: PageReport) -> None:
        """Counts a page's decisions; logs skips where someone debugs."""
        # Once for every resource of every walk: what is counted in one go costs half of what a loop does.
        skip, paced, repeated = PacingVerdict.SKIP, PacingVerdict.PACED, PacingVerdict.REPEATED
        judgements = [each for each in page.judgements if each.verdict is not repeated]
        for reason, count in Tally([each.decision.reason for each in judgements]).items():
            self._series.decisions[reason].inc(count)
        skipped = [each.resource.is_ready for each in judgements if each.verdict is skip]
        for is_ready, series in self._series.skipped.items():
            series.inc(skipped.count(is_ready))
        self._series.paced.inc(len([each for each in judgements if each.verdict is paced]))
        ahead = [each.resource.id for each in judgements if each.decision.warning]
        self._ahead_count += len(ahead)
        self._first_ahead = self._first_ahead or next(iter(ahead), "")
        self._series.malformed.inc(len(page.malformed))
        for problem in page.malformed:
            if self._malformed_logged < _MALFORMED_LOGGED_PER_CYCLE:
                self._malformed_logged += 1
                self._log.warning("resource.malformed", problem=problem)
        if self._log.is_debug:
            self._log_skips(page)

    def published(self, batch: PublishedBatch) -> None:
        """Counts and logs what became of a batch."""
        self._warn_of_fields(batch.pending)
        for pending, outcome in zip(batch.pending, batch.outcomes, strict=True):
            resource, decision = pending.judgement.resource, pending.judgement.decision
            if outcome is Outcome.CONFIRMED:
                self._log.info(
                    "event.published",
                    resource_id=resource.id,
                    reason=decision.reason,
                    generation=resource.generation,
                    event_id=pending.event.id,
                )
        failed = self._count(batch.outcomes)
        for seconds in batch.seconds:
            self._series.confirm_seconds.observe(seconds)
        if failed:
            first = next(
                pending
                for pending, outcome in zip(batch.pending, batch.outcomes, strict=True)
                if outcome is not Outcome.CONFIRMED
            )
            self._log.error(
                "event.failed",
                events=failed,
                first_resource_id=first.judgement.resource.id,
                error=batch.error,
            )

    def finished(self, report: CycleReport) -> None:
        """One line a cycle, and the cycle's gauges."""
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
            self._series.pending_resources.set(report.fetched)
            self._series.last_success.set(report.started.timestamp() + report.seconds)
        if report.fetch_error:
            self._series.fetch_errors.inc()
            self._log.error("fetch.failed", error=report.fetch_error)
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
        self._series.published.inc(tally[Outcome.CONFIRMED])
        self._series.unroutable.inc(tally[Outcome.UNROUTABLE])
        self._broker_errors.inc(errors)
        return errors + tally[Outcome.UNROUTABLE]

    def _warn_of_fields(self, batch: Iterable[PendingEvent]) -> None:
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
            self._log.warning(event, field=field, problem=problem, first_resource_id=pending.judgement.resource.id)

    def _log_skips(self, page: PageReport) -> None:
        for judgement in page.judgements:
            if judgement.verdict is not PacingVerdict.PUBLISH:
                self._log.debug(
                    "resource.skipped"
                    if judgement.verdict is PacingVerdict.SKIP
                    else f"resource.{judgement.verdict}",
                    resource_id=judgement.resource.id,
                    reason=judgement.decision.reason,
                    next_event_time=judgement.decision.next_event_time,
                )
