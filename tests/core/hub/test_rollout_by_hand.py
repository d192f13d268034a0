from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.rollout_state import (
    Abort,
    Assign,
    BeginDeploying,
    Event,
    Pause,
    Promote,
    Refuse,
    ReportedState,
    Resume,
    Rollback,
    RollbackState,
    RolloutState,
    StateChanged,
)
from sentinel.core.hub.states import State
from tests.core.hub.rollout_driver import (
    ALL_AT_ONCE,
    COMPLETED,
    MINUTE,
    NEW,
    SECOND,
    START,
    TIMEOUT,
    Driver,
    batches_of,
    facts,
    of_type,
    request,
    rolling,
    sent,
    version,
)


class TestPause:
    def test_no_batch_begins_and_what_is_in_flight_goes_on(self) -> None:
        driver = rolling("a", "b")

        assert driver.do(Pause()) == [StateChanged(RolloutState.PAUSED, RollbackState.NONE)]
        assert sent(driver.complete("a")) == []
        assert driver.states == {"a": "completed", "b": "waiting"}
        assert driver.rollout.reason == "paused by a user"

        commands = driver.do(Resume())

        assert sent(commands) == [("b", "api@2")]
        assert driver.rollout.reason == ""

    def test_too_many_failures_end_it_all_the_same(self) -> None:
        driver = rolling("a", "b")
        driver.do(Pause())

        driver.fail("a")

        assert driver.status == (RolloutState.FAILED, RollbackState.RUNNING)

    def test_it_completes_only_after_it_was_resumed(self) -> None:
        driver = rolling("a")
        driver.do(Pause())
        driver.complete("a")
        assert driver.rollout.state is RolloutState.PAUSED

        driver.do(Resume())

        assert driver.status == COMPLETED

    def test_an_instance_times_out_meanwhile(self) -> None:
        driver = rolling("a", "b", threshold=2)
        driver.do(Pause())
        assert driver.deadline == START + TIMEOUT

        driver.wait(TIMEOUT)

        assert driver.states["a"] == "timed_out"

    def test_the_delay_goes_on_meanwhile(self) -> None:
        driver = rolling("a", "b", delay=MINUTE)
        driver.do(Pause())
        driver.complete("a")
        driver.wait(2 * MINUTE)

        assert sent(driver.do(Resume())) == [("b", "api@2")]


class TestAbort:
    def test_those_in_flight_finish_and_the_others_are_skipped(self) -> None:
        driver = rolling("a", "b", "c", size=2)
        driver.complete("a")

        driver.do(Abort())

        assert driver.status == (RolloutState.ABORTED, RollbackState.NONE)
        assert driver.states == {"a": "completed", "b": "pending", "c": "skipped"}
        assert driver.row("c").message == "the deployment was aborted"
        assert driver.rollout.finished is None
        driver.now += SECOND
        assert sent(driver.complete("b")) == []
        assert driver.states["b"] == "completed"
        assert driver.rollout.finished == driver.now

    def test_a_failure_afterwards_is_not_rolled_back(self) -> None:
        driver = rolling("a", "b")
        driver.do(Abort())

        assert sent(driver.fail("a")) == []
        assert driver.status == (RolloutState.ABORTED, RollbackState.NONE)

    def test_one_that_waits_for_others_is_aborted_at_once(self) -> None:
        driver = Driver(request("a"))

        driver.do(Abort())

        assert driver.rollout.state is RolloutState.ABORTED
        assert driver.rollout.finished == START
        assert driver.start() == []

    def test_a_paused_one_can_be_aborted(self) -> None:
        driver = rolling("a")
        driver.do(Pause())

        driver.do(Abort())

        assert driver.rollout.state is RolloutState.ABORTED


