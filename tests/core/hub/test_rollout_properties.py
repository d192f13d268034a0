from __future__ import annotations

from datetime import datetime, timedelta

import hypothesis
import msgspec
import pytest
from hypothesis import Phase, Verbosity
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sentinel.core.hub import deployment_plan, rollout, rollout_queries, rollout_state
from sentinel.core.hub.analysis import Outcome, Verdict
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    InstanceFacts,
    OfflinePolicy,
    Regions,
    Request,
    Rolling,
    Strategy,
    TargetOrder,
    Targets,
    TargetVersion,
)
from sentinel.core.hub.rollout_state import (
    Abort,
    Acknowledged,
    Analysed,
    Event,
    Observed,
    Pause,
    Promote,
    Reported,
    ReportedState,
    Resume,
    Rollback,
    Rollout,
    RolloutState,
    Stage,
    Started,
    TimePassed,
)
from sentinel.core.hub.states import State
from tests.core.hub import rollout_faults
from tests.core.hub.rollout_checker import Advance, RolloutChecker
from tests.core.hub.rollout_driver import MINUTE, NEW, NO_DELAY, SECOND, START, TIMEOUT, facts, version
from tests.support.examples import examples

NAMES = [f"e{number}" for number in range(8)]
COUNTS = st.builds(Count, st.integers(1, 5)) | st.builds(Count, st.integers(1, 100), st.just(True))
DURATIONS = st.sampled_from([NO_DELAY, SECOND, MINUTE])
PRESENT = st.sampled_from([State.ONLINE, State.ONLINE, State.DEGRADED, State.OFFLINE])
OBSERVED = st.sampled_from([*State, State.ONLINE, State.OFFLINE])
VERSIONS = st.sampled_from([None, version(1), version(2), version(1, "edge")])
INCARNATIONS = st.sampled_from([1, 1, 1, 2])
BY_USERS = st.sampled_from([Pause(), Resume(), Promote(), Abort(), Rollback()])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    rolling = Rolling(
        batch_size=draw(COUNTS),
        batch_delay=draw(DURATIONS),
        failure_threshold=draw(COUNTS),
        min_healthy_time=draw(DURATIONS),
        max_unavailable=draw(st.none() | COUNTS),
    )
    canary = Canary(
        instances=draw(COUNTS),
        duration=draw(st.sampled_from([SECOND, MINUTE, 5 * MINUTE])),
        steps=tuple(draw(st.lists(COUNTS, max_size=2))),
    )
    return Request(
        config_id="api",
        version=2,
        targets=Targets(ids=tuple(NAMES[: draw(st.integers(1, len(NAMES)))])),
        strategy=draw(st.sampled_from(list(Strategy))),
        offline=draw(st.sampled_from(list(OfflinePolicy))),
        order=TargetOrder(spread_by="zone", regions=draw(st.none() | st.just(Regions("region")))),
        progress_deadline=draw(st.none() | st.just(10 * MINUTE)),
        rolling=rolling,
        canary=canary,
    )


