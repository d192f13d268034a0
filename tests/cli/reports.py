"""Reports as a pulse would make them, for tests of what is drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.decision import Policy, decide
from sentinel.core.events import Event
from sentinel.core.model import Observation
from sentinel.core.pacing import Verdict
from sentinel.ports import Outcome
from sentinel.pulse.report import Answer, CycleReport, Judgement, Observer, PageReport, Pending
from sentinel.testing.clock import START

SECOND = timedelta(seconds=1)
POLICY = Policy(max_age_not_ready=3 * SECOND, max_age_ready=15 * SECOND)


def judge(
    resource_id: str,
    *,
    generation: int = 1,
    observed_generation: int = 1,
    is_ready: bool = True,
    age: timedelta = SECOND,
    is_paced: bool = False,
    is_paused: bool = False,
    requested: datetime | None = None,
    now: datetime = START,
) -> Judgement:
    """A resource of so many seconds, and what the real decision makes of it."""
    seen = Observation(
        resource_id, "Cluster", generation, observed_generation, is_ready, now - age, {}, is_paused, requested
    )
    decision = decide(seen, POLICY, now)
    due = Verdict.PACED if is_paced else Verdict.PUBLISH
    return Judgement(seen, decision, due if decision.is_due else Verdict.SKIP)


def pending(judgement: Judgement) -> Pending:
    event = Event("event-1", "type", judgement.resource.id, "2026-03-01T12:00:00Z", msgspec.Raw(b"{}"))
    return Pending(judgement, event)


def cycle(
    observer: Observer,
    judgements: Sequence[Judgement],
    *,
    outcome: Outcome = Outcome.CONFIRMED,
    fetch_error: str = "",
    now: datetime = START,
) -> None:
    """One whole cycle, told to an observer; every due resource gets the same outcome."""
    sent = [pending(judgement) for judgement in judgements if judgement.verdict is Verdict.PUBLISH]
    is_confirmed = outcome is Outcome.CONFIRMED
    observer.judged(PageReport(judgements, (), now))
    if sent:
        observer.answered(Answer(sent, [outcome] * len(sent), [], ""))
    observer.finished(
        CycleReport(
            started=now,
            seconds=0.01,
            fetched=len(judgements),
            skipped=sum(judgement.verdict is Verdict.SKIP for judgement in judgements),
            published=len(sent) if is_confirmed else 0,
            paced=sum(judgement.verdict is Verdict.PACED for judgement in judgements),
            deferred=0,
            failed=0 if is_confirmed else len(sent),
            unroutable=0,
            malformed=0,
            is_complete=not fetch_error,
            fetch_error=fetch_error,
        )
    )