class TestRollbackByHand:
    def test_a_completed_one_goes_back_and_stays_completed(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.complete("a", "b")
        finished = driver.rollout.finished
        driver.now += MINUTE

        commands = driver.do(Rollback())

        assert sent(commands) == [("a", "api@1"), ("b", "api@1")]
        assert of_type(commands, BeginDeploying) == [BeginDeploying("a"), BeginDeploying("b")]
        driver.go_back("a", "b")
        assert driver.status == (RolloutState.COMPLETED, RollbackState.COMPLETED)
        assert driver.rollout.finished == finished

    @pytest.mark.parametrize("is_paused", [False, True])
    def test_a_running_or_paused_one_is_aborted_first(self, is_paused: bool) -> None:
        driver = rolling("a", "b", "c", size=2)
        driver.complete("a")
        if is_paused:
            driver.do(Pause())

        commands = driver.do(Rollback())

        assert driver.status == (RolloutState.ABORTED, RollbackState.RUNNING)
        assert sent(commands) == [("a", "api@1"), ("b", "api@1")]
        driver.go_back("a", "b")
        assert driver.states == {"a": "rolled_back", "b": "rolled_back", "c": "skipped"}

    def test_a_failed_all_at_once_goes_back_failed_ones_first(self) -> None:
        driver = Driver(request("a", "b", strategy=ALL_AT_ONCE))
        driver.start()
        driver.complete("a")
        driver.fail("b")

        assert sent(driver.do(Rollback())) == [("b", "api@1")]
        assert sent(driver.go_back("b")) == [("a", "api@1")]
        driver.go_back("a")
        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_a_failed_rollback_can_be_tried_again(self) -> None:
        driver = rolling("a", "b")
        driver.complete("a")
        driver.fail("b")
        driver.report("b", ReportedState.FAILED, is_rollback=True)
        driver.go_back("a")
        assert driver.rollout.rollback is RollbackState.FAILED

        assert sent(driver.do(Rollback())) == [("b", "api@1")]
        driver.go_back("b")

        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_an_instance_that_was_assigned_another_version_stays(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.complete("a", "b")
        driver.observe("a", State.ONLINE, assigned=version(9))
        driver.observe("b", State.ONLINE, assigned=NEW)

        assert sent(driver.do(Rollback())) == [("b", "api@1")]

    def test_one_that_was_offline_is_assigned_again_what_it_had(self) -> None:
        known = [facts("a"), facts("b", State.OFFLINE, assigned=version(7)), facts("c", State.OFFLINE)]
        driver = Driver(request("a", "b", "c", rolling=batches_of(3)), known)
        driver.start()
        driver.complete("a")
        driver.observe("c", State.ONLINE, assigned=version(9))

        commands = driver.do(Rollback())

        assert sent(commands) == [("a", "api@1")]
        assert Assign("b", version(7)) in commands
        assert "c" not in [each.instance_id for each in of_type(commands, Assign)]
        driver.go_back("a")
        assert driver.status == (RolloutState.COMPLETED, RollbackState.COMPLETED)
        assert driver.states == {"a": "rolled_back", "b": "skipped", "c": "skipped"}
        assert driver.row("b").previous is None

    def test_without_anything_touched_it_is_done_at_once(self) -> None:
        driver = Driver(request("a"))
        driver.do(Abort())

        driver.do(Rollback())

        assert driver.status == (RolloutState.ABORTED, RollbackState.COMPLETED)


def pending() -> Driver:
    return Driver(request("a", "b"))


def running() -> Driver:
    return rolling("a", "b")


def paused() -> Driver:
    driver = running()
    driver.do(Pause())
    return driver


def completed() -> Driver:
    driver = rolling("a", "b", size=2)
    driver.complete("a", "b")
    return driver


def rolling_back() -> Driver:
    driver = running()
    driver.fail("a")
    return driver


def rolled_back() -> Driver:
    driver = rolling_back()
    driver.go_back("a")
    return driver


def rollback_failed() -> Driver:
    driver = rolling_back()
    driver.report("a", ReportedState.FAILED, is_rollback=True)
    return driver


def failed() -> Driver:
    driver = Driver(request("a", "b", strategy=ALL_AT_ONCE))
    driver.start()
    driver.fail("a")
    driver.complete("b")
    return driver


def aborted() -> Driver:
    driver = running()
    driver.do(Abort())
    return driver


def watched() -> Driver:
    driver = Driver(request("a", "b", strategy=Strategy.CANARY))
    driver.start()
    driver.complete("a")
    return driver


def paused_watch() -> Driver:
    driver = watched()
    driver.do(Pause())
    return driver


ALLOWED: Mapping[Callable[[], Driver], Sequence[Event]] = {
    pending: [Abort()],
    running: [Pause(), Abort(), Rollback()],
    paused: [Resume(), Abort(), Rollback()],
    watched: [Pause(), Promote(), Abort(), Rollback()],
    paused_watch: [Resume(), Promote(), Abort(), Rollback()],
    completed: [Rollback()],
    failed: [Rollback()],
    aborted: [Rollback()],
    rolling_back: [],
    rolled_back: [],
    rollback_failed: [Rollback()],
}
"""What users can do in each state. All else is refused."""


@pytest.mark.parametrize(
    "event", [Pause(), Resume(), Promote(), Abort(), Rollback()], ids=lambda it: type(it).__name__
)
@pytest.mark.parametrize("state", ALLOWED, ids=lambda it: it.__name__)
def test_users_can_do_what_fits_the_state(state: Callable[[], Driver], event: Event) -> None:
    driver = state()
    before = driver.rollout

    commands = driver.do(event)

    assert bool(of_type(commands, Refuse)) is (event not in ALLOWED[state])
    assert (driver.rollout is before) is (event not in ALLOWED[state])


NOT_ABORTED = "only a deployment that is pending, running or paused can be aborted; this one is "
REFUSED: Sequence[tuple[Driver, Event, str]] = [
    (pending(), Pause(), "only a deployment that is running can be paused; this one is pending"),
    (paused(), Pause(), "only a deployment that is running can be paused; this one is paused"),
    (completed(), Pause(), "only a deployment that is running can be paused; this one is completed"),
    (running(), Resume(), "only a deployment that is paused can be resumed; this one is running"),
    (rolling_back(), Resume(), "only a deployment that is paused can be resumed; this one is failed"),
    (running(), Promote(), "only a canary that is being watched can be promoted"),
    (aborted(), Promote(), "only a canary that is being watched can be promoted"),
    (
        completed(),
        Abort(),
        NOT_ABORTED + "completed",
    ),
    (
        rolling_back(),
        Abort(),
        NOT_ABORTED + "failed",
    ),
    (
        aborted(),
        Abort(),
        NOT_ABORTED + "aborted",
    ),
    (pending(), Rollback(), "only a deployment that is started can be rolled back; this one is pending"),
    (rolling_back(), Rollback(), "its rollback is running already"),
    (rolled_back(), Rollback(), "its rollback is completed already"),
]


@pytest.mark.parametrize(("driver", "event", "message"), REFUSED)
def test_what_does_not_fit_the_state_is_refused(driver: Driver, event: Event, message: str) -> None:
    before = driver.rollout

    assert driver.do(event) == [Refuse(message)]
    assert driver.rollout is before
