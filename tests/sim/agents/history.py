"""The course of a simulation of agents: first with faults, then without.

While there are faults, agents and the hub are killed, proxies end and start, networks are cut, disks are full, and
users assign versions and begin deployments. After that every instance has to reach what is assigned to it, or
to say truly why not, and every deployment has to be over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import grpc
import msgspec

from sentinel.cli.wiring.hub import BuiltHub
from sentinel.core.access import ANONYMOUS
from sentinel.core.hub.deployment import Count, Request, Rolling, Strategy, Targets
from sentinel.ports.errors import Unavailable
from sentinel.testing import loop
from sentinel.web.errors import Conflict, Invalid, NotFound
from sentinel.web.routing import Caller
from tests.sim.agents.agent_process import SimulatedAgent
from tests.sim.agents.configurations import CONFIG, VERSIONS
from tests.sim.agents.world import NOTHING, AgentWorld, Planted
from tests.sim.deterministic_tasks import number_tasks
from tests.sim.faults import randomness
from tests.sim.network import cancel_all

SETTLED_WITHIN = timedelta(minutes=10)
"""After this time without faults everything has settled. A deployment may wait for every batch of others."""
_OBSERVATION = timedelta(minutes=1)
_USER = Caller(ANONYMOUS, "127.0.0.1", "request-1")


class Summary(msgspec.Struct, frozen=True):
    """The result of a run."""

    digest: str
    """Equal for equal histories."""
    settled_after: timedelta
    """From the end of the faults."""
    deployments: int
    rollbacks: int
    failures: tuple[str, ...]
    """What instances say that do not run what is assigned to them."""


class _Loop(loop.SimulatedLoop):
    """Checks of configurations, which use a thread, are done at once."""

    def run_in_executor(  # type: ignore[override]  # the base class never returns
        self, executor: object, func: Callable[..., object], *args: object
    ) -> asyncio.Future[object]:
        result = self.create_future()
        result.set_result(func(*args))
        return result


def simulate(seed: int, planted: Planted = NOTHING) -> Summary:
    """Simulate one seed. Raises `Violation`."""
    with asyncio.Runner(loop_factory=lambda: _Loop(order=randomness(seed, "agents/order"))) as runner:
        return runner.run(_simulate(seed, planted))


async def _simulate(seed: int, planted: Planted) -> Summary:
    number_tasks()
    world = AgentWorld(seed, planted)
    running = asyncio.create_task(AgentHistory(world).run())
    await asyncio.wait((running, world.trace.violated), return_when=asyncio.FIRST_COMPLETED)
    await cancel_all([running])
    await world.close()
    if world.trace.violated.done():
        raise world.trace.violated.result()
    return running.result()


class AgentHistory:
    """Runs the events of one simulation."""

    def __init__(self, world: AgentWorld) -> None:
        self._world = world
        self._trace = world.trace
        self._random = randomness(world.trace.seed, "agents/history")

    async def run(self) -> Summary:
        """Run both phases."""
        world = self._world
        await world.open()
        await asyncio.sleep(5)
        world.faults.start()
        end = world.clock.now() + timedelta(minutes=self._random.choice((3, 6)))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._act, end, pause=20))
            group.create_task(self._repeat(self._cause_event, end, pause=10))
        self._stop_faults()
        settled_after = await self._wait_until_settled()
        return await self._summary(settled_after)

    async def _repeat(self, act: Callable[[], Awaitable[None]], end: datetime, *, pause: float) -> None:
        while self._world.clock.now() < end:
            await asyncio.sleep(pause * 2 * self._random.random())
            await act()

    async def _act(self) -> None:
        """Do what users do."""
        drawn = self._random.random()
        if drawn < 0.5:
            await self._assign()
        elif drawn < 0.55:
            name = self._random.choice(self._world.agents).name
            await self._ask(f"assign nothing to {name}", lambda built: built.instances.unassign(_USER, name))
        elif drawn < 0.9:
            await self._deploy()
        else:
            await self._end_deployment()

    async def _assign(self) -> None:
        name, version = self._random.choice(self._world.agents).name, self._random.choice(VERSIONS)
        self._world.checker.offered(name, version)
        await self._ask(
            f"assign {version.name} to {name}",
            lambda built: built.instances.assign(_USER, name, version.parsed),
        )

    async def _deploy(self) -> None:
        agents, version = self._world.agents, self._random.choice(VERSIONS)
        names = tuple(each.name for each in agents if self._random.random() < 0.7) or (agents[0].name,)
        for name in names:
            self._world.checker.offered(name, version)
        request = Request(
            config_id=CONFIG,
            version=version.parsed.number,
            targets=Targets(ids=names),
            strategy=self._random.choice((Strategy.ROLLING, Strategy.ROLLING, Strategy.ALL_AT_ONCE)),
            queue=self._random.random() < 0.5,
            rolling=Rolling(
                batch_size=Count(self._random.choice((1, 2))),
                batch_delay=timedelta(seconds=self._random.choice((0, 5))),
                failure_threshold=Count(self._random.choice((1, 1, 2))),
            ),
        )
        await self._ask(
            f"deploy {version.name} to {', '.join(names)}",
            lambda built: built.rollouts.create(_USER, request, key=None),
        )

    async def _end_deployment(self) -> None:
        """Abort the newest deployment, or roll it back, which may be over by then."""
        deployment_id = max(self._world.checker.deployments, default=None)  # ids ascend
        if deployment_id is None:
            return
        if self._random.random() < 0.5:
            await self._ask("abort", lambda built: built.rollouts.abort(_USER, deployment_id))
        else:
            await self._ask("roll back", lambda built: built.rollouts.rollback(_USER, deployment_id))

    async def _ask(self, what: str, act: Callable[[BuiltHub], Awaitable[object]]) -> None:
        self._trace.note("user", f"asks: {what}")
        try:
            async with asyncio.timeout(30):
                await self._random.choice(self._world.hubs).use(act)
        except (Unavailable, TimeoutError, grpc.aio.AioRpcError):
            self._trace.note("user", "gets no answer")
        except (NotFound, Conflict, Invalid) as refused:
            self._trace.note("user", "is refused", refused)

    async def _cause_event(self) -> None:
        """Cause a random fault, or end one."""
        agent = self._random.choice(self._world.agents)
        match self._random.randrange(8):
            case 0 | 1:
                await self._kill(agent)
                await asyncio.sleep(self._random.choice((0.1, 5, 40)) * self._random.random())
                agent.start()
            case 2:
                await self._stop_proxy(agent)
            case 3:
                await self._restart_hub()
            case 4 | 5:
                agent.network.is_cut = not agent.network.is_cut
                self._trace.note(agent.name, "is cut off" if agent.network.is_cut else "is connected")
            case 6:
                agent.disk.is_full = not agent.disk.is_full
                self._world.checker.full_disks.add(agent.name)
                self._trace.note(agent.name, "has a full disk" if agent.disk.is_full else "has space")
            case 7:
                self._world.faults.start()

    async def _kill(self, agent: SimulatedAgent) -> None:
        self._world.checker.kills[agent.name] += 1
        await agent.kill()

    async def _stop_proxy(self, agent: SimulatedAgent) -> None:
        """Let a proxy end for a while, or its whole host, where the agent may be back before it."""
        if self._random.random() < 0.5:
            await self._kill(agent)
            agent.start()
        self._world.checker.stopped_proxies.add(agent.name)
        agent.proxy.pid = None
        self._trace.note(agent.name, "has no proxy")
        await asyncio.sleep(self._random.choice((0, 5, 90)) * self._random.random())
        agent.proxy.boot()

    async def _restart_hub(self) -> None:
        hub = self._random.choice(self._world.hubs)
        await hub.kill()
        await asyncio.sleep(self._random.choice((0.5, 10, 60)) * self._random.random())
        hub.start()

    def _stop_faults(self) -> None:
        self._trace.note("world", "the faults stop")
        self._world.faults.stop()
        for each in self._world.agents:
            each.network.is_cut = each.disk.is_full = False

    async def _wait_until_settled(self) -> timedelta:
        start = self._world.clock.now()
        while problem := await self._problem():
            await asyncio.sleep(5)
            if self._world.clock.now() - start > SETTLED_WITHIN:
                self._trace.violation(f"{SETTLED_WITHIN} after the last fault, {problem}")
        duration = self._world.clock.now() - start
        self._trace.note("world", "has settled")
        await asyncio.sleep(_OBSERVATION.total_seconds())
        problem = await self._problem()
        self._trace.require(not problem, f"it does not stay settled: {problem}")
        return duration

    async def _problem(self) -> str:
        """Return what has not settled yet."""
        for number, record in enumerate(self._world.checker.deployments.values(), 1):
            if not record.rollout.is_over:
                return f"the deployment {number} is {record.rollout.state}"
        for each in self._world.agents:
            stored = await self._world.backend.hub.instance(each.name)
            problem = (
                "it never registered" if stored is None else self._world.checker.check_settled(each.name, stored)
            )
            if problem:
                return f"{each.name}: {problem}"
        return ""

    async def _summary(self, settled_after: timedelta) -> Summary:
        world, failures = self._world, list[str]()
        for record in world.checker.deployments.values():
            rows = await world.backend.hub.deployment_rows(record.id, limit=100)
            world.checker.check_deployment(record, list(rows))
        for each in world.agents:
            stored = await world.backend.hub.instance(each.name)
            if stored is not None and not stored.sync.is_in_sync:
                failures.append(stored.life.message)
        rollouts = [each.rollout for each in world.checker.deployments.values()]
        return Summary(
            digest=world.trace.digest,
            settled_after=settled_after,
            deployments=len(rollouts),
            rollbacks=sum(each.rollback != "none" for each in rollouts),
            failures=tuple(failures),
        )
