"""Reports of pulses and adapters, for tests of what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.adapter.observer import Evaluation
from sentinel.cli.client.resource_table import ResourceSummary
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.events import Event
from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import Condition, ConditionStatus, Phase, ResourceStatus
from sentinel.core.pulse import quiet_pages
from sentinel.core.pulse.decision import Policy, decide
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import PacedDecision, PacingVerdict
from sentinel.ports.publisher import PublishOutcome
from sentinel.pulse.report import CycleReport, PageReport, PendingEvent, PublishedBatch, PulseObserver
from sentinel.testing.adapter import make_resource
from sentinel.testing.clock import START

SECOND = timedelta(seconds=1)
POLICY = Policy(max_age_not_ready=3 * SECOND, max_age_ready=15 * SECOND)
REQUIRED = ("validation", "dns", "provision")


def decide_on(
    resource_id: str,
    *,
    generation: int = 1,
    observed_generation: int = 1,
    is_ready: bool = True,
    age: timedelta = SECOND,
    is_paced: bool = False,
    is_paused: bool = False,
    now: datetime = START,
) -> PacedDecision:
    """A resource whose status has this age, with the real decision on it."""
    resource = Observation(
        resource_id, "Cluster", generation, observed_generation, is_ready, now - age, {}, is_paused
    )
    decision = decide(resource, POLICY, now)
    due = PacingVerdict.PACED if is_paced else PacingVerdict.PUBLISH
    return PacedDecision(resource, decision, due if decision.is_due else PacingVerdict.SKIP)


def pending(decision: PacedDecision) -> PendingEvent:
    event = Event("event-1", "type", decision.resource.id, "2026-03-01T12:00:00Z", msgspec.Raw(b"{}"))
    return PendingEvent(decision, event)


def report_cycle(
    observer: PulseObserver,
    decisions: Sequence[PacedDecision],
    *,
    outcome: PublishOutcome = PublishOutcome.CONFIRMED,
    fetch_error: str = "",
    now: datetime = START,
) -> None:
    """Report one whole cycle to an observer; every due resource gets the same outcome."""
    verdicts = [decision.verdict for decision in decisions]
    sent = [pending(decision) for decision in decisions if decision.verdict is PacingVerdict.PUBLISH]
    is_confirmed = outcome is PublishOutcome.CONFIRMED
    observer.decided(PageReport(decisions, (), now, quiet_pages.count(decisions)))
    if sent:
        observer.published(PublishedBatch(sent, [outcome] * len(sent), [], ""))
    observer.finished(
        CycleReport(
            started=now,
            seconds=0.01,
            fetched=len(decisions),
            skipped=verdicts.count(PacingVerdict.SKIP),
            published=len(sent) if is_confirmed else 0,
            paced=verdicts.count(PacingVerdict.PACED),
            deferred=0,
            failed=0 if is_confirmed else len(sent),
            unroutable=0,
            malformed=0,
            is_complete=not fetch_error,
            fetch_error=fetch_error,
        )
    )


def evaluation(
    outcome: OutcomeKind, message: str = "", *, resource_id: str = "c1", name: str = "one"
) -> Evaluation:
    """An evaluation, as an adapter reports it to its observer."""
    return Evaluation(
        resource=make_resource("Cluster", id=resource_id, name=name),
        outcome=outcome,
        reason="Reason",
        message=message,
        duration=SECOND,
        events=1,
    )


def make_summary(
    name: str,
    reports: Mapping[str, tuple[ConditionStatus, str, str]] | None = None,
    *,
    generation: int = 1,
    available_at: int = 0,
    is_deleting: bool = False,
    is_paused: bool = False,
) -> ResourceSummary:
    """A resource as the API lists it, with the status, reason and message of each adapter's last report.

    It is ready if every required adapter has reported True.
    """
    reports = reports or {}

    def condition(kind: str, status: ConditionStatus, at: int, reason: str = "", message: str = "") -> Condition:
        return Condition(kind, status, at, START, START, START, reason, message)

    is_ready = all(each in reports and reports[each][0] is ConditionStatus.TRUE for each in REQUIRED)
    available = ConditionStatus.TRUE if available_at else ConditionStatus.FALSE
    return ResourceSummary(
        id=f"id-{name}",
        name=name,
        generation=generation,
        created_time=START,
        status=ResourceStatus(
            phase=Phase.READY if is_ready and not is_deleting else Phase.NOT_READY,
            observed_generation=generation if reports else 0,
            last_updated_time=START,
            last_transition_time=START,
            conditions=(
                condition("Available", available, available_at),
                *(
                    condition(condition_type(adapter), status, generation, reason, message)
                    for adapter, (status, reason, message) in reports.items()
                ),
            ),
        ),
        deleted_time=START if is_deleting else None,
        paused=is_paused,
    )
