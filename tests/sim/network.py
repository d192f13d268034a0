"""The API as a process that can be killed, and the network between it and its clients.

The service is the real one on the in-memory store, without HTTP. A request may be lost before or after it took
effect, may arrive twice or late, and is cancelled when the process is killed. Each client uses the API through the
port that it uses in production, with the promises of the driver for that port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, TypeAlias, TypeVar

import msgspec

from sentinel.api.maintenance import Maintenance
from sentinel.api.service import FleetService, ResourcePath
from sentinel.core.access import Identity, Role
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource, read_document
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
from tests.sim.faults import FaultRates, Transmission
from tests.sim.fleet_checker import FleetChecker
from tests.sim.trace import Trace

T = TypeVar("T")
Request: TypeAlias = Callable[[FleetService], Awaitable[T]]

_TIMEOUT = timedelta(seconds=3)
"""How long a client waits for a response."""
_MAX_DELAY = timedelta(seconds=20)
_MAX_MAINTENANCE_DELAY = timedelta(seconds=10)
_EXPECTED_ERRORS = (Unavailable, errors.NotFound, errors.Conflict, errors.Invalid)
"""What the service may raise here. No client sends preconditions or reuses an idempotency key."""


class NoResponse(Exception):
    """No response; the request may or may not have taken effect."""


class SimulatedApi:
    """The server. Killing it cancels the requests it is processing."""

    def __init__(self, trace: Trace, random: Random, make: Callable[[], tuple[FleetService, Maintenance]]) -> None:
        self._trace = trace
        self._random = random
        self._make = make
        self._service: FleetService | None = None
        self._requests: dict[asyncio.Task[Any], None] = {}

    def start(self) -> None:
        self._trace.note("api", "starts")
        self._service, maintenance = self._make()
        self._track(asyncio.create_task(self._run_maintenance(maintenance)))

    async def kill(self) -> None:
        self._trace.note("api", "is killed")
        self._service = None
        requests = list(self._requests)
        for request in requests:
            request.cancel()
        if requests:
            await asyncio.wait(requests)

    async def serve(self, request: Request[T]) -> T:
        """Process a request. Raises what the service raises, and `NoResponse` if the process is down or is
        killed."""
        if self._service is None:
            raise NoResponse("connection refused")
        processing: asyncio.Task[T] = asyncio.create_task(_process(request, self._service))
        self._track(processing)
        # Not awaited directly: a client that disconnects does not cancel its request.
        await asyncio.wait((processing,))
        if processing.cancelled():
            raise NoResponse("connection reset")
        return processing.result()

    async def _run_maintenance(self, maintenance: Maintenance) -> None:
        # As in a large fleet, where maintenance takes a while to reach these resources.
        await asyncio.sleep(_MAX_MAINTENANCE_DELAY.total_seconds() * self._random.random())
        await maintenance.reaggregate_outdated(Stopping())

    def _track(self, request: asyncio.Task[Any]) -> None:
        self._requests[request] = None
        request.add_done_callback(self._request_ended)

    def _request_ended(self, request: asyncio.Task[Any]) -> None:
        # Checked here, because the client may no longer wait.
        del self._requests[request]
        self._trace.task_ended("api", request, *_EXPECTED_ERRORS)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until they have ended."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)


class Network:
    """The network between one client and the API."""

    def __init__(self, name: str, trace: Trace, api: SimulatedApi, faults: FaultRates) -> None:
        self.is_cut = False
        """Whether this client is disconnected."""
        self._name = name
        self._trace = trace
        self._api = api
        self._faults = faults
        self._late_requests: dict[asyncio.Task[Any], None] = {}

    async def send(self, request: Request[T]) -> T:
        """Send a request. Raises what the service raises, or `NoResponse`."""
        transmission = Transmission.LOST if self.is_cut else self._faults.transmission()
        if transmission is not Transmission.ARRIVES:
            self._trace.note(self._name, f"a request is {transmission}")
        if transmission is Transmission.LOST:
            await asyncio.sleep(_TIMEOUT.total_seconds())
            raise NoResponse("timeout")
        if transmission is Transmission.TWICE:
            self._send_late(request, self._faults.delay() * 20)
        delay = self._faults.delay()
        if delay > _TIMEOUT.total_seconds():
            self._send_late(request, delay)
            await asyncio.sleep(_TIMEOUT.total_seconds())
            raise NoResponse("timeout")
        await asyncio.sleep(delay)
        response = await self._api.serve(request)
        if transmission is Transmission.UNANSWERED:
            await asyncio.sleep(_TIMEOUT.total_seconds())
            raise NoResponse("timeout")
        return response

    async def close(self) -> None:
        """Drop all late requests."""
        await cancel_all(self._late_requests)

    def _send_late(self, request: Request[Any], delay: float) -> None:
        """Send a request that arrives late, or again, and whose response is dropped."""

        async def serve_late() -> None:
            await asyncio.sleep(min(delay, _MAX_DELAY.total_seconds()))
            await self._api.serve(request)

        late = asyncio.create_task(serve_late())
        self._late_requests[late] = None
        late.add_done_callback(self._late_request_ended)

    def _late_request_ended(self, late: asyncio.Task[Any]) -> None:
        del self._late_requests[late]
        self._trace.task_ended(self._name, late, NoResponse, *_EXPECTED_ERRORS)


class ServiceFleetReader:
    """A `FleetReader` over several kinds."""

    def __init__(
        self, network: Network, plurals: Sequence[str], *, page_size: int, has_stream: bool = False
    ) -> None:
        self._network = network
        self._plurals = plurals
        self._page_size = page_size
        self._has_stream = has_stream

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        for plural in self._plurals:
            after: ListPosition | None = None
            while True:
                query = ListQuery(plural=plural, limit=self._page_size, after=after, wants_total=False)
                documents, after = await self._fetch(query)
                resources = [read_resource(msgspec.Raw(document)) for document in documents]
                yield FleetPage(resources, version=hash(tuple(documents)), has_stream=self._has_stream)
                if after is None:
                    break

    async def close(self) -> None: ...

    async def _fetch(self, query: ListQuery) -> tuple[Sequence[bytes], ListPosition | None]:
        try:
            result = await self._network.send(lambda service: service.find(query))
        except (NoResponse, Unavailable) as error:
            raise FetchError(f"{query.plural}: {error}") from error
        return result.documents, result.last


class NetworkReporting:
    """An `AdapterApi` over the simulated network."""

    def __init__(self, network: Network, *, adapter: str, faults: FaultRates, checker: FleetChecker) -> None:
        self._network = network
        self._faults = faults
        self._checker = checker
        self._caller = Caller(Identity(adapter, Role.ADAPTER, adapter), "", "")

    async def probe(self, kind: str) -> None:
        await self.get(ResourceRef("unknown", kind=kind))

    async def get(self, ref: ResourceRef) -> Resource | None:
        async def get(service: FleetService) -> Resource:
            target = ResourcePath("", ref.id)
            stored = await service.get(target)
            return read_document(b'%b,"statuses":%b}' % (stored.document[:-1], stored.statuses)).resource

        try:
            return await self._network.send(get)
        except errors.NotFound:
            return None
        except (NoResponse, Unavailable) as error:
            raise ApiUnavailable(str(error)) from error

    async def report(self, resource: Resource, report: Report) -> ReportResult:
        # Encoded as on the wire, so that no object is shared.
        sent = msgspec.json.encode(report)

        async def put(service: FleetService) -> reports.Accepted | reports.Discarded:
            received = msgspec.json.decode(sent, type=Report)
            verdict = await service.report(ResourcePath("", resource.id), received, caller=self._caller)
            self._checker.report_answered(resource.id, received, verdict)
            return verdict

        self._checker.report_sent(resource.id, msgspec.json.decode(sent, type=Report))
        try:
            verdict = await self._network.send(put)
        except errors.NotFound:
            return ReportResult(ReportOutcome.GONE)
        except (NoResponse, Unavailable) as error:
            raise ApiUnavailable(str(error)) from error
        except errors.Invalid as error:
            if any(each.field == "observed_time" for each in error.errors):
                raise ApiUnavailable(str(error), needs_operator=True) from error
            return ReportResult(ReportOutcome.REFUSED, str(error))
        if isinstance(verdict, reports.Discarded):
            return ReportResult(ReportOutcome.DISCARDED, verdict.reason)
        return ReportResult(ReportOutcome.STORED)

    async def close(self) -> None: ...


async def _process(request: Request[T], service: FleetService) -> T:
    return await request(service)
