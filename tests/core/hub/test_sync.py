from __future__ import annotations

from datetime import timedelta

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from sentinel.core.hub import sync
from sentinel.core.hub.instance import DeploymentStarted, Deregistered, DrainRequested, Instance
from sentinel.core.hub.sync import Action, ActionType, Assignment, DeploymentStep, Sync
from sentinel.core.hub.versions import VersionName
from tests.core.hub.instances import START, registered

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
FIRST = Assignment(VersionName("api", 1), "aa", START)
SECOND_VERSION = Assignment(VersionName("api", 2), "bb", START + MINUTE)
STEP = DeploymentStep(
    deployment_id="d-1", version=VersionName("api", 2), hash="bb", deadline=START + timedelta(minutes=5)
)
ONLINE = registered()


class TestInSync:
    def test_an_instance_without_an_assignment_is_in_sync(self) -> None:
        state = Sync(reported_hash="anything")

        assert state.is_in_sync
        assert state.lag(START) is None

    @pytest.mark.parametrize(("reported_hash", "is_in_sync"), [("aa", True), ("bb", False), ("", False)])
    def test_the_reported_hash_decides(self, reported_hash: str, is_in_sync: bool) -> None:
        assert Sync(assignment=FIRST, reported_hash=reported_hash).is_in_sync is is_in_sync

    def test_the_lag_counts_from_the_assignment_at_first(self) -> None:
        assert Sync(assignment=FIRST).lag(START + MINUTE) == MINUTE

    def test_the_lag_counts_from_when_it_was_last_in_sync(self) -> None:
        state = sync.assign(Sync(), FIRST, START)
        state = sync.report(state, "aa", START + MINUTE)

        edited = sync.report(state, "edited", START + 2 * MINUTE)

        assert state.lag(START + 5 * MINUTE) is None
        assert edited.lag(START + 5 * MINUTE) == 4 * MINUTE

    def test_a_new_assignment_ends_the_sync_when_it_is_made(self) -> None:
        state = sync.report(sync.assign(Sync(), FIRST, START), "aa", START)

        reassigned = sync.assign(state, SECOND_VERSION, START + timedelta(hours=10))

        assert reassigned.lag(START + timedelta(hours=10) + SECOND) == SECOND

    def test_a_new_assignment_does_not_excuse_the_one_before(self) -> None:
        state = sync.assign(Sync(), FIRST, START)

        reassigned = sync.assign(state, SECOND_VERSION, START + MINUTE)

        assert reassigned.lag(START + 2 * MINUTE) == 2 * MINUTE

    def test_an_assignment_of_what_runs_is_in_sync_at_once(self) -> None:
        state = sync.assign(Sync(assignment=SECOND_VERSION, reported_hash="aa"), FIRST, START + MINUTE)

        edited = sync.report(state, "edited", START + 2 * MINUTE)

        assert state.is_in_sync
        assert edited.lag(START + 2 * MINUTE) == MINUTE

    def test_without_the_assignment_it_is_in_sync_again(self) -> None:
        state = sync.assign(Sync(), FIRST, START)

        assert sync.assign(state, None, START + MINUTE).is_in_sync

    def test_a_clock_that_is_behind_gives_no_negative_lag(self) -> None:
        assert Sync(assignment=FIRST).lag(START - SECOND) == timedelta(0)

    @hypothesis.given(st.lists(st.sampled_from(["aa", "bb", "", FIRST, SECOND_VERSION, None])))
    def test_the_lag_is_how_long_it_has_not_been_in_sync(self, steps: list[str | Assignment | None]) -> None:
        state, now, in_sync_until = Sync(), START, START
        for step in steps:
            before = state
            state = sync.report(state, step, now) if isinstance(step, str) else sync.assign(state, step, now)
            # What a heartbeat reports may have changed at any time since the one before.
            if state.is_in_sync or (before.is_in_sync and not isinstance(step, str)):
                in_sync_until = now

            assert state.lag(now + SECOND) == (None if state.is_in_sync else now + SECOND - in_sync_until)
            now += MINUTE


