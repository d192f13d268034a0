"""The demo of `sentinel up --demo`: a user of a small fleet.

It is an ordinary client. It creates clusters and node pools through the API, then changes, breaks and repairs them
at random. It also takes the DNS service down for its own zones. Pulses and adapters handle the rest.

A label marks its resources, so that it touches no others and continues with them after a restart.
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
from sentinel.cli.client.fleet import FleetClient, decode
from sentinel.cli.up.activity import Activity, ActivityLevel, OnActivity
from sentinel.core.fleet.documents import KindRules, ResourceDocument
from sentinel.core.json import Json
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping

LABEL = "sentinel-demo"
INTERVAL = timedelta(seconds=6)
"""The average time between actions, long enough to see the effect of each."""

_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord")
_TEMPORARY_NAMES = ("guest-1", "guest-2", "guest-3")
_REGIONS = ("us-east", "us-west", "eu-north")
_ACTIONS_UNTIL_REPAIR = 3


class Outage(Protocol):
    """A service that can be taken down for some resources, given by their ids."""

    out_of_service: Collection[str]


class _Failure(msgspec.Struct):
    """A failure that the demo has caused."""

    repair: Callable[[], Awaitable[None]]
    actions_left: int = _ACTIONS_UNTIL_REPAIR


class Demo:
    """A simulated user."""

    def __init__(
        self,
        *,
        connect: Callable[[], ServerConnection],
        kinds: Sequence[KindRules],
        dns: Outage,
        on_activity: OnActivity,
        clock: Clock,
        random: Random,
    ) -> None:
        self._connect = connect
        self._kinds = {kind.plural: kind for kind in kinds}
        self._dns = dns
        self._on_activity = on_activity
        self._clock = clock
        self._random = random
        self._failure: _Failure | None = None
        self._taken: set[tuple[str, str]] = set()
        """Plurals and names that other users have taken."""

    async def run(self, stopping: Stopping) -> None:
        """Act until stopped. Errors are shown, and the next action is tried later."""
        if not self._kinds:
            await stopping.wait()  # no adapter would respond
            return
        async with self._connect() as connection:
            fleet = FleetClient(connection)
            while not stopping.requested:
                if await stopping.interrupts(self._act(fleet)):
                    break
                if await stopping.interrupts(self._clock.sleep(INTERVAL * self._random.uniform(0.7, 1.3))):
                    break
        self._dns.out_of_service = ()

    async def _act(self, fleet: FleetClient) -> None:
        try:
            if not await self._restore(fleet):
                await self._act_at_random(fleet)
        except ServerError as error:
            self._emit(f"failed: {error}", ActivityLevel.ERROR)

    async def _restore(self, fleet: FleetClient) -> bool:
        """Create missing resources and repair those that an earlier start left broken. Return whether there were
        any."""
        is_restored = False
        for kind in self._kinds.values():
            if kind.parent and kind.parent not in self._kinds:
                continue
            own = await self._list_own(fleet, kind.plural)
            known = {each.name for each in own}
            owners = await self._list_own(fleet, kind.parent) if kind.parent else []
            parents = {each.name: each for each in owners if not each.is_deleting}
            for index, name in enumerate(_NAMES):
                full_name = f"{name}-pool" if kind.parent else name
                if full_name not in known and (not kind.parent or name in parents):
                    is_restored |= await self._create(fleet, kind, full_name, index, parents.get(name))
            for each in own:
                if self._failure is None and not each.is_deleting and _is_broken(each):
                    is_restored = True
                    await self._repair(fleet, kind.plural, each)
        return is_restored

    async def _create(
        self, fleet: FleetClient, kind: KindRules, name: str, region_index: int, parent: ResourceDocument | None
    ) -> bool:
        """Create a resource unless another user has taken its name. Return whether it was created."""
        if (kind.plural, name) in self._taken:
            return False
        region = _REGIONS[region_index % len(_REGIONS)]
        body: dict[str, Json] = {
            "name": name,
            "labels": {LABEL: "true", "region": region},
            "spec": {"region": region, "replicas": 3},
        }
        if parent is not None:
            body["owner_references"] = {"id": parent.id}
        try:
            created = await fleet.create(kind.plural, body)
        except RequestRejected as rejected:
            if rejected.status != HTTPStatus.CONFLICT:
                raise
            self._taken.add((kind.plural, name))
            self._emit(f"skips {kind.kind} {name}: the name is taken")
            return False
        self._emit(f"creates a {kind.kind} in {region}", resource=created.document)
        return True

    async def _act_at_random(self, fleet: FleetClient) -> None:
        """Repair the current failure if it has lasted long enough, else change or break something."""
        if self._failure is not None:
            self._failure.actions_left -= 1
            if self._failure.actions_left <= 0:
                failure, self._failure = self._failure, None
                await failure.repair()
                return
        actions = [self._scale, self._scale, self._create_or_delete_temporary]
        if self._failure is None:
            actions += [self._break_spec, *([self._break_dns] if self._plurals_with_dns else [])]
        await self._random.choice(actions)(fleet)

    @property
    def _plurals_with_dns(self) -> list[str]:
        return [plural for plural, kind in self._kinds.items() if samples.dns.name in kind.required_adapters]

    async def _scale(self, fleet: FleetClient) -> None:
        await self._scale_one(fleet, self._random.choice(list(self._kinds)))

    async def _scale_one(self, fleet: FleetClient, plural: str) -> None:
        if (chosen := await self._choose(fleet, plural)) is not None:
            replicas = self._random.randint(1, 9)
            await fleet.patch(plural, chosen.id, {"spec": {"replicas": replicas}})
            self._emit(f"scales it to {replicas} replicas", resource=chosen)

    async def _break_spec(self, fleet: FleetClient) -> None:
        plural = self._random.choice(list(self._kinds))
        if (chosen := await self._choose(fleet, plural)) is None:
            return
        spec: dict[str, Json] = self._random.choice([{"replicas": 0}, {"replicas": "many"}, {"region": ""}])
        await fleet.patch(plural, chosen.id, {"spec": spec})
        self._emit(f"breaks it: {msgspec.json.encode(spec).decode()}", ActivityLevel.ERROR, resource=chosen)
        self._failure = _Failure(lambda: self._repair(fleet, plural, chosen))

    async def _repair(self, fleet: FleetClient, plural: str, resource: ResourceDocument) -> None:
        await fleet.patch(plural, resource.id, {"spec": {"replicas": 3, "region": _REGIONS[0]}})
        self._emit(f"repairs it: 3 replicas in {_REGIONS[0]}", ActivityLevel.SUCCESS, resource=resource)

    async def _break_dns(self, fleet: FleetClient) -> None:
        """Take the DNS service down for the demo's own resources, and change one that needs it."""
        plurals = self._plurals_with_dns
        own = [each.id for plural in plurals for each in await self._list_own(fleet, plural)]
        self._dns.out_of_service = frozenset(own)
        self._emit("takes the DNS service down", ActivityLevel.ERROR)

        async def repair() -> None:
            self._dns.out_of_service = ()
            self._emit("brings the DNS service back up", ActivityLevel.SUCCESS)

        self._failure = _Failure(repair)
        await self._scale_one(fleet, self._random.choice(plurals))

    async def _create_or_delete_temporary(self, fleet: FleetClient) -> None:
        plural, kind = next(iter(self._kinds.items()))
        if kind.parent:
            return
        existing = [each for each in await self._list_own(fleet, plural) if each.name in _TEMPORARY_NAMES]
        deletable = [each for each in existing if not each.is_deleting]
        free = [name for name in _TEMPORARY_NAMES if name not in {each.name for each in existing}]
        if deletable and (not free or self._random.random() < 0.5):
            await fleet.delete(plural, deletable[0].id)
            self._emit("deletes it", ActivityLevel.PENDING, resource=deletable[0])
        elif free:
            await self._create(fleet, kind, free[0], self._random.randrange(len(_REGIONS)), None)

    async def _choose(self, fleet: FleetClient, plural: str) -> ResourceDocument | None:
        own = await self._list_own(fleet, plural)
        candidates = [each for each in own if each.name not in _TEMPORARY_NAMES and not each.is_deleting]
        return self._random.choice(candidates) if candidates else None

    async def _list_own(self, fleet: FleetClient, plural: str) -> list[ResourceDocument]:
        query = {"labels": f"{LABEL}=true", "order": "name"}
        return [decode(item, ResourceDocument) async for item in fleet.list_all(plural, query)]

    def _emit(
        self, text: str, level: ActivityLevel = ActivityLevel.INFO, *, resource: ResourceDocument | None = None
    ) -> None:
        self._on_activity(
            Activity(
                at=self._clock.now(),
                source="demo",
                resource_id="" if resource is None else resource.id,
                name="" if resource is None else resource.name,
                text=text,
                level=level,
            )
        )


def _is_broken(resource: ResourceDocument) -> bool:
    return any(samples.spec_problems(msgspec.json.decode(resource.spec)))
