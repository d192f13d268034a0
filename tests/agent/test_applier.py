"""What an agent does with a version: it is tested, written, loaded and checked, or the one before is restored."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from sentinel.core.agent.orders import Content, ReportState, Source
from sentinel.core.hub.instance import Health
from sentinel.core.hub.versions import content_hash
from sentinel.ports.proxy_control import ProxyFailure
from sentinel.testing.clock import START
from sentinel.testing.loop import simulated
from sentinel.testing.proxy_control import MemoryProxy
from sentinel.testing.state_dir import MemoryStateDir
from tests.support.agent.applying import SETTLED, V1, V2, V3, ApplyingAgent, order, task

COMPLETED = [ReportState.ACCEPTED, ReportState.IN_PROGRESS, ReportState.VALIDATING, ReportState.COMPLETED]


@simulated
async def test_an_assigned_version_is_tested_written_loaded_and_checked() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(task("api@2"))

        running = await agent.applier.observe()

    assert agent.proxy.calls[:4] == ["test", "write", "reload", "check_health"]
    assert agent.proxy.running == V2
    assert (running.version, running.hash, running.message) == ("api@2", content_hash(V2), "")
    assert running.health is Health.HEALTHY


@simulated
async def test_a_deployment_is_reported_step_by_step() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(order("api@2"))

    assert agent.states == COMPLETED


@simulated
async def test_a_version_that_the_proxy_does_not_accept_changes_nothing() -> None:
    agent = ApplyingAgent()
    agent.proxy.accepts = lambda text: "" if text == V1 else "unknown filter"
    async with agent.running():
        await agent.apply(order("api@2"))

        running = await agent.applier.observe()

    assert agent.proxy.text == V1
    assert "write" not in agent.proxy.calls
    assert agent.told[-1].state is ReportState.FAILED
    assert agent.told[-1].message == "the proxy does not accept it: unknown filter"
    assert agent.told[-1].details == "unknown filter"
    assert running.message == "api@2: the proxy does not accept it: unknown filter"


@simulated
async def test_after_three_failed_health_checks_the_version_before_runs() -> None:
    agent = ApplyingAgent()
    agent.proxy.is_healthy = lambda running: running == V1
    async with agent.running():
        await agent.apply(order("api@2"))

        running = await agent.applier.observe()

    assert agent.proxy.text == agent.proxy.running == V1
    assert agent.proxy.calls.count("check_health") == 3 + 1 + 1  # the attempts, after restoring, for the heartbeat
    assert agent.told[-1].state is ReportState.FAILED
    assert agent.told[-1].message == "health check failed after 3 attempts"
    assert agent.told[-1].details == "http://127.0.0.1:8088/health: responded 503"
    assert running.hash == content_hash(V1)
    assert running.message == "api@2: health check failed after 3 attempts"
    assert running.health is Health.HEALTHY


@simulated
async def test_a_failed_assignment_keeps_the_version_that_runs_in_heartbeats() -> None:
    agent = ApplyingAgent()
    agent.proxy.is_healthy = lambda running: running != V2
    async with agent.running():
        await agent.apply(task("api@1", marker="a1"))
        await agent.apply(task("api@2", marker="a2"))

        running = await agent.applier.observe()

    assert (running.version, running.hash) == ("api@1", content_hash(V1))
    assert running.message == "api@2: health check failed after 3 attempts"


@simulated
async def test_a_failed_version_is_tried_again_only_when_assigned_once_more() -> None:
    agent = ApplyingAgent()
    agent.proxy.accepts = lambda text: "" if text == V1 else "unknown filter"
    async with agent.running():
        await agent.apply(task("api@2", marker="e1", source=Source.EVENT))
        await agent.apply(task("api@2", marker="a1"), task("api@2", marker="a1"))
        await agent.apply(task("api@2", source=Source.REGISTRATION))
        fetched_once = list(agent.fetched)

        await agent.apply(task("api@2", marker="a2"))

    assert fetched_once == ["api@2"]
    assert agent.fetched == ["api@2", "api@2"]


@simulated
async def test_a_failed_version_is_tried_again_when_the_agent_restarts() -> None:
    first = ApplyingAgent()
    first.proxy.accepts = lambda text: "" if text == V1 else "unknown filter"
    async with first.running():
        await first.apply(task("api@2", marker="a1"))
    second = ApplyingAgent(proxy=first.proxy, state_dir=first.state_dir)
    second.proxy.accepts = lambda text: ""
    async with second.running():
        await second.apply(task("api@2", source=Source.REGISTRATION))

    assert second.proxy.running == V2


@simulated
async def test_a_rollback_to_what_runs_already_touches_nothing() -> None:
    agent = ApplyingAgent()
    agent.proxy.is_healthy = lambda running: running != V2
    async with agent.running():
        await agent.apply(task("api@1"))
        await agent.apply(order("api@2"))
        agent.proxy.calls.clear()

        await agent.apply(order("api@1", is_rollback=True))

    assert agent.proxy.calls == ["check_health"]
    assert agent.told[-1].state is ReportState.ROLLED_BACK
    assert agent.told[-1].order.is_rollback


@simulated
async def test_a_deployment_of_what_runs_fails_if_the_proxy_is_not_healthy() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(task("api@2"))
        agent.proxy.is_healthy = lambda running: False
        agent.proxy.calls.clear()

        await agent.apply(order("api@2"))

    assert set(agent.proxy.calls) == {"check_health"}
    assert agent.told[-1].state is ReportState.FAILED
    assert agent.proxy.text == V2


@simulated
async def test_a_content_with_another_hash_is_not_applied() -> None:
    agent = ApplyingAgent()
    agent.texts["api@2"] = V3
    async with agent.running():
        await agent.apply(order("api@2"))

    assert agent.proxy.calls == []
    assert agent.told[-1].state is ReportState.FAILED
    assert agent.told[-1].message == f"hash mismatch: expected {content_hash(V2)}, got {content_hash(V3)}"


@simulated
async def test_a_content_that_is_not_what_its_message_says_is_not_applied() -> None:
    async with ApplyingAgent().running() as agent:
        agent.is_connected = False
        unnamed = msgspec.structs.replace(order("api@2"), hash="")
        await agent.apply(unnamed)
        agent.applier.supply(unnamed, Content(version="api@2", hash=content_hash(V3), content=V2))
        agent.connect()
        await agent.apply()

    assert agent.proxy.calls == []
    assert agent.told[-1].message == f"hash mismatch: expected {content_hash(V3)}, got {content_hash(V2)}"


@simulated
async def test_a_newer_task_supersedes_one_that_has_not_begun() -> None:
    agent = ApplyingAgent()
    agent.is_connected = False
    async with agent.running():
        await agent.apply(order("api@2"), order("api@3", "d-2"))
        agent.connect()
        await agent.apply(order("api@3", "d-2"))

    assert agent.fetched == ["api@3"]
    superseded = [each for each in agent.told if each.order.deployment_id == "d-1"]
    assert [each.state for each in superseded] == [ReportState.ACCEPTED, ReportState.FAILED]
    assert superseded[-1].message == "superseded by api@3 before it began"
    assert agent.states[-1] is ReportState.COMPLETED


@simulated
async def test_an_order_is_fetched_once_its_acknowledgement_is_saved() -> None:
    agent = ApplyingAgent()
    agent.is_connected = False
    async with agent.running():
        agent.applier.receive(order("api@2"))
        before = agent.applier.wanted
        await agent.apply()

        assert before is None
        assert agent.applier.wanted == order("api@2")
        assert [each.state for each in agent.applier.pending_reports] == [ReportState.ACCEPTED]


@simulated
async def test_orders_and_reports_outlive_the_agent() -> None:
    first = ApplyingAgent()
    async with first.running():
        await first.apply(order("api@2"))
        first.is_connected = False
        await first.apply(order("api@2", "d-2"))
    second = ApplyingAgent(proxy=first.proxy, state_dir=first.state_dir)
    async with second.running():
        await second.apply()

    assert {each.order.deployment_id for each in second.told} == {"d-2"}
    assert second.states == COMPLETED


@simulated
async def test_an_order_whose_deadline_has_passed_is_rejected() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(order("api@2", deadline=timedelta(0)))

    assert agent.states == [ReportState.REJECTED]
    assert agent.told[-1].message == "the deadline has passed"
    assert agent.fetched == []


@simulated
async def test_an_order_whose_content_never_arrives_fails_at_its_deadline() -> None:
    agent = ApplyingAgent()
    agent.is_connected = False
    async with agent.running():
        await agent.apply(order("api@2", deadline=SETTLED / 2))
        await agent.applier.observe()
        agent.connect()
        await agent.apply()

    assert agent.states == [ReportState.ACCEPTED, ReportState.FAILED]
    assert agent.told[-1].message == "the deadline has passed"
    assert agent.fetched == []


@simulated
async def test_the_deadline_ends_the_health_checks() -> None:
    agent = ApplyingAgent()
    agent.proxy.is_healthy = lambda running: running == V1
    async with agent.running():
        await agent.apply(order("api@2", deadline=timedelta(seconds=1)))

    assert agent.told[-1].message == "the deadline has passed; health check failed after 1 attempt"
    assert agent.proxy.running == V1


@simulated
async def test_an_agent_that_drains_rejects_orders() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.applier.drain()

        await agent.apply(order("api@2"), task("api@3"))

    assert agent.states == [ReportState.REJECTED]
    assert agent.told[-1].message == "the instance is draining"
    assert agent.proxy.text == V1


@simulated
async def test_the_hub_can_ask_again_how_a_deployment_went() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(order("api@2"))
        agent.told.clear()

        agent.applier.report_again(order("api@2").order.key)  # type: ignore[union-attr]
        agent.applier.report_again(order("api@2", "lost").order.key)  # type: ignore[union-attr]
        await agent.apply()

    assert agent.states == [ReportState.ACCEPTED, ReportState.COMPLETED, ReportState.FAILED]
    assert agent.told[-1].message == "the agent does not know this deployment; its state was lost"


@simulated
async def test_a_proxy_that_is_not_healthy_after_all_is_reported_unhealthy() -> None:
    agent = ApplyingAgent()
    agent.proxy.is_healthy = lambda running: False
    async with agent.running():
        await agent.apply(order("api@2"))

        running = await agent.applier.observe()

    assert agent.proxy.text == V1
    assert running.health is Health.UNHEALTHY
    assert agent.told[-1].message == (
        "health check failed after 3 attempts; the configuration before is not restored: "
        "health check failed after 3 attempts"
    )


@simulated
async def test_a_version_that_needs_a_restart_says_so_without_a_command() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(task("api@1"))
        await agent.apply(order("api@3"))
        needed = await agent.applier.observe()
        agent.proxy.pid = 2000

        restarted = await agent.applier.observe()

    assert "restart" not in agent.proxy.calls
    assert agent.told[-1].message == "restart required"
    assert (needed.message, restarted.message) == ("restart required", "")


@simulated
async def test_a_version_that_needs_a_restart_gets_one() -> None:
    async with ApplyingAgent(proxy=MemoryProxy(V1, can_restart=True)).running() as agent:
        await agent.apply(order("api@3"))

        running = await agent.applier.observe()

    assert agent.proxy.calls[:3] == ["test", "write", "restart"]
    assert running.message == ""


@simulated
async def test_a_file_changed_by_hand_is_left_until_the_next_assignment() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(task("api@2", marker="e1", source=Source.EVENT))
        agent.proxy.text, agent.proxy.modified = V3, START
        await agent.apply(task("api@2", marker="a1"), task("api@2", source=Source.REGISTRATION))
        changed = await agent.applier.observe()
        kept = agent.proxy.text

        await agent.apply(task("api@2", marker="a2"))

        restored = await agent.applier.observe()

    assert kept == V3
    assert changed.hash == content_hash(V3)
    assert changed.version == "api@2"
    assert changed.message == (
        "/etc/sentinel/config.kdl is not api@2 since 2025-01-01T00:00:00Z, it was changed by hand (system)"
    )
    assert agent.proxy.text == V2
    assert (restored.hash, restored.message) == (content_hash(V2), "")


@simulated
async def test_a_file_changed_by_hand_during_the_health_check_is_explained() -> None:
    agent = ApplyingAgent()

    def change_file(running: str | None) -> bool:
        if running == V2:
            agent.proxy.text, agent.proxy.modified = V3, START
        return True

    agent.proxy.is_healthy = change_file
    async with agent.running():
        await agent.apply(task("api@2"))

        running = await agent.applier.observe()

    assert (running.version, running.hash) == ("api@2", content_hash(V3))
    assert running.message.endswith("since 2025-01-01T00:00:00Z, it was changed by hand (system)")
    assert await agent.state_dir.load_applied() == V2


@simulated
async def test_changes_by_hand_are_named_once_the_disk_has_space_for_the_version() -> None:
    agent = ApplyingAgent()
    agent.proxy.is_healthy = lambda running: agent.proxy.text != V2 or _fill(agent.state_dir)
    async with agent.running():
        await agent.apply(task("api@2", marker="a1"))
        agent.proxy.text = V1
        assert "it was changed by hand;" in (await agent.applier.observe()).message
        agent.state_dir.is_full, agent.proxy.is_healthy = False, lambda running: True
        await agent.apply(task("api@2", marker="a2"))
        agent.proxy.text = V1

        running = await agent.applier.observe()

    assert running.message.endswith('it was changed by hand (upstreams "a")')


def _fill(state_dir: MemoryStateDir) -> bool:
    state_dir.is_full = True
    return True


@simulated
async def test_what_cannot_be_put_back_is_tried_again() -> None:
    before = ApplyingAgent()
    async with before.running():
        await before.apply(task("api@2"))
    before.proxy.text = None
    before.proxy.refuses["restore"] = ProxyFailure("read-only file system")

    agent = ApplyingAgent(proxy=before.proxy, state_dir=before.state_dir)
    async with agent.running():
        assert "api@2 could not be put back: read-only" in (await agent.applier.observe()).message
        agent.proxy.refuses.clear()
        await agent.applier.observe()
        await asyncio.sleep(SETTLED.total_seconds())

        assert agent.proxy.text == agent.proxy.running == V2
        assert agent.applier.running.message == ""


@simulated
async def test_a_file_that_vanished_is_put_back_at_the_start_without_a_hub() -> None:
    first = ApplyingAgent()
    async with first.running():
        await first.apply(task("api@2"))
    first.proxy.text = None
    second = ApplyingAgent(proxy=first.proxy, state_dir=first.state_dir)
    second.is_connected = False
    async with second.running():
        running = await second.applier.observe()

    assert second.proxy.text == V2
    assert second.proxy.calls[-3:] == ["restore", "reload", "check_health"]
    assert (running.version, running.hash) == ("api@2", content_hash(V2))


@simulated
async def test_a_full_disk_is_reported_and_the_file_stays() -> None:
    agent = ApplyingAgent()
    async with agent.running():
        agent.state_dir.is_full = True

        await agent.apply(order("api@2"))

        running = await agent.applier.observe()
    problem = "cannot write /state/state.json: no space left on device"

    assert agent.proxy.text == V1
    assert "write" not in agent.proxy.calls
    assert agent.told[-1].state is ReportState.FAILED
    assert agent.told[-1].message == problem
    assert "no space left on device" in running.message


@simulated
async def test_a_file_that_cannot_be_written_is_reported() -> None:
    agent = ApplyingAgent()
    agent.proxy.refuses["write"] = ProxyFailure("cannot write /etc/sentinel/config.kdl: read-only file system")
    async with agent.running():
        await agent.apply(order("api@2"))

    assert agent.proxy.text == V1
    assert "reload" not in agent.proxy.calls
    assert agent.told[-1].message == "cannot write /etc/sentinel/config.kdl: read-only file system"


@simulated
async def test_a_refused_reload_restores_the_file() -> None:
    agent = ApplyingAgent()
    agent.proxy.refuses["reload"] = ProxyFailure("systemctl reload proxy: exits with 1", "Unit not found.")
    async with agent.running():
        await agent.apply(order("api@2"))

    assert agent.proxy.text == V1
    assert agent.told[-1].message.startswith("systemctl reload proxy: exits with 1; the configuration before")
    assert agent.told[-1].details.startswith("Unit not found.")


@simulated
async def test_a_proxy_that_starts_after_a_failed_restore_is_no_longer_degraded() -> None:
    agent = ApplyingAgent()
    async with agent.running():
        await agent.apply(task("api@1", marker="a1"))
        agent.proxy.pid = None
        await agent.apply(task("api@2", marker="a2"))
        stopped = await agent.applier.observe()
        agent.proxy.pid, agent.proxy.running = 1001, agent.proxy.text
        started = await agent.applier.observe()

    assert stopped.health is Health.UNHEALTHY
    assert "the configuration before is not restored" in stopped.message
    assert (started.health, started.hash) == (Health.HEALTHY, content_hash(V1))
    assert started.message == "api@2: the proxy does not run"


@simulated
async def test_a_restored_proxy_that_becomes_healthy_later_is_no_longer_degraded() -> None:
    agent = ApplyingAgent()
    async with agent.running():
        await agent.apply(task("api@1", marker="a1"))
        agent.proxy.is_healthy = lambda running: False
        await agent.apply(task("api@2", marker="a2"))
        ill = await agent.applier.observe()
        agent.proxy.is_healthy = lambda running: True
        well = await agent.applier.observe()

    assert ill.health is Health.UNHEALTHY
    assert (well.health, well.message) == (Health.HEALTHY, "api@2: health check failed after 3 attempts")


@simulated
async def test_a_proxy_that_refuses_to_reload_its_old_file_stays_degraded() -> None:
    agent = ApplyingAgent()
    async with agent.running():
        await agent.apply(task("api@1", marker="a1"))
        agent.proxy.refuses["reload"] = ProxyFailure("the unit is masked")
        await agent.apply(task("api@2", marker="a2"))
        refusing = await agent.applier.observe()
        agent.proxy.pid = 1001
        restarted = await agent.applier.observe()

    assert refusing.health is Health.DEGRADED
    assert restarted.health is Health.HEALTHY


@simulated
async def test_without_a_file_before_a_failed_version_leaves_none() -> None:
    agent = ApplyingAgent(proxy=MemoryProxy(None))
    agent.proxy.is_healthy = lambda running: False
    async with agent.running():
        await agent.apply(order("api@2"))

    assert agent.proxy.text is None
    assert agent.told[-1].message == "health check failed after 3 attempts"


@simulated
async def test_stopping_the_proxy_waits_for_the_apply() -> None:
    async with ApplyingAgent().running() as agent:
        agent.applier.receive(task("api@2"))
        problem = await agent.applier.stop_proxy(SETTLED)

    assert problem == ""
    assert agent.proxy.calls[-1] == "stop"


@simulated
async def test_an_apply_that_takes_too_long_does_not_keep_the_proxy_running() -> None:
    async with ApplyingAgent().running() as agent:
        agent.proxy.is_healthy = lambda running: False
        agent.applier.receive(task("api@2"))
        await asyncio.sleep(0.1)  # it has begun

        await agent.applier.stop_proxy(timedelta(seconds=2))

        assert agent.proxy.pid is None
        assert agent.proxy.stop_timeout == timedelta(seconds=1)


@simulated
async def test_tasks_that_arrive_before_the_state_is_loaded_are_kept() -> None:
    agent = ApplyingAgent()
    agent.applier.receive(task("api@2"))
    async with agent.running():
        await agent.apply()

    assert agent.proxy.running == V2


@simulated
async def test_an_agent_without_state_begins_with_what_is_assigned() -> None:
    async with ApplyingAgent(state_dir=MemoryStateDir()).running() as agent:
        running = await agent.applier.observe()
        await agent.apply(task("api@1", source=Source.REGISTRATION))

        after = await agent.applier.observe()

    assert (running.version, running.hash) == ("", content_hash(V1))
    assert (after.version, after.hash, after.message) == ("api@1", content_hash(V1), "")


@simulated
async def test_a_change_by_hand_after_a_deployment_is_left_when_the_hub_asks() -> None:
    async with ApplyingAgent().running() as agent:
        await agent.apply(order("api@2"))
        agent.proxy.text = V3
        await agent.apply(task("api@2", marker="fetch/api@2/1"))
        left = agent.proxy.text

        await agent.apply(task("api@2", marker="fetch/api@2/2"))

    assert left == V3
    assert agent.proxy.text == V2
