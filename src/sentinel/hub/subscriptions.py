"""The streams of events to agents: one for each instance.

A stream keeps no queue of events, only the latest desired state that the agent was not told yet, and a ping. So a
slow reader costs no memory, gets the latest state when it reads again, and keeps nobody else waiting. What it has
missed, its heartbeats tell it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

import msgspec

from sentinel.core.hub.deployment import Strategy, TargetVersion
from sentinel.core.hub.instance import Drain, SendDrain, StreamOpened, Timeouts, advance
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Assignment
from sentinel.hub.observer import HubObserver
from sentinel.hub.refusals import CallRefused, RefusalReason, exhausted, precondition, unauthenticated, unavailable
from sentinel.hub.registry import KnownInstance, Registry
from sentinel.hub.sessions import AgentCall, Session, Sessions
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import InstanceRecord
from sentinel.ports.peer_certificates import PeerCertificate, PeerCertificates
from sentinel.runtime.lifecycle.stopping import Stopping

MAX_STREAMS: Final = 50_000
_CHECK_INTERVAL: Final = timedelta(seconds=1)


class ConfigUpdate(msgspec.Struct, frozen=True):
    """Another version is assigned."""

    assignment: Assignment


class DeploymentNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment wants the instance to run a version."""

    deployment_id: str
    version: TargetVersion
    strategy: Strategy
    batch_position: int
    batch_total: int
    begun: datetime
    deadline: datetime
    is_rollback: bool


class DrainNotice(msgspec.Struct, frozen=True):
    """Finish connections and deregister."""

    drain: Drain


class Ping(msgspec.Struct, frozen=True):
    """The stream is alive."""

    time: datetime


Notice: TypeAlias = ConfigUpdate | DeploymentNotice | DrainNotice | Ping


class DeploymentNotices(Protocol):
    """Knows what deployments want of instances, without a query."""

    def notice(self, instance: InstanceRecord) -> DeploymentNotice | None:
        """Return what a deployment in progress wants of an instance whose agent has not answered yet."""


class Subscription:
    """One open stream."""

    __slots__ = (
        "_desired",
        "_end",
        "_ping",
        "_sent",
        "_woken",
        "certificate",
        "known",
        "sent_time",
        "session",
        "told",
    )

    def __init__(self, known: KnownInstance, certificate: PeerCertificate | None, now: datetime) -> None:
        self.known = known
        self.session = known.session
        self.certificate = certificate
        self.sent_time = now
        """When something was last sent, or put here to be sent."""
        self.told: Assignment | None = None
        """The assignment that was last sent here. A stream that breaks may lose it, so the next one sends it
        again, unless the agent has fetched it."""
        self._desired: Notice | None = None
        self._sent: Notice | None = None
        self._ping: Ping | None = None
        self._end: CallRefused | None = None
        self._woken = asyncio.Event()

    def tell(self, desired: Notice | None) -> bool:
        """Send this when the reader takes it, in place of what was not sent yet. Returns whether it is new."""
        is_new = desired is not None and desired != self._sent
        self._desired = desired if is_new else None
        if is_new:
            self._woken.set()
        return is_new

    def ping(self, ping: Ping) -> None:
        """Send a ping, in place of one that was not sent yet."""
        self._ping = ping
        self._woken.set()

    def end(self, reason: CallRefused) -> None:
        """End the stream. The first reason counts."""
        self._end = self._end or reason
        self._woken.set()

    async def next(self) -> Notice:
        """Wait for something to send. Raises `CallRefused` when the stream has to end."""
        while True:
            if self._end is not None:
                raise self._end
            if self._desired is not None:
                self._sent, self._desired = self._desired, None
                return self._sent
            if self._ping is not None:
                ping, self._ping = self._ping, None
                return ping
            self._woken.clear()
            await self._woken.wait()


