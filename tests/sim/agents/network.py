"""The network between an agent and the hub: calls, responses and events may be lost, late, doubled, out of order.

Both ends are the real ones: `GrpcHubClient` writes the messages, and the hub's table of methods reads them. Only
what is between them is simulated, so that what a status or a message means is decided by the same code as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import grpc
from google.protobuf.message import Message

from sentinel.drivers.hub_client.client import GrpcHubClient
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.sim.agents.hub_process import SimulatedHub
from tests.sim.faults import FaultRates, Transmission
from tests.sim.network import cancel_all
from tests.sim.trace import Trace

_RESPONSES: Mapping[str, type[Message]] = {
    "Register": pb.RegisterResponse,
    "Heartbeat": pb.HeartbeatResponse,
    "Deregister": pb.DeregisterResponse,
    "GetConfig": pb.GetConfigResponse,
    "GetConfigVersion": pb.GetConfigVersionResponse,
    "AckDeployment": pb.AckDeploymentResponse,
    "ReportDeploymentStatus": pb.DeploymentStatusResponse,
}
_KEEPALIVE = timedelta(seconds=40)
"""How long either end takes to notice that the other is gone without a word."""
_MAX_DELAY = timedelta(seconds=20)

Alter = Callable[[str, Any], Any]
"""Gets the name of a method, or `Event`, and a message; returns what arrives instead."""


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """The error of a call as a client gets it."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


def _unchanged(method: str, message: Any) -> Any:
    return message


