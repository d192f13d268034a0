from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from sentinel.core.hub.instance import (
    CloseStream,
    DeploymentEnded,
    DeploymentOutcome,
    DeploymentStarted,
    Deregistered,
    DrainCause,
    DrainRequested,
    Event,
    Health,
    Heartbeat,
    Instance,
    Refusal,
    Refuse,
    Registered,
    RemovalRequested,
    SendDrain,
    StateChanged,
    StreamOpened,
    Timeouts,
    TimePassed,
    advance,
    next_deadline,
)
from sentinel.core.hub.states import State, Trigger
from tests.core.hub.instances import START, registered

SECOND = timedelta(seconds=1)
TIMEOUTS = Timeouts()


def offline_since(time: datetime) -> Instance:
    instance, _ = advance(registered(), TimePassed(START), time, TIMEOUTS)
    assert instance.state is State.OFFLINE
    return instance


def test_a_timeout_has_its_default() -> None:
    assert TIMEOUTS.heartbeat_interval == 30 * SECOND
    assert TIMEOUTS.offline_threshold == 90 * SECOND
    assert TIMEOUTS.drain_timeout == 30 * SECOND
    assert TIMEOUTS.remove_after == timedelta(hours=24)


class TestRegister:
    def test_it_begins_the_first_incarnation_and_session(self) -> None:
        instance, commands = advance(Instance(), Registered(), START, TIMEOUTS)

        assert (instance.incarnation, instance.session) == (1, 1)
        assert instance.registered == instance.last_seen == instance.since == START
        assert commands == (StateChanged(State.UNKNOWN, State.ONLINE, Trigger.REGISTERED),)

    def test_a_second_one_begins_another_session_and_ends_the_stream(self) -> None:
        instance, commands = advance(registered(), Registered(), START + SECOND, TIMEOUTS)

        assert (instance.incarnation, instance.session) == (1, 2)
        assert instance.registered == START
        assert instance.last_seen == START + SECOND
        assert commands == (CloseStream(),)

    def test_a_removed_id_begins_a_new_incarnation(self) -> None:
        removed = registered(
            Heartbeat(Health.DEGRADED, "slow"), DeploymentStarted("d"), DrainRequested("old"), Deregistered()
        )

        instance, commands = advance(removed, Registered(), START + SECOND, TIMEOUTS)

        fresh, _ = advance(Instance(incarnation=1), Registered(), START + SECOND, TIMEOUTS)
        assert instance == fresh
        assert (instance.incarnation, instance.session, instance.registered) == (2, 1, START + SECOND)
        assert StateChanged(State.UNKNOWN, State.ONLINE, Trigger.REGISTERED) in commands

    def test_it_is_refused_while_the_instance_drains(self) -> None:
        draining = registered(DrainRequested())

        assert advance(draining, Registered(), START, TIMEOUTS) == (draining, (Refuse(Refusal.DRAINING),))

    def test_a_restarted_agent_goes_on_with_its_deployment(self) -> None:
        lost, _ = advance(registered(DeploymentStarted("d")), TimePassed(START), START + 90 * SECOND, TIMEOUTS)

        instance, commands = advance(lost, Registered(), START + 91 * SECOND, TIMEOUTS)

        assert commands == (
            CloseStream(),
            StateChanged(State.OFFLINE, State.ONLINE, Trigger.REGISTERED),
            StateChanged(State.ONLINE, State.DEPLOYING, Trigger.DEPLOYMENT),
        )
        assert instance.deployment_id == "d"


class TestHeartbeat:
    def test_its_message_is_kept(self) -> None:
        assert registered(Heartbeat(Health.HEALTHY, "fine")).message == "fine"

    def test_without_a_status_nothing_but_the_time_changes(self) -> None:
        degraded = registered(Heartbeat(Health.DEGRADED, "slow"))

        instance, commands = advance(degraded, Heartbeat(), START + SECOND, TIMEOUTS)

        assert commands == ()
        assert (instance.state, instance.message) == (State.DEGRADED, "slow")
        assert instance.last_seen == START + SECOND

    def test_an_older_one_does_not_turn_back_the_time(self) -> None:
        instance, _ = advance(registered(), Heartbeat(), START - SECOND, TIMEOUTS)

        assert instance.last_seen == START

    def test_one_with_problems_after_silence_is_two_changes(self) -> None:
        _, commands = advance(
            offline_since(START + 90 * SECOND), Heartbeat(Health.UNHEALTHY), START + 91 * SECOND, TIMEOUTS
        )

        assert commands == (
            StateChanged(State.OFFLINE, State.ONLINE, Trigger.HEARD),
            StateChanged(State.ONLINE, State.DEGRADED, Trigger.UNHEALTHY),
        )

    def test_one_with_problems_does_not_end_a_deployment(self) -> None:
        instance = registered(DeploymentStarted("d"), Heartbeat(Health.UNHEALTHY, "reloading"))

        assert instance.state is State.DEPLOYING
        assert instance.message == "reloading"

    def test_recovery_during_a_deployment_is_deploying(self) -> None:
        degraded = registered(Heartbeat(Health.DEGRADED), DeploymentStarted("d"))

        instance, _ = advance(degraded, Heartbeat(Health.HEALTHY), START, TIMEOUTS)

        assert degraded.state is State.DEGRADED
        assert instance.state is State.DEPLOYING


