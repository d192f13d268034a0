"""The whole loop on one table: the API, two pulses, four adapters and their users, wired as in production.

All parts are the real ones, on the fakes that are shipped, on virtual time. How they are configured, and how bad
their network and their clocks are, comes from the seed; what happens to them is `history`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from sentinel.api.kinds import Kinds
from sentinel.api.maintenance import Maintenance
from sentinel.api.service import FleetService
from sentinel.core.fleet.documents import DiscardReason
from sentinel.core.pulse.decision import Policy
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.adapter_api import AdapterApi
from sentinel.ports.subscription import Subscriber
from sentinel.runtime.backoff import Backoff
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_store import CommitListener, MemoryFleetStore
from sentinel.testing.loop import SimulatedClock
from sentinel.web.audit import Auditor
from tests.sim.adapter_process import AdapterProcess
from tests.sim.chance import Weather, randomness
from tests.sim.fleet_witness import FleetWitness
from tests.sim.message_witness import Ledger
from tests.sim.network import ApiProcess, Network
from tests.sim.process import Process, SkewedClock
from tests.sim.pulse_process import Exchange, PulseProcess
from tests.sim.trace import Trace
from tests.sim.trades import CLUSTERS, NODEPOOLS, TRADES, Workshop
from tests.sim.users import Users

_RETRY = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is different from a Sentinel as it should be: the faults that the simulation must find."""

    republish_interval: timedelta | None = None
    around_subscriber: Callable[[Subscriber], Subscriber] = lambda subscriber: subscriber
    around_reporting: Callable[[AdapterApi], AdapterApi] = lambda reporting: reporting
    make_store: Callable[[MemoryDatabase, CommitListener], MemoryFleetStore] = lambda database, on_commit: (
        MemoryFleetStore(database, on_commit=on_commit)
    )


SOUND = Plan()


class World:
    """Everything of one run."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self.random = randomness(seed, "world")
        self.clock = SimulatedClock()
        self.clock_of_the_api = SkewedClock(timedelta(0))
        self.trace = trace = Trace(seed)
        self.weather = weather = Weather(randomness(seed, "weather"))
        self._required = {kind.plural: kind.required_adapters for kind in (CLUSTERS, NODEPOOLS)}
        self.witness = FleetWitness(trace, self._required)
        self.database = MemoryDatabase(faults=weather.fault)
        self.store = plan.make_store(self.database, self.witness.committed)
        self._bytes = randomness(seed, "ids").randbytes
        self.api = ApiProcess(trace, randomness(seed, "api"), self._serve)
        self.ledger = Ledger()
        self.broker = MemoryBroker(now=self.clock.now, retry=_RETRY, log=trace.log("broker"))
        self.users = Users(
            trace,
            network=Network("user", trace, self.api, weather),
            witness=self.witness,
            random=randomness(seed, "users"),
        )
        self.workshops = [Workshop(trade, randomness(seed, trade.name)) for trade in TRADES]
        self.pulses = [self._pulse(f"pulse-{n}", plan) for n in (1, 2)]
        self.adapters = [
            self._adapter(f"{workshop.trade.name}-{n}", workshop, plan)
            for workshop in self.workshops
            for n in range(1, self.random.choice((1, 1, 2)) + 1)
        ]
        self.processes: list[Process] = [*self.pulses, *self.adapters]

    async def open(self) -> None:
        """Everything is there, and only the API runs."""
        await self.database.open()
        for workshop in self.workshops:
            # A subscription is made when an adapter is installed, and outlives it.
            await self.broker.subscribe(workshop.trade.name).close()
        for pulse in self.pulses:
            await pulse.exchange.open()
        self.api.start()

    def configure(self) -> None:
        """Gives the API another kinds file, to be read when it starts."""
        for kind in (CLUSTERS, NODEPOOLS):
            unloved = self.random.choice(("", *kind.required_adapters[1:]))
            self._required[kind.plural] = tuple(each for each in kind.required_adapters if each != unloved)
        self.trace.note("api", "has another kinds file", *self._required.values())

    def start_all(self) -> None:
        """Starts every process that does not run."""
        for process in self.processes:
            if not process.is_up:
                process.start()

    def skew(self) -> timedelta:
        """How far a clock is off."""
        return timedelta(seconds=self.random.choice((0, 0, 0, 0, 3, -3, 25, -25)))

    async def close(self) -> None:
        """Ends everything, whatever state it is in."""
        for process in self.processes:
            await process.kill()
            await process.network.close()
        for pulse in self.pulses:
            await pulse.exchange.close()
        await self.users.network.close()
        await self.api.kill()

    def _serve(self) -> tuple[FleetService, Maintenance]:
        """One life of the API."""
        kinds = Kinds(
            [
                msgspec.structs.replace(kind, required_adapters=self._required[kind.plural])
                for kind in (CLUSTERS, NODEPOOLS)
            ]
        )
        service = FleetService(
            store=self.store,
            kinds=kinds,
            clock=self.clock_of_the_api,
            observer=_Unobserved(),
            auditor=Auditor(randomness=self._bytes),
            randomness=self._bytes,
        )
        upkeep = Maintenance(
            service=service,
            store=self.store,
            kinds=kinds,
            clock=self.clock_of_the_api,
            log=self.trace.log("upkeep"),
        )
        return service, upkeep

    def _pulse(self, name: str, plan: Plan) -> PulseProcess:
        random = randomness(self.trace.seed, name)
        not_ready = timedelta(seconds=self.random.choice((5, 10)))
        return PulseProcess(
            name,
            self.trace,
            network=Network(name, self.trace, self.api, self.weather),
            exchange=Exchange(self.trace, self.broker, self.ledger, self.weather),
            policy=Policy(
                not_ready,
                timedelta(seconds=self.random.choice((60, 1800, 1800))),
                follows_progress=self.random.random() < 0.5,
            ),
            poll_interval=timedelta(seconds=self.random.choice((2, 5))),
            republish_interval=plan.republish_interval,
            max_events_per_second=self.random.choice((None, None, None, 1.0)),
            plurals=(CLUSTERS.plural, NODEPOOLS.plural),
            skew=self.skew(),
            random=random,
        )

    def _adapter(self, name: str, workshop: Workshop, plan: Plan) -> AdapterProcess:
        return AdapterProcess(
            name,
            self.trace,
            workshop=workshop,
            broker=self.broker,
            ledger=self.ledger,
            network=Network(name, self.trace, self.api, self.weather),
            weather=self.weather,
            fleet_witness=self.witness,
            around_subscriber=plan.around_subscriber,
            around_reporting=plan.around_reporting,
            concurrency=self.random.choice((1, 3)),
            # Shorter than the last work of a process that is stopped, or longer, so that it is cut off.
            task_timeout=timedelta(seconds=self.random.choice((2, 6, 6))),
            report_max_age=timedelta(seconds=self.random.choice((0, 0, 2, 8))),
            skew=self.skew(),
            random=randomness(self.trace.seed, name),
        )


class _Unobserved:
    """`api.service.Observer`: the witness sees more."""

    def report_stored(self) -> None: ...

    def report_discarded(self, reason: DiscardReason) -> None: ...
