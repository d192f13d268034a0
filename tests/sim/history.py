"""The course of a simulation: first with faults, then without.

During the fault phase processes are killed, stopped and started, clocks change, networks are cut, tasks misbehave,
and users keep working. After it every resource must become ready, every deleted one must be removed, and no
message may be left unsettled. The seed determines everything, including the order of tasks that are ready at the
same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from sentinel.ports.subscription import Message
from sentinel.testing import loop
from tests.sim.adapters import CLUSTERS, Behavior
from tests.sim.deterministic_tasks import number_tasks
from tests.sim.faults import randomness
from tests.sim.message_checker import POISON
from tests.sim.process import SimulatedProcess
from tests.sim.world import NO_FAULT, PlantedFault, World

CONVERGENCE_TIMEOUT = timedelta(minutes=5)
"""After this time without faults every resource is ready or gone."""
_WARM_UP = timedelta(seconds=25)
"""The time that a fleet has to become ready before the faults start."""
_LONG_OUTAGE = timedelta(minutes=2)
"""Longer than an adapter retries a report, after which it nacks the message."""
_OBSERVATION = timedelta(seconds=30)
"""How long the simulation continues after convergence."""


class Summary(msgspec.Struct, frozen=True):
    """The result of a run."""

    digest: str
    """Equal for equal histories."""
    converged_after: timedelta
    """From the end of the faults until everything was ready or gone."""
    interruptions: int
    """How many reports said that an adapter was interrupted."""


def simulate(seed: int, planted: PlantedFault = NO_FAULT) -> Summary:
    """Simulate one seed. Raises `Violation`."""
    return loop.run(_simulate(seed, planted), order=randomness(seed, "order"))


async def _simulate(seed: int, planted: PlantedFault) -> Summary:
    number_tasks()
    world = World(seed, planted)
    running = asyncio.create_task(SimulatedHistory(world).run())
    await asyncio.wait((running, world.trace.violated), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    await asyncio.wait((running,))
    await world.close()
    if world.trace.violated.done():
        raise world.trace.violated.result()
    return Summary(world.trace.digest, running.result(), world.messages.interruptions)


class SimulatedHistory:
    """Runs the events of one simulation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._trace = world.trace
        self._broker = world.broker
        self._random = randomness(world.trace.seed, "history")
        self._poison_count = 0

    async def run(self) -> timedelta:
        """Run both phases, and return the time until convergence."""
        await self._world.open()
        await self._world.users.create(CLUSTERS)
        if self._random.random() < 0.5:
            # Half of the histories start with a fleet that is ready.
            self._world.start_all()
            await asyncio.sleep(_WARM_UP.total_seconds())
        await self._run_with_faults(timedelta(seconds=self._random.choice((30, 60, 90))))
        await self._stop_faults()
        return await self._wait_until_converged()

    async def _run_with_faults(self, duration: timedelta) -> None:
        self._world.faults.start()
        for backend in self._world.backends:
            backend.start_faults()
        end = self._world.clock.now() + duration
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._world.users.act, end))
            group.create_task(self._repeat(self._cause_event, end))

    async def _repeat(self, act: Callable[[], Awaitable[None]], end: datetime) -> None:
        pause = self._random.choice((1.0, 2.0, 5.0))
        while self._world.clock.now() < end:
            await asyncio.sleep(pause * 2 * self._random.random())
            await act()

    async def _cause_event(self) -> None:
        """Cause a random fault, or end one."""
        match self._random.randrange(13):
            case 0:
                await self._restart_api()
            case 1 | 2:
                await self._end(self._random.choice(self._world.adapters))
            case 3 | 4 | 5:
                self._world.start_all()
            case 6:
                await self._end(self._random.choice(self._world.pulses))
            case 7:
                backend = self._random.choice(self._world.backends)
                self._trace.note(backend.spec.name, f"is {backend.change_behavior()} from now on")
            case 8:
                network = self._random.choice(self._world.processes).network
                network.is_cut = not network.is_cut
            case 9:
                link = self._random.choice(self._world.pulses).link
                link.is_cut = not link.is_cut
            case 10:
                await self._poison()
            case 11:
                process = self._random.choice(self._world.processes)
                clock = self._world.api_clock if self._random.random() < 0.3 else process.clock
                clock.offset = self._world.skew()
            case 12:
                await self._restart_hanging_adapter()

    async def _end(self, process: SimulatedProcess) -> None:
        await (process.kill() if self._random.random() < 0.7 else process.stop())

    async def _restart_hanging_adapter(self) -> None:
        """Let the tasks of an adapter hang, also on a new cluster, then restart its processes one by one."""
        # An adapter without dependencies, so that its task hangs instead of waiting for others.
        backend = self._random.choice([each for each in self._world.backends if not each.spec.needs])
        backend.behavior = Behavior.HANGING
        self._trace.note(backend.spec.name, f"is {backend.behavior} until it is restarted")
        self._world.start_all()
        await self._world.users.create(CLUSTERS)
        await asyncio.sleep(8 * self._random.random())
        for process in self._world.adapters:
            if process.backend is backend:
                await process.stop()
                process.start()
        backend.behavior = Behavior.GOOD

    async def _restart_api(self) -> None:
        await self._world.api.kill()
        if self._random.random() < 0.4:
            self._world.configure()
        is_long = self._random.random() < 0.02
        await asyncio.sleep(_LONG_OUTAGE.total_seconds() if is_long else 5 * self._random.random())
        self._world.api.start()

    async def _poison(self) -> None:
        """Publish a message that is not an event to all subscriptions."""
        self._poison_count += 1
        attributes = {"id": f"poison-{self._poison_count}", "subject": f"{POISON}/../{self._poison_count}"}
        self._world.messages.published(attributes["id"])
        await self._broker.publish(Message(b"{", "application/json", attributes))

    async def _stop_faults(self) -> None:
        self._trace.note("world", "the faults stop")
        self._world.faults.stop()
        for backend in self._world.backends:
            backend.stop_faults()
        self._world.start_all()
        for process in self._world.processes:
            process.network.is_cut = False
        for pulse in self._world.pulses:
            pulse.link.is_cut = False
        # A late request for a pause must not arrive after this.
        await self._world.users.network.close()
        await self._world.users.resume_all()

    async def _wait_until_converged(self) -> timedelta:
        start = self._world.clock.now()
        while remaining := self._world.fleet_checker.not_converged:
            await asyncio.sleep(1)
            if self._world.clock.now() - start > CONVERGENCE_TIMEOUT:
                stuck = remaining[0]
                state = "is not gone" if stuck.is_deleting else "is not ready"
                self._trace.violation(
                    f"{CONVERGENCE_TIMEOUT} after the last fault {stuck.id}@{stuck.generation} {state}",
                    about=stuck.id,
                )
        duration = self._world.clock.now() - start
        self._trace.note("world", "has converged")
        await asyncio.sleep(_OBSERVATION.total_seconds())
        await self._check_messages()
        return duration

    async def _check_messages(self) -> None:
        """Check that all messages are settled, and that only poison messages are dead letters."""
        for backend in self._world.backends:
            name = backend.spec.name
            deadline = self._world.clock.now() + CONVERGENCE_TIMEOUT
            while self._broker.backlog(name) and self._world.clock.now() < deadline:  # noqa: ASYNC110  # virtual time
                await asyncio.sleep(0.3)
            self._trace.require(self._broker.backlog(name) == 0, f"messages to {name} are never settled")
            lost = self._world.messages.lost(name)
            self._trace.require(not lost, f"messages to {name} were lost:", *lost)
            letters = await self._broker.dead_letters(name).peek(limit=100)
            self._trace.require(
                len(letters) == self._poison_count,
                f"{name} has {len(letters)} dead letters, expected {self._poison_count}",
            )