class TestDrain:
    def test_a_request_is_sent_to_the_agent(self) -> None:
        instance, commands = advance(registered(), DrainRequested("old host"), START + SECOND, TIMEOUTS)

        assert commands == (
            StateChanged(State.ONLINE, State.DRAINING, Trigger.DRAIN_REQUESTED),
            SendDrain(30, "old host"),
        )
        assert instance.drain is not None
        assert instance.drain.cause is DrainCause.REQUESTED
        assert instance.drain.deadline == START + 31 * SECOND

    def test_a_second_request_does_not_prolong_it(self) -> None:
        draining = registered(DrainRequested("first"))

        assert advance(draining, DrainRequested("second"), START + SECOND, TIMEOUTS) == (
            draining,
            (SendDrain(30, "first"),),
        )

    def test_a_part_of_a_second_is_sent_as_a_whole_one(self) -> None:
        timeouts = Timeouts(drain_timeout=timedelta(milliseconds=1_500))

        _, commands = advance(registered(), DrainRequested(), START, timeouts)

        assert SendDrain(2, "") in commands

    def test_a_stream_that_opens_meanwhile_is_told(self) -> None:
        draining = registered(DrainRequested("old"))

        assert advance(draining, StreamOpened(), START, TIMEOUTS) == (draining, (SendDrain(30, "old"),))

    def test_an_agent_that_leaves_by_itself_is_not_told(self) -> None:
        leaving, commands = advance(registered(), Deregistered("shutdown"), START, TIMEOUTS)

        assert commands == (StateChanged(State.ONLINE, State.DRAINING, Trigger.DEREGISTERED),)
        assert advance(leaving, StreamOpened(), START, TIMEOUTS) == (leaving, ())
        assert leaving.drain is not None
        assert (leaving.drain.cause, leaving.drain.reason) == (DrainCause.DEREGISTERED, "shutdown")

    def test_an_instance_is_removed_when_it_deregisters(self) -> None:
        instance, commands = advance(registered(DrainRequested("old")), Deregistered("drained"), START, TIMEOUTS)

        assert instance.drain is not None
        assert instance.drain.reason == "old"
        assert commands == (
            StateChanged(State.DRAINING, State.REMOVED, Trigger.DEREGISTERED),
            CloseStream(),
        )

    def test_an_instance_is_removed_when_the_timeout_is_over(self) -> None:
        draining = registered(DrainRequested())

        early, _ = advance(draining, TimePassed(START), START + 29 * SECOND, TIMEOUTS)
        late, commands = advance(draining, TimePassed(START), START + 30 * SECOND, TIMEOUTS)

        assert (early.state, late.state) == (State.DRAINING, State.REMOVED)
        assert commands == (StateChanged(State.DRAINING, State.REMOVED, Trigger.DRAINED), CloseStream())

    def test_removal_of_an_offline_instance_is_immediate(self) -> None:
        offline = offline_since(START + 90 * SECOND)

        instance, commands = advance(offline, RemovalRequested("gone"), START + 91 * SECOND, TIMEOUTS)

        assert commands == (
            StateChanged(State.OFFLINE, State.DRAINING, Trigger.DRAIN_REQUESTED),
            StateChanged(State.DRAINING, State.REMOVED, Trigger.DRAINED),
            CloseStream(),
        )
        assert instance.drain is not None
        assert instance.drain.reason == "gone"

    def test_removal_of_a_connected_instance_drains_it_first(self) -> None:
        instance, commands = advance(registered(), RemovalRequested("gone"), START, TIMEOUTS)

        assert instance.state is State.DRAINING
        assert SendDrain(30, "gone") in commands


