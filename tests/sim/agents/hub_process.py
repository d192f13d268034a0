"""A hub as a process that can be killed. Its database outlives it, and other hubs share it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar

import grpc

from sentinel.cli.wiring.hub import AgentSecurity, BuiltHub, build_hub
from sentinel.drivers.identity.session_tokens import JwtSessionTokens
from sentinel.hub.grpc.calls import SERVICE
from sentinel.hub.settings import HubSettings
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.testing.identities import MemoryIdentities
from sentinel.testing.loop import SimulatedClock
from sentinel.testing.proxy_facts import FakeProxyFacts
from sentinel.testing.signing_keys import MemorySigningKeys
from sentinel.testing.task_http import FakeHttp
from sentinel.web.audit import Auditor
from tests.sim.network import cancel_all
from tests.sim.trace import Trace
from tests.support.databases.backends import MemoryBackend

T = TypeVar("T")

SETTINGS = HubSettings(
    heartbeat_interval=timedelta(seconds=10),
    offline_threshold=timedelta(seconds=30),
    deployment_timeout=timedelta(seconds=90),
    insecure=True,
)

Run = Callable[[Stopping], Awaitable[None]]
Loops = Callable[[Sequence[Run]], Sequence[Run]]
"""Chooses which of the hub's loops run."""


class SimulatedHub:
    """The server. Killing it cancels everything that it is doing."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        backend: MemoryBackend,
        randomness: Callable[[int], bytes],
        loops: Loops = lambda loops: loops,
    ) -> None:
        self.name = name
        self.built: BuiltHub | None = None
        """None while it is down."""
        self._trace = trace
        self._backend = backend
        self._auditor = Auditor(randomness=randomness)
        self._loops = loops
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self) -> None:
        self._trace.note(self.name, "starts")
        clock = SimulatedClock()
        self.built = build_hub(
            SETTINGS,
            store=self._backend.hub,
            secret_store=self._backend.secrets,
            webhook_store=self._backend.webhooks,
            http=FakeHttp(),
            facts=FakeProxyFacts(),
            security=AgentSecurity(
                identities=MemoryIdentities({}),
                tokens=JwtSessionTokens(MemorySigningKeys(self._backend.memory), clock=clock),
                certificates=None,
                credentials=None,
                is_insecure=True,
            ),
            address=Address("127.0.0.1", 0),
            unavailable_reason=self._backend.database.unavailable_reason,
            auditor=self._auditor,
            clock=clock,
            log=self._trace.log(self.name),
        )
        for loop in self._loops(self.built.component.part.loops):
            self._do(loop(Stopping()))

    async def kill(self) -> None:
        self._trace.note(self.name, "is killed")
        self.built = None
        await cancel_all(self._tasks)

    async def call(self, method: str, request: bytes) -> bytes:
        """Process a call. Raises `AioRpcError` as the client of a channel would get it."""
        handler = self._handler(method)
        serialize, parse = handler.response_serializer, handler.request_deserializer
        response = await self._process(handler.unary_unary(parse(request), _Context()))
        return bytes(serialize(response))

    async def stream(
        self, request: bytes, *, on_open: Callable[[], None], on_event: Callable[[bytes], None]
    ) -> None:
        """Serve a stream. It ends with an `AioRpcError`, or when the caller is cancelled."""
        handler = self._handler("Subscribe")
        context = _Context(on_open=on_open, on_event=on_event)
        await self._process(handler.unary_stream(handler.request_deserializer(request), context), is_stream=True)

    async def use(self, act: Callable[[BuiltHub], Awaitable[T]]) -> T:
        """Do what a user asks for. Raises `AioRpcError` if the hub is down, or is killed meanwhile."""
        if self.built is None:
            raise _unavailable("connection refused")
        return await self._process(act(self.built))

    def _handler(self, method: str) -> Any:
        if self.built is None:
            raise _unavailable("connection refused")
        return self.built.calls.handler().service(_CallDetails(f"/{SERVICE}/{method}"))

    async def _process(self, work: Awaitable[T], *, is_stream: bool = False) -> T:
        task = self._do(work)
        try:
            # Not awaited directly: a client that disconnects does not cancel its call.
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            if is_stream:
                task.cancel()
            task.add_done_callback(_forget)
            raise
        if task.cancelled():
            raise _unavailable("connection reset")
        try:
            return task.result()  # type: ignore[no-any-return]
        except _Aborted as aborted:
            code, details = aborted.args
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details) from None

    def _do(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(partial(self._tasks.pop))
        return task


class _Context:
    """What `grpc.aio` gives to the method of a server."""

    def __init__(
        self, *, on_open: Callable[[], None] | None = None, on_event: Callable[[bytes], None] | None = None
    ) -> None:
        self._on_open = on_open
        self._on_event = on_event

    def peer(self) -> str:
        return "ipv4:10.0.0.1:40000"

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return ()

    async def send_initial_metadata(self, metadata: object) -> None:
        if self._on_open is not None:
            self._on_open()

    async def write(self, message: bytes) -> None:
        await asyncio.sleep(0)
        if self._on_event is not None:
            self._on_event(message)

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Aborted(code, details)


class _Aborted(Exception):
    """A call ends with a status."""


class _CallDetails(grpc.HandlerCallDetails):
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


def _forget(task: asyncio.Task[Any]) -> None:
    """The client is gone: nobody waits for the outcome of its call."""
    if not task.cancelled():
        task.exception()


def _unavailable(details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
