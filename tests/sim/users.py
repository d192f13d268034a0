"""The people: they create, change, delete, pause, resume and ask, over the same network as everybody else.

What they were told has happened must have happened. What they were told nothing about, they repeat: a creation
under its idempotency key, the rest as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

import msgspec

from sentinel.api.change import WrittenResource
from sentinel.api.request_bodies import ResourceDraft, ResourcePatch
from sentinel.api.service import FleetService, ResourcePath
from sentinel.core.access import Identity, Role
from sentinel.core.fleet.documents import KindRules
from sentinel.ports.errors import Unavailable
from sentinel.web import errors
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.routing import Caller
from tests.sim.fleet_witness import FleetWitness, Known
from tests.sim.network import Network, NoAnswer
from tests.sim.trace import Trace
from tests.sim.trades import CLUSTERS, NODEPOOLS

_CALLER = Caller(Identity("ops", Role.OPERATOR), "", "")
_TRIES = 3


class Users:
    """All of them."""

    def __init__(self, trace: Trace, *, network: Network, witness: FleetWitness, random: Random) -> None:
        self.network = network
        self._trace = trace
        self._witness = witness
        self._random = random
        self._numbers = count(1)

    async def act(self) -> None:
        """One of them does something."""
        live = self._live()
        clusters = [each for each in live if each.plural == CLUSTERS.plural]
        match self._random.randrange(10):
            case 0 if len(clusters) < 3:
                await self.create(CLUSTERS)
            case 1 if clusters and len(live) < 4:
                await self.create(NODEPOOLS, self._random.choice(clusters).document.id)
            case 2 | 3 | 4 if live:
                await self._patch(self._random.choice(live))
            case 5 if len(live) > 1:
                await self._delete(self._random.choice(live))
            case 6 if live:
                await self._mark(self._random.choice(live), FleetService.pause)
            case 7 if live:
                await self._mark(self._random.choice(live), FleetService.resume)
            case 8 if live:
                await self._mark(self._random.choice(live), FleetService.request_pulse)
            case 9 if self._random.random() < 0.3:
                await self._force()

    async def resume_all(self) -> None:
        """What was paused is paused no longer: nobody expects it to become ready otherwise."""
        for known in list(self._witness.resources.values()):
            if known.document.paused is True:
                await self._mark(known, FleetService.resume)

    async def create(self, kind: KindRules, parent: str | None = None) -> None:
        number = next(self._numbers)
        # Short ids of their own: a trace is read by people.
        draft = ResourceDraft(f"n{number}", msgspec.Raw(b'{"v":0}'), {}, f"{kind.plural[0]}{number}")

        async def create(service: FleetService) -> WrittenResource:
            created = await service.create(
                kind, draft, parent=parent, caller=_CALLER, key=IdempotencyKey("ops", f"key-{number}", "same")
            )
            return created.written

        # Nobody else has a reason to use its id, or its name; but what it is to belong to may go meanwhile.
        await self._insist(f"create {draft.id}", create, is_refusable=parent is not None)

    async def _patch(self, known: Known) -> None:
        target = ResourcePath(known.plural, known.document.id)
        # Now and then they ask for what they have already, and that changes nothing.
        value = known.value if self._random.random() < 0.2 else next(self._numbers)

        async def patch(service: FleetService) -> WrittenResource:
            return await service.patch(target, ResourcePatch(spec={"v": value}), if_match=None, caller=_CALLER)

        await self._insist(f"patch {target.id} to {value}", patch, value=value)

    async def _delete(self, known: Known) -> None:
        target = ResourcePath(known.plural, known.document.id)
        await self._insist(
            f"delete {target.id}", lambda service: service.delete(target, if_match=None, caller=_CALLER)
        )

    async def _force(self) -> None:
        deleting = [each for each in self._witness.resources.values() if each.document.is_deleting]
        if not deleting:
            return
        known = self._random.choice(deleting)
        target = ResourcePath(known.plural, known.document.id)
        self._witness.forced(target.id)

        async def force(service: FleetService) -> None:
            await service.force_delete(target, reason="by chance", caller=_CALLER)

        await self._insist(f"force-delete {target.id}", force)

    async def _mark(self, known: Known, mark: Callable[..., Awaitable[WrittenResource]]) -> None:
        target = ResourcePath(known.plural, known.document.id)
        await self._insist(f"{mark.__name__} {target.id}", lambda service: mark(service, target, caller=_CALLER))

    async def _insist(
        self,
        what: str,
        request: Callable[[FleetService], Awaitable[WrittenResource | None]],
        *,
        value: int | None = None,
        is_refusable: bool = True,
    ) -> None:
        """Asks until there is an answer; a refusal is one."""
        for _ in range(_TRIES):
            self._trace.note("user", what)
            try:
                written = await self.network.ask(request)
            except (NoAnswer, Unavailable):
                continue
            except (errors.NotFound, errors.Conflict) as refusal:
                self._trace.note("user", f"{what} is refused", refusal)
                self._trace.require(is_refusable, "what nothing speaks against is refused:", what)
                return
            if written is not None:
                self._witness.wrote(written.document, value)
            return

    def _live(self) -> list[Known]:
        return [each for each in self._witness.resources.values() if not each.document.is_deleting]
