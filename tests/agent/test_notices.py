"""What an agent does when its hub wants something, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from sentinel.core.agent.orders import Content, Source, Task
from sentinel.core.hub.versions import content_hash
from sentinel.ports.hub_client import (
    AssignmentNotice,
    CallRefused,
    DeploymentNotice,
    DeploymentProgress,
    DrainNotice,
    FailureReason,
    FetchedConfig,
    HubUnavailable,
    Instruction,
    Notice,
    Ping,
    ReportRequest,
)
from sentinel.testing.clock import START
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.agent.harness import AgentHarness
from tests.support.agent.memory_applier import MemoryApplier
from tests.support.agent.scripted_hub import AWAY, ScriptedHub

CONTENTS = {"api@1": 'a "1"', "api@2": 'a "2"'}
MINUTE = timedelta(minutes=1)


def hub_with_versions() -> ScriptedHub:
    hub = ScriptedHub()
    hub.contents.update(CONTENTS)
    return hub


def harness(hub: ScriptedHub, applier: MemoryApplier | None = None) -> AgentHarness:
    return AgentHarness(hub, clock=SimulatedClock(), applier=applier)


async def passed(duration: timedelta = timedelta(seconds=1)) -> None:
    await asyncio.sleep(duration.total_seconds())


def assignment(version: str, *, is_action: bool = False) -> AssignmentNotice:
    return AssignmentNotice(
        id=f"assignment of {version}", is_action=is_action, version=version, hash=content_hash(CONTENTS[version])
    )


def deployment(version: str = "api@2", *, is_rollback: bool = False) -> DeploymentNotice:
    return DeploymentNotice(
        id=f"event about {version}",
        deployment_id="dep-1",
        is_rollback=is_rollback,
        version=version,
        hash=content_hash(CONTENTS[version]),
    )


@simulated
async def test_an_assignment_is_applied_and_reported_at_once() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        agent.calls.forget()

        hub.send(assignment("api@2"))
        await passed()

        assert agent.calls.names == ["config", "heartbeat"]
        assert agent.calls.heartbeats[0].config_version == "api@2"
        assert agent.calls.heartbeats[0].config_hash == content_hash(CONTENTS["api@2"])
        (task,) = agent.applier.tasks
        assert (task.source, task.marker) == (Source.EVENT, "assignment of api@2")


@simulated
async def test_an_action_has_the_same_effect_as_an_event() -> None:
    hub = hub_with_versions()
    hub.stream_failure = HubUnavailable("not here", FailureReason.UNAVAILABLE)
    async with harness(hub).running() as agent:
        await passed()
        hub.actions = [assignment("api@2", is_action=True), deployment("api@1")]
        await passed(MINUTE)

        assert [task.source for task in agent.applier.tasks] == [Source.ACTION, Source.ACTION]
        assert agent.applier.running.version == "api@1"


@simulated
async def test_the_log_says_once_what_an_event_is_about() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.send(msgspec.structs.replace(assignment("api@2"), change_summary="faster"))
        hub.send(msgspec.structs.replace(deployment("api@1"), strategy="ROLLING", batch_position=2, batch_total=3))
        hub.actions = [assignment("api@2", is_action=True)]
        await passed(MINUTE)

        assigned, deployed = agent.logged("hub.notice")
        assert (assigned["version"], assigned["summary"]) == ("api@2", "faster")
        assert (deployed["deployment"], deployed["version"]) == ("dep-1", "api@1")
        assert (deployed["strategy"], deployed["batch"], deployed["rollback"]) == ("ROLLING", "2/3", False)


@simulated
async def test_a_clock_that_differs_from_the_hubs_is_logged_once() -> None:
    hub, clock = hub_with_versions(), SimulatedClock()
    async with AgentHarness(hub, clock=clock).running() as agent:
        await passed()
        for ahead in (5, 90, 91, -90, 0):
            hub.send(Ping("ping", clock.now() - timedelta(seconds=ahead)))
            await passed()
            assert agent.count("clock_ahead_seconds") == pytest.approx(ahead, abs=1)

        assert len(agent.logged("clock.differs")) == 1
        assert len(agent.logged("clock.agrees")) == 1


class SlowApplier(MemoryApplier):
    """Applies a while after it got a version."""

    def __init__(self, *, takes: timedelta, bad: Sequence[str] = ()) -> None:
        super().__init__(bad=bad)
        self._takes = takes

    def supply(self, task: Task, content: Content) -> None:
        asyncio.get_running_loop().call_later(self._takes.total_seconds(), super().supply, task, content)


@pytest.mark.parametrize(("takes", "first"), [(3, (3, "api@2", "")), (60, (10, "", ""))])
def test_the_first_heartbeat_waits_for_a_new_version_but_not_for_long(
    takes: int, first: tuple[int, str, str]
) -> None:
    assert _first_heartbeat(SlowApplier(takes=timedelta(seconds=takes))) == first


def test_the_first_heartbeat_waits_no_longer_once_a_new_version_has_failed() -> None:
    applier = SlowApplier(takes=timedelta(seconds=3), bad=[CONTENTS["api@2"]])

    assert _first_heartbeat(applier) == (3, "", "api@2: health check failed after 3 attempts")


def _first_heartbeat(applier: MemoryApplier) -> tuple[int, str, str]:
    """Let api@2 be assigned at the start. Return when the first heartbeat comes, in seconds, and what it says."""

    @simulated
    async def measured() -> tuple[int, str, str]:
        hub = hub_with_versions()
        hub.assigned = "api@2"
        async with harness(hub, applier).running() as agent:
            await agent.calls.until("heartbeat")
            heartbeat = agent.calls.heartbeats[0]
            seconds = round((SimulatedClock().now() - START).total_seconds())
            return seconds, heartbeat.config_version, heartbeat.status.message

    return measured()


@simulated
async def test_repeated_notices_change_nothing() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        for _ in range(3):
            for notice in (assignment("api@2"), deployment("api@1"), Ping("ping")):
                hub.send(notice)
                await passed()

        assert agent.calls.names.count("config") == 2
        assert agent.calls.names.count("acknowledge") == 1


@simulated
async def test_a_deployment_is_acknowledged_fetched_and_reported() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        agent.calls.forget()

        hub.send(deployment())
        await passed()

        assert agent.calls.names[:3] == ["acknowledge", "config", "report"]
        assert hub.acknowledgements == [("dep-1", False, True, "")]
        assert [report.state for report in hub.reports] == [DeploymentProgress.COMPLETED]


@simulated
async def test_a_failed_deployment_is_reported_in_the_words_of_the_applier() -> None:
    hub = hub_with_versions()
    async with harness(hub, MemoryApplier(bad=[CONTENTS["api@2"]])).running() as agent:
        await passed()
        hub.send(deployment())
        await passed()

        (report,) = hub.reports
        assert report.state is DeploymentProgress.FAILED
        assert report.message == "api@2: health check failed after 3 attempts"
        assert agent.calls.heartbeats[-1].status.message == report.message


@simulated
async def test_a_rollback_fetches_a_version_that_was_assigned() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.send(deployment())
        await passed()

        hub.send(deployment("api@1", is_rollback=True))
        await passed()

        assert agent.calls.names.count("config_version") == 1
        assert hub.acknowledgements[-1] == ("dep-1", True, True, "")
        assert (hub.reports[-1].is_rollback, hub.reports[-1].state) == (True, DeploymentProgress.ROLLED_BACK)


@simulated
async def test_reports_wait_for_a_hub_that_is_away() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.failure = AWAY
        hub.send(deployment())
        await passed(MINUTE)
        assert hub.acknowledgements == []

        hub.failure = None
        await passed(5 * MINUTE)

        assert hub.acknowledgements == [("dep-1", False, True, "")]
        assert [report.state for report in hub.reports] == [DeploymentProgress.COMPLETED]
        assert agent.applier.pending_reports == ()


@simulated
async def test_a_report_that_is_overdue_is_sent_again() -> None:
    hub = hub_with_versions()
    async with harness(hub).running():
        await passed()
        hub.send(deployment())
        await passed()

        hub.send(ReportRequest(id="report/1", deployment_id="dep-1", is_rollback=False))
        await passed()

        assert [report.state for report in hub.reports] == [DeploymentProgress.COMPLETED] * 2


@simulated
async def test_an_instruction_to_go_back_asks_for_a_heartbeat_at_once() -> None:
    hub = hub_with_versions()
    async with harness(hub, MemoryApplier(bad=[CONTENTS["api@2"]])).running() as agent:
        await passed()
        hub.instruction = Instruction.ROLLBACK
        hub.send(deployment())
        hub.actions = [deployment("api@1", is_rollback=True)]
        await passed()

        assert agent.applier.running.version == "api@1"
        assert [report.state for report in hub.reports] == [
            DeploymentProgress.FAILED,
            DeploymentProgress.ROLLED_BACK,
        ]


@simulated
async def test_a_version_that_the_hub_refuses_is_reported_and_not_asked_again() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.send(DeploymentNotice(id="e", deployment_id="dep-2", is_rollback=False, version="secret@1", hash="ab"))
        await passed(5 * MINUTE)

        assert agent.calls.attempts["config"] == 1
        assert hub.reports[0].message == "the hub does not hand out secret@1: never assigned"
        assert agent.calls.attempts["register"] == 1


@simulated
async def test_a_hub_that_sends_another_version_is_not_asked_again() -> None:
    class MixedUpHub(ScriptedHub):
        async def config(self, version: str = "") -> FetchedConfig:
            return await super().config("api@1")

    hub = MixedUpHub()
    hub.contents.update(CONTENTS)
    async with harness(hub).running() as agent:
        await passed()
        hub.send(deployment("api@2"))
        await passed(5 * MINUTE)

        assert agent.calls.attempts["config"] == 1
        assert agent.applier.contents == []
        assert hub.reports[0].message == "the hub sent another version instead of api@2"


@simulated
async def test_an_assignment_that_was_taken_away_stops_nothing() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.send(assignment("api@2"))
        hub.send(AssignmentNotice(id="none", is_action=False, version="", hash=""))
        await passed()

        assert agent.applier.running.version == "api@2"


@pytest.mark.parametrize("is_event", [True, False])
def test_a_drained_agent_stops_its_proxy_leaves_and_ends(is_event: bool) -> None:
    @simulated
    async def drains() -> None:
        hub = hub_with_versions()
        async with harness(hub).running() as agent:
            await passed()
            notice: Notice = DrainNotice(id="drain/1", timeout=timedelta(seconds=30), reason="old machine")
            if is_event:
                hub.send(notice)
                await passed()
            else:
                hub.actions = [notice]
                await passed(MINUTE)

            assert agent.has_ended
            assert agent.applier.is_drained
            assert agent.applier.stops == 1
            assert agent.applier.stop_timeout == timedelta(seconds=28), "it leaves before the hub gives up"
            assert hub.reasons == ["drained"]
            assert agent.logged("agent.draining")[0]["reason"] == "old machine"

    drains()


@simulated
async def test_a_proxy_that_does_not_stop_is_said_when_leaving() -> None:
    hub = hub_with_versions()
    applier = MemoryApplier()
    applier.stop_problem = "stop_command failed with 1"
    async with harness(hub, applier).running() as agent:
        await passed()
        hub.send(DrainNotice(id="drain/1"))
        await passed()

        assert agent.has_ended
        assert hub.reasons == ["drained, but the proxy could not be stopped: stop_command failed with 1"]


@simulated
async def test_a_drained_agent_ends_even_if_the_hub_is_away() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.send(DrainNotice(id="drain/1"))
        await asyncio.sleep(0)
        hub.failure = AWAY
        await passed(10 * MINUTE)

        assert agent.has_ended
        assert agent.calls.attempts["deregister"] == 5


@simulated
async def test_a_refused_report_is_not_repeated() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.refused_report = CallRefused("there is no such deployment", FailureReason.NOT_FOUND)
        hub.send(deployment())
        await passed(5 * MINUTE)

        assert agent.calls.attempts["report"] == 1
        assert agent.calls.attempts["register"] == 1


@simulated
async def test_a_bug_in_a_session_does_not_end_the_agent() -> None:
    hub = hub_with_versions()
    async with harness(hub).running() as agent:
        await passed()
        hub.send(ReportRequest(id="report/1", deployment_id="unknown", is_rollback=False))
        await passed(MINUTE)

        assert len(agent.logged("session.crashed")) == 1
        assert agent.calls.attempts["register"] == 2
        assert agent.count("connected") == 1


@simulated
async def test_an_agent_that_stops_right_after_it_registered_deregisters() -> None:
    hub = hub_with_versions()
    hub.heartbeat_failure = HubUnavailable("too many calls", FailureReason.BUSY)
    async with AgentHarness(hub, clock=SimulatedClock(), deregisters_on_shutdown=True).running():
        await passed()

    assert hub.reasons == ["the agent stops"]