class AgentLink:
    """The network of one agent."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        hubs: Sequence[SimulatedHub],
        faults: FaultRates,
        random: Random,
        on_request: Callable[[str, Message], None],
        alter_request: Alter = _unchanged,
        alter_response: Alter = _unchanged,
    ) -> None:
        """`on_request` gets each request that the agent makes, lost ones included."""
        self.name = name
        self.is_cut = False
        self.faults = faults
        self.random = random
        self.alter_response = alter_response
        self._trace = trace
        self._hubs = hubs
        self._hub = hubs[0]
        self._on_request = on_request
        self._alter_request = alter_request
        self._background: dict[asyncio.Task[None], None] = {}

    def client(self) -> GrpcHubClient:
        """A client of a new process of the agent."""
        return _Client(self)

    async def call(self, method: str, request: Message, *, timeout: float) -> Any:
        """Make a call. Raises what a channel raises."""
        if method == "Register":
            # What balances connections may choose another hub for each.
            self._hub = self.random.choice(self._hubs)
        elif method != "Heartbeat":
            self._trace.note(self.name, f"calls {method}")
        request = self._alter_request(method, request)
        self._on_request(method, request)
        try:
            async with asyncio.timeout(timeout):
                response = await self._exchange(method, request.SerializeToString())
        except TimeoutError:
            raise failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        return self.alter_response(method, _RESPONSES[method].FromString(response))

    def subscribe(self, request: Message) -> StreamCall:
        """Open a stream of events."""
        stream = StreamCall(self)
        stream.serving = self.spawn(self._serve_stream(stream, request.SerializeToString()))
        return stream

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Do something that outlives the call that caused it."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._background[task] = None
        task.add_done_callback(self._ended)
        return task

    def transmission(self, what: str) -> Transmission:
        drawn = Transmission.LOST if self.is_cut else self.faults.transmission()
        if drawn is not Transmission.ARRIVES:
            self._trace.note(self.name, f"{what} is {drawn}")
        return drawn

    def delay(self) -> float:
        return min(self.faults.delay(), _MAX_DELAY.total_seconds())

    async def close(self) -> None:
        await cancel_all(self._background)

    async def _exchange(self, method: str, request: bytes) -> bytes:
        hub, transmission = self._hub, self.transmission(method)
        if transmission is Transmission.LOST:
            await self._fail()
        if transmission is Transmission.TWICE:
            self.spawn(self._repeat(hub, method, request))
        await asyncio.sleep(self.delay())
        response = await hub.call(method, request)
        if transmission is Transmission.UNANSWERED or self.is_cut:
            await self._fail()
        await asyncio.sleep(self.delay())
        return response

    async def _fail(self) -> None:
        """Fail soon, as a connection that is reset, or by the deadline of the call."""
        if self.random.random() < 0.5:
            await asyncio.sleep(self.delay())
            raise failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        await asyncio.Event().wait()

    async def _repeat(self, hub: SimulatedHub, method: str, request: bytes) -> None:
        """Let a copy of a call arrive later. Nobody waits for its response."""
        await asyncio.sleep(min(self.delay() * 20, _MAX_DELAY.total_seconds()))
        try:
            await hub.call(method, request)
        except grpc.aio.AioRpcError:
            self._trace.note(self.name, f"a copy of {method} is refused")

    async def _serve_stream(self, stream: StreamCall, request: bytes) -> None:
        if self.transmission("Subscribe") is Transmission.LOST:
            return
        await asyncio.sleep(self.delay())
        try:
            await self._hub.stream(request, on_open=partial(self._open, stream), on_event=stream.send)
        except grpc.aio.AioRpcError as error:
            await asyncio.sleep(_KEEPALIVE.total_seconds() if self.is_cut else self.delay())
            stream.end(error)

    def _open(self, stream: StreamCall) -> None:
        if not self.is_cut:
            stream.opened.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._background[task]
        self._trace.task_ended(self.name, task)


class StreamCall:
    """The client's end of a stream, with the methods that `grpc.aio` gives it."""

    def __init__(self, link: AgentLink) -> None:
        self.opened = asyncio.Event()
        self.serving: asyncio.Task[None] | None = None
        self._link = link
        self._arrived: asyncio.Queue[pb.Event | grpc.aio.AioRpcError] = asyncio.Queue()
        self._end: grpc.aio.AioRpcError | None = None

    async def initial_metadata(self) -> None:
        await self.opened.wait()

    def done(self) -> bool:
        return self._end is not None

    async def read(self) -> pb.Event:
        if self._end is not None and self._arrived.empty():
            raise self._end
        arrived = await self._arrived.get()
        if isinstance(arrived, pb.Event):
            return arrived
        raise arrived

    def cancel(self) -> None:
        """Leave. The hub notices it, sooner or later."""
        link, serving = self._link, self.serving
        if serving is None or serving.done():
            return
        noticed = _KEEPALIVE.total_seconds() if link.is_cut else link.delay()
        asyncio.get_running_loop().call_later(noticed, serving.cancel)

    def send(self, message: bytes) -> None:
        """Let an event arrive, unless it is lost. One with a longer delay is overtaken."""
        transmission = self._link.transmission("an event")
        if transmission in (Transmission.LOST, Transmission.UNANSWERED):
            return
        event = self._link.alter_response("Event", pb.Event.FromString(message))
        self._link.spawn(self._arrive(event, self._link.delay()))
        if transmission is Transmission.TWICE:
            self._link.spawn(self._arrive(event, min(self._link.delay() * 20, _MAX_DELAY.total_seconds())))

    def end(self, error: grpc.aio.AioRpcError) -> None:
        self._end = error
        self.opened.set()
        self._arrived.put_nowait(error)

    async def _arrive(self, event: pb.Event | None, delay: float) -> None:
        await asyncio.sleep(delay)
        if event is not None:
            self._arrived.put_nowait(event)


class _Client(GrpcHubClient):
    """The client of production without a channel."""

    def __init__(self, link: AgentLink) -> None:
        super().__init__("hub.simulated:7441", link.name)
        self._stub_of_link = _Stub(link)

    def _stub(self) -> Any:
        return self._stub_of_link


class _Stub:
    def __init__(self, link: AgentLink) -> None:
        self._link = link

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._link.call, method)

    def Subscribe(self, request: Message) -> StreamCall:  # noqa: N802  # as the generated stub names it
        return self._link.subscribe(request)
