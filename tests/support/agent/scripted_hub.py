"""A hub in memory, as one agent sees it. A test says when it is away, and what it wants.

For tests on virtual time. What a real hub answers is tested with a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.versions import content_hash
from sentinel.ports.hub_client import (
    CallRefused,
    DeploymentReport,
    FailureReason,
    FetchedConfig,
    Heartbeat,
    HeartbeatResponse,
    HubUnavailable,
    Instruction,
    Notice,
    Registration,
    Session,
    SessionEnded,
)

AWAY = HubUnavailable("failed to connect", FailureReason.UNAVAILABLE)


class ScriptedHub:
    """A client of a hub that exists only here."""

    def __init__(self, *, heartbeat_interval: timedelta = timedelta(seconds=30)) -> None:
        self.failure: HubUnavailable | CallRefused | SessionEnded | None = None
        """What every call raises."""
        self.stream_failure: HubUnavailable | CallRefused | SessionEnded | None = None
        """What Subscribe raises."""
        self.heartbeat_failure: HubUnavailable | CallRefused | SessionEnded | None = None
        self.refused_report: CallRefused | None = None
        self.assigned = ""
        self.contents: dict[str, str] = {}
        self.actions: Sequence[Notice] = ()
        self.instruction = Instruction.NONE
        self.samples: list[Sample] = []
        """Delivered as buffered."""
        self.reasons: list[str] = []
        """Of deregistrations."""
        self.registrations: list[Registration] = []
        self.reports: list[DeploymentReport] = []
        self.acknowledgements: list[tuple[str, bool, bool, str]] = []
        self._interval = heartbeat_interval
        self._events: asyncio.Queue[Notice | None] = asyncio.Queue()

    def send(self, notice: Notice | None) -> None:
        """Send an event on the stream; None ends the stream."""
        self._events.put_nowait(notice)

    async def register(self, registration: Registration) -> Session:
        self._check()
        self.registrations.append(registration)
        content = self.contents.get(self.assigned)
        return Session(
            assigned_version=self.assigned,
            assigned_hash="" if content is None else content_hash(content),
            heartbeat_interval=self._interval,
            expires=None,
        )

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        self._check()
        if self.heartbeat_failure is not None:
            raise self.heartbeat_failure
        self.samples.extend(heartbeat.buffered)
        content = self.contents.get(self.assigned)
        return HeartbeatResponse(
            is_update_available=content is not None and heartbeat.config_hash != content_hash(content),
            assigned_version=self.assigned,
            actions=self.actions,
        )

    async def deregister(self, reason: str) -> None:
        self._check()
        self.reasons.append(reason)

    async def config(self, version: str = "") -> FetchedConfig:
        self._check()
        name = version or self.assigned
        if name not in self.contents:
            raise CallRefused("never assigned", FailureReason.DENIED)
        return FetchedConfig(version=name, hash=content_hash(self.contents[name]), content=self.contents[name])

    async def config_version(self, version: str) -> FetchedConfig:
        return await self.config(version)

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[Notice]]:
        self._check()
        if self.stream_failure is not None:
            raise self.stream_failure
        yield self._notices()

    async def acknowledge(
        self, deployment_id: str, *, is_rollback: bool, is_accepted: bool, rejection_reason: str = ""
    ) -> Instruction:
        self._check()
        self.acknowledgements.append((deployment_id, is_rollback, is_accepted, rejection_reason))
        return self.instruction

    async def report(self, report: DeploymentReport) -> Instruction:
        self._check()
        if self.refused_report is not None:
            raise self.refused_report
        self.reports.append(report)
        return self.instruction

    async def close(self) -> None:
        pass

    async def _notices(self) -> AsyncIterator[Notice]:
        while (notice := await self._events.get()) is not None:
            yield notice

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
