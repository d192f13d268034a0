"""One or two hubs and the agents of some instances, with all that a seed determines about them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import msgspec

from sentinel.core.hub.versions import content_hash
from sentinel.ports.hub_store import Config, ConfigVersion, HubTransaction
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.rollout_tables import RolloutTables
from tests.sim.agents.agent_process import AgentParts, SimulatedAgent
from tests.sim.agents.checker import AgentChecker
from tests.sim.agents.configurations import CONFIG, COUNT, VERSIONS, defects
from tests.sim.agents.host import Disk, HostProxy
from tests.sim.agents.hub_process import Loops, SimulatedHub
from tests.sim.agents.network import AgentLink, Alter
from tests.sim.faults import FaultRates, randomness
from tests.sim.trace import Trace
from tests.support.databases import backends


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in our own code that the simulation must find; by default none."""

    parts: AgentParts = AgentParts()
    loops: Loops = lambda loops: loops
    alter_request: Alter = lambda method, message: message
    alter_response: Alter = lambda method, message: message


NOTHING = Planted()


class AgentWorld:
    """The participants of one run."""

    def __init__(self, seed: int, planted: Planted) -> None:
        self.trace = trace = Trace(seed)
        self.clock = SimulatedClock()
        self.random = random = randomness(seed, "agents/world")
        self.faults = FaultRates(randomness(seed, "agents/weather"))
        self.backend = backends.memory(faults=self.faults.database_fault)
        self.checker = AgentChecker(trace, self.backend.memory.tables(RolloutTables))
        self.hubs = [
            SimulatedHub(
                name,
                trace,
                backend=self.backend,
                randomness=randomness(seed, f"agents/{name}").randbytes,
                loops=planted.loops,
            )
            for name in random.choice((("hub-1",), ("hub-1", "hub-2")))
        ]
        self.agents = [self._agent(f"edge-{number}", planted) for number in range(1, random.choice((2, 3, 4)) + 1)]

    async def open(self) -> None:
        """Store the versions, and start the hub and the agents."""
        await self.backend.database.open()
        await self.backend.hub.transact(self._add_versions)
        for hub in self.hubs:
            hub.start()
        for each in self.agents:
            each.start()

    async def close(self) -> None:
        """End everything, in any state."""
        for each in self.agents:
            await each.kill()
            await each.network.close()
        for hub in self.hubs:
            await hub.kill()

    def _add_versions(self, transaction: HubTransaction) -> None:
        now = self.clock.now()
        transaction.add_config(
            Config(id=CONFIG, latest_version=COUNT, created_time=now, created_by="ops", updated_time=now)
        )
        for number, each in enumerate(VERSIONS, 1):
            transaction.add_version(
                ConfigVersion(
                    config_id=CONFIG,
                    version=number,
                    hash=content_hash(each.text),
                    content=each.text,
                    change_summary="",
                    created_time=now,
                    created_by="ops",
                )
            )

    def _agent(self, name: str, planted: Planted) -> SimulatedAgent:
        random, disk = randomness(self.trace.seed, name), Disk()
        proxy = HostProxy(
            defects=defects(random), disk=disk, random=random, on_change=partial(self.checker.changed, name)
        )
        self.checker.add(name, proxy)
        link = AgentLink(
            name,
            self.trace,
            hubs=self.hubs,
            faults=self.faults,
            random=random,
            on_request=partial(self.checker.requested, name),
            alter_request=planted.alter_request,
            alter_response=planted.alter_response,
        )
        return SimulatedAgent(
            name,
            self.trace,
            link=link,
            proxy=proxy,
            disk=disk,
            parts=planted.parts,
            skew=timedelta(seconds=random.choice((0, 0, 0, 3, -3))),
            random=random,
        )
