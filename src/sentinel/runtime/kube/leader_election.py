"""Runs leader election on a Lease: one process of several leads, the others follow.

    elector = LeaderElector(api=api, name="sentinel-prod", namespace="prod", identity="pod-1_8f3a…", ...)
    part = Part(name="leader", loops=(elector.run, ...), checks={"lease": elector.problem})

`core.kube.election` decides; this module makes the calls. No call may take longer than the process is still the
leader, and `is_leader` goes by the clock, so a call that hangs cannot prolong it.

The leader may publish facts, as annotations of the Lease, with each renewal. After a failover the new leader gets
those of the last one, to know how far it had got.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from sentinel.core.kube import election, lease
from sentinel.core.kube.election import (
    Absent,
    Create,
    Election,
    Event,
    Failed,
    Found,
    Get,
    Replace,
    Timings,
    Wait,
    Waited,
    Written,
)
from sentinel.core.times import timestamp
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.kube import (
    AlreadyExists,
    Conflict,
    KubeError,
    KubeKind,
    KubeObject,
    KubeWriter,
    ObjectNotFound,
)
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe
from sentinel.runtime.workqueue import is_cancelled

LEASE = KubeKind("coordination.k8s.io", "v1", "Lease", "leases")
CLIENT_GO = Timings()


class LastLeader(msgspec.Struct, frozen=True):
    """What this process knows of the process that led before it."""

    identity: str
    """Empty if it released the Lease."""
    annotations: Mapping[str, str]
    """The annotations of the Lease, with the facts that it published last."""
    seen: datetime
    """When this process first saw this renewal, by its own clock."""
    was_alive: bool
    """Whether this process saw it renew or release the Lease. If not, it may have ended long before."""


class LeaderCallbacks(msgspec.Struct, frozen=True, kw_only=True):
    """What happens when this process starts and stops leading.

    All are quick; `is_leader` has changed when they are called.
    """

    annotations: Callable[[], Mapping[str, str]] = dict
    """Returns the facts that the leader publishes with its next renewal."""
    on_started_leading: Callable[[LastLeader | None], None] = lambda last_leader: None
    on_stopped_leading: Callable[[str], None] = lambda reason: None
    """Gets the reason."""
    before_release: Callable[[], Awaitable[object]] | None = None
    """Waits for what the leader has begun. At shutdown, it is awaited after `on_stopped_leading` and before
    another process may lead, for at most the time that this one could still have led."""
    abandon: Callable[[], None] = lambda: None
    """Ends what is left of that. It is called before another process may lead, unless that one has taken the Lease
    by force."""


class LeaderElector:
    """Competes for a Lease and keeps it."""

    def __init__(
        self,
        *,
        api: KubeWriter,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        log: Log,
        callbacks: LeaderCallbacks,
        timings: Timings = CLIENT_GO,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """No other process, running or ended, has this `identity`."""
        self._api = api
        self._name = name
        self._namespace = namespace
        self._clock = clock
        self._log = log.bind(lease=f"{namespace}/{name}")
        self._callbacks = callbacks
        self._jitter = jitter
        self._state = Election(identity=identity, timings=timings)
        self._lease: KubeObject = {}
        """The Lease as last seen, in the version that may be replaced."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_leading = False
        """Whether `on_started_leading` was called last."""
        self._problem: str | None = f"lease {namespace}/{name}: no response yet"
        self._last_error: str | None = None
        self._failing_since: datetime | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may act as leader now. It becomes False at the deadline, whatever else happens."""
        return self._is_leading and self._time_left() > timedelta(0)

    @property
    def holder(self) -> str:
        """The identity of the leader as far as this process knows; empty if there is none."""
        latest = self._state.latest
        return "" if latest is None else latest.lease.term.holder

    @property
    def last_leader(self) -> LastLeader | None:
        """What is known of the last leader other than this process. None if this process never saw one."""
        sighting = self._state.last_leader
        if sighting is None:
            return None
        age = self._now() - sighting.seen
        return LastLeader(
            sighting.lease.term.holder, sighting.lease.annotations, self._clock.now() - age, sighting.was_alive
        )

    def problem(self) -> str | None:
        """Return why the Lease cannot be read or written, and since when. A readiness check, also of followers."""
        return self._problem

    async def run(self, stopping: Stopping) -> None:
        """Compete until stopped, then release the Lease."""
        self._loop = asyncio.get_running_loop()
        drain_time = timedelta(0)
        try:
            await stopping.interrupts(self._compete())
        finally:
            if self._is_leading:
                drain_time = self._time_left()
                self._stop_leading("the service is stopping")
                if not stopping.requested:  # cancelled, or failed
                    self._notify(self._callbacks.abandon)
            self._state = msgspec.structs.replace(self._state, renewed=None)
        if election.may_hold(self._state):
            await self._release(drain_time)

    async def _compete(self) -> None:
        event: Event = Waited()
        while True:
            self._check_leadership()  # a late event may make this process leader again, after a gap
            self._state, command = election.advance(self._state, event, self._now(), random=self._jitter())
            self._check_leadership()
            if isinstance(command, Wait):
                await self._clock.sleep(command.delay)
                event = Waited()
            else:
                event = await self._call(command)

    def _check_leadership(self) -> None:
        has_time_left = self._time_left() > timedelta(0)
        if has_time_left and not self._is_leading:
            self._start_leading()
        elif self._is_leading and not has_time_left:
            is_taken = self.holder not in ("", self._state.identity)
            deadline = self._state.timings.renew_deadline.total_seconds()
            self._stop_leading(
                f"{self.holder} holds the Lease"
                if is_taken
                else f"the Lease was not renewed for {deadline:g} s: {self._last_error or 'no response yet'}"
            )
            self._notify(self._callbacks.abandon)

    def _start_leading(self) -> None:
        self._is_leading = True
        last_leader = self.last_leader
        self._log.info("leader.started", last_leader=None if last_leader is None else last_leader.identity)
        self._notify(lambda: self._callbacks.on_started_leading(last_leader))

    def _stop_leading(self, reason: str) -> None:
        self._is_leading = False
        self._log.info("leader.stopped", reason=reason)
        self._notify(lambda: self._callbacks.on_stopped_leading(reason))

    def _notify(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # a bug in a callback must not end the election
            self._log.exception("leader.callback_failed", error=error)

    async def _call(self, command: Get | Create | Replace) -> Event:
        """Perform a call. It never lasts longer than this process is the leader."""
        sent = self._now()
        timeout = self._state.timings.renew_deadline / 2
        if self._is_leading:
            timeout = min(timeout, self._time_left())
        try:
            async with asyncio.timeout(timeout.total_seconds()) as scope:
                self._lease = await self._perform(command)
            seen = lease.read(self._lease)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            if isinstance(error, ObjectNotFound) and not isinstance(command, Create):
                self._succeeded()
                return Absent() if isinstance(command, Get) else Failed()
            if isinstance(error, Conflict | AlreadyExists):  # another process wrote first
                self._succeeded()
                return Failed()
            verb = type(command).__name__.lower()
            if scope.expired():
                error = TimeoutError(f"no response within {timeout.total_seconds():g} s")
            self._failed(verb, error)
            return Failed()
        self._succeeded()
        return Found(seen) if isinstance(command, Get) else Written(seen, sent)

    async def _perform(self, command: Get | Create | Replace) -> KubeObject:
        match command:
            case Get():
                return await self._api.get(LEASE, self._name, namespace=self._namespace)
            case Create():
                body = lease.new(
                    name=self._name,
                    namespace=self._namespace,
                    holder=self._state.identity,
                    duration=self._state.timings.lease_duration,
                    time=self._clock.now(),
                )
                return await self._api.create(LEASE, body, namespace=self._namespace)
            case Replace():
                # A process that takes the Lease leaves the facts of the last leader until it has some of its own.
                body = lease.taken(
                    self._lease,
                    holder=self._state.identity,
                    duration=self._state.timings.lease_duration,
                    time=self._clock.now(),
                    annotations=self._facts() if self._is_leading else {},
                )
                return await self._api.replace(LEASE, body, namespace=self._namespace)
            case _:
                assert_never(command)

    async def _release(self, drain_time: timedelta) -> None:
        """Release the Lease if it names this process. If that fails, the Lease expires."""
        facts: Mapping[str, str] = {}
        try:
            if drain_time:
                await self._drain(drain_time)
                facts = self._facts()
            async with asyncio.timeout(self._state.timings.retry_period.total_seconds()):
                found = await self._api.get(LEASE, self._name, namespace=self._namespace)
                if lease.read(found).term.holder == self._state.identity:
                    body = lease.released(found, time=self._clock.now(), annotations=facts)
                    await self._api.replace(LEASE, body, namespace=self._namespace)
                    self._log.info("leader.released")
        except Exception as error:  # shutting down must not fail
            self._log.warning("leader.release_failed", error=error)

    async def _drain(self, drain_time: timedelta) -> None:
        try:
            if self._callbacks.before_release is not None:
                async with asyncio.timeout(drain_time.total_seconds()):
                    await self._callbacks.before_release()
        finally:
            self._notify(self._callbacks.abandon)

    def _facts(self) -> Mapping[str, str]:
        try:
            return self._callbacks.annotations()
        except Exception as error:  # a bug there must not end the leadership
            self._log.exception("leader.annotations_failed", error=error)
            return {}

    def _succeeded(self) -> None:
        self._problem = self._last_error = self._failing_since = None

    def _failed(self, verb: str, error: BaseException) -> None:
        text = describe(error)
        if not isinstance(error, KubeError | Unavailable | TimeoutError):
            self._log.exception("leader.crashed", verb=verb, error=error)
        elif text != self._last_error:  # not every two seconds
            self._log.warning("leader.failed", verb=verb, error=error)
        self._last_error = text
        self._failing_since = self._failing_since or self._clock.now().replace(microsecond=0)
        self._problem = (
            f"cannot {verb} lease {self._namespace}/{self._name}: {text} (since {timestamp(self._failing_since)})"
        )

    def _time_left(self) -> timedelta:
        return election.time_left(self._state, self._now())

    def _now(self) -> timedelta:
        """Return the monotonic time. The probes' thread may ask, too."""
        return timedelta(0) if self._loop is None else timedelta(seconds=self._loop.time())