class TestActions:
    def test_an_instance_in_sync_gets_none(self) -> None:
        assert sync.pending_actions(ONLINE, Sync(assignment=FIRST, reported_hash="aa")) == []
        assert sync.pending_actions(ONLINE, Sync()) == []

    def test_another_version_is_fetched_until_the_hash_matches(self) -> None:
        state = Sync(assignment=FIRST, reported_hash="bb")

        first, again = sync.pending_actions(ONLINE, state), sync.pending_actions(ONLINE, state)

        params = {"config_version": "api@1", "config_hash": "aa"}
        assert first == [Action(ActionType.FETCH_CONFIG, "fetch/api@1/1772366400000000", params)]
        assert first == again

    def test_the_same_version_assigned_once_more_is_another_action(self) -> None:
        again = msgspec.structs.replace(FIRST, assigned=START + timedelta(microseconds=1))

        [first] = sync.pending_actions(ONLINE, Sync(assignment=FIRST))
        [second] = sync.pending_actions(ONLINE, Sync(assignment=again))

        assert first.id != second.id
        assert first.params == second.params

    def test_a_draining_instance_is_told_to_drain_and_no_more(self) -> None:
        draining = registered(DrainRequested("old"))

        actions = sync.pending_actions(draining, Sync(assignment=FIRST), STEP)

        params = {"drain_timeout_seconds": "30"}
        assert actions == [Action(ActionType.DRAIN, "drain/1772366400000000", params)]

    def test_an_instance_that_leaves_by_itself_is_told_nothing(self) -> None:
        leaving = registered(Deregistered("shutdown"))

        assert sync.pending_actions(leaving, Sync(assignment=FIRST), STEP) == []

    def test_a_deployment_is_applied_until_it_is_acknowledged(self) -> None:
        state = Sync(assignment=SECOND_VERSION, reported_hash="aa")
        acknowledged = msgspec.structs.replace(STEP, is_acknowledged=True)

        [action] = sync.pending_actions(ONLINE, state, STEP)

        assert action.type is ActionType.APPLY_CONFIG
        assert action.params == {
            "config_version": "api@2",
            "config_hash": "bb",
            "deployment_id": "d-1",
            "rollback": "false",
            "deadline": "1772366700",
        }
        assert sync.pending_actions(ONLINE, state, acknowledged) == []

    def test_without_its_step_a_deployment_still_decides_alone(self) -> None:
        deploying = registered(DeploymentStarted("d-1"))

        assert sync.pending_actions(deploying, Sync(assignment=FIRST, reported_hash="bb")) == []

    def test_an_overdue_report_is_asked_for(self) -> None:
        step = msgspec.structs.replace(STEP, is_acknowledged=True, is_report_overdue=True)

        [action] = sync.pending_actions(ONLINE, Sync(), step)

        params = {"deployment_id": "d-1", "rollback": "false"}
        assert (action.type, action.params) == (ActionType.REPORT_STATUS, params)

    def test_a_step_that_is_not_acknowledged_is_sent_before_it_is_overdue(self) -> None:
        step = msgspec.structs.replace(STEP, is_report_overdue=True)

        [action] = sync.pending_actions(ONLINE, Sync(), step)

        assert action.type is ActionType.APPLY_CONFIG

    def test_a_rollback_is_another_action_of_the_same_deployment(self) -> None:
        rollback = msgspec.structs.replace(STEP, is_rollback=True)

        [forward] = sync.pending_actions(ONLINE, Sync(), STEP)
        [back] = sync.pending_actions(ONLINE, Sync(), rollback)

        assert back.params["rollback"] == "true"
        assert back.params["deployment_id"] == forward.params["deployment_id"]
        assert back.id != forward.id

    @pytest.mark.parametrize(
        ("instance", "step"), [(ONLINE, None), (ONLINE, STEP), (registered(DrainRequested()), None)]
    )
    def test_params_are_those_of_the_protocol(self, instance: Instance, step: DeploymentStep | None) -> None:
        [action] = sync.pending_actions(instance, Sync(assignment=FIRST), step)

        known = {"config_version", "config_hash", "deployment_id", "rollback", "deadline", "drain_timeout_seconds"}
        assert set(action.params) <= known


class TestOfferedAgain:
    """A version has to be fetched once more although it runs, because a secret has changed."""

    def test_the_agent_is_told_until_it_has_fetched(self) -> None:
        running = sync.report(sync.assign(Sync(), FIRST, START), "aa", START)

        offered = sync.offer_again(running, START + MINUTE)
        assert offered.assignment is not None
        [action] = sync.pending_actions(ONLINE, offered)
        fetched = sync.fetched(offered, offered.assignment)

        assert action.type is ActionType.FETCH_CONFIG
        assert (running.has_update, offered.has_update, fetched.has_update) == (False, True, False)
        assert sync.pending_actions(ONLINE, fetched) == []
        assert offered.is_in_sync
        assert offered.lag(START + MINUTE) is None

    def test_each_offer_is_another_action(self) -> None:
        running = sync.report(sync.assign(Sync(), FIRST, START), "aa", START)

        first = sync.offer_again(running, START + MINUTE)
        second = sync.offer_again(first, START + 2 * MINUTE)
        [before], [after] = sync.pending_actions(ONLINE, first), sync.pending_actions(ONLINE, second)

        assert before.id != after.id

    def test_what_was_fetched_before_the_offer_does_not_end_it(self) -> None:
        first = sync.offer_again(Sync(assignment=FIRST, reported_hash="aa"), START + MINUTE)
        second = sync.offer_again(first, START + 2 * MINUTE)
        assert first.assignment is not None

        assert sync.fetched(second, first.assignment) == second
        assert sync.fetched(Sync(assignment=FIRST), FIRST) == Sync(assignment=FIRST)

    def test_where_nothing_is_assigned_nothing_is_offered(self) -> None:
        assert sync.offer_again(Sync(), START) == Sync()
        assert not Sync().has_update
