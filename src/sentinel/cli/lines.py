"""What the pulses do, a line for each event and each cycle: `sentinel up` where nobody watches a screen.

Lines are data and go to standard output, each at once, so that a pipe or a file shows them as they happen.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TextIO

from sentinel.core.events import timestamp
from sentinel.pulse.report import Answer, CycleReport, PageReport


class Lines:
    """`pulse.report.Observer` of one pulse that writes what it is told.

    A cycle in which nothing was sent and nothing went wrong has no line: an idle fleet is silent.
    """

    def __init__(
        self, *, resource_type: str, stream: TextIO, started: datetime, on_broken_pipe: Callable[[], None]
    ) -> None:
        """`on_broken_pipe` is called when whoever read the lines has gone, as `| head` does."""
        self._resource_type = resource_type
        self._stream = stream
        self._at = started
        self._on_broken_pipe = on_broken_pipe

    def judged(self, page: PageReport) -> None:
        self._at = page.at

    def answered(self, answer: Answer) -> None:
        for pending, outcome in zip(answer.pending, answer.outcomes, strict=True):
            seen = pending.judgement.resource
            self._write(
                f"event {seen.id} (generation {seen.generation}, observed {seen.observed_generation})"
                f" {outcome}: {pending.judgement.decision.reason}"
            )

    def finished(self, report: CycleReport) -> None:
        troubles = [trouble for trouble in (report.fetch_error, report.broker_error) if trouble]
        if report.published or report.failed or report.unroutable or report.deferred or troubles:
            self._write(
                f"cycle {report.fetched} resources, {report.published} published, {report.skipped} skipped,"
                f" {report.paced} paced, {report.failed + report.unroutable} failed"
                + "".join(f"; {trouble}" for trouble in troubles)
            )

    def crashed(self, error: BaseException) -> None:
        self._write(f"cycle broken off by a fault of our own ({type(error).__name__}); the log has it")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(f"{timestamp(self._at.replace(microsecond=0))} {self._resource_type} {text}\n")
            self._stream.flush()
        except BrokenPipeError:
            self._on_broken_pipe()
