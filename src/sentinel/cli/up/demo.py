"""The demonstration of `sentinel up --demo`: an owner of a small fleet who has a busy day.

It is a client like any other. It makes a few clusters and node pools through the API, and then changes one now and
then, breaks one, and heals what it has broken; and it is the one who puts the DNS service out of service for a
while, as far as its own zones are concerned. How the fleet comes through that is up to pulses and adapters.

What it made is known by a label, so that it touches nothing else and goes on with its fleet at the next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from http import HTTPStatus
from random import Random
from typing import Protocol

import msgspec

from sentinel.adapter import samples
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.fleet import FleetClient, read
from sentinel.cli.up.narration import Activity, Tell, Tone
from sentinel.core.fleet.documents import KindRules, ResourceDocument
from sentinel.core.json import Json
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping

LABEL = "sentinel-demo"
PAUSE = timedelta(seconds=6)
"""From one act to the next, about: long enough to see what came of it."""

_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord")
_PASSING = ("guest-1", "guest-2", "guest-3")
_REGIONS = ("us-east", "us-west", "eu-north")
_ACTS_BROKEN = 3
"""For how many acts what was broken stays so."""


class Outage(Protocol):
    """A service that can be put out of service for some resources, given by their ids."""

    out_of_service: Collection[str]


class _Broken(msgspec.Struct):
    """Something to be healed, in so many acts."""

    heal: Callable[[], Awaitable[None]]
    acts: int = _ACTS_BROKEN


class Demo:
    """One owner. Run `run`."""

    def __init__(
        self,
        *,
        connect: Callable[[], ServerConnection],
        kinds: Sequence[KindRules],
        dns: Outage,
        tell: Tell,
        clock: Clock,
        random: Random,
        pause: timedelta = PAUSE,
    ) -> None:
        self._connect = connect
        self._kinds = {kind.plural: kind for kind in kinds}
        self._dns = dns
        self._tell = tell
        self._clock = clock
        self._random = random
        self._pause = pause
        self._broken: _Broken | None = None
        self._taken: set[tuple[str, str]] = set()
        """Names under which somebody else has a resource, by kind."""

    async def run(self, stopping: Stopping) -> None:
        """Goes on until it is asked to stop; a refusal is told, and something else is tried next time."""
        if not self._kinds:
            await stopping.wait()  # nothing would answer
            return
        async with self._connect() as connection:
            fleet = FleetClient(connection)
            while not stopping.requested:
                if await stopping.interrupts(self._act(fleet)):
                    break
                if await stopping.interrupts(self._clock.sleep(self._pause * self._random.uniform(0.7, 1.3))):
                    break
        self._dns.out_of_service = ()

    async def _act(self, fleet: FleetClient) -> None:
        try:
            if not await self._populate(fleet):
                await self._go_on(fleet)
        except ServerError as error:
            self._say(f"could not: {error}", Tone.BAD)

    async def _populate(self, fleet: FleetClient) -> bool:
        """Makes the fleet what it should be; whether anything was missing."""
        missing = False
        for kind in self._kinds.values():
            if kind.parent and kind.parent not in self._kinds:
                continue
            own = await self._own(fleet, kind.plural)
            known = {each.name for each in own}
            owners = await self._own(fleet, kind.parent) if kind.parent else []
            parents = {each.name: each for each in owners if not each.is_deleting}
            for number, name in enumerate(_NAMES):
                wanted = f"{name}-pool" if kind.parent else name
                if wanted not in known and (not kind.parent or name in parents):
                    missing |= await self._create(fleet, kind, wanted, number, parents.get(name))
            for each in own:
                if self._broken is None and not each.is_deleting and _is_broken(each):
                    missing = True  # by an earlier start, which did not get to healing it
                    await self._heal(fleet, kind.plural, each)
        return missing

    async def _create(
        self, fleet: FleetClient, kind: KindRules, name: str, number: int, parent: ResourceDocument | None
    ) -> bool:
        """Whether it was made; a name that somebody else has is left to them."""
        if (kind.plural, name) in self._taken:
            return False
        region = _REGIONS[number % len(_REGIONS)]
        body: dict[str, Json] = {
            "name": name,
            "labels": {LABEL: "true", "region": region},
            "spec": {"region": region, "replicas": 3},
        }
        if parent is not None:
            body["owner_references"] = {"id": parent.id}
        try:
            made = await fleet.create(kind.plural, body)
        except RequestRejected as refusal:
            if refusal.status != HTTPStatus.CONFLICT:
                raise
            self._taken.add((kind.plural, name))
            self._say(f"does without a {kind.kind} {name}, for somebody else has one")
            return False
        self._say(f"asks for a {kind.kind} in {region}", resource=made.document)
        return True

    async def _go_on(self, fleet: FleetClient) -> None:
        """One act: heal what has been broken for long enough, else change or break something."""
        if self._broken is not None:
            self._broken.acts -= 1
            if self._broken.acts <= 0:
                broken, self._broken = self._broken, None
                await broken.heal()
                return
        acts = [self._rescale, self._rescale, self._visit]
        if self._broken is None:
            acts += [self._misspell, *([self._cut_off] if self._needing_dns else [])]
        await self._random.choice(acts)(fleet)

    @property
    def _needing_dns(self) -> list[str]:
        return [plural for plural, kind in self._kinds.items() if samples.dns.name in kind.required_adapters]

    async def _rescale(self, fleet: FleetClient) -> None:
        await self._rescale_one(fleet, self._random.choice(list(self._kinds)))

    async def _rescale_one(self, fleet: FleetClient, plural: str) -> None:
        if (chosen := await self._any(fleet, plural)) is not None:
            replicas = self._random.randint(1, 9)
            await self._patch(fleet, plural, chosen, {"replicas": replicas})
            self._say(f"asks for {replicas} replicas", resource=chosen)

    async def _misspell(self, fleet: FleetClient) -> None:
        """A spec that will not do, mended later."""
        plural = self._random.choice(list(self._kinds))
        if (chosen := await self._any(fleet, plural)) is None:
            return
        spec: dict[str, Json] = self._random.choice([{"replicas": 0}, {"replicas": "many"}, {"region": ""}])
        await self._patch(fleet, plural, chosen, spec)
        self._say(f"breaks it: {msgspec.json.encode(spec).decode()}", Tone.BAD, resource=chosen)

        self._broken = _Broken(lambda: self._heal(fleet, plural, chosen))

    async def _heal(self, fleet: FleetClient, plural: str, resource: ResourceDocument) -> None:
        await self._patch(fleet, plural, resource, {"replicas": 3, "region": _REGIONS[0]})
        self._say(f"heals it: 3 replicas in {_REGIONS[0]}", Tone.GOOD, resource=resource)

    async def _cut_off(self, fleet: FleetClient) -> None:
        """The DNS service goes away, and a resource needs it. Those of others have it all the time."""
        needing = self._needing_dns
        own = [each.id for plural in needing for each in await self._own(fleet, plural)]
        self._dns.out_of_service = frozenset(own)
        self._say("puts the DNS service out of service", Tone.BAD)

        async def heal() -> None:
            self._dns.out_of_service = ()
            self._say("puts the DNS service back in service", Tone.GOOD)

        self._broken = _Broken(heal)
        await self._rescale_one(fleet, self._random.choice(needing))

    async def _visit(self, fleet: FleetClient) -> None:
        """Somebody who comes and goes: a resource is made, or one that was made so is deleted."""
        plural, kind = next(iter(self._kinds.items()))
        if kind.parent:
            return
        guests = [each for each in await self._own(fleet, plural) if each.name in _PASSING]
        leaving = [each for each in guests if not each.is_deleting]
        free = [name for name in _PASSING if name not in {each.name for each in guests}]
        if leaving and (not free or self._random.random() < 0.5):
            await fleet.delete(plural, leaving[0].id)
            self._say("deletes it", Tone.WAITING, resource=leaving[0])
        elif free:
            await self._create(fleet, kind, free[0], self._random.randrange(len(_REGIONS)), None)

    async def _any(self, fleet: FleetClient, plural: str) -> ResourceDocument | None:
        found = [
            each for each in await self._own(fleet, plural) if each.name not in _PASSING and not each.is_deleting
        ]
        return self._random.choice(found) if found else None

    async def _own(self, fleet: FleetClient, plural: str) -> list[ResourceDocument]:
        query = {"labels": f"{LABEL}=true", "order": "name"}
        return [read(each, ResourceDocument) async for each in fleet.walk(plural, query)]

    async def _patch(
        self, fleet: FleetClient, plural: str, resource: ResourceDocument, spec: dict[str, Json]
    ) -> None:
        await fleet.patch(plural, resource.id, {"spec": spec})

    def _say(self, text: str, tone: Tone = Tone.PLAIN, *, resource: ResourceDocument | None = None) -> None:
        self._tell(
            Activity(
                at=self._clock.now(),
                source="demo",
                resource_id="" if resource is None else resource.id,
                name="" if resource is None else resource.name,
                text=text,
                tone=tone,
            )
        )


def _is_broken(resource: ResourceDocument) -> bool:
    return any(samples.spec_problems(msgspec.json.decode(resource.spec)))
