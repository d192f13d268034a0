"""All participants of a simulation, wired as in production: the API, two pulses, four adapters and users.

All components are the real ones on the shipped fakes, on virtual time. The seed determines their configuration,
the quality of the network, and the clocks. `history` determines what happens to them.
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
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.adapter_api import AdapterApi
from sentinel.ports.fleet_store import StoredResource
from sentinel.ports.subscription import Subscriber
from sentinel.runtime.backoff import Backoff
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.fleet_store import CommitListener, MemoryFleetStore
from sentinel.testing.loop import SimulatedClock
from sentinel.web.audit import Auditor
from tests.sim.adapter_process import SimulatedAdapter
from tests.sim.adapters import ADAPTERS, CLUSTERS, NODEPOOLS, AdapterBackend
from tests.sim.faults import FaultRates, randomness
from tests.sim.fleet_checker import FleetChecker
from tests.sim.message_checker import MessageLog
from tests.sim.network import Network, SimulatedApi
from tests.sim.process import SimulatedProcess
from tests.sim.pulse_process import BrokerLink, SimulatedPulse
from tests.sim.streams import SimulatedStream
from tests.sim.trace import Trace
from tests.sim.users import Users
from tests.support.clocks import AdjustedClock

_RETRY = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0)


class PlantedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in our own code that the simulation must find; by default none."""

    republish_interval: timedelta | None = None
    make_pacer: Callable[[timedelta | None], Pacer] = lambda interval: Pacer(republish_interval=interval)
    wrap_subscriber: Callable[[Subscriber], Subscriber] = lambda subscriber: subscriber
    wrap_reporting: Callable[[AdapterApi], AdapterApi] = lambda reporting: reporting
    make_store: Callable[[MemoryDatabase, CommitListener], MemoryFleetStore] = lambda database, on_commit: (
        MemoryFleetStore(database, on_commit=on_commit)
    )


NO_FAULT = PlantedFault()


