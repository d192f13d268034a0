"""The fleet of `sentinel up --demo`: made up, small, and busy enough that something happens every second.

Only the fleet and those who live with it are simulated. The pulses that watch it are the real ones, and so is
the way of an event: published to a broker, confirmed, delivered, answered by a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from random import Random

from sentinel.drivers.memory import MemoryBroker
from sentinel.ports import Clock
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.lifecycle import Part, PartFactory
from sentinel.runtime.stopping import Stopping
from sentinel.testing.fleet import FakeFleet, Owner
from sentinel.testing.simulation import SimulatedAdapters, SimulatedOwners, Temper

KINDS: Mapping[str, str] = {"clusters": "Cluster", "nodepools": "NodePool"}
"""The types of resource that there are, each with a pulse of its own."""

DEFAULTS: Mapping[str, str] = {
    "poll_interval": "1s",
    "max_age_not_ready": "3s",
    "max_age_ready": "15s",
    "message_data": "{resource_id: .id, resource_type: .kind, region: .metadata.labels.region}",
    "log.level": "warning",
}
"""Settings that replace the usual defaults: a demonstration has a minute, where a fleet has a day."""

_TEMPER = Temper(
    work=timedelta(milliseconds=700), slow_work=timedelta(seconds=5), slow=0.08, failing=0.12, silent=0.04
)
_PAUSE_OF_OWNERS = timedelta(seconds=4)
_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "indigo", "juniper")
_REGIONS = ("us-east", "us-west", "eu-north")


class Demo:
    """Fleets by resource type, a broker, and the parts that bring both to life."""

    def __init__(self, *, settings: Sequence[PulseSettings], clock: Clock, random: Random) -> None:
        self.broker = MemoryBroker()
        self.fleets = {
            each.resource_type: FakeFleet(
                kind=KINDS[each.resource_type],
                selector=each.selector,
                page_size=each.hyperfleet_api.page_size,
            )
            for each in settings
        }
        self._clock = clock
        self._random = random
        for each in settings:
            self._populate(each)

    def parts(self) -> list[PartFactory]:
        """Adapters of each fleet, then the owners. Adapters subscribe when they are built: build them first."""
        return [*(lambda fleet=fleet: self._adapters(fleet) for fleet in self.fleets.values()), self._owners]

    def _adapters(self, fleet: FakeFleet) -> Part:
        adapters = SimulatedAdapters(fleet=fleet, clock=self._clock, random=self._random, temper=_TEMPER)
        name = f"adapters of {fleet.kind}"
        subscriber = self.broker.subscribe(name)

        async def serve(stopping: Stopping) -> None:
            await stopping.interrupts(adapters.serve(subscriber))

        return Part(name=name, loops=(serve,), close=subscriber.close)

    def _owners(self) -> Part:
        owners = SimulatedOwners(
            fleets=list(self.fleets.values()), clock=self._clock, random=self._random, pause=_PAUSE_OF_OWNERS
        )

        async def live(stopping: Stopping) -> None:
            await stopping.interrupts(owners.live())

        return Part(name="owners", loops=(live,))

    def _populate(self, settings: PulseSettings) -> None:
        """One resource for each name: most are ready, reported on at various times; the last few are new."""
        fleet = self.fleets[settings.resource_type]
        now = self._clock.now()
        names = _NAMES if fleet.kind == "Cluster" else _NAMES[:8]
        for number, name in enumerate(names):
            is_new = number >= len(names) - 2
            age = settings.max_age_ready * self._random.random()
            fleet.put(
                f"cls-{name}" if fleet.kind == "Cluster" else f"np-{name}-1",
                name=name,
                labels={"region": _REGIONS[number % len(_REGIONS)]},
                spec={"replicas": 3},
                owner=None if fleet.kind == "Cluster" else Owner(f"cls-{name}", "Cluster"),
                observed_generation=0 if is_new else 1,
                is_ready=not is_new,
                last_updated_time=None if is_new else now - age,
                at=now,
            )
