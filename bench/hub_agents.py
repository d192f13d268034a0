"""Agents in a process of their own, which `bench.hub` controls by lines of JSON on stdin.

    python -m bench.hub_agents ADDRESS TOKEN FIRST COUNT

Every agent has its own connection, as agents on different machines do. Each line is a `Command`; the response is a
line with a `Result`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self, TypeVar

import grpc
import msgspec

from bench.processes import raise_file_limit
from sentinel.testing.hub_agent import EventStream, HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb

TIMEOUT = timedelta(minutes=10)
"""Of a command, also with ten times as many agents."""

_CONCURRENT = 32
"""Calls at the same time, where all at once is not what is measured."""
_ATTEMPTS = 10
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
_METRICS = pb.InstanceMetrics(
    requests_total=1_000_000, latency_p50_ms=3.5, latency_p99_ms=80.0, bytes_sent=10**9, bytes_received=10**8
)

T = TypeVar("T")


class CommandName(StrEnum):
    """What the agents do."""

    CONNECT = "connect"
    """Register, subscribe and send the first heartbeat."""
    HEARTBEAT = "heartbeat"
    """Send one heartbeat each."""
    AWAIT_NOTICE = "await-notice"
    """Wait until every stream has got its CONFIG_UPDATE."""
    RECONNECT = "reconnect"
    """Drop all connections, and come back at the same time."""
    CYCLE = "cycle"
    """Subscribe and cancel, as often as `times` says."""
    LIVE = "live"
    """From now on, do by themselves what agents do: heartbeats, and what the hub tells them."""


class Command(msgspec.Struct, frozen=True):
    """A line of stdin."""

    name: CommandName
    times: int = 1


class Result(msgspec.Struct, frozen=True):
    """What the agents have done."""

    done: int = 0
    """How many agents have succeeded, or calls."""
    refused: int = 0
    """Calls that were repeated."""
    finished: float = 0.0
    """When the last one was done, by the monotonic clock of the machine."""


class Fleet:
    """Some of the agents."""

    def __init__(self, address: str, token: str, first: int, count: int) -> None:
        self._address = address
        self._token = token
        self._ids = [instance_id(number) for number in range(first, first + count)]
        self._agents: list[HubAgent] = []
        self._streams: list[EventStream] = []
        self._living: list[asyncio.Task[None]] = []
        self._refused = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def perform(self, command: Command) -> Result:
        """Do what is asked for."""
        self._refused = 0
        match command.name:
            case CommandName.CONNECT:
                self._agents = [self._agent(each) for each in self._ids]
                self._streams = await _limited(self._begin, self._agents)
                await _limited(HubAgent.heartbeat, self._agents)
                done = len(self._streams)
            case CommandName.HEARTBEAT:
                done = len(await _limited(HubAgent.heartbeat, self._agents))
            case CommandName.AWAIT_NOTICE:
                # One task for each: the last agent to be told must not wait for the first to read.
                done = len(await asyncio.gather(*map(_config_update, self._streams)))
            case CommandName.RECONNECT:
                done = await self._reconnect()
            case CommandName.CYCLE:
                agents = [self._agents[number % len(self._agents)] for number in range(command.times)]
                done = len(await _limited(_subscribe_and_cancel, agents))
            case CommandName.LIVE:
                self._agents = [self._agent(each) for each in self._ids]
                self._living = [asyncio.create_task(agent.run()) for agent in self._agents]
                done = len(self._living)
        return Result(done, self._refused, time.monotonic())

    async def _reconnect(self) -> int:
        """Return how many have a session and a stream in the end."""
        await self._close()
        self._agents = [self._agent(each) for each in self._ids]
        streams = await asyncio.gather(*map(self._begin, self._agents), return_exceptions=True)
        self._streams = [each for each in streams if isinstance(each, EventStream)]
        return len(self._streams)

    async def _begin(self, agent: HubAgent) -> EventStream:
        await self._retrying(agent.register)
        return await self._retrying(agent.subscribe)

    async def _retrying(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call again after a refusal that is temporary, as agents do."""
        for attempt in range(_ATTEMPTS):
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                if error.code() not in _RETRIED or attempt == _ATTEMPTS - 1:
                    raise
                self._refused += 1
            await asyncio.sleep(min(2.0**attempt / 10, 5.0))
        raise AssertionError("expected a result or an error")

    async def _close(self) -> None:
        for task in self._living:
            task.cancel()
        await asyncio.gather(*self._living, return_exceptions=True)
        for stream in self._streams:
            stream.cancel()
        self._streams = []
        await _limited(HubAgent.close, self._agents)
        self._agents = []

    def _agent(self, identifier: str) -> HubAgent:
        agent = HubAgent(
            self._address, identifier, registration_token=self._token, labels={"region": "eu", "tier": "edge"}
        )
        agent.metrics = _METRICS
        return agent


def instance_id(number: int) -> str:
    return f"edge-{number:05}"


async def _config_update(stream: EventStream) -> None:
    await stream.next_of(pb.Event.CONFIG_UPDATE, timeout=TIMEOUT)


async def _subscribe_and_cancel(agent: HubAgent) -> None:
    (await agent.subscribe()).cancel()


async def _limited(call: Callable[[HubAgent], Awaitable[T]], agents: Sequence[HubAgent]) -> list[T]:
    """Make a call of each agent, a few at the same time."""
    results: list[T] = []
    waiting = iter(agents)

    async def work() -> None:
        for agent in waiting:
            results.append(await call(agent))  # noqa: PERF401  # several tasks share the agents

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONCURRENT):
            tasks.create_task(work())
    return results


async def _main(address: str, token: str, first: int, count: int) -> None:
    reader = asyncio.StreamReader()
    protocol: Any = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    decoder = msgspec.json.Decoder(Command)
    async with Fleet(address, token, first, count) as fleet:
        while line := await reader.readline():
            print(msgspec.json.encode(await fleet.perform(decoder.decode(line))).decode(), flush=True)


if __name__ == "__main__":
    raise_file_limit()
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
