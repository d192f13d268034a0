"""The decisions of a pulse, poll by poll."""

from __future__ import annotations

from datetime import datetime, timedelta

from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.observation import Observation
from sentinel.core.pulse.pacing import Pacer, PacingVerdict

POLICY = Policy(max_age_not_ready=timedelta(seconds=10), max_age_ready=timedelta(minutes=30))


class Polls:
    """A pulse whose events are all confirmed."""

    def __init__(self, policy: Policy = POLICY, *, republish_interval: timedelta | None = None) -> None:
        self.pacer = Pacer(republish_interval=republish_interval)
        self.published = 0
        self._policy = policy

    def poll(self, now: datetime, *seen: Observation, is_complete: bool = True) -> list[PacingVerdict]:
        self.pacer.begin_cycle()
        verdicts = []
        for one in seen:
            paced = self.pacer.decide(one, self._policy, now)
            if paced.verdict is PacingVerdict.PUBLISH:
                self.pacer.record_published(one, paced.decision, now)
                self.published += 1
            verdicts.append(paced.verdict)
        self.pacer.end_cycle(is_complete=is_complete)
        return verdicts

    def poll_one(self, now: datetime, seen: Observation) -> PacingVerdict:
        return self.poll(now, seen)[0]
