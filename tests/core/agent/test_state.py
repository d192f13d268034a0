"""What an agent remembers of what the hub asked, and what it answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.agent import apply as applying
from sentinel.core.agent import state as states
from sentinel.core.agent.apply import Action, Apply, Done, Failed, Rendered, Step
from sentinel.core.agent.orders import Content, Order, OrderKey, Report, ReportState, Source, Task
from sentinel.core.agent.state import AgentState, Applied, Attempt, Unloaded

NOW = datetime(2025, 1, 1, tzinfo=UTC)
KEY = OrderKey("d-1", False)
APPLIED = Applied(version="api@1", hash="h1", file_hash="f1", applied=NOW)


def assigned(version: str, marker: str = "", source: Source = Source.ACTION) -> Task:
    return Task(version=version, hash=f"h{version[-1]}", marker=marker, source=source)


def ordered(version: str, deployment_id: str = "d-1", *, deadline: datetime | None = None) -> Task:
    return Task(version=version, hash="h", order=Order(deployment_id=deployment_id, deadline=deadline))


def received(*tasks: Task, state: AgentState | None = None) -> AgentState:
    state = state or AgentState(applied=APPLIED)
    for task in tasks:
        state = states.receive(state, task, NOW)
    return state


def tried(state: AgentState, *, fails: bool = False) -> AgentState:
    """Apply what is waiting."""
    state, action = states.begin(state, attempts=1)
    version = "" if state.apply is None else state.apply.task.version
    applied = Applied(version=version, hash=f"h{version[-1]}", file_hash="f", applied=NOW)
    while action is not None:
        event: applying.Event = Done()
        if action is Action.RENDER:
            event = Failed("no") if fails else Rendered(hash="f", content_hash="h", previous="f0")
        state, action = states.advance(state, event, NOW, applied=applied)
    return state


def finals(state: AgentState) -> list[ReportState]:
    return [each.state for each in state.reports if each.state.is_final]


def test_nothing_waits_where_no_version_is_named() -> None:
    assert received(Task(version="", hash="")).waiting is None


def test_an_order_without_a_version_is_rejected() -> None:
    state = received(Task(version="", hash="", order=Order(deployment_id="d-1")))

    assert [(each.state, each.message) for each in state.reports] == [(ReportState.REJECTED, states.NO_VERSION)]


def test_a_repeated_order_is_answered_once_until_the_hub_has_the_answer() -> None:
    state = received(ordered("api@2"), ordered("api@2"))
    answered = states.delivered(state, state.reports[0])

    again = received(ordered("api@2"), state=answered)

    assert [each.state for each in state.reports] == [ReportState.ACCEPTED]
    assert [each.state for each in again.reports] == [ReportState.ACCEPTED]
    assert again.waiting == state.waiting


def test_a_report_that_was_delivered_before_changes_nothing() -> None:
    state = received(ordered("api@2"))

    assert states.delivered(state, Report(order=KEY, state=ReportState.FAILED)) is state


def test_an_order_that_waits_is_in_progress_for_a_hub_that_asks() -> None:
    state = received(ordered("api@2"))

    asked = states.report_again(state, KEY)

    assert [each.state for each in asked.reports] == [ReportState.ACCEPTED, ReportState.IN_PROGRESS]


def test_a_hub_that_asks_again_gets_the_newest_report() -> None:
    state = tried(received(ordered("api@2")), fails=True)
    for report in state.reports:
        state = states.delivered(state, report)

    asked = states.report_again(state, KEY)
    unknown = states.report_again(state, OrderKey("lost", False))

    assert [each.state for each in asked.reports] == [ReportState.ACCEPTED, ReportState.FAILED]
    assert [each.message for each in unknown.reports] == [states.UNKNOWN_ORDER]


def test_an_order_is_rejected_after_its_deadline() -> None:
    state = received(ordered("api@2", deadline=NOW))

    assert [(each.state, each.message) for each in state.reports] == [
        (ReportState.REJECTED, applying.DEADLINE_PASSED)
    ]


def test_a_version_is_not_queued_twice() -> None:
    state = received(assigned("api@2", "a1"))

    assert received(assigned("api@2", "a1"), assigned("api@2"), state=state) == state


def test_a_version_assigned_once_more_on_its_way_is_tried_once() -> None:
    state = received(assigned("api@2", "a1"), assigned("api@2", "a2"))

    done = tried(state)

    assert done.waiting is None
    assert received(assigned("api@2", "a2"), state=done).waiting is None


def test_what_runs_is_not_applied_at_a_registration() -> None:
    state = received(Task(version="api@7", hash="h1"))

    assert state.waiting is None
    assert state.applied is not None
    assert state.applied.version == "api@7"


def test_a_registration_applies_what_does_not_run() -> None:
    broken = AgentState(applied=APPLIED, restore_failure="no copy")

    assert received(Task(version="api@7", hash="h1"), state=broken).waiting is not None
    assert received(Task(version="api@1", hash="h1"), state=AgentState()).waiting is not None
    assert received(Task(version="api@2", hash="h2")).waiting is not None


def test_a_superseded_order_has_failed() -> None:
    state = received(ordered("api@2"), assigned("api@3"))

    assert state.waiting == assigned("api@3")
    assert [each.state for each in state.reports] == [ReportState.ACCEPTED, ReportState.FAILED]


def test_ids_of_the_hub_name_an_assignment_in_events_and_actions() -> None:
    event = assigned("api@2", "config/api@2/17", Source.EVENT)
    state = tried(received(event), fails=True)

    same = received(assigned("api@2", "fetch/api@2/17"), state=state)
    other = received(assigned("api@2", "fetch/api@2/18"), state=state)

    assert same.waiting is None
    assert other.waiting is not None
    assert other.attempt is not None
    assert other.attempt.failure == ""


def test_ids_without_numbers_name_one_assignment_for_each_kind() -> None:
    failed = tried(received(assigned("api@2", "e1", Source.EVENT)), fails=True)

    same = received(assigned("api@2", "a1"), state=failed)
    other = received(assigned("api@2", "a2"), state=same)

    assert same.waiting is None
    assert other.waiting is not None


def test_a_version_assigned_by_hand_after_its_order_failed_is_tried() -> None:
    state = tried(received(ordered("api@2")), fails=True)

    assert received(assigned("api@2"), state=state).waiting is None
    assert received(assigned("api@2", "a1"), state=state).waiting is not None


def test_an_assignment_learned_after_its_order_succeeded_is_fetched() -> None:
    state = tried(received(ordered("api@2")))

    after = received(assigned("api@2", "a1"), state=state)
    again = received(assigned("api@2", "a1"), state=tried(after))

    assert after.waiting is not None  # it may bring new values of secrets
    assert after.waiting.may_be_applied
    assert again.waiting is None


def test_nothing_begins_while_something_is_applied() -> None:
    state, _ = states.begin(received(assigned("api@2")), attempts=1)
    state = received(assigned("api@3"), state=state)

    assert states.begin(state, attempts=1) == (state, None)
    assert states.begin(AgentState(), attempts=1) == (AgentState(), None)
    assert states.advance(AgentState(), Done(), NOW) == (AgentState(), None)


def test_a_failure_is_not_remembered_for_something_else_that_is_wanted() -> None:
    state, _ = states.begin(received(assigned("api@2")), attempts=1)
    state = received(assigned("api@3"), state=state)

    state, _ = states.advance(state, Failed("no"), NOW)

    assert state.attempt is not None
    assert (state.attempt.version, state.attempt.failure) == ("api@3", "")


def test_a_success_does_not_touch_what_is_wanted_next() -> None:
    state, _ = states.begin(received(assigned("api@2")), attempts=1)
    state = received(assigned("api@3"), state=state)
    for event in (Rendered(hash="f", content_hash="h", previous="f0", is_running=True), Done()):
        state, _ = states.advance(state, event, NOW, applied=APPLIED)

    assert state.apply is None
    assert state.attempt is not None
    assert state.attempt.version == "api@3"


def test_a_content_that_is_refused_ends_only_what_waits_for_it() -> None:
    state = received(ordered("api@2"))

    assert states.refuse(state, assigned("api@3"), "no") is state
    assert finals(states.refuse(state, ordered("api@2"), "no")) == [ReportState.FAILED]


@pytest.mark.parametrize("seconds", [0, 60])
def test_an_order_does_not_wait_longer_than_the_hub(seconds: int) -> None:
    state = received(ordered("api@2", deadline=NOW + timedelta(seconds=60)))

    expired = states.expire(state, NOW + timedelta(seconds=seconds))

    assert (expired.waiting is None) == (seconds == 60)
    assert states.expire(AgentState(), NOW) == AgentState()


def test_a_deployment_that_is_over_is_not_begun() -> None:
    state = received(ordered("api@2"))

    assert states.stop(state, OrderKey("d-1", True)) is state
    assert states.stop(AgentState(), KEY) == AgentState()
    assert states.stop(state, KEY).waiting is None


def test_draining_ends_what_waits_and_ignores_assignments() -> None:
    state = received(ordered("api@2"))
    drained = states.drain(state)

    assert drained.waiting is None
    assert states.drain(drained) is drained
    assert states.receive(drained, assigned("api@3"), NOW, is_draining=True) is drained
    rejected = states.receive(drained, ordered("api@3", "d-2"), NOW, is_draining=True)
    assert rejected.reports[-1].message == states.DRAINING


def test_an_order_is_given_up_after_three_interruptions() -> None:
    state = received(ordered("api@2"))
    for _ in range(states.MAX_INTERRUPTIONS):
        state, _ = states.begin(state, attempts=1)
        state, action = states.restarted(state, "f1")
        assert action is None

    assert state.waiting is None
    assert state.reports[-1].message == "the agent was interrupted 3 times before it was applied"


def test_an_interrupted_order_that_was_superseded_has_failed() -> None:
    state, _ = states.begin(received(ordered("api@2")), attempts=1)
    state = received(assigned("api@3"), state=state)

    state, _ = states.restarted(state, "f1")

    assert state.waiting == assigned("api@3")
    assert state.reports[-1].message == "superseded by api@3"


def test_a_written_version_goes_on_after_a_restart() -> None:
    apply = Apply(task=ordered("api@2"), attempts=1, step=Step.CHECKING, candidate="f2", previous="f1")

    state, action = states.restarted(AgentState(apply=apply), "f2")

    assert action is Action.RELOAD
    assert state.apply is not None
    assert state.apply.interruptions == 1


def test_a_restart_forgets_a_failure_and_keeps_a_success() -> None:
    failed = tried(received(assigned("api@2", "a1")), fails=True)
    done = tried(received(assigned("api@2", "a1")))

    assert states.restarted(failed, "f1")[0].attempt is None
    assert states.restarted(done, "f1")[0].attempt == done.attempt


def test_failures_are_told_in_the_same_words_everywhere() -> None:
    by_hand = tried(received(assigned("api@2")), fails=True)
    by_order = tried(received(ordered("api@2")), fails=True)

    assert states.failure_of(by_hand, assigned("api@2")) == "no"
    assert states.failure_of(by_order, ordered("api@2")) == "no"
    assert states.failure_of(AgentState(), assigned("api@2")) == ""


def test_a_failed_restore_is_remembered_until_something_runs() -> None:
    state, _ = states.begin(received(assigned("api@2")), attempts=1)
    for event in (Rendered(hash="f2", content_hash="h", previous="f1"), Done(), Failed("full"), Failed("no copy")):
        state, _ = states.advance(state, event, NOW)
    assert state.restore_failure == "no copy"

    assert tried(received(assigned("api@3"), state=state)).restore_failure == ""


@pytest.mark.parametrize(
    ("told_process", "file_hash", "process_id", "is_restored"),
    [
        (7, "f1", 8, True),
        (0, "f1", 8, True),
        (None, "f1", 7, True),
        (None, "f1", None, True),
        (7, "f1", 7, False),
        (7, "f1", None, False),
        (7, "f2", 8, False),
    ],
    ids=["restarted", "started", "told", "told, unknown", "same process", "unknown process", "another file"],
)
def test_a_healthy_proxy_that_has_read_its_file_is_restored(
    told_process: int | None, file_hash: str, process_id: int | None, is_restored: bool
) -> None:
    unloaded = Unloaded(file_hash="f1", process_id=told_process)
    attempt = Attempt(version="api@2", failure="refused; the configuration before is not restored: no process")
    state = AgentState(restore_failure="no process", unloaded=unloaded, attempt=attempt)

    seen = states.healthy(state, file_hash, process_id)

    restored = AgentState(attempt=Attempt(version="api@2", failure="refused"))
    assert seen == (restored if is_restored else state)


def test_a_proxy_is_not_restored_while_something_is_applied() -> None:
    unloaded = Unloaded(file_hash="f1", process_id=None)
    waiting = AgentState(restore_failure="no process", unloaded=unloaded)
    applying_now = msgspec.structs.replace(waiting, apply=Apply(task=assigned("api@3"), attempts=1))

    assert states.healthy(applying_now, "f1", 8) == applying_now
    assert states.healthy(waiting, "f1", 8) == AgentState()


def test_a_file_that_was_not_restored_is_never_taken_for_restored() -> None:
    state = AgentState(restore_failure="no copy")

    assert states.healthy(state, "f1", 8) == state


def test_a_renamed_version_needs_something_that_runs() -> None:
    assert tried(received(assigned("api@2"), state=AgentState())).applied is not None


def test_a_success_without_an_attempt_is_kept() -> None:
    apply = Apply(task=assigned("api@2"), attempts=1, step=Step.CHECKING)

    state, _ = states.advance(AgentState(apply=apply), Done(), NOW, applied=APPLIED)

    assert state.applied == APPLIED
    assert state.attempt is None


def test_a_failure_without_an_attempt_is_only_reported() -> None:
    apply = Apply(task=ordered("api@2"), attempts=1)

    state, _ = states.advance(AgentState(apply=apply), Failed("no"), NOW)

    assert state.attempt is None
    assert finals(state) == [ReportState.FAILED]


def test_a_content_shows_no_secrets() -> None:
    content = Content(version="api@1", hash="h", content="c", secrets={"key": b"hunter2"})

    assert repr(content) == "Content(api@1, h)"


@given(
    st.lists(
        st.one_of(
            st.builds(ordered, st.sampled_from(["api@2", "api@3"]), st.sampled_from(["d-1", "d-2", "d-3"])),
            st.builds(
                assigned,
                st.sampled_from(["api@1", "api@2", "api@3"]),
                st.sampled_from(["", "a1", "a2", "fetch/api@2/1"]),
                st.sampled_from(Source),
            ),
            st.sampled_from(["begin", "fail", "done", "crash", "deliver", "drop"]),
        ),
        max_size=60,
    )
)
def test_every_order_is_accepted_once_and_ends_once(steps: list[Task | str]) -> None:
    state, told = AgentState(applied=APPLIED), list[Report]()
    ended = dict[OrderKey, int]()
    for step in steps:
        before = state.reports
        match step:
            case Task():
                is_known = step.order is not None and any(each.order == step.order.key for each in state.orders)
                state = states.receive(state, step, NOW)
                new = () if is_known else state.reports[len(before) :]
            case "begin" if state.apply is None:
                state, _ = states.begin(state, attempts=1)
                new = state.reports[len(before) :]
            case "fail" if state.apply is not None:
                state, _ = states.advance(state, Failed("no"), NOW)
                new = state.reports[len(before) :]
            case "done" if state.apply is not None:
                event = Rendered(hash="f2", content_hash="h", previous="f1", is_running=True)
                is_new = state.apply.step is Step.RENDERING
                state, _ = states.advance(state, event if is_new else Done(), NOW, applied=APPLIED)
                new = state.reports[len(before) :]
            case "crash":
                restored = msgspec.json.decode(msgspec.json.encode(state), type=AgentState)
                assert restored == state
                state, _ = states.restarted(restored, "f1")
                new = state.reports[len(before) :]
            case "deliver" if state.reports:
                told.append(state.reports[0])
                state = states.delivered(state, state.reports[0])
                new = ()
            case _:
                new = ()
        for report in new:
            if report.state.is_final:
                ended[report.order] = ended.get(report.order, 0) + 1

    assert all(count == 1 for count in ended.values())
    open_orders = {
        task.order.key
        for task in (state.waiting, None if state.apply is None else state.apply.task)
        if task is not None and task.order is not None
    }
    assert {each.order for each in state.orders} == ended.keys() | open_orders