class World:
    """The participants of one run."""

    def __init__(self, seed: int, planted: PlantedFault) -> None:
        self.random = randomness(seed, "world")
        self.clock = SimulatedClock()
        self.api_clock = AdjustedClock()
        self.trace = trace = Trace(seed)
        self.faults = faults = FaultRates(randomness(seed, "weather"))
        self._required = {kind.plural: kind.required_adapters for kind in (CLUSTERS, NODEPOOLS)}
        self.fleet_checker = FleetChecker(trace, self._required)
        self.database = MemoryDatabase(faults=faults.database_fault)
        self._streams: list[SimulatedStream] = []
        self.store = planted.make_store(self.database, self._committed)
        self._bytes = randomness(seed, "ids").randbytes
        self.api = SimulatedApi(trace, randomness(seed, "api"), self._serve)
        self.messages = MessageLog()
        self.broker = MemoryBroker(now=self.clock.now, retry=_RETRY, log=trace.log("broker"))
        self.users = Users(
            trace,
            network=Network("user", trace, self.api, faults),
            checker=self.fleet_checker,
            random=randomness(seed, "users"),
        )
        self.backends = [AdapterBackend(spec, randomness(seed, spec.name)) for spec in ADAPTERS]
        self.pulses = [self._pulse(f"pulse-{n}", planted) for n in (1, 2)]
        self.adapters = [
            self._adapter(f"{backend.spec.name}-{n}", backend, planted)
            for backend in self.backends
            for n in range(1, self.random.choice((1, 1, 2)) + 1)
        ]
        self.processes: list[SimulatedProcess] = [*self.pulses, *self.adapters]

    async def open(self) -> None:
        """Open everything, and start the API only."""
        await self.database.open()
        for backend in self.backends:
            # Subscriptions are created when an adapter is installed, and outlive its processes.
            await self.broker.subscribe(backend.spec.name).close()
        for pulse in self.pulses:
            await pulse.link.open()
        self.api.start()

    def configure(self) -> None:
        """Change the kinds file, which the API reads at its next start."""
        for kind in (CLUSTERS, NODEPOOLS):
            removed = self.random.choice(("", *kind.required_adapters[1:]))
            self._required[kind.plural] = tuple(each for each in kind.required_adapters if each != removed)
        self.trace.note("api", "gets another kinds file", *self._required.values())

    def start_all(self) -> None:
        """Start all processes that do not run."""
        for process in self.processes:
            if not process.is_up:
                process.start()

    def skew(self) -> timedelta:
        """Draw the error of a clock."""
        return timedelta(seconds=self.random.choice((0, 0, 0, 0, 3, -3, 25, -25)))

    async def close(self) -> None:
        """End everything, in any state."""
        for process in self.processes:
            await process.kill()
            await process.network.close()
        for pulse in self.pulses:
            await pulse.link.close()
        await self.users.network.close()
        await self.api.kill()

    def _serve(self) -> tuple[FleetService, Maintenance]:
        """Build the service and maintenance of one API process."""
        kinds = Kinds(
            [
                msgspec.structs.replace(kind, required_adapters=self._required[kind.plural])
                for kind in (CLUSTERS, NODEPOOLS)
            ]
        )
        service = FleetService(
            store=self.store,
            kinds=kinds,
            clock=self.api_clock,
            observer=_NullObserver(),
            auditor=Auditor(randomness=self._bytes),
            randomness=self._bytes,
        )
        maintenance = Maintenance(
            service=service,
            store=self.store,
            kinds=kinds,
            clock=self.api_clock,
            log=self.trace.log("maintenance"),
        )
        return service, maintenance

    def _committed(self, before: StoredResource | None, after: StoredResource | None) -> None:
        self.fleet_checker.committed(before, after)
        for stream in self._streams:
            stream.committed(before, after)

    def _pulse(self, name: str, planted: PlantedFault) -> SimulatedPulse:
        random = randomness(self.trace.seed, name)
        not_ready = timedelta(seconds=self.random.choice((5, 10)))
        network = Network(name, self.trace, self.api, self.faults)
        return SimulatedPulse(
            name,
            self.trace,
            network=network,
            make_pacer=planted.make_pacer,
            stream=self._stream(name, network),
            link=BrokerLink(self.trace, self.broker, self.messages, self.faults),
            policy=Policy(
                not_ready,
                timedelta(seconds=self.random.choice((60, 1800, 1800))),
                follows_progress=self.random.random() < 0.5,
            ),
            poll_interval=timedelta(seconds=self.random.choice((2, 5))),
            republish_interval=planted.republish_interval,
            max_events_per_second=self.random.choice((None, None, None, 1.0)),
            plurals=(CLUSTERS.plural, NODEPOOLS.plural),
            skew=self.skew(),
            random=random,
        )

    def _stream(self, name: str, network: Network) -> SimulatedStream | None:
        """Half of the pulses follow a stream."""
        random = randomness(self.trace.seed, f"{name}/stream")
        if random.random() < 0.5:
            return None
        stream = SimulatedStream(
            f"{name}/stream",
            self.trace,
            network=network,
            faults=self.faults,
            plurals=(CLUSTERS.plural, NODEPOOLS.plural),
            random=random,
        )
        self._streams.append(stream)
        return stream

    def _adapter(self, name: str, backend: AdapterBackend, planted: PlantedFault) -> SimulatedAdapter:
        return SimulatedAdapter(
            name,
            self.trace,
            backend=backend,
            broker=self.broker,
            messages=self.messages,
            network=Network(name, self.trace, self.api, self.faults),
            faults=self.faults,
            fleet_checker=self.fleet_checker,
            wrap_subscriber=planted.wrap_subscriber,
            wrap_reporting=planted.wrap_reporting,
            concurrency=self.random.choice((1, 3)),
            # Shorter or longer than the drain time of a stopped process; longer tasks are interrupted.
            task_timeout=timedelta(seconds=self.random.choice((2, 6, 6))),
            report_max_age=timedelta(seconds=self.random.choice((0, 0, 2, 8))),
            skew=self.skew(),
            random=randomness(self.trace.seed, name),
        )


class _NullObserver:
    """A `ReportObserver` that does nothing: the checkers see more."""

    def report_stored(self) -> None: ...

    def report_discarded(self, reason: DiscardReason) -> None: ...
