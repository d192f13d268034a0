"""Records the calls of an agent to its hub, in their order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from sentinel.ports.hub_client import (
    DeploymentReport,
    FetchedConfig,
    Heartbeat,
    HeartbeatResponse,
    HubClient,
    Instruction,
    Notice,
    Registration,
    Session,
)

_TIMEOUT = timedelta(days=30)
"""On virtual time. On real time, pytest ends a test that hangs."""


class RecordedCalls:
    """A client that passes each call on, and remembers those that have succeeded."""

    def __init__(self, client: HubClient) -> None:
        self.names: list[str] = []
        """Of the calls that have succeeded; `subscribe` when the stream was open."""
        self.attempts: Counter[str] = Counter()
        self.heartbeats: list[Heartbeat] = []
        """Those that were answered."""
        self.reports: list[DeploymentReport] = []
        self._client = client
        self._called = asyncio.Event()

    async def until(self, name: str, count: int = 1) -> None:
        """Wait until so many calls of this name have succeeded."""
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            while self.names.count(name) < count:
                self._called.clear()
                await self._called.wait()

    async def until_attempted(self, name: str, count: int = 1) -> None:
        """Wait until so many calls of this name have begun."""
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            while self.attempts[name] < count:
                self._called.clear()
                await self._called.wait()

    def forget(self) -> None:
        """Begin to record again."""
        self.names.clear()
        self.heartbeats.clear()
        self.attempts.clear()

    async def register(self, registration: Registration) -> Session:
        self._attempt("register")
        session = await self._client.register(registration)
        self._record("register")
        return session

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        self._attempt("heartbeat")
        answer = await self._client.heartbeat(heartbeat)
        self.heartbeats.append(heartbeat)
        self._record("heartbeat")
        return answer

    async def deregister(self, reason: str) -> None:
        self._attempt("deregister")
        await self._client.deregister(reason)
        self._record("deregister")

    async def config(self, version: str = "") -> FetchedConfig:
        self._attempt("config")
        config = await self._client.config(version)
        self._record("config")
        return config

    async def config_version(self, version: str) -> FetchedConfig:
        self._attempt("config_version")
        config = await self._client.config_version(version)
        self._record("config_version")
        return config

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[Notice]]:
        return self._subscribe()

    @asynccontextmanager
    async def _subscribe(self) -> AsyncIterator[AsyncIterator[Notice]]:
        self._attempt("subscribe")
        async with self._client.subscribe() as notices:
            self._record("subscribe")
            yield notices

    async def acknowledge(
        self, deployment_id: str, *, is_rollback: bool, is_accepted: bool, rejection_reason: str = ""
    ) -> Instruction:
        self._attempt("acknowledge")
        instruction = await self._client.acknowledge(
            deployment_id, is_rollback=is_rollback, is_accepted=is_accepted, rejection_reason=rejection_reason
        )
        self._record("acknowledge")
        return instruction

    async def report(self, report: DeploymentReport) -> Instruction:
        self._attempt("report")
        instruction = await self._client.report(report)
        self.reports.append(report)
        self._record("report")
        return instruction

    async def close(self) -> None:
        await self._client.close()

    def _attempt(self, name: str) -> None:
        self.attempts[name] += 1
        self._called.set()

    def _record(self, name: str) -> None:
        self.names.append(name)
        self._called.set()
