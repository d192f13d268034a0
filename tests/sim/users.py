"""Simulated users: they create, change, delete, pause, resume and request pulses over the simulated network.

A write that was reported to a user as successful must have happened. Without a response users repeat the request:
a creation with its idempotency key, other requests unchanged.
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
from tests.sim.adapters import CLUSTERS, NODEPOOLS
from tests.sim.fleet_checker import FleetChecker, TrackedResource
from tests.sim.network import Network, NoResponse
from tests.sim.trace import Trace

_CALLER = Caller(Identity("ops", Role.OPERATOR), "", "")
_MAX_ATTEMPTS = 3


class Users:
    """All users of a simulation."""

    def __init__(self, trace: Trace, *, network: Network, checker: FleetChecker, random: Random) -> None:
        self.network = network
        self._numbers = count(1)
        self._trace = trace
        self._checker = checker
        self._random = random

    async def act(self) -> None:
        """Perform a random action."""
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
        """Resume all paused resources, which could not become ready otherwise."""
        for known in list(self._checker.resources.values()):
            if known.document.paused is True:
                await self._mark(known, FleetService.resume)

    async def create(self, kind: KindRules, parent: str | None = None) -> None:
        number = next(self._numbers)
        # Short ids keep the trace readable.
        draft = ResourceDraft(f"n{number}", msgspec.Raw(b'{"v":0}'), {}, f"{kind.plural[0]}{number}")

        async def create(service: FleetService) -> WrittenResource:
            created = await service.create(
                kind, draft, parent=parent, caller=_CALLER, key=IdempotencyKey("ops", f"key-{number}", "same")
            )
            return created.written

        # No other request uses its id or name, but its parent may be deleted meanwhile.
        await self._send(f"create {draft.id}", create, may_be_rejected=parent is not None)

    async def _patch(self, known: TrackedResource) -> None:
        target = ResourcePath(known.plural, known.document.id)
        # Some patches change nothing.
        value = known.value if self._random.random() < 0.2 else next(self._numbers)

        async def patch(service: FleetService) -> WrittenResource:
            return await service.patch(target, ResourcePatch(spec={"v": value}), if_match=None, caller=_CALLER)

        await self._send(f"patch {target.id} to {value}", patch, value=value)

    async def _delete(self, known: TrackedResource) -> None:
        target = ResourcePath(known.plural, known.document.id)
        await self._send(
            f"delete {target.id}", lambda service: service.delete(target, if_match=None, caller=_CALLER)
        )

    async def _force(self) -> None:
        deleting = [each for each in self._checker.resources.values() if each.document.is_deleting]
        if not deleting:
            return
        known = self._random.choice(deleting)
        target = ResourcePath(known.plural, known.document.id)
        self._checker.force_deleted(target.id)

        async def force(service: FleetService) -> None:
            await service.force_delete(target, reason="simulated", caller=_CALLER)

        await self._send(f"force-delete {target.id}", force)

    async def _mark(self, known: TrackedResource, mark: Callable[..., Awaitable[WrittenResource]]) -> None:
        target = ResourcePath(known.plural, known.document.id)
        await self._send(f"{mark.__name__} {target.id}", lambda service: mark(service, target, caller=_CALLER))

    async def _send(
        self,
        what: str,
        request: Callable[[FleetService], Awaitable[WrittenResource | None]],
        *,
        value: int | None = None,
        may_be_rejected: bool = True,
    ) -> None:
        """Send a request until there is a response; a rejection is one."""
        for _ in range(_MAX_ATTEMPTS):
            self._trace.note("user", what)
            try:
                written = await self.network.send(request)
            except (NoResponse, Unavailable):
                continue
            except (errors.NotFound, errors.Conflict) as rejection:
                self._trace.note("user", f"{what} is rejected", rejection)
                self._trace.require(may_be_rejected, "a valid request is rejected:", what)
                return
            if written is not None:
                self._checker.write_confirmed(written.document, value)
            return

    def _live(self) -> list[TrackedResource]:
        return [each for each in self._checker.resources.values() if not each.document.is_deleting]
