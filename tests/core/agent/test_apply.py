"""An apply, step by step: nothing is written untested, and whatever fails is undone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.agent import apply as applying
from sentinel.core.agent.apply import Action, Apply, Done, Failed, Rendered, Step
from sentinel.core.agent.orders import Order, Report, ReportState, Task

NOW = datetime(2025, 1, 1, tzinfo=UTC)
ORDER = Order(deployment_id="d-1", deadline=NOW + timedelta(minutes=5))
TASK = Task(version="api@2", hash="h2", order=ORDER)
RENDERED = Rendered(hash="f2", content_hash="h2", previous="f1")
OUTCOMES = (Done(), Failed("no", "details"))


def applied(task: Task = TASK, *, rendered: Rendered = RENDERED, failing: Action | None = None) -> Apply:
    """Apply with all actions successful, but one that always fails."""
    apply, _, action = applying.begin(task, attempts=3)
    while action is not None:
        event: applying.Event = rendered if action is Action.RENDER else Done()
        apply, _, action = applying.advance(apply, Failed("no") if action is failing else event, NOW)
    return apply


@pytest.mark.parametrize("failing", [Action.RENDER, Action.TEST, Action.WRITE, Action.RELOAD, Action.CHECK])
def test_a_failure_ends_without_the_version(failing: Action) -> None:
    apply = applied(failing=failing)

    assert apply.step is Step.ENDED
    assert not apply.is_successful
    assert apply.failure is not None
    # What always fails, fails on the way back, too.
    assert (apply.restore_failure is not None) == (failing in (Action.RELOAD, Action.CHECK))


def test_a_failed_restore_is_said_with_the_reason() -> None:
    apply, _, action = applying.begin(TASK, attempts=1)
    for event in (RENDERED, Done(), Failed("disk full", "a"), Failed("no copy", "b")):
        apply, reports, action = applying.advance(apply, event, NOW)

    assert action is None
    assert reports == (
        Report(
            order=ORDER.key,
            state=ReportState.FAILED,
            message="disk full; the configuration before is not restored: no copy",
            details="a\nb",
        ),
    )


def test_an_assignment_by_hand_reports_nothing() -> None:
    apply, reports, _ = applying.begin(msgspec.structs.replace(TASK, order=None), attempts=1)
    ended, more, _ = applying.advance(apply, Failed("no"), NOW)

    assert reports == more == ()
    assert applying.explain(ended) == Failed("no")


def test_a_success_explains_nothing() -> None:
    apply = applied()

    assert apply.is_successful
    assert applying.explain(apply) == Failed("")


def test_only_a_rendered_text_can_be_tested() -> None:
    apply, _, _ = applying.begin(TASK, attempts=1)

    with pytest.raises(TypeError, match="expected Rendered or Failed"):
        applying.advance(apply, Done(), NOW)


@pytest.mark.parametrize("late_at", [0, 1])
def test_nothing_is_written_after_the_deadline(late_at: int) -> None:
    apply, _, action = applying.begin(TASK, attempts=1)
    events: tuple[applying.Event, ...] = (RENDERED, Done())
    for index, event in enumerate(events):
        now = NOW + timedelta(minutes=5) if index == late_at else NOW
        apply, _, action = applying.advance(apply, event, now)
        if apply.step is Step.ENDED:
            break

    assert action is None
    assert apply.failure == Failed(applying.DEADLINE_PASSED)


def test_an_order_without_a_deadline_is_never_late() -> None:
    task = msgspec.structs.replace(TASK, order=Order(deployment_id="d-1"))

    assert applied(task).is_successful


def test_what_has_ended_stays_as_it_is() -> None:
    apply = applied()

    assert applying.advance(apply, Failed("late"), NOW) == (apply, (), None)
    assert applying.resume(apply, "f1") == (apply, (), None)


def test_after_a_second_interruption_the_version_before_is_restored() -> None:
    apply = Apply(task=TASK, attempts=3, step=Step.CHECKING, candidate="f2", previous="f1")

    first = applying.resume(apply, "f2")
    assert first is not None
    assert first[2] is Action.RELOAD
    second = applying.resume(first[0], "f2")

    assert second is not None
    assert second[2] is Action.RESTORE
    assert second[0].failure == Failed(applying.INTERRUPTED)


def test_a_file_that_is_not_the_candidate_was_not_written() -> None:
    apply = Apply(task=TASK, attempts=3, step=Step.WRITING, candidate="f2", previous="f1")

    assert applying.resume(apply, "f1") is None
    assert applying.resume(msgspec.structs.replace(apply, step=Step.TESTING), "f2") is None


def test_a_restore_that_was_interrupted_goes_on() -> None:
    apply = Apply(task=TASK, attempts=3, step=Step.CHECKING_BACK, failure=Failed("no"), candidate="f2")

    resumed = applying.resume(apply, "f2")

    assert resumed is not None
    assert (resumed[0].step, resumed[2]) == (Step.RESTORING, Action.RESTORE)


def test_health_after_a_restore_is_tried_as_often() -> None:
    apply = Apply(task=TASK, attempts=2, step=Step.CHECKING_BACK, failure=Failed("no"))

    apply, _, again = applying.advance(apply, Failed("503"), NOW)
    apply, _, end = applying.advance(apply, Done(), NOW)

    assert (again, end) == (Action.CHECK, None)
    assert apply.restore_failure is None


def test_reports_say_what_they_are() -> None:
    assert ReportState.ACCEPTED.is_acknowledgement
    assert not ReportState.FAILED.is_acknowledgement
    assert ReportState.FAILED.is_final
    assert not ReportState.VALIDATING.is_final


def test_the_deadline_ends_the_health_checks() -> None:
    apply = Apply(task=TASK, attempts=3, step=Step.CHECKING)

    apply, _, action = applying.advance(apply, Failed("503"), NOW + timedelta(minutes=5))

    assert action is Action.RESTORE
    assert apply.failure == Failed("the deadline has passed; health check failed after 1 attempt", "503")


class Machine:
    """The file and the proxy, which an apply changes."""

    def __init__(self) -> None:
        self.file = self.running = "f1"
        self.is_tested = False

    def perform(self, action: Action, outcome: Done | Failed, rendered: Rendered) -> applying.Event:
        if isinstance(outcome, Failed):
            return outcome
        match action:
            case Action.RENDER:
                return rendered
            case Action.TEST:
                self.is_tested = True
            case Action.WRITE:
                assert self.is_tested
                self.file = rendered.hash
            case Action.RESTORE:
                self.file = "f1"
            case Action.RELOAD | Action.RESTART:
                self.running = self.file
            case Action.CHECK:
                pass
        return outcome


@given(
    outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=30),
    crashes=st.lists(st.booleans(), max_size=30),
    seconds=st.lists(st.integers(0, 400), max_size=30),
    needs_restart=st.booleans(),
    can_restart=st.booleans(),
    is_rollback=st.booleans(),
)
def test_an_apply_ends_with_one_version_and_says_which(
    outcomes: list[Done | Failed],
    crashes: list[bool],
    seconds: list[int],
    needs_restart: bool,
    can_restart: bool,
    is_rollback: bool,
) -> None:
    rendered = msgspec.structs.replace(RENDERED, needs_restart=needs_restart, can_restart=can_restart)
    task = msgspec.structs.replace(TASK, order=msgspec.structs.replace(ORDER, is_rollback=is_rollback))
    machine, told, now, steps = Machine(), list[ReportState](), NOW, 0
    apply, reports, action = applying.begin(task, attempts=3)
    told += (each.state for each in reports)
    while action is not None:
        steps += 1
        assert steps < 100
        outcome = outcomes.pop() if outcomes else Done()
        event = machine.perform(action, outcome, rendered)
        if crashes and crashes.pop():  # after the effect, before anybody knows
            resumed = applying.resume(apply, machine.file)
            assert machine.file == "f1" or resumed is not None
            apply, reports, action = resumed or applying.begin(task, attempts=3)
        else:
            apply, reports, action = applying.advance(apply, event, now)
        told += (each.state for each in reports)
        now = NOW + timedelta(seconds=seconds.pop() if seconds else 0)

    assert apply.step is Step.ENDED
    final = [each for each in told if each.is_final]
    assert len(final) == 1
    if apply.is_successful:
        assert machine.file == machine.running == "f2"
        assert final == [ReportState.ROLLED_BACK if is_rollback else ReportState.COMPLETED]
    else:
        assert final == [ReportState.FAILED]
        if apply.restore_failure is None:
            assert machine.file == machine.running == "f1"
