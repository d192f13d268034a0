from __future__ import annotations

import msgspec
import pytest

from sentinel.core.hub import rollout_queries
from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import Abort, ReportedState, Rollback
from sentinel.core.hub.sync import DeploymentStep
from tests.core.hub.rollout_driver import (
    MINUTE,
    NEW,
    OLD,
    SECOND,
    START,
    TIMEOUT,
    Driver,
    request,
    rolling,
)


class TestNextAction:
    def test_it_is_empty_while_the_agent_has_work(self) -> None:
        assert rollout_queries.next_action(rolling("a").rollout, "a") == ""

    def test_it_is_rollback_if_it_must_go_back(self) -> None:
        driver = rolling("a", "b", size=2)
        driver.fail("a")

        assert [rollout_queries.next_action(driver.rollout, name) for name in "ab"] == ["rollback", "rollback"]

    def test_it_is_stop_once_it_is_over_for_the_instance(self) -> None:
        driver = rolling("a", "b", "c", size=2, threshold=2)
        driver.complete("a")
        driver.wait(TIMEOUT)

        assert [rollout_queries.next_action(driver.rollout, name) for name in "abx"] == ["stop", "stop", "stop"]

    def test_it_is_stop_after_the_way_back(self) -> None:
        driver = rolling("a")
        driver.fail("a")
        driver.go_back("a")

        assert rollout_queries.next_action(driver.rollout, "a") == "stop"

    def test_it_is_empty_after_an_abort_in_flight(self) -> None:
        driver = rolling("a", "b")
        driver.do(Abort())

        assert [rollout_queries.next_action(driver.rollout, name) for name in "ab"] == ["", "stop"]


class TestDeploymentStep:
    def test_it_repeats_the_event_until_it_is_acknowledged(self) -> None:
        driver = rolling("a", "b")

        step = rollout_queries.deployment_step(driver.rollout, "a", START)

        assert step == DeploymentStep(
            deployment_id="d", version=NEW.name, hash=NEW.hash, deadline=START + TIMEOUT, is_acknowledged=False
        )
        driver.accept("a")
        accepted = rollout_queries.deployment_step(driver.rollout, "a", START)
        assert accepted is not None
        assert accepted.is_acknowledged
        assert not accepted.is_report_overdue

    def test_it_asks_for_a_report_after_a_minute_of_silence(self) -> None:
        driver = rolling("a")
        driver.accept("a")

        def is_overdue() -> bool:
            step = rollout_queries.deployment_step(driver.rollout, "a", driver.now)
            assert step is not None
            return step.is_report_overdue

        driver.now += MINUTE - SECOND
        assert not is_overdue()
        driver.now += SECOND
        assert is_overdue()
        driver.report("a", ReportedState.IN_PROGRESS)
        assert not is_overdue()

    def test_a_short_timeout_asks_sooner(self) -> None:
        driver = rolling("a")
        driver.accept("a")
        short = msgspec.structs.replace(driver.rollout, deployment_timeout=8 * SECOND)

        step = rollout_queries.deployment_step(short, "a", START + 2 * SECOND)

        assert step is not None
        assert step.is_report_overdue

    def test_a_rollback_has_the_version_before(self) -> None:
        driver = rolling("a")
        driver.fail("a")

        step = rollout_queries.deployment_step(driver.rollout, "a", START)

        assert step is not None
        assert (step.version, step.hash, step.is_rollback) == (OLD.name, OLD.hash, True)

    @pytest.mark.parametrize("name", ["b", "x"])
    def test_there_is_none_for_others(self, name: str) -> None:
        assert rollout_queries.deployment_step(rolling("a", "b").rollout, name, START) is None


class TestHeldInstances:
    def test_all_targets_are_held_until_it_ends(self) -> None:
        pending = Driver(request("a", "b"))
        driver = rolling("a", "b")
        driver.complete("a")

        assert rollout_queries.held_instances(pending.rollout) == {"a", "b"}
        assert rollout_queries.held_instances(driver.rollout) == {"a", "b"}
        driver.complete("b")
        assert rollout_queries.held_instances(driver.rollout) == frozenset()

    def test_those_in_flight_are_held_after_an_abort(self) -> None:
        driver = rolling("a", "b")
        driver.do(Abort())

        assert rollout_queries.held_instances(driver.rollout) == {"a"}

    def test_all_are_held_during_a_rollback(self) -> None:
        driver = rolling("a", "b")
        driver.fail("a")

        assert rollout_queries.held_instances(driver.rollout) == {"a", "b"}
        driver.go_back("a")
        assert rollout_queries.held_instances(driver.rollout) == frozenset()


class TestRetry:
    def test_it_is_over_all_whose_own_attempt_was_unsuccessful(self) -> None:
        driver = rolling("a", "b", "c", "d", size=4, threshold=3)
        driver.fail("a")
        driver.reject("b")
        driver.complete("c")
        assert rollout_queries.retry_targets(driver.rollout) == ()
        driver.wait(TIMEOUT)
        assert rollout_queries.retry_targets(driver.rollout) == ()

        driver.go_back("a", "d")
        driver.go_back("c")

        assert driver.states["a"] == driver.states["d"] == "rolled_back"
        assert rollout_queries.retry_targets(driver.rollout) == ("a", "b", "d")

    def test_there_is_none_if_nothing_failed(self) -> None:
        driver = rolling("a")
        driver.complete("a")

        assert rollout_queries.retry_targets(driver.rollout) == ()


class TestProperties:
    def test_counts_are_by_state(self) -> None:
        driver = rolling("a", "b", "c", size=2)
        driver.complete("a")

        assert driver.rollout.counts == {RowState.COMPLETED: 1, RowState.PENDING: 1, RowState.WAITING: 1}

    def test_a_new_instance_gets_what_has_completed_and_stayed(self) -> None:
        driver = Driver(request("a", strategy=Strategy.ALL_AT_ONCE))
        driver.start()
        assert not driver.rollout.is_offered_to_new_instances
        driver.complete("a")
        assert driver.rollout.is_offered_to_new_instances

        driver.do(Rollback())

        assert not driver.rollout.is_offered_to_new_instances
