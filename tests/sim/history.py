"""The course of a simulation: first come the faults, then calm.

While there are faults, processes are killed, stopped and started, clocks are set, networks cut, tasks change their
mood, and people go on with their work. When it is calm, every resource has to become ready, and every deleted one
has to go; then nothing may be left that somebody still owes an answer to. All of it comes from the seed, who is
ready first included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import msgspec

from sentinel.ports.subscription import Message
from sentinel.testing import loop
from tests.sim.chance import randomness
from tests.sim.message_witness import POISON
from tests.sim.process import Process
from tests.sim.trades import CLUSTERS, Mood
from tests.sim.world import SOUND, Plan, World

PATIENCE = timedelta(minutes=5)
"""Within this time after the faults everything is ready or gone."""
_PEACE = timedelta(seconds=25)
"""How long a fleet has to become well before the faults begin."""
_OUTAGE = timedelta(minutes=2)
"""Longer than an adapter offers a report to an API that takes nobody's; then it gives back what the report was
about."""
_AFTERMATH = timedelta(seconds=30)
"""How long it is watched when all is well."""


class Summary(msgspec.Struct, frozen=True):
    """What came of a run."""

    digest: str
    """The same for the same history."""
    settled_after: timedelta
    """How long after the faults everything was ready or gone."""
    interruptions: int
    """How many reports said that an adapter had ended before its work did."""


def simulate(seed: int, plan: Plan = SOUND) -> Summary:
    """Runs one seed to its end; raises `Violation`."""
    return loop.run(_simulate(seed, plan), order=randomness(seed, "order"))


class _Numbered(asyncio.Task[Any]):
    """A task that sets keep in the same order in every process. A task group cancels its tasks in that of a set,
    which would otherwise be that of their places in memory."""

    def __init__(self, work: Coroutine[Any, Any, Any], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


async def _simulate(seed: int, plan: Plan) -> Summary:
    numbers = count()
    asyncio.get_running_loop().set_task_factory(
        lambda loop, work, **options: _Numbered(work, loop=loop, number=next(numbers), **options)
    )
    world = World(seed, plan)
    running = asyncio.create_task(History(world).run())
    await asyncio.wait((running, world.trace.violated), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    await asyncio.wait((running,))
    await world.close()
    if world.trace.violated.done():
        raise world.trace.violated.result()
    return Summary(world.trace.digest, running.result(), world.ledger.interruptions)


class History:
    """What happens to a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._trace = world.trace
        self._broker = world.broker
        self._random = randomness(world.trace.seed, "history")
        self._poisoned = 0

    async def run(self) -> timedelta:
        """The faults, the calm after them, and how long it took until all was well."""
        await self._world.open()
        await self._world.users.create(CLUSTERS)
        if self._random.random() < 0.5:
            # Into a fleet that is well, or into one that has never been.
            self._world.start_all()
            await asyncio.sleep(_PEACE.total_seconds())
        await self._rage(timedelta(seconds=self._random.choice((30, 60, 90))))
        await self._calm()
        return await self._settle()

    async def _rage(self, duration: timedelta) -> None:
        self._world.weather.rage()
        for workshop in self._world.workshops:
            workshop.rage()
        end = self._world.clock.now() + duration
        async with asyncio.TaskGroup() as group:
            group.create_task(self._go_on(self._world.users.act, end))
            group.create_task(self._go_on(self._happen, end))

    async def _go_on(self, act: Callable[[], Awaitable[None]], end: datetime) -> None:
        pause = self._random.choice((1.0, 2.0, 5.0))
        while self._world.clock.now() < end:
            await asyncio.sleep(pause * 2 * self._random.random())
            await act()

    async def _happen(self) -> None:
        """Something goes wrong, or is mended."""
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
                workshop = self._random.choice(self._world.workshops)
                self._trace.note(workshop.trade.name, f"is {workshop.turn()} from now on")
            case 8:
                network = self._random.choice(self._world.processes).network
                network.is_cut = not network.is_cut
            case 9:
                exchange = self._random.choice(self._world.pulses).exchange
                exchange.is_cut = not exchange.is_cut
            case 10:
                await self._poison()
            case 11:
                process = self._random.choice(self._world.processes)
                clock = self._world.clock_of_the_api if self._random.random() < 0.3 else process.clock
                clock.skew = self._world.skew()
            case 12:
                await self._restart_what_hangs()

    async def _end(self, process: Process) -> None:
        await (process.kill() if self._random.random() < 0.7 else process.stop())

    async def _restart_what_hangs(self) -> None:
        """The work of an adapter gets stuck, also on a cluster that it has never seen before, and an operator
        restarts its processes one after the other."""
        # Of one that waits for nobody, so that there is work to get stuck in.
        workshop = self._random.choice([each for each in self._world.workshops if not each.trade.needs])
        workshop.mood = Mood.HANGING
        self._trace.note(workshop.trade.name, f"is {workshop.mood} until it is restarted")
        self._world.start_all()
        await self._world.users.create(CLUSTERS)
        await asyncio.sleep(8 * self._random.random())
        for process in self._world.adapters:
            if process.workshop is workshop:
                await process.stop()
                process.start()
        workshop.mood = Mood.GOOD

    async def _restart_api(self) -> None:
        await self._world.api.kill()
        if self._random.random() < 0.4:
            self._world.configure()
        is_long = self._random.random() < 0.02
        await asyncio.sleep(_OUTAGE.total_seconds() if is_long else 5 * self._random.random())
        self._world.api.start()

    async def _poison(self) -> None:
        """A message that is no event of ours; every subscription gets it."""
        self._poisoned += 1
        attributes = {"id": f"poison-{self._poisoned}", "subject": f"{POISON}/../{self._poisoned}"}
        self._world.ledger.placed(attributes["id"])
        await self._broker.publish(Message(b"{", "application/json", attributes))

    async def _calm(self) -> None:
        self._trace.note("world", "the faults stop")
        self._world.weather.calm()
        for workshop in self._world.workshops:
            workshop.calm()
        self._world.start_all()
        for process in self._world.processes:
            process.network.is_cut = False
        for pulse in self._world.pulses:
            pulse.exchange.is_cut = False
        # Somebody's wish for a pause may still be wandering about, and must not come after this.
        await self._world.users.network.close()
        await self._world.users.resume_all()

    async def _settle(self) -> timedelta:
        begun = self._world.clock.now()
        while waiting := self._world.witness.unsettled:
            await asyncio.sleep(1)
            if self._world.clock.now() - begun > PATIENCE:
                stuck = waiting[0]
                state = "is not gone" if stuck.is_deleting else "is not ready"
                self._trace.violation(
                    f"{PATIENCE} after the last fault {stuck.id}@{stuck.generation} {state}", about=stuck.id
                )
        settled = self._world.clock.now() - begun
        self._trace.note("world", "all is well")
        await asyncio.sleep(_AFTERMATH.total_seconds())
        await self._look_around()
        return settled

    async def _look_around(self) -> None:
        """When all is well, nothing lies about, and nothing is given up but what was never any good."""
        for workshop in self._world.workshops:
            name = workshop.trade.name
            by = self._world.clock.now() + PATIENCE
            while self._broker.backlog(name) and self._world.clock.now() < by:  # noqa: ASYNC110  # nobody waits
                await asyncio.sleep(0.3)
            self._trace.require(self._broker.backlog(name) == 0, f"messages to {name} are never settled")
            lost = self._world.ledger.lost(name)
            self._trace.require(not lost, f"messages to {name} were lost:", *lost)
            letters = await self._broker.dead_letters(name).peek(limit=100)
            self._trace.require(
                len(letters) == self._poisoned, f"{name} has {len(letters)} dead letters of {self._poisoned}"
            )
