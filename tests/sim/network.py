"""The API as a process that can be killed, and the network between it and everybody who uses it.

The service is the real one, on the store in memory; HTTP is left out. What is asked of it travels, may be lost
before or after it took effect, may arrive twice or late, and dies with the process. Each client sees it through
the port that it uses in production, with the promises of the driver that stands there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias, TypeVar

import msgspec

from sentinel.api.maintenance import Maintenance
from sentinel.api.service import FleetService, ResourcePath
from sentinel.core.access import Identity, Role
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource, read_document, read_statuses, with_reports
from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import Report
from sentinel.core.pulse.observation import read_resource
from sentinel.ports.adapter_api import ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable, Unavailable
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.ports.fleet_store import ListPosition, ListQuery
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.web import errors
from sentinel.web.routing import Caller
from tests.sim.chance import Fate, Weather
from tests.sim.fleet_witness import FleetWitness
from tests.sim.trace import Trace

T = TypeVar("T")
Request: TypeAlias = Callable[[FleetService], Awaitable[T]]

_TIMEOUT = timedelta(seconds=3)
"""How long a client waits for an answer."""
_LONGEST_WAY = timedelta(seconds=20)
_CATCHING_UP = timedelta(seconds=10)
_ANSWERS = (Unavailable, errors.NotFound, errors.Conflict, errors.Invalid)
"""What the service may raise here. Nobody asks under a precondition, or for two things under one key."""


class NoAnswer(Exception):
    """The request may or may not have been carried out."""


class ApiProcess:
    """The server: while it is up it carries out requests, and when it is killed they die in the middle."""

    def __init__(self, trace: Trace, random: Random, make: Callable[[], tuple[FleetService, Maintenance]]) -> None:
        self._trace = trace
        self._random = random
        self._make = make
        self._service: FleetService | None = None
        self._requests: dict[asyncio.Task[Any], None] = {}

    def start(self) -> None:
        self._trace.note("api", "starts")
        self._service, upkeep = self._make()
        self._keep(asyncio.create_task(self._keep_up(upkeep)))

    async def kill(self) -> None:
        self._trace.note("api", "is killed")
        self._service = None
        requests = list(self._requests)
        for request in requests:
            request.cancel()
        if requests:
            await asyncio.wait(requests)

    async def serve(self, request: Request[T]) -> T:
        """The answer; raises what the service raises, and `NoAnswer` where the process is not there, or dies."""
        if self._service is None:
            raise NoAnswer("connection refused")
        carrying_out: asyncio.Task[T] = asyncio.create_task(_carry_out(request, self._service))
        self._keep(carrying_out)
        # Not awaited itself: a client that goes away leaves its request to be carried out.
        await asyncio.wait((carrying_out,))
        if carrying_out.cancelled():
            raise NoAnswer("connection reset")
        return carrying_out.result()

    async def _keep_up(self, upkeep: Maintenance) -> None:
        # The fleet is really a large one, and it takes a while until it is the turn of these few.
        await asyncio.sleep(_CATCHING_UP.total_seconds() * self._random.random())
        await upkeep.reaggregate_outdated(Stopping())

    def _keep(self, request: asyncio.Task[Any]) -> None:
        self._requests[request] = None
        request.add_done_callback(self._over)

    def _over(self, request: asyncio.Task[Any]) -> None:
        """Looked at here, because the client may have gone by now."""
        del self._requests[request]
        self._trace.ended("api", request, *_ANSWERS)


class Network:
    """The way of one client to the API."""

    def __init__(self, name: str, trace: Trace, api: ApiProcess, weather: Weather) -> None:
        self.is_cut = False
        """Whether this client can reach nobody at present."""
        self._name = name
        self._trace = trace
        self._api = api
        self._weather = weather
        self._strays: dict[asyncio.Task[Any], None] = {}

    async def ask(self, request: Request[T]) -> T:
        """The answer; raises what the service raises, or `NoAnswer`."""
        fate = Fate.LOST if self.is_cut else self._weather.fate()
        if fate is not Fate.ARRIVES:
            self._trace.note(self._name, f"a request is {fate}")
        if fate is Fate.LOST:
            await asyncio.sleep(_TIMEOUT.total_seconds())
            raise NoAnswer("no answer in time")
        if fate is Fate.TWICE:
            self._stray(request, self._weather.delay() * 20)
        delay = self._weather.delay()
        if delay > _TIMEOUT.total_seconds():
            self._stray(request, delay)
            await asyncio.sleep(_TIMEOUT.total_seconds())
            raise NoAnswer("no answer in time")
        await asyncio.sleep(delay)
        answer = await self._api.serve(request)
        if fate is Fate.UNANSWERED:
            await asyncio.sleep(_TIMEOUT.total_seconds())
            raise NoAnswer("no answer in time")
        return answer

    async def close(self) -> None:
        """What is still on its way arrives nowhere."""
        strays = list(self._strays)
        for stray in strays:
            stray.cancel()
        if strays:
            await asyncio.wait(strays)

    def _stray(self, request: Request[Any], delay: float) -> None:
        """A request that arrives late, or once more; nobody waits for its answer any longer."""

        async def wander() -> None:
            await asyncio.sleep(min(delay, _LONGEST_WAY.total_seconds()))
            await self._api.serve(request)

        stray = asyncio.create_task(wander())
        self._strays[stray] = None
        stray.add_done_callback(self._arrived)

    def _arrived(self, stray: asyncio.Task[Any]) -> None:
        del self._strays[stray]
        self._trace.ended(self._name, stray, NoAnswer, *_ANSWERS)


class WalkedFleet:
    """`ports.Fleet`, for a pulse that looks after several kinds."""

    def __init__(self, network: Network, plurals: Sequence[str], *, page_size: int) -> None:
        self._network = network
        self._plurals = plurals
        self._page_size = page_size

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        for plural in self._plurals:
            after: ListPosition | None = None
            while True:
                query = ListQuery(plural=plural, limit=self._page_size, after=after, wants_total=False)
                documents, after = await self._fetch(query)
                yield FleetPage([read_resource(msgspec.Raw(document)) for document in documents])
                if after is None:
                    break

    async def close(self) -> None: ...

    async def _fetch(self, query: ListQuery) -> tuple[Sequence[bytes], ListPosition | None]:
        try:
            found = await self._network.ask(lambda service: service.find(query))
        except (NoAnswer, Unavailable) as error:
            raise FetchError(f"{query.plural}: {error}") from error
        return found.documents, found.last


class NetworkReporting:
    """`ports.adapter_api.AdapterApi`."""

    def __init__(self, network: Network, *, adapter: str, weather: Weather, witness: FleetWitness) -> None:
        self._network = network
        self._weather = weather
        self._witness = witness
        self._caller = Caller(Identity(adapter, Role.ADAPTER, adapter), "", "")

    async def probe(self, kind: str) -> None:
        await self.get(ResourceRef("nobody", kind=kind))

    async def get(self, ref: ResourceRef) -> Resource | None:
        async def get(service: FleetService) -> Resource:
            target = ResourcePath("", ref.id)
            document = (await service.get(target)).document
            await asyncio.sleep(self._weather.delay())  # these are two requests, and much may happen between them
            statuses = b'{"items":%b,"total":0}' % (await service.get(target)).statuses
            return with_reports(read_document(document), read_statuses(statuses).items)

        try:
            return await self._network.ask(get)
        except errors.NotFound:
            return None
        except (NoAnswer, Unavailable) as error:
            raise ApiUnavailable(str(error)) from error

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        # As it is on the wire, so that what one party holds is never changed by another.
        sent = msgspec.json.encode(report)

        async def put(service: FleetService) -> reports.Accepted | reports.Discarded:
            received = msgspec.json.decode(sent, type=Report)
            verdict = await service.report(ResourcePath("", resource.id), received, caller=self._caller)
            self._witness.judged(resource.id, received, verdict)
            return verdict

        self._witness.sent(resource.id, msgspec.json.decode(sent, type=Report))
        try:
            verdict = await self._network.ask(put)
        except errors.NotFound:
            return ReportResult(ReportOutcome.GONE)
        except (NoAnswer, Unavailable) as error:
            raise ApiUnavailable(str(error)) from error
        except errors.Invalid as error:
            if any(each.field == "observed_time" for each in error.errors):
                raise ApiUnavailable(str(error), needs_operator=True) from error
            return ReportResult(ReportOutcome.REFUSED, str(error))
        if isinstance(verdict, reports.Discarded):
            return ReportResult(ReportOutcome.DISCARDED, verdict.reason)
        return ReportResult(ReportOutcome.STORED)

    async def close(self) -> None: ...


async def _carry_out(request: Request[T], service: FleetService) -> T:
    return await request(service)
