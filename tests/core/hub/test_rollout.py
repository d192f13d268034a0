from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from sentinel.core.hub.deployment import Count, OfflinePolicy, Rolling, Strategy
from sentinel.core.hub.instance import DeploymentOutcome
from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import (
    Abort,
    Assign,
    BeginDeploying,
    Command,
    EndDeploying,
    Event,
    Observed,
    Pause,
    Reported,
    ReportedState,
    Resume,
    Rollback,
    RollbackState,
    Rollout,
    RolloutState,
    RowChanged,
    SendDeployment,
    StateChanged,
    TimePassed,
)
from sentinel.core.hub.states import State
from tests.core.hub.rollout_driver import (
    ALL_AT_ONCE,
    COMPLETED,
    MINUTE,
    NEW,
    NO_DELAY,
    OLD,
    RUNNING,
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


class TestFlow2:
    """A rolling deployment with batches of one."""

    def test_a_batch_follows_another_until_all_have_completed(self) -> None:
        driver = Driver(request("a1", "a2", "a3"))

        assert sent(driver.start()) == [("a1", "api@2")]
        driver.accept("a1")
        assert driver.complete("a1") == [
            EndDeploying("a1", DeploymentOutcome.COMPLETED),
            RowChanged("a1", RowState.COMPLETED),
        ]
        assert driver.deadline == START + 30 * SECOND
        assert sent(driver.wait(29 * SECOND)) == []
        assert sent(driver.wait(SECOND)) == [("a2", "api@2")]
        driver.complete("a2")
        assert sent(driver.wait(30 * SECOND)) == [("a3", "api@2")]
        assert driver.status == RUNNING
        driver.complete("a3")
        assert driver.status == COMPLETED
        assert driver.deadline is None
        assert driver.rollout.finished == driver.now

    def test_the_first_event_says_position_total_and_deadline(self) -> None:
        driver = Driver(request("a1", "a2", "a3"))

        commands = driver.start()

        event = SendDeployment(
            instance_id="a1",
            version=NEW,
            is_rollback=False,
            batch_position=1,
            batch_total=3,
            deadline=START + TIMEOUT,
        )
        assert commands == [
            Assign("a1", NEW),
            BeginDeploying("a1"),
            event,
            RowChanged("a1", RowState.PENDING),
            StateChanged(RolloutState.RUNNING, RollbackState.NONE),
        ]

    def test_a_row_goes_through_what_the_agent_reports(self) -> None:
        driver = rolling("a")

        states = [driver.states["a"]]
        driver.accept("a")
        states.append(driver.states["a"])
        for reported in (ReportedState.IN_PROGRESS, ReportedState.VALIDATING, ReportedState.COMPLETED):
            driver.report("a", reported)
            states.append(driver.states["a"])

        assert states == ["pending", "in_progress", "in_progress", "validating", "completed"]

    def test_forty_batches(self) -> None:
        names = [f"e{number:02}" for number in range(40)]
        driver = rolling(*names)

        for name in names:
            driver.complete(name)

        assert driver.status == COMPLETED
        assert sent(driver.commands) == [(name, "api@2") for name in names]

    def test_seven_by_three_never_has_more_than_a_batch_in_flight(self) -> None:
        driver = rolling(*"abcdefg", size=3)

        assert sent(driver.commands) == [("a", "api@2"), ("b", "api@2"), ("c", "api@2")]
        assert sent(driver.complete("a", "b")) == []
        assert sent(driver.complete("c")) == [("d", "api@2"), ("e", "api@2"), ("f", "api@2")]
        assert [each.batch_position for each in of_type(driver.commands, SendDeployment)] == [1, 1, 1, 2, 2, 2]
        driver.complete("d", "e", "f")
        driver.complete("g")
        assert driver.status == COMPLETED


class TestFlow3:
    """A failure is rolled back."""

    def test_the_failed_instance_goes_back_and_the_next_is_untouched(self) -> None:
        driver = rolling("a1", "a2")
        driver.accept("a1")

        commands = driver.fail("a1", "health check failed after 3 attempts")

        assert commands == [
            Assign("a1", OLD),
            SendDeployment(
                instance_id="a1",
                version=OLD,
                is_rollback=True,
                batch_position=1,
                batch_total=2,
                deadline=START + TIMEOUT,
            ),
            RowChanged("a1", RowState.FAILED),
            RowChanged("a2", RowState.SKIPPED),
            StateChanged(RolloutState.FAILED, RollbackState.RUNNING),
        ]
        assert driver.rollout.reason == "1 of 2 instances failed"
        assert driver.rollout.finished is None
        driver.accept("a1", is_rollback=True)
        driver.now += SECOND
        assert driver.go_back("a1") == [
            EndDeploying("a1", DeploymentOutcome.ROLLED_BACK),
            RowChanged("a1", RowState.ROLLED_BACK),
            StateChanged(RolloutState.FAILED, RollbackState.COMPLETED),
        ]
        assert driver.states == {"a1": "rolled_back", "a2": "skipped"}
        assert driver.rollout.finished == driver.now

    def test_failed_ones_are_awaited_then_the_rest_go_at_once(self) -> None:
        driver = rolling("a", "b", "c", size=3)
        driver.complete("a")

        assert sent(driver.fail("b")) == [("b", "api@1")]
        assert sent(driver.go_back("b")) == [("a", "api@1"), ("c", "api@1")]
        driver.go_back("c")
        assert driver.status == (RolloutState.FAILED, RollbackState.RUNNING)
        driver.go_back("a")
        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_a_second_failure_meanwhile_is_awaited_too(self) -> None:
        driver = rolling("a", "b", "c", size=3)
        driver.fail("b")

        assert sent(driver.fail("c")) == [("c", "api@1")]
        assert sent(driver.go_back("b")) == []
        assert sent(driver.go_back("c")) == [("a", "api@1")]

    def test_one_that_completes_meanwhile_goes_back_with_the_rest(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.fail("a")

        driver.complete("b")

        assert driver.states["b"] == "completed"
        assert sent(driver.go_back("a")) == [("b", "api@1")]

    def test_each_goes_back_to_what_it_ran_before(self) -> None:
        instances = [facts("a", assigned=version(7)), facts("b", assigned=version(3, "edge"))]
        driver = Driver(request("a", "b", rolling=batches_of(2)), instances)
        driver.start()
        driver.complete("a")

        driver.fail("b")
        driver.go_back("b")

        assert sent(driver.commands)[2:] == [("b", "edge@3"), ("a", "api@7")]

    def test_without_a_version_before_the_assignment_is_removed(self) -> None:
        driver = Driver(request("a", "b", rolling=batches_of(2)), [facts("a", assigned=None), facts("b")])
        driver.start()
        driver.complete("b")

        commands = driver.fail("a")

        assert Assign("a", None) in commands
        assert sent(commands) == [("b", "api@1")]
        assert EndDeploying("a", DeploymentOutcome.ROLLED_BACK) in commands
        assert driver.states["a"] == "rolled_back"

    def test_a_rollback_that_fails_does_not_stop_the_others(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.complete("b")
        driver.fail("a")

        commands = driver.report("a", ReportedState.FAILED, "disk full", is_rollback=True)

        assert EndDeploying("a", DeploymentOutcome.ROLLBACK_FAILED) in commands
        assert sent(commands) == [("b", "api@1")]
        driver.go_back("b")
        assert driver.status == (RolloutState.FAILED, RollbackState.FAILED)
        assert driver.states == {"a": "rollback_failed", "b": "rolled_back"}
        assert driver.row("a").message == "disk full"

    def test_an_agent_may_reject_a_rollback(self) -> None:
        driver = rolling("a")
        driver.fail("a")

        driver.reject("a", "no such file", is_rollback=True)

        assert driver.states["a"] == "rollback_failed"
        assert driver.row("a").message == "no such file"

    def test_a_rollback_without_a_report_times_out(self) -> None:
        driver = rolling("a")
        driver.fail("a")
        driver.accept("a", is_rollback=True)

        driver.wait(TIMEOUT)

        assert driver.states["a"] == "rollback_failed"
        assert driver.row("a").message == "no result within 300s"

    @pytest.mark.parametrize("state", [ReportedState.COMPLETED, ReportedState.PENDING])
    def test_only_rolled_back_ends_a_rollback_well(self, state: ReportedState) -> None:
        driver = rolling("a")
        driver.fail("a")
        before = driver.rollout

        assert driver.report("a", state, is_rollback=True) == []
        assert driver.rollout is before

    def test_the_words_of_the_failure_stay_until_and_after_the_way_back(self) -> None:
        driver = rolling("a")
        driver.fail("a", "unknown key: lisen")

        assert driver.report("a", ReportedState.VALIDATING, "health check", is_rollback=True) == []
        assert (driver.states["a"], driver.row("a").message) == ("failed", "unknown key: lisen")
        driver.go_back("a")

        assert (driver.states["a"], driver.row("a").message) == ("rolled_back", "unknown key: lisen")

    def test_an_instance_that_is_offline_is_told_but_not_awaited(self) -> None:
        driver = rolling("a", "b", "c", size=3, threshold=2)
        driver.complete("b")
        driver.observe("a", State.OFFLINE, assigned=NEW)

        commands = driver.fail("c")
        assert sent(commands) == [("c", "api@1")]
        assert sent(driver.go_back("c")) == [("a", "api@1"), ("b", "api@1")]
        driver.go_back("b")
        assert driver.status == (RolloutState.FAILED, RollbackState.RUNNING)
        driver.go_back("a")

        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_a_failed_one_that_goes_offline_is_not_awaited(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.complete("b")
        driver.fail("a")

        assert sent(driver.observe("a", State.OFFLINE)) == [("b", "api@1")]


class TestFailures:
    def test_a_threshold_of_two_lets_one_pass(self) -> None:
        driver = rolling("a", "b", "c", threshold=2)

        commands = driver.fail("a", "broken")

        assert Assign("a", OLD) in commands
        assert EndDeploying("a", DeploymentOutcome.FAILED) in commands
        assert sent(commands) == [("b", "api@2")]
        driver.complete("b")
        driver.complete("c")
        assert driver.status == COMPLETED
        assert driver.states == {"a": "failed", "b": "completed", "c": "completed"}

    def test_failures_count_over_the_whole_deployment(self) -> None:
        driver = rolling("a", "b", "c", threshold=2)
        driver.fail("a")
        driver.complete("b")

        assert sorted(sent(driver.fail("c"))) == [("a", "api@1"), ("c", "api@1")]
        assert driver.status == (RolloutState.FAILED, RollbackState.RUNNING)

    def test_a_threshold_in_percent_is_of_all_targets(self) -> None:
        half = Rolling(batch_size=Count(4), failure_threshold=Count(50, is_percent=True))
        driver = Driver(request(*"abcd", rolling=half))
        driver.start()

        driver.fail("a")
        assert driver.status == RUNNING
        driver.fail("b")

        assert driver.rollout.state is RolloutState.FAILED

    def test_a_rejection_counts_and_is_not_sent_back(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.complete("b")

        commands = driver.reject("a", "unknown key")

        assert driver.states["a"] == "rejected"
        assert driver.row("a").message == "unknown key"
        assert Assign("a", OLD) in commands
        assert EndDeploying("a", DeploymentOutcome.FAILED) in commands
        assert sent(commands) == [("b", "api@1")]

    def test_one_that_rejects_during_a_rollback_is_not_sent_back(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.fail("a")

        driver.reject("b")

        assert sent(driver.go_back("a")) == []
        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)
        assert driver.states == {"a": "rolled_back", "b": "rejected"}

    def test_an_instance_times_out(self) -> None:
        driver = rolling("a", "b", threshold=2)
        assert driver.deadline == START + TIMEOUT
        driver.wait(TIMEOUT - SECOND)
        assert driver.states["a"] == "pending"

        commands = driver.wait(SECOND)

        assert driver.states["a"] == "timed_out"
        assert Assign("a", OLD) in commands
        assert sent(commands) == [("b", "api@2")]

    def test_an_agent_that_is_lost_has_failed(self) -> None:
        driver = rolling("a", "b")
        driver.accept("a")

        driver.observe("a", State.OFFLINE, assigned=NEW)

        assert driver.states["a"] == "failed"
        assert driver.row("a").message == "the instance went offline during the deployment"
        assert driver.rollout.state is RolloutState.FAILED

    def test_an_instance_that_leaves_in_flight_is_no_failure(self) -> None:
        driver = rolling("a", "b")

        driver.observe("a", State.DRAINING)

        assert (driver.states["a"], driver.row("a").message) == ("skipped", "the instance has left")
        assert driver.states["b"] == "pending"

    @pytest.mark.parametrize(
        ("state", "incarnation"), [(State.DRAINING, 1), (State.REMOVED, 1), (State.ONLINE, 2)]
    )
    def test_what_has_left_in_flight_is_assigned_nothing(self, state: State, incarnation: int) -> None:
        driver = rolling("a")

        commands = driver.observe("a", state, assigned=None, incarnation=incarnation)

        assert of_type(commands, Assign) == []
        assert of_type(commands, EndDeploying) == [EndDeploying("a", DeploymentOutcome.FAILED)]

    def test_an_instance_that_leaves_before_its_batch_is_skipped(self) -> None:
        driver = rolling("a", "b")

        driver.observe("b", State.REMOVED)
        driver.complete("a")

        assert driver.status == COMPLETED
        assert driver.states["b"] == "skipped"

    def test_an_id_that_registers_anew_is_another_instance(self) -> None:
        driver = rolling("a", "b")

        driver.observe("b", State.ONLINE, incarnation=2)
        driver.observe("b", State.ONLINE)
        driver.complete("a")

        assert driver.states["b"] == "skipped"
        assert sent(driver.commands) == [("a", "api@2")]

    def test_an_instance_that_leaves_on_its_way_back_did_not_confirm_it(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.complete("b")
        driver.fail("a")

        driver.observe("a", State.REMOVED)

        assert driver.states["a"] == "rollback_failed"
        driver.go_back("b")
        assert driver.status == (RolloutState.FAILED, RollbackState.FAILED)

    def test_a_completed_instance_that_left_is_not_sent_back(self) -> None:
        driver = rolling("a", "b")
        driver.complete("a")
        driver.observe("a", State.REMOVED, assigned=NEW)

        assert sent(driver.fail("b")) == [("b", "api@1")]
        assert sent(driver.go_back("b")) == []
        assert driver.states["a"] == "completed"
        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_an_unknown_instance_is_ignored(self) -> None:
        driver = rolling("a")
        before = driver.rollout

        assert driver.accept("x") == driver.complete("x") == driver.observe("x", State.OFFLINE) == []
        assert driver.rollout is before


class TestReportsThatChangeNothing:
    def unchanged(self, driver: Driver, *events: Event) -> None:
        before = driver.rollout
        assert driver.do(*events) == []
        assert driver.rollout is before

    @pytest.mark.parametrize("state", list(ReportedState))
    def test_after_it_has_completed(self, state: ReportedState) -> None:
        driver = rolling("a", "b")
        driver.complete("a")

        self.unchanged(driver, Reported("a", state), Reported("a", state, is_rollback=True))
        before = driver.rollout
        driver.reject("a")
        assert driver.rollout is before

    @pytest.mark.parametrize("state", list(ReportedState))
    def test_before_its_batch(self, state: ReportedState) -> None:
        driver = rolling("a", "b")

        self.unchanged(driver, Reported("b", state), Reported("b", state, is_rollback=True))

    def test_about_the_other_way(self) -> None:
        driver = rolling("a")
        self.unchanged(driver, Reported("a", ReportedState.FAILED, is_rollback=True))
        self.unchanged(driver, Reported("a", ReportedState.ROLLED_BACK, is_rollback=True))

        driver.fail("a")

        self.unchanged(driver, Reported("a", ReportedState.COMPLETED))
        self.unchanged(driver, Reported("a", ReportedState.FAILED))

    def test_rolled_back_without_having_been_told(self) -> None:
        self.unchanged(rolling("a"), Reported("a", ReportedState.ROLLED_BACK))

    def test_pending(self) -> None:
        self.unchanged(rolling("a"), Reported("a", ReportedState.PENDING))

    def test_in_progress_after_validating(self) -> None:
        driver = rolling("a")
        driver.report("a", ReportedState.VALIDATING)

        self.unchanged(driver, Reported("a", ReportedState.IN_PROGRESS))

    def test_a_second_acknowledgement(self) -> None:
        driver = rolling("a")
        driver.accept("a")
        driver.report("a", ReportedState.VALIDATING)
        before = driver.rollout
        driver.now += SECOND

        assert driver.accept("a") == driver.reject("a") == []
        assert driver.rollout is before

    def test_after_it_timed_out(self) -> None:
        driver = rolling("a", "b", threshold=2)
        driver.wait(TIMEOUT)

        self.unchanged(driver, Reported("a", ReportedState.COMPLETED))

    def test_a_result_without_an_acknowledgement_counts(self) -> None:
        driver = rolling("a")

        driver.complete("a")

        assert driver.status == COMPLETED


class TestAllAtOnce:
    def test_all_are_told_in_one_batch(self) -> None:
        driver = Driver(request("a", "b", "c", strategy=ALL_AT_ONCE))

        events = of_type(driver.start(), SendDeployment)

        assert [(each.instance_id, each.batch_position, each.batch_total) for each in events] == [
            ("a", 1, 1),
            ("b", 1, 1),
            ("c", 1, 1),
        ]

    def test_a_failure_is_reported_at_the_end_and_not_rolled_back(self) -> None:
        driver = Driver(request("a", "b", "c", strategy=ALL_AT_ONCE))
        driver.start()

        driver.fail("a")
        driver.complete("b")
        assert driver.status == RUNNING
        driver.complete("c")

        assert driver.status == (RolloutState.FAILED, RollbackState.NONE)
        assert driver.rollout.reason == "1 of 3 instances failed"
        assert driver.states == {"a": "failed", "b": "completed", "c": "completed"}

    def test_settings_of_rolling_do_not_matter(self) -> None:
        settings = Rolling(min_healthy_time=MINUTE, max_unavailable=Count(1))
        asked = request("a", "b", strategy=ALL_AT_ONCE, rolling=settings)
        driver = Driver(asked, [facts("a"), facts("b", State.DEGRADED)])
        driver.start()

        driver.complete("a", "b")

        assert driver.status == COMPLETED


class TestOffline:
    def begun(self, policy: OfflinePolicy, strategy: Strategy = Strategy.ROLLING) -> Driver:
        asked = request("a", "b", offline=policy, rolling=batches_of(1, delay=MINUTE), strategy=strategy)
        driver = Driver(asked, [facts("a", State.OFFLINE), facts("b")])
        driver.start()
        return driver

    @pytest.mark.parametrize("policy", [OfflinePolicy.LATER, OfflinePolicy.SKIP])
    def test_it_is_skipped_and_not_waited_for(self, policy: OfflinePolicy) -> None:
        driver = self.begun(policy)

        assert driver.states == {"a": "skipped", "b": "pending"}
        assert driver.row("a").message == "the instance is offline"

    def test_later_assigns_once_the_deployment_has_completed(self) -> None:
        driver = self.begun(OfflinePolicy.LATER)
        driver.observe("a", State.ONLINE)
        assert of_type(driver.commands, Assign) == [Assign("b", NEW)]

        commands = driver.complete("b")

        assert of_type(commands, Assign) == [Assign("a", NEW)]
        assert sent(commands) == []
        assert driver.states["a"] == "skipped"

    def test_later_assigns_nothing_to_one_that_has_left(self) -> None:
        driver = self.begun(OfflinePolicy.LATER)
        driver.observe("a", State.REMOVED)

        assert of_type(driver.complete("b"), Assign) == []

    def test_later_assigns_nothing_if_the_deployment_fails(self) -> None:
        driver = self.begun(OfflinePolicy.LATER)
        driver.fail("b")
        driver.go_back("b")

        assert of_type(driver.commands, Assign) == [Assign("b", NEW), Assign("b", OLD)]

    def test_later_keeps_the_assignment_of_one_that_had_the_version(self) -> None:
        known = [facts("a", State.OFFLINE, assigned=NEW), facts("b")]
        driver = Driver(request("a", "b", rolling=batches_of(2)), known)
        driver.start()

        commands = driver.fail("b")

        assert of_type(commands, Assign) == [Assign("b", OLD)]
        assert driver.row("a").assigned == NEW

    def test_skip_assigns_nothing(self) -> None:
        driver = self.begun(OfflinePolicy.SKIP)

        assert of_type(driver.complete("b"), Assign) == []

    def test_fail_counts_it_before_anyone_of_the_batch_is_told(self) -> None:
        asked = request("b", "a", offline=OfflinePolicy.FAIL, rolling=batches_of(2))
        driver = Driver(asked, [facts("a", State.OFFLINE), facts("b")])

        driver.start()

        assert driver.states == {"a": "failed", "b": "skipped"}
        assert sent(driver.commands) == []
        assert driver.status == (RolloutState.FAILED, RollbackState.COMPLETED)

    def test_fail_is_judged_when_its_batch_begins(self) -> None:
        asked = request("b", "a", offline=OfflinePolicy.FAIL, rolling=batches_of(1))
        driver = Driver(asked, [facts("a", State.OFFLINE), facts("b")])
        driver.start()
        assert driver.states == {"b": "pending", "a": "waiting"}

        assert sent(driver.complete("b")) == [("b", "api@1")]
        assert driver.states == {"b": "completed", "a": "failed"}

    def test_one_that_returns_before_its_batch_takes_part(self) -> None:
        driver = Driver(request("b", "a", rolling=batches_of(1)), [facts("a", State.OFFLINE), facts("b")])
        driver.start()
        driver.observe("a", State.ONLINE)

        assert sent(driver.complete("b")) == [("a", "api@2")]

    def test_fail_with_all_at_once_ends_failed(self) -> None:
        driver = self.begun(OfflinePolicy.FAIL, ALL_AT_ONCE)

        driver.complete("b")

        assert driver.status == (RolloutState.FAILED, RollbackState.NONE)

    def test_one_that_was_never_told_is_not_sent_back(self) -> None:
        driver = self.begun(OfflinePolicy.FAIL, ALL_AT_ONCE)
        driver.complete("b")

        assert sent(driver.do(Rollback())) == [("b", "api@1")]
        driver.go_back("b")
        assert driver.states == {"a": "failed", "b": "rolled_back"}

    def test_all_offline_completes_at_once(self) -> None:
        driver = Driver(request("a", "b"), [facts("a", State.OFFLINE), facts("b", State.OFFLINE)])

        commands = driver.start()

        assert driver.status == COMPLETED
        assert of_type(commands, Assign) == [Assign("a", NEW), Assign("b", NEW)]


class TestFrom:
    def test_it_is_what_was_assigned_when_the_event_was_sent(self) -> None:
        driver = rolling("a", "b")
        driver.observe("b", State.ONLINE, assigned=version(9))

        driver.complete("a")

        assert driver.row("b").previous == version(9)
        assert sent(driver.fail("b"))[-1] == ("b", "api@9")

    def test_an_observation_does_not_change_what_is_being_deployed(self) -> None:
        driver = rolling("a")

        commands = driver.observe("a", State.DEPLOYING, assigned=version(9))

        assert commands == []
        assert driver.row("a").assigned == NEW


class TestMinHealthyTime:
    def started(self, *instances: State) -> Driver:
        settings = Rolling(batch_size=Count(1), batch_delay=NO_DELAY, min_healthy_time=MINUTE)
        names = "abc"[: len(instances)]
        driver = Driver(
            request(*names, rolling=settings),
            [facts(name, state) for name, state in zip(names, instances, strict=True)],
        )
        driver.start()
        return driver

    def test_an_instance_has_completed_after_it(self) -> None:
        driver = self.started(State.ONLINE, State.ONLINE)

        assert of_type(driver.complete("a"), EndDeploying) == [EndDeploying("a", DeploymentOutcome.COMPLETED)]
        assert driver.states["a"] == "validating"
        assert driver.deadline == START + MINUTE
        driver.wait(MINUTE - SECOND)
        assert driver.states["a"] == "validating"
        driver.wait(SECOND)

        assert driver.states == {"a": "completed", "b": "pending"}

    def test_it_begins_again_when_the_instance_was_not_healthy(self) -> None:
        driver = self.started(State.ONLINE)
        driver.complete("a")
        driver.observe("a", State.DEGRADED, assigned=NEW)
        driver.wait(MINUTE)
        assert driver.states["a"] == "validating"
        assert driver.deadline == START + TIMEOUT

        driver.observe("a", State.ONLINE, assigned=NEW)
        driver.wait(MINUTE - SECOND)
        assert driver.states["a"] == "validating"
        driver.wait(SECOND)

        assert driver.states["a"] == "completed"

    def test_an_instance_that_never_becomes_healthy_times_out(self) -> None:
        driver = self.started(State.DEGRADED)
        driver.complete("a")

        commands = driver.wait(TIMEOUT)

        assert driver.row("a").outcome is RowState.TIMED_OUT
        assert Assign("a", OLD) in commands
        assert driver.rollout.state is RolloutState.FAILED

    def test_an_instance_that_is_lost_meanwhile_has_failed(self) -> None:
        driver = self.started(State.ONLINE)
        driver.complete("a")

        driver.observe("a", State.OFFLINE, assigned=NEW)

        assert driver.row("a").outcome is RowState.FAILED

    def test_a_late_report_still_gets_the_whole_time(self) -> None:
        driver = self.started(State.ONLINE)
        driver.now += TIMEOUT - SECOND
        driver.complete("a")

        driver.wait(30 * SECOND)
        assert driver.states["a"] == "validating"
        driver.wait(30 * SECOND)

        assert driver.states["a"] == "completed"

    def test_nobody_waits_for_it_after_an_abort(self) -> None:
        driver = self.started(State.ONLINE)
        driver.do(Abort())

        driver.complete("a")

        assert driver.states["a"] == "completed"


class TestMaxUnavailable:
    def started(self, *states: State, policy: OfflinePolicy = OfflinePolicy.LATER) -> Driver:
        settings = Rolling(batch_delay=NO_DELAY, max_unavailable=Count(1))
        names = [f"e{index}" for index in range(len(states))]
        instances = [facts(name, state) for name, state in zip(names, states, strict=True)]
        driver = Driver(request(*names, rolling=settings, offline=policy), instances)
        driver.start()
        return driver

    def test_a_batch_waits_while_as_many_are_not_online(self) -> None:
        driver = self.started(State.ONLINE, State.DEGRADED)
        assert sent(driver.commands) == []
        assert driver.deadline is None

        assert sent(driver.observe("e1", State.ONLINE)) == [("e0", "api@2")]

    def test_one_that_is_deploying_counts_as_online(self) -> None:
        driver = self.started(State.ONLINE, State.ONLINE)
        driver.observe("e0", State.DEPLOYING)

        assert sent(driver.complete("e0")) == [("e1", "api@2")]

    def test_an_instance_that_was_told_counts_when_it_is_offline(self) -> None:
        driver = self.started(State.ONLINE, State.ONLINE)
        driver.do(Pause())
        driver.complete("e0")
        driver.observe("e0", State.OFFLINE, assigned=NEW)

        driver.do(Resume())

        assert driver.states["e1"] == "waiting"

    @pytest.mark.parametrize(
        ("policy", "begins"),
        [(OfflinePolicy.LATER, True), (OfflinePolicy.SKIP, True), (OfflinePolicy.FAIL, False)],
    )
    def test_offline_ones_count_only_where_they_fail(self, policy: OfflinePolicy, begins: bool) -> None:
        driver = self.started(State.ONLINE, State.OFFLINE, policy=policy)

        assert bool(sent(driver.commands)) is begins

    def test_one_that_has_left_does_not_count(self) -> None:
        driver = self.started(State.ONLINE, State.DEGRADED)

        assert sent(driver.observe("e1", State.REMOVED)) == [("e0", "api@2")]


class TestProgressDeadline:
    def started(self, strategy: Strategy = Strategy.ROLLING) -> Driver:
        driver = Driver(
            request(
                "a", "b", "c", rolling=batches_of(2, threshold=3), progress_deadline=2 * MINUTE, strategy=strategy
            )
        )
        driver.start()
        return driver

    def test_it_fails_as_by_its_threshold(self) -> None:
        driver = self.started()
        driver.complete("a")
        assert driver.deadline == START + 2 * MINUTE

        commands = driver.wait(2 * MINUTE)

        assert driver.status == (RolloutState.FAILED, RollbackState.RUNNING)
        assert driver.rollout.reason == "the progress deadline is over"
        assert driver.row("b").outcome is RowState.TIMED_OUT
        assert driver.states["c"] == "skipped"
        assert sent(commands) == [("b", "api@1")]

    def test_all_at_once_is_not_rolled_back(self) -> None:
        driver = self.started(ALL_AT_ONCE)
        driver.complete("a")

        driver.wait(2 * MINUTE)

        assert driver.status == (RolloutState.FAILED, RollbackState.NONE)
        assert driver.states == {"a": "completed", "b": "timed_out", "c": "timed_out"}

    def test_the_time_of_a_pause_does_not_count(self) -> None:
        driver = self.started()
        driver.do(Pause())
        driver.complete("a", "b")
        assert driver.wait(10 * MINUTE) == []

        driver.do(Resume())
        driver.wait(2 * MINUTE - SECOND)
        assert driver.status == RUNNING
        driver.wait(SECOND)

        assert driver.rollout.state is RolloutState.FAILED

    def test_a_clock_that_is_set_back_during_a_pause_changes_nothing(self) -> None:
        driver = self.started()
        driver.do(Pause())
        driver.complete("a", "b")
        driver.now -= 60 * MINUTE

        driver.do(Resume())

        assert driver.rollout.progress_ends == driver.now + 2 * MINUTE


class TestHubThatWasAway:
    def test_agents_get_time_to_report(self) -> None:
        driver = rolling("a")
        driver.now += 10 * MINUTE
        restarted = driver.now

        assert driver.wait(NO_DELAY, restarted) == []
        assert driver.wait(2 * MINUTE - SECOND, restarted) == []
        driver.wait(SECOND, restarted)

        assert driver.row("a").outcome is RowState.TIMED_OUT

    def test_they_get_no_more_than_they_always_have(self) -> None:
        driver = rolling("a")
        driver.rollout = msgspec.structs.replace(driver.rollout, deployment_timeout=30 * SECOND)
        driver.now += 10 * MINUTE
        restarted = driver.now

        driver.wait(30 * SECOND, restarted)

        assert driver.row("a").outcome is RowState.TIMED_OUT

    def test_a_stored_rollout_goes_on(self) -> None:
        driver = rolling("a", "b", size=2, threshold=2)
        driver.fail("a", "broken")

        stored = msgspec.json.encode(driver.rollout)
        driver.rollout = msgspec.json.decode(stored, type=Rollout)

        assert msgspec.json.encode(driver.rollout) == stored
        assert sorted(sent(driver.fail("b"))) == [("a", "api@1"), ("b", "api@1")]

    def test_a_second_start_changes_nothing(self) -> None:
        driver = rolling("a")

        assert driver.start() == []

    def test_several_are_observed_at_once(self) -> None:
        driver = rolling("a", "b", "c")

        driver.do(Observed((facts("b", State.OFFLINE), facts("c", State.DRAINING))), TimePassed())
        commands: Sequence[Command] = driver.complete("a")

        assert driver.states == {"a": "completed", "b": "skipped", "c": "skipped"}
        assert driver.status == COMPLETED
        assert of_type(commands, Assign) == [Assign("b", NEW)]
