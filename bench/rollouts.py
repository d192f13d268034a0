"""Rollouts: a plan, all instances at once, and a tenth of them in ten batches.

    python -m tools.services postgresql -- python -m bench.rollouts [--agents 1000] [--output json]

The process under test is `sentinel hub serve`. Agents are simulated in two other processes: they take no time to
apply a version, so that only the hub is measured. They do all else that agents do, heartbeats included. All at
once begins with the request that saves the version, and ends when the last instance has reported that it runs. CPU
is what the kernel counts for the whole hub process, heartbeats and the log included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from bench.budget import Budget, table
from bench.command_line import main
from bench.hub import HubUnderTest, open_hub
from bench.hub_agents import TIMEOUT, CommandName, instance_id
from bench.processes import cpu_seconds, raise_file_limit
from bench.testbed import DatabaseName

AGENTS = 1_000
BATCHES = 10
SHARE = 10
"""One of so many instances is in the rolling deployment."""
PLAN_LIMIT = 1.0
"""Seconds of CPU."""
AT_ONCE_LIMIT = 10.0
"""Milliseconds of CPU."""
ROLLING_LIMIT = 15.0
"""Milliseconds of CPU. Each batch is a step of the deployment."""

_ROUNDS = 3
_CONFIG = "edge"
_SELECTOR = "tier=edge"
_TEXT = """
system {{
    worker-threads {number}
}}
listeners {{
    listener "http" {{
        address "0.0.0.0:8080"
        protocol "http"
    }}
}}
"""


class RolloutFigures(msgspec.Struct, frozen=True):
    """A deployment."""

    instances: int
    milliseconds: float
    """CPU of an instance."""
    seconds: float
    """Until the last instance has the version."""


class HubRolloutFigures(msgspec.Struct, frozen=True):
    """On one database."""

    plan_seconds: float
    """CPU of a plan for all instances in batches of a hundredth, the cheapest of several."""
    all_at_once: RolloutFigures
    """The cheapest of several."""
    rolling: RolloutFigures


class RolloutsFigures(msgspec.Struct, frozen=True):
    """All measurements."""

    agents: int
    databases: Mapping[DatabaseName, HubRolloutFigures]


async def measure(*, agents: int = AGENTS) -> RolloutsFigures:
    """Measure a hub on each database."""
    raise_file_limit()
    found = {}
    for name in DatabaseName:
        async with open_hub(name) as hub, hub.fleet(agents) as fleet:
            await fleet.perform(CommandName.LIVE)
            await hub.until_streams(agents)
            found[name] = await _Rollouts(hub, agents).measure()
    return RolloutsFigures(agents=agents, databases=found)


def budgets(figures: RolloutsFigures) -> list[Budget]:
    """Return the budgets of rollouts."""
    return [
        budget
        for name, one in figures.databases.items()
        for budget in (
            Budget(
                f"a plan for {figures.agents:,} instances on {name}: CPU of the hub",
                one.plan_seconds,
                "s",
                PLAN_LIMIT,
            ),
            Budget(
                f"a deployment of {figures.agents:,} at once on {name}: CPU of the hub per instance",
                one.all_at_once.milliseconds,
                "ms",
                AT_ONCE_LIMIT,
            ),
            Budget(
                f"a rolling deployment of {one.rolling.instances:,} on {name}: CPU of the hub per instance",
                one.rolling.milliseconds,
                "ms",
                ROLLING_LIMIT,
            ),
        )
    ]


def section(figures: RolloutsFigures) -> list[str]:
    """Return the section of the performance page."""
    rolling = next(iter(figures.databases.values())).rolling.instances
    return [
        "\n## Rollouts\n",
        f"{figures.agents:,} simulated agents, which apply a version in no time. All at once is from saving the",
        f"version until the last of them runs it; rolling is {rolling:,} of them in {BATCHES} batches, without",
        "delay. CPU is that of the hub.\n",
        *table(
            ("database", "CPU of a plan", "all at once", "CPU per instance", "rolling", "CPU per instance"),
            (
                (
                    name,
                    f"{one.plan_seconds * 1000:.0f} ms",
                    f"{one.all_at_once.seconds:.1f} s",
                    f"{one.all_at_once.milliseconds:.1f} ms",
                    f"{one.rolling.seconds:.1f} s",
                    f"{one.rolling.milliseconds:.1f} ms",
                )
                for name, one in figures.databases.items()
            ),
        ),
    ]


class _Rollouts:
    """The deployments to one hub."""

    def __init__(self, hub: HubUnderTest, agents: int) -> None:
        self._hub = hub
        self._agents = agents
        self._versions = 0

    async def measure(self) -> HubRolloutFigures:
        # The first one is for instances that run nothing. The others replace what runs.
        await self._all_at_once()
        at_once = [await self._all_at_once() for _ in range(_ROUNDS)]
        await self._save()
        plans = [await self._plan() for _ in range(_ROUNDS)]
        return HubRolloutFigures(
            plan_seconds=min(plans),
            all_at_once=min(at_once, key=lambda each: each.milliseconds),
            rolling=await self._rolling(),
        )

    async def _plan(self) -> float:
        before = cpu_seconds(self._hub.process.pid)
        plan = await self._hub.send(
            "POST",
            "deployments?dry_run=true",
            self._request({"selector": _SELECTOR}, strategy="rolling", rolling={"batch_size": "1%"}),
        )
        assert sum(map(len, plan["batches"])) == self._agents
        return cpu_seconds(self._hub.process.pid) - before

    async def _all_at_once(self) -> RolloutFigures:
        before, began = cpu_seconds(self._hub.process.pid), time.monotonic()
        await self._save()
        return await self._deploy(
            self._request({"selector": _SELECTOR}, strategy="all_at_once"), self._agents, before, began
        )

    async def _rolling(self) -> RolloutFigures:
        count = self._agents // SHARE
        ids = [instance_id(number) for number in range(count)]
        before, began = cpu_seconds(self._hub.process.pid), time.monotonic()
        rolling = {"batch_size": count // BATCHES, "batch_delay": "0s"}
        return await self._deploy(
            self._request({"ids": ids}, strategy="rolling", rolling=rolling), count, before, began
        )

    async def _deploy(self, body: object, count: int, before: float, began: float) -> RolloutFigures:
        process = self._hub.process
        created = await self._hub.send("POST", "deployments", body)
        await process.until_event(
            "deployment.state",
            timeout=TIMEOUT.total_seconds(),
            deployment=created["id"],
            state="completed",
        )
        seconds, spent = time.monotonic() - began, cpu_seconds(process.pid) - before
        found = await self._hub.send("GET", f"deployments/{created['id']}")
        assert found["counts"] == {"completed": count}, found
        return RolloutFigures(instances=count, milliseconds=spent / count * 1000, seconds=seconds)

    async def _save(self) -> None:
        self._versions += 1
        content = _TEXT.format(number=self._versions)
        if self._versions == 1:
            await self._hub.send("POST", "configs", {"id": _CONFIG, "content": content})
        else:
            await self._hub.send("POST", f"configs/{_CONFIG}/versions", {"content": content})

    def _request(self, targets: object, **fields: object) -> dict[str, Any]:
        return {"config_id": _CONFIG, "version": self._versions, "targets": targets, **fields}


if __name__ == "__main__":
    sys.exit(main("rollouts", __doc__, measure, budgets, section, agents=AGENTS))
