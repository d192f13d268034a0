"""An agent that is killed around any of its effects leaves a consistent file, and tells the truth later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sentinel.core.agent.orders import ReportState
from sentinel.core.agent.state import AgentState
from sentinel.core.hub.versions import content_hash
from sentinel.testing.loop import simulated
from sentinel.testing.proxy_control import MemoryProxy
from sentinel.testing.state_dir import MemoryStateDir
from tests.support.agent.applying import V1, V2, ApplyingAgent, order, task

MAX_EFFECTS = 100


class Power:
    """Counts effects, and fails before or after one of them."""

    def __init__(self) -> None:
        self.effects = 0
        self.fails_at: int | None = None
        self.is_off = asyncio.Event()

    async def cut(self) -> None:
        """Half of the points are before an effect, the others after it."""
        self.effects += 1
        if self.effects == self.fails_at:
            self.is_off.set()
        if self.is_off.is_set():
            await asyncio.Event().wait()  # until the task is cancelled


class FailingProxy(MemoryProxy):
    """A proxy whose agent may be killed around each change of it."""

    power = Power()

    async def write(self, text: str) -> None:
        await self.power.cut()
        await super().write(text)
        await self.power.cut()

    async def restore(self, text: str | None) -> None:
        await self.power.cut()
        await super().restore(text)
        await self.power.cut()

    async def reload(self) -> None:
        await self.power.cut()
        await super().reload()
        await self.power.cut()

    async def check_health(self) -> None:
        await self.power.cut()
        await super().check_health()


class FailingStateDir(MemoryStateDir):
    """A folder whose agent may be killed around each change of it."""

    power = Power()

    async def save(self, state: AgentState) -> None:
        await self.power.cut()
        await super().save(state)
        await self.power.cut()

    async def save_applied(self, text: str) -> None:
        await self.power.cut()
        await super().save_applied(text)
        await self.power.cut()

    async def use_secrets(self, files: Mapping[str, str]) -> None:
        await self.power.cut()
        await super().use_secrets(files)


async def _interrupted(
    fails_at: int, accepts: Callable[[str | None], bool], *, times: int = 1
) -> tuple[ApplyingAgent, bool]:
    """Apply api@2 while api@1 runs; kill the agent at an effect, and start it again until it is done.

    Returns the last agent, and whether the effect was reached at all.
    """
    proxy, state_dir = FailingProxy(V1), FailingStateDir()
    proxy.is_healthy = accepts
    told: list[Any] = []
    agent = ApplyingAgent(proxy=proxy, state_dir=state_dir)
    async with agent.running():
        await agent.apply(task("api@1", marker="a1"))
    was_reached = False
    for attempt in range(times + 1):
        power = Power()
        proxy.power = state_dir.power = power
        power.fails_at = fails_at if attempt < times else None
        agent = ApplyingAgent(proxy=proxy, state_dir=state_dir)
        agent.told = told
        killed = asyncio.create_task(power.is_off.wait())
        living = asyncio.create_task(_live(agent))
        await asyncio.wait([killed, living], return_when=asyncio.FIRST_COMPLETED)
        was_reached = was_reached or power.is_off.is_set()
        for each in (killed, living):
            each.cancel()
            await asyncio.wait([each])
        assert proxy.text in (V1, V2)
    return agent, was_reached


async def _live(agent: ApplyingAgent) -> None:
    async with agent.running():
        await agent.apply(order("api@2"))
        await agent.applier.observe()


@pytest.mark.parametrize("times", [1, 2])
def test_a_good_version_runs_or_its_failure_is_reported_after_a_crash(times: int) -> None:
    @simulated
    async def at(effect: int) -> bool:
        agent, was_reached = await _interrupted(effect, lambda running: True, times=times)
        last = agent.told[-1].state
        if last is ReportState.COMPLETED:
            assert agent.proxy.text == agent.proxy.running == V2
            assert agent.applier.running.hash == content_hash(V2)
        else:
            assert last is ReportState.FAILED
            assert agent.proxy.text == agent.proxy.running == V1
            assert agent.applier.running.hash == content_hash(V1)
        assert times == 2 or last is ReportState.COMPLETED
        return was_reached

    points = 1
    while at(points):
        points += 1
        assert points < MAX_EFFECTS
    assert points > 20


@pytest.mark.parametrize("times", [1, 2])
def test_a_bad_version_is_undone_after_a_crash_at_any_point(times: int) -> None:
    @simulated
    async def at(effect: int) -> bool:
        agent, was_reached = await _interrupted(effect, lambda running: running != V2, times=times)
        assert agent.told[-1].state is ReportState.FAILED
        assert agent.proxy.text == agent.proxy.running == V1
        assert agent.applier.running.hash == content_hash(V1)
        return was_reached

    points = 1
    while at(points):
        points += 1
        assert points < MAX_EFFECTS
    assert points > 20