class Subscriptions:
    """All open streams of this process. It listens to the registry."""

    def __init__(
        self,
        *,
        registry: Registry,
        sessions: Sessions,
        deployments: DeploymentNotices,
        certificates: PeerCertificates | None,
        timeouts: Timeouts,
        ping_interval: timedelta,
        clock: Clock,
        observer: HubObserver,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._sessions = sessions
        self._deployments = deployments
        self._certificates = certificates
        self._timeouts = timeouts
        self._ping_interval = ping_interval
        self._clock = clock
        self._observer = observer
        self.max_streams = max_streams
        self._open: OrderedDict[str, Subscription] = OrderedDict()
        """By instance, those first that were sent something longest ago."""
        self._is_closed = False
        self._revoked: frozenset[int] = frozenset()
        registry.notify(self)

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def open(self, call: AgentCall) -> AsyncIterator[Subscription]:
        """Open the stream of an agent, which ends an earlier one. Raises `CallRefused`, `Unavailable`."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            subscription = self._add(session, call.certificate)
            self._observer.stream_opened()
            try:
                yield subscription
            finally:
                self._observer.stream_closed()
                if self._open.get(session.known.id) is subscription:
                    del self._open[session.known.id]

    def instance_changed(self, known: KnownInstance) -> None:
        """Tell the agent what it has to know, or end its stream."""
        subscription = self._open.get(known.id)
        if subscription is None:
            return
        subscription.known = known
        if known.session != subscription.session:
            subscription.end(unauthenticated("the session has ended"))
        elif known.life.state is State.REMOVED:
            subscription.end(precondition("the instance was removed"))
        else:
            self._update(subscription)

    def steps_changed(self, instance_ids: Sequence[str]) -> None:
        """Tell agents what a deployment wants of them."""
        for instance_id in instance_ids:
            subscription = self._open.get(instance_id)
            if subscription is not None:
                self._update(subscription)

    def sent(self, subscription: Subscription, notice: Notice) -> None:
        """Take note that a notice was sent."""
        if isinstance(notice, ConfigUpdate):
            subscription.told = notice.assignment
        elif isinstance(notice, DeploymentNotice):
            # A deployment assigns what it deploys, so the assignment needs no notice of its own when it is over.
            subscription.told = subscription.known.record.sync.assignment

    async def run(self, stopping: Stopping) -> None:
        """Send pings, and end streams whose session or certificate has ended, until stopped."""
        while not await stopping.interrupts(self._clock.sleep(_CHECK_INTERVAL)):
            self.check()
        self.close()

    def check(self) -> None:
        """Ping idle streams, and end those that are no longer allowed."""
        now = self._clock.now()
        self._end_revoked()
        for subscription in [each for each in self._open.values() if each.known.session_expires <= now]:
            subscription.end(unauthenticated("the session token has expired"))
        ping = Ping(now)
        while self._open:
            subscription = next(iter(self._open.values()))
            if now - subscription.sent_time < self._ping_interval:
                return
            subscription.ping(ping)
            self._touch(subscription)

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self._is_closed = True
        for subscription in self._open.values():
            subscription.end(unavailable("the hub is shutting down"))

    def _add(self, session: Session, certificate: PeerCertificate | None) -> Subscription:
        known, now = session.known, self._clock.now()
        if self._is_closed:
            raise unavailable("the hub is shutting down")
        previous = self._open.pop(known.id, None)
        if previous is not None:
            previous.end(CallRefused(RefusalReason.ABORTED, "another stream of this instance was opened"))
        if len(self._open) >= self.max_streams:
            raise exhausted(f"expected at most {self.max_streams} streams at the same time")
        subscription = self._open[known.id] = Subscription(known, certificate, now)
        self._update(subscription)
        return subscription

    def _update(self, subscription: Subscription) -> None:
        if subscription.tell(self._desired(subscription)):
            self._touch(subscription)

    def _desired(self, subscription: Subscription) -> Notice | None:
        """Return what the agent has to know, unless it was told already."""
        known = subscription.known
        life, assignment = known.life, known.record.sync.assignment
        _, commands = advance(life, StreamOpened(), self._clock.now(), self._timeouts)
        for command in commands:
            if isinstance(command, SendDrain) and life.drain is not None:
                return DrainNotice(life.drain)
        if life.deployment_id is not None:
            return self._deployments.notice(known.record)
        if not life.may_be_assigned or assignment is None or assignment in (known.told, subscription.told):
            return None
        return ConfigUpdate(assignment)

    def _touch(self, subscription: Subscription) -> None:
        subscription.sent_time = self._clock.now()
        self._open.move_to_end(subscription.known.id)

    def _end_revoked(self) -> None:
        revoked = frozenset() if self._certificates is None else self._certificates.revoked()
        if revoked is self._revoked:
            return
        self._revoked = revoked
        for subscription in self._open.values():
            if subscription.certificate is not None and subscription.certificate.serial in revoked:
                subscription.end(unauthenticated("the client certificate is revoked"))
