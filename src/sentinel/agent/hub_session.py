"""One session with the hub, from Register until something ends it.

Heartbeats alone are enough to reach what the hub wants. The stream of events only makes it faster. When it
ends, it is opened again, with a backoff: calls decide whether the session is still valid, not the stream.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from sentinel.agent.applier import Applier
from sentinel.agent.applier_link import ApplierLink
from sentinel.agent.observer import AgentObserver, HubFailure
from sentinel.agent.sampling import Sampling
from sentinel.core.agent.orders import Running
from sentinel.core.hub.instance import Health
from sentinel.ports.clock import Clock
from sentinel.ports.hub_client import (
    CallRefused,
    DrainNotice,
    FailureReason,
    Heartbeat,
    HubClient,
    HubUnavailable,
    InstanceStatus,
    Notice,
    Ping,
    Registration,
    Session,
    SessionEnded,
)
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.event_wait import wait_for_event

STREAM_BACKOFF: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=5), jitter=0.5)
"""Between streams. Many end at the same time, when a hub stops."""
_STABLE: Final = timedelta(minutes=1)
"""A stream that lasted longer has not failed."""
_SETTLE: Final = timedelta(seconds=10)
"""How long the first heartbeat waits for the stream, and for what is assigned to be applied."""


class HubSession:
    """A session that has not begun. It runs once."""

    def __init__(
        self,
        *,
        client: HubClient,
        applier: Applier,
        link: ApplierLink,
        sampling: Sampling,
        clock: Clock,
        observer: AgentObserver,
        on_registered: Callable[[], None],
        on_online: Callable[[], None],
        on_drain: Callable[[DrainNotice], None],
        problem: str = "",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`on_online` is called when the first heartbeat was answered. The first heartbeat reports `problem`."""
        self.answered = 0
        """How many heartbeats were answered."""
        self._client = client
        self._applier = applier
        self._link = link
        self._sampling = sampling
        self._clock = clock
        self._observer = observer
        self._on_registered = on_registered
        self._on_online = on_online
        self._on_drain = on_drain
        self._problem = problem
        self._jitter = jitter
        self._reported: Running | None = None
        self._subscribed = asyncio.Event()
        """Set when the stream is open, or could not be opened."""
        self._applier_changed = asyncio.Event()

    async def run(self, registration: Registration, uptime: Callable[[], timedelta], *, is_first: bool) -> None:
        """Run until a call fails. Raises its error, which may be in an exception group."""
        session = await self._client.register(registration)
        self._on_registered()
        self._observer.registered(session)
        self._sampling.set_interval(session.heartbeat_interval)
        if not is_first:
            self._sampling.expire()
        async with asyncio.TaskGroup() as tasks:
            if is_first:
                # What is assigned between registration and subscription comes with a heartbeat.
                tasks.create_task(self._follow_events())
                await wait_for_event(self._subscribed, _SETTLE)
            self._link.begin(session)
            has_new_version = self._applier.wanted is not None
            await self._link.exchange()
            tasks.create_task(self._serve_applier())
            if has_new_version:
                await self._settle(session)
            if not is_first:
                tasks.create_task(self._follow_events())
            while True:
                self._sampling.tick.clear()
                await self._send_heartbeat(uptime())
                await self._sampling.tick.wait()

    async def _settle(self, session: Session) -> None:
        """Wait until what is assigned was applied, or has failed, but not for long."""
        before = self._applier.running
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_SETTLE, session.heartbeat_interval).total_seconds()):
                while (running := self._applier.running).hash != session.assigned_hash:
                    if running.message != before.message:
                        return
                    self._applier_changed.clear()
                    await self._applier_changed.wait()

    async def _send_heartbeat(self, uptime: timedelta) -> None:
        self._reported = running = await self._applier.observe()
        undelivered = self._sampling.undelivered()
        heartbeat = Heartbeat(
            status=InstanceStatus(
                health=Health.DEGRADED if self._problem and running.health is Health.HEALTHY else running.health,
                message="; ".join(filter(None, (running.message, self._problem))),
                uptime=uptime,
                active_connections=self._sampling.active_connections,
            ),
            config_version=running.version,
            config_hash=running.hash,
            metrics=undelivered.metrics,
            buffered=undelivered.buffered,
        )
        try:
            answer = await self._client.heartbeat(heartbeat)
        except HubUnavailable as failure:
            if failure.reason is not FailureReason.BUSY:
                raise
            self._observer.postponed(failure)
            return
        self._sampling.delivered(undelivered)
        self._problem = ""
        self.answered += 1
        if self.answered == 1:
            self._on_online()
        self._observer.heartbeat(
            heartbeat.status, is_in_sync=not answer.is_update_available, delivered=len(undelivered.samples)
        )
        for action in answer.actions:
            self._receive(action, is_event=False)

    async def _serve_applier(self) -> None:
        """Serve the applier whenever it has changed. Only a session reads its signal."""
        changed = self._applier.changed
        while True:
            changed.clear()
            self._applier_changed.set()
            if await self._link.exchange() or self._reported not in (None, self._applier.running):
                self._sampling.tick.set()
            await changed.wait()

    async def _follow_events(self) -> None:
        failures = 0
        monotonic = asyncio.get_running_loop().time
        while True:
            opened = monotonic()
            failure = await self._follow_stream()
            self._subscribed.set()
            self._observer.unsubscribed(failure)
            if isinstance(failure, SessionEnded):
                self._sampling.tick.set()  # the answer to a heartbeat shows whether the session has ended
            failures = 0 if monotonic() - opened > _STABLE.total_seconds() else failures + 1
            await self._clock.sleep(STREAM_BACKOFF.delay(max(0, failures - 1), self._jitter()))

    async def _follow_stream(self) -> HubFailure | None:
        try:
            async with self._client.subscribe() as notices:
                self._subscribed.set()
                self._observer.subscribed()
                async for notice in notices:
                    self._receive(notice, is_event=True)
        except (HubUnavailable, SessionEnded, CallRefused) as failure:
            return failure
        return None

    def _receive(self, notice: Notice, *, is_event: bool) -> None:
        self._observer.noticed(notice, is_event=is_event)
        match notice:
            case Ping():
                if notice.server_time is not None:
                    self._observer.clock_compared(self._clock.now() - notice.server_time)
            case DrainNotice():
                self._on_drain(notice)
            case _:
                self._link.receive(notice, is_event=is_event)