class Histories(RuleBasedStateMachine):
    """Any events in any order, about any instance."""

    advance: Advance = staticmethod(rollout.advance)

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.asked: datetime | None = None

    @initialize(asked=requests(), data=st.data())
    def create(self, asked: Request, data: st.DataObject) -> None:
        known = [
            facts(
                name,
                data.draw(PRESENT),
                assigned=data.draw(VERSIONS),
                labels={"zone": str(index % 3), "region": str(index % 2)},
            )
            for index, name in enumerate(asked.targets.ids)
        ]
        plan = deployment_plan.plan(asked, known)
        assert plan.problems == ()
        self.rollout = rollout_state.create("d", asked, plan, to=NEW, deployment_timeout=TIMEOUT, now=START)
        self.checker = RolloutChecker(self.rollout)
        self.step(Started())

    @rule(name=st.sampled_from(NAMES), is_accepted=st.booleans(), is_rollback=st.booleans())
    def acknowledge(self, name: str, is_accepted: bool, is_rollback: bool) -> None:
        self.step(Acknowledged(name, is_accepted=is_accepted, is_rollback=is_rollback, reason="no"))

    @rule(name=st.sampled_from(NAMES), state=st.sampled_from(list(ReportedState)), is_rollback=st.booleans())
    def report(self, name: str, state: ReportedState, is_rollback: bool) -> None:
        self.step(Reported(name, state, is_rollback=is_rollback, message=state.lower()))

    @rule(name=st.sampled_from(NAMES), state=st.sampled_from([ReportedState.COMPLETED, ReportedState.FAILED]))
    def report_result(self, name: str, state: ReportedState) -> None:
        self.step(Reported(name, state))

    @rule(name=st.sampled_from(NAMES))
    def report_way_back(self, name: str) -> None:
        self.step(Reported(name, ReportedState.ROLLED_BACK, is_rollback=True))

    @rule(
        name=st.sampled_from(NAMES), state=OBSERVED, assigned=VERSIONS, incarnation=st.sampled_from([1, 1, 1, 2])
    )
    def observe(self, name: str, state: State, assigned: TargetVersion | None, incarnation: int) -> None:
        row = self.rollout.rows.get(name)
        # By hand, another version is assigned only to what no deployment has.
        if row is None or self.rollout.state is not RolloutState.PENDING:
            assigned = None if row is None else row.assigned
        self.step(Observed((facts(name, state, assigned=assigned, incarnation=incarnation),)))

    @rule(event=BY_USERS)
    def ask(self, event: Event) -> None:
        self.step(event)

    @rule(outcome=st.sampled_from(list(Outcome)))
    def answer(self, outcome: Outcome) -> None:
        wait = self.rollout.canary_wait
        until = wait.asked if wait is not None and wait.asked is not None else self.now
        self.step(Analysed(until, Verdict(outcome=outcome, reason="because")))

    @rule(duration=st.sampled_from([NO_DELAY, SECOND, 30 * SECOND, MINUTE, TIMEOUT]))
    def pass_time(self, duration: timedelta) -> None:
        self.now += duration
        self.step(TimePassed())

    @rule()
    def wait_for_the_deadline(self) -> None:
        deadline = rollout_queries.next_deadline(self.rollout)
        if deadline is not None:
            self.now = max(deadline, self.now)
            self.step(TimePassed())

    @rule()
    def restart(self) -> None:
        self.rollout = msgspec.json.decode(msgspec.json.encode(self.rollout), type=Rollout)

    @invariant()
    def changes_at_its_deadline(self) -> None:
        if hasattr(self, "rollout"):
            self.checker.check_deadline(self.advance, self.rollout, self.now)

    def teardown(self) -> None:
        if hasattr(self, "rollout"):
            self.finish_fairly()

    def finish_fairly(self) -> None:
        """With agents that answer and are online, a user who resumes, and time, it is over soon."""
        for _ in range(10 * len(NAMES)):
            if self.rollout.is_over:
                return
            self.step(Observed(tuple(self.online(name) for name in self.rollout.rows)))
            if self.rollout.state is RolloutState.PAUSED:
                self.step(Promote() if self.rollout.stage is Stage.ANALYSIS else Resume())
            for name, row in self.rollout.rows.items():
                if row.step is not None:
                    state = ReportedState.ROLLED_BACK if row.step.is_rollback else ReportedState.COMPLETED
                    self.step(Reported(name, state, is_rollback=row.step.is_rollback))
            self.wait_for_the_deadline()
            self.answer(Outcome.SUCCESS)
        raise AssertionError("it is never over")

    def online(self, name: str) -> InstanceFacts:
        return facts(name, assigned=self.rollout.rows[name].assigned)

    def step(self, event: Event) -> None:
        before = self.rollout

        self.rollout, commands = self.advance(before, event, self.now)

        self.checker.check(before, event, self.rollout, commands, self.now)
        assert self.advance(before, event, self.now) == (self.rollout, commands)


def test_whatever_happens_a_rollout_keeps_its_promises() -> None:
    run_state_machine_as_test(
        Histories, settings=hypothesis.settings(max_examples=examples(300), stateful_step_count=40)
    )


@pytest.mark.parametrize("fault", rollout_faults.ALL, ids=lambda fault: fault.__name__)
def test_a_planted_fault_breaks_a_promise(fault: rollout_faults.Fault) -> None:
    class Faulty(Histories):
        advance = staticmethod(fault(rollout.advance))

    # The first history that shows the fault is enough, however long.
    settings = hypothesis.settings(
        max_examples=1000,
        stateful_step_count=40,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Faulty, settings=settings)
