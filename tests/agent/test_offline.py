"""An agent without its hub, on virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.core.agent.offline import OfflineMode
from sentinel.ports.hub_client import CallRefused, FailureReason, HubUnavailable, SessionEnded
from sentinel.testing.clock import START
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.agent.harness import AgentHarness
from tests.support.agent.scripted_hub import AWAY, ScriptedHub

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ENDED = SessionEnded("another session has replaced it", FailureReason.UNAUTHENTICATED)


async def passed(duration: timedelta) -> None:
    await asyncio.sleep(duration.total_seconds())


def harness(hub: ScriptedHub, **options: object) -> AgentHarness:
    return AgentHarness(hub, clock=SimulatedClock(), **options)  # type: ignore[arg-type]  # checked by the callee


@simulated
async def test_after_a_week_offline_the_last_day_is_delivered() -> None:
    hub = ScriptedHub()
    async with harness(hub).running() as agent:
        await passed(MINUTE)
        hub.failure = AWAY
        for hour in range(7 * 24):
            agent.proxy.requests = hour
            await passed(HOUR)
        assert not agent.has_ended
        hub.failure = None
        back = SimulatedClock().now()
        await passed(6 * MINUTE)

        times = [sample.time for sample in hub.samples if sample.time <= back]
        assert times == sorted(times)
        assert back - DAY <= times[0] < back - DAY + 6 * MINUTE
        assert times[-1] > back - MINUTE
        assert hub.samples[0].metrics.requests_total == 6 * 24
        assert len(times) > (DAY - 6 * MINUTE) / timedelta(seconds=30)


@simulated
async def test_delays_grow_to_the_maximum_and_are_logged_once() -> None:
    hub = ScriptedHub()
    hub.failure = AWAY
    async with harness(hub).running() as agent:
        attempts: list[float] = []
        for _ in range(12):
            await agent.calls.until_attempted("register", len(attempts) + 1)
            attempts.append((SimulatedClock().now() - START).total_seconds())
            await asyncio.sleep(0)

        assert attempts == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111]
        assert len(agent.logged("hub.unavailable")) == 1
        assert agent.count("connection_failures_total", reason="unavailable") == 12


@simulated
async def test_another_reason_is_logged_again() -> None:
    hub = ScriptedHub()
    hub.failure = AWAY
    async with harness(hub).running() as agent:
        await passed(MINUTE)
        hub.failure = CallRefused("the token is unknown", FailureReason.UNAUTHENTICATED)
        await passed(10 * MINUTE)
        hub.failure = AWAY
        await passed(10 * MINUTE)

        assert len(agent.logged("hub.unavailable")) == 2
        assert [line["error"] for line in agent.logged("hub.refused")] == ["the token is unknown"]


@simulated
async def test_readiness_fails_until_the_first_answered_heartbeat() -> None:
    hub = ScriptedHub()
    hub.failure = AWAY
    async with harness(hub).running() as agent:
        await passed(MINUTE)
        assert agent.connection.problem() == "the hub was not reached yet: failed to connect"

        hub.failure = None
        await passed(5 * MINUTE)
        assert agent.connection.problem() is None

        hub.failure = AWAY
        await passed(5 * MINUTE)
        assert agent.connection.problem() is None


@simulated
async def test_mode_degraded_is_not_ready_while_offline() -> None:
    hub = ScriptedHub()
    async with harness(hub, mode=OfflineMode.DEGRADED).running() as agent:
        await passed(MINUTE)
        hub.failure = AWAY
        await passed(HOUR)
        assert agent.connection.problem() == "the hub is away: failed to connect"

        hub.failure = None
        agent.calls.forget()
        await agent.calls.until("heartbeat", 2)

        first, second = (heartbeat.status for heartbeat in agent.calls.heartbeats[:2])
        assert (first.health, second.health) == ("degraded", "healthy")
        assert first.message.startswith("the hub was away for 1h")
        assert second.message == ""
        assert agent.connection.problem() is None


@simulated
async def test_mode_shutdown_stops_proxy_and_agent_at_once() -> None:
    hub = ScriptedHub()
    async with harness(hub, mode=OfflineMode.SHUTDOWN).running() as agent:
        await passed(HOUR)
        assert not agent.has_ended

        hub.failure = AWAY
        await passed(MINUTE)

        assert agent.has_ended
        assert agent.applier.stops == 1
        assert hub.reasons == []


@simulated
async def test_mode_shutdown_does_not_serve_without_having_reached_a_hub() -> None:
    hub = ScriptedHub()
    hub.failure = AWAY
    async with harness(hub, mode=OfflineMode.SHUTDOWN).running() as agent:
        await passed(MINUTE)

        assert agent.has_ended
        assert agent.applier.stops == 1


@pytest.mark.parametrize("mode", list(OfflineMode))
def test_after_the_longest_absence_proxy_and_agent_stop(mode: OfflineMode) -> None:
    @simulated
    async def stops() -> None:
        hub = ScriptedHub()
        async with harness(hub, mode=mode, max_offline_duration=DAY).running() as agent:
            await passed(MINUTE)
            hub.failure = AWAY
            await passed(DAY - MINUTE)
            assert not agent.has_ended

            await passed(2 * MINUTE)
            assert agent.has_ended
            assert agent.applier.is_drained
            assert agent.applier.stops == 1

    stops()


@simulated
async def test_an_absence_that_ends_in_time_starts_the_wait_over() -> None:
    hub = ScriptedHub()
    async with harness(hub, max_offline_duration=DAY).running() as agent:
        for _ in range(3):
            hub.failure = AWAY
            await passed(DAY - HOUR)
            hub.failure = None
            await passed(HOUR)

        assert not agent.has_ended


@simulated
async def test_a_hub_that_takes_no_heartbeats_counts_as_away() -> None:
    hub = ScriptedHub()
    async with harness(hub, max_offline_duration=HOUR).running() as agent:
        await passed(MINUTE)
        hub.heartbeat_failure = AWAY
        await passed(HOUR + 2 * MINUTE)

        assert agent.has_ended
        assert agent.calls.attempts["register"] < 30


@simulated
async def test_two_agents_with_one_id_do_not_register_in_a_loop() -> None:
    hub = ScriptedHub()
    async with harness(hub).running() as agent:
        await passed(MINUTE)
        agent.calls.forget()
        hub.heartbeat_failure = ENDED
        await passed(HOUR)

        assert agent.calls.attempts["register"] < 30


@simulated
async def test_a_session_that_had_worked_is_replaced_at_once() -> None:
    hub = ScriptedHub()
    async with harness(hub).running() as agent:
        await passed(10 * MINUTE)
        agent.calls.forget()
        hub.heartbeat_failure = ENDED
        await agent.calls.until_attempted("heartbeat")
        ended = SimulatedClock().now()
        hub.heartbeat_failure = None
        await agent.calls.until("heartbeat")

        assert SimulatedClock().now() == ended
        assert agent.logged("hub.unavailable") == []


@simulated
async def test_a_busy_hub_keeps_its_sessions() -> None:
    hub = ScriptedHub()
    async with harness(hub).running() as agent:
        await passed(MINUTE)
        agent.calls.forget()
        hub.heartbeat_failure = HubUnavailable("too many calls", FailureReason.BUSY)
        await passed(5 * MINUTE)
        hub.heartbeat_failure = None
        await passed(MINUTE)

        assert agent.calls.attempts["register"] == 0
        assert len(agent.logged("heartbeat.postponed")) == 1
        assert len(hub.samples) == 10


@simulated
async def test_a_stream_that_never_opens_is_tried_ever_more_rarely() -> None:
    hub = ScriptedHub()
    hub.stream_failure = HubUnavailable("not here", FailureReason.UNAVAILABLE)
    async with harness(hub).running() as agent:
        await passed(HOUR)

        assert agent.calls.attempts["subscribe"] < 25
        assert agent.calls.attempts["register"] == 1
        assert agent.calls.names.count("heartbeat") >= 120
        assert agent.logged("hub.unavailable") == []