class TestSilence:
    @pytest.mark.parametrize(("seconds", "state"), [(89, State.ONLINE), (90, State.OFFLINE)])
    def test_it_makes_an_instance_offline(self, seconds: int, state: State) -> None:
        instance, _ = advance(registered(), TimePassed(START), START + seconds * SECOND, TIMEOUTS)

        assert instance.state is state

    def test_what_the_hub_could_not_hear_does_not_count(self) -> None:
        started = START + timedelta(hours=2)

        early, _ = advance(registered(), TimePassed(started), started + 89 * SECOND, TIMEOUTS)
        late, _ = advance(registered(), TimePassed(started), started + 90 * SECOND, TIMEOUTS)

        assert (early.state, late.state) == (State.ONLINE, State.OFFLINE)

    def test_a_day_of_it_drains_an_instance(self) -> None:
        offline = offline_since(START + 90 * SECOND)
        deadline = START + 90 * SECOND + timedelta(hours=24)

        instance, commands = advance(offline, TimePassed(START), deadline, TIMEOUTS)

        assert next_deadline(offline, START, TIMEOUTS) == deadline
        assert commands == (StateChanged(State.OFFLINE, State.DRAINING, Trigger.OFFLINE_TOO_LONG),)
        assert instance.drain is not None
        assert instance.drain.cause is DrainCause.OFFLINE

    def test_agents_get_time_to_return_to_a_hub_that_was_away(self) -> None:
        offline = offline_since(START + 90 * SECOND)
        started = START + timedelta(days=3)

        deadline = next_deadline(offline, started, TIMEOUTS)

        assert deadline == started + timedelta(minutes=10)

    def test_a_hub_that_removes_soon_waits_no_longer_than_that(self) -> None:
        offline = offline_since(START + 90 * SECOND)
        started = START + timedelta(days=3)

        deadline = next_deadline(offline, started, Timeouts(remove_after=2 * SECOND))

        assert deadline == started + 2 * SECOND


class TestDeployment:
    def test_one_at_a_time(self) -> None:
        deploying = registered(DeploymentStarted("d"))

        assert advance(deploying, DeploymentStarted("e"), START, TIMEOUTS) == (deploying, (Refuse(Refusal.BUSY),))
        assert advance(deploying, DeploymentStarted("d"), START, TIMEOUTS) == (deploying, ())

    def test_an_offline_instance_takes_it_up_when_it_returns(self) -> None:
        offline = offline_since(START + 90 * SECOND)
        targeted, _ = advance(offline, DeploymentStarted("d"), START + 91 * SECOND, TIMEOUTS)

        instance, _ = advance(targeted, Heartbeat(Health.DEGRADED), START + 92 * SECOND, TIMEOUTS)

        assert targeted.state is State.OFFLINE
        assert instance.state is State.DEPLOYING

    def test_one_that_ended_while_it_was_offline_is_over(self) -> None:
        lost, _ = advance(registered(DeploymentStarted("d")), TimePassed(START), START + 90 * SECOND, TIMEOUTS)
        ended, _ = advance(
            lost, DeploymentEnded("d", DeploymentOutcome.ROLLBACK_FAILED), START + 91 * SECOND, TIMEOUTS
        )

        instance, _ = advance(ended, Heartbeat(), START + 92 * SECOND, TIMEOUTS)

        assert (ended.state, instance.state) == (State.OFFLINE, State.ONLINE)

    def test_the_end_of_another_one_changes_nothing(self) -> None:
        deploying = registered(DeploymentStarted("d"))

        ended = DeploymentEnded("e", DeploymentOutcome.ROLLBACK_FAILED)
        assert advance(deploying, ended, START, TIMEOUTS) == (deploying, ())

    @pytest.mark.parametrize(
        ("events", "may_be"),
        [
            ([], True),
            ([Heartbeat(Health.DEGRADED)], True),
            ([DeploymentStarted("d")], False),
            ([Heartbeat(Health.DEGRADED), DeploymentStarted("d")], False),
            ([DrainRequested()], False),
            ([DrainRequested(), Deregistered()], False),
        ],
    )
    def test_an_assignment_needs_an_instance_that_stays(self, events: list[Event], may_be: bool) -> None:
        assert registered(*events).may_be_assigned is may_be
        assert not Instance().may_be_assigned


@pytest.mark.parametrize("event", [Heartbeat(), StreamOpened(), Deregistered(), DrainRequested()])
def test_a_call_without_an_instance_is_refused(event: Event) -> None:
    removed = registered(DrainRequested(), Deregistered())

    assert advance(Instance(), event, START, TIMEOUTS) == (Instance(), (Refuse(Refusal.UNREGISTERED),))
    assert advance(removed, event, START, TIMEOUTS) == (removed, (Refuse(Refusal.REMOVED),))
