"""Keeps a session with the hub for as long as the agent runs, and decides when that is.

While the hub is away, all else continues: the proxy serves, its metrics are kept, and the agent tries again with a
backoff. Then it registers, compares what is assigned with what runs, fetches it if it differs, and goes on with
heartbeats and events, in this order.

The agent ends by a signal, when the hub wants the instance to leave, or when the hub was away for too long.
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
from sentinel.agent.hub_session import HubSession
from sentinel.agent.observer import AgentObserver, HubFailure
from sentinel.agent.sampling import Sampling
from sentinel.core.agent.offline import OfflineBehavior
from sentinel.ports.clock import Clock
from sentinel.ports.hub_client import (
    CallRefused,
    DrainNotice,
    HubClient,
    HubUnavailable,
    Registration,
    SessionEnded,
)
from sentinel.runtime import durations
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping

DEREGISTER_ATTEMPTS: Final = 5
STOP_TIMEOUT: Final = timedelta(minutes=1)
"""How long the proxy may take to stop, if the hub does not say."""
_MARGIN: Final = timedelta(seconds=2)
"""How long deregistering may take, whether or not the proxy has stopped."""
_ENOUGH_HEARTBEATS: Final = 2
"""A session with this many answered heartbeats has worked. One with fewer may end the same way at once."""
_DEREGISTER_TIMEOUT: Final = timedelta(seconds=5)


class HubConnection:
    """The connection of one agent. It runs once."""

    def __init__(
        self,
        *,
        client: HubClient,
        applier: Applier,
        sampling: Sampling,
        registration: Callable[[], Registration],
        policy: OfflineBehavior,
        backoff: Backoff,
        deregisters_on_shutdown: bool,
        stop_agent: Callable[[], None],
        clock: Clock,
        observer: AgentObserver,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`stop_agent` ends the process successfully."""
        self._client = client
        self._applier = applier
        self._link = ApplierLink(client=client, applier=applier, observer=observer)
        self._sampling = sampling
        self._registration = registration
        self._policy = policy
        self._backoff = backoff
        self._deregisters_on_shutdown = deregisters_on_shutdown
        self._stop_agent = stop_agent
        self._clock = clock
        self._observer = observer
        self._jitter = jitter
        self._over = Stopping()
        self._drain: DrainNotice | None = None
        self._was_online = self._is_online = False
        """Whether any session, and the present one, has an answered heartbeat."""
        self._has_registered = self._has_session = False
        """Whether it ever had a session, and whether it has one."""
        self._offline_since: float | None = None
        """When it happened, on the loop's clock."""
        self._offline_timeout: asyncio.Task[None] | None = None
        self._failures = 0
        self._last_failure: HubFailure | None = None
        self._started = 0.0

    def problem(self) -> str | None:
        """Why the agent is not ready, for `/readyz`."""
        failure = self._last_failure
        if not self._was_online:
            return "the hub was not reached yet" + ("" if failure is None else f": {failure}")
        if self._policy.is_degraded and self._offline_since is not None:
            return f"the hub is away: {failure}"
        return None

    async def run(self, stopping: Stopping) -> None:
        """Run until stopped, by the lifecycle or by itself."""
        self._started = _monotonic()
        self._over = stopping.child()
        try:
            await self._over.interrupts(self._stay_connected())
            if not stopping.requested:
                await stopping.interrupts(self._leave_for_good())
            elif self._deregisters_on_shutdown:
                await self._deregister_quickly()
        finally:
            stopping.release(self._over)
        self._stop_agent()
        await stopping.wait()

    async def _stay_connected(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            await self._sampling.sample()  # tells the version of the proxy, which Register says
            tasks.create_task(self._sampling.run())
            while True:
                failure = await self._run_session()
                if failure is not None and not (isinstance(failure, SessionEnded) and self._is_online):
                    self._note_offline(tasks)
                self._is_online = self._has_session = False
                await self._clock.sleep(self._delay(failure))

    async def _run_session(self) -> HubFailure | None:
        """Run a session to its end. Returns why it ended; None after a bug."""
        session = HubSession(
            client=self._client,
            applier=self._applier,
            link=self._link,
            sampling=self._sampling,
            clock=self._clock,
            observer=self._observer,
            on_registered=self._registered,
            on_online=self._online,
            on_drain=self._leave,
            problem=self._problem_to_report(),
            jitter=self._jitter,
        )
        try:
            await session.run(self._registration(), self._uptime, is_first=not self._has_registered)
        except Exception as error:
            failure = _cause(error)
        if session.answered >= _ENOUGH_HEARTBEATS:
            self._failures = 0
        if isinstance(failure, HubUnavailable | SessionEnded | CallRefused):
            return failure
        self._observer.crashed(failure)
        return None

    def _delay(self, failure: HubFailure | None) -> timedelta:
        """Count the failure, and return how long to wait before the next session."""
        if isinstance(failure, SessionEnded) and self._failures == 0:
            delay = timedelta(0)  # it had worked, and the hub is there
        else:
            delay = self._backoff.delay(max(0, self._failures - isinstance(failure, SessionEnded)), self._jitter())
        self._failures += 1
        if failure is not None:
            is_new = not _is_same(self._last_failure, failure)
            self._last_failure = failure
            self._observer.failed(failure, delay, is_new=is_new)
        return delay

    def _note_offline(self, tasks: asyncio.TaskGroup) -> None:
        if self._offline_since is not None:
            return
        self._offline_since = _monotonic()
        timeout = self._policy.timeout
        if timeout is not None:
            self._offline_timeout = tasks.create_task(self._wait_no_longer_than(timeout))

    async def _wait_no_longer_than(self, timeout: timedelta) -> None:
        # Slept, not computed from times: the wall clock of a machine may be set while the hub is away.
        await self._clock.sleep(timeout)
        self._observer.away_too_long(timeout)
        self._over.request()

    def _registered(self) -> None:
        self._has_registered = self._has_session = True

    def _online(self) -> None:
        """Note that the first heartbeat of a session was answered."""
        offline_for = None if self._offline_since is None else _since(self._offline_since)
        self._was_online = self._is_online = True
        self._offline_since = self._last_failure = None
        if self._offline_timeout is not None:
            self._offline_timeout.cancel()
            self._offline_timeout = None
        self._observer.online(offline_for)

    def _problem_to_report(self) -> str:
        if not self._policy.is_degraded or self._offline_since is None:
            return ""
        return f"the hub was away for {durations.render(_whole_seconds(_since(self._offline_since)))}"

    def _uptime(self) -> timedelta:
        return _since(self._started)

    def _leave(self, notice: DrainNotice) -> None:
        """End the session, because the hub wants the instance to leave."""
        if self._drain is None:
            self._drain = notice
            self._observer.draining(notice)
            self._over.request()

    async def _leave_for_good(self) -> None:
        """Stop the proxy, and, if the hub wants it, leave the fleet."""
        await self._applier.drain()
        problem = await self._applier.stop_proxy(self._stop_timeout())
        self._observer.proxy_stopped(problem)
        if self._drain is None:
            return
        reason = f"drained, but the proxy could not be stopped: {problem}" if problem else "drained"
        for attempt in range(DEREGISTER_ATTEMPTS):
            failure = await self._deregister(reason)
            if not isinstance(failure, HubUnavailable):
                return  # without a session there is no way to say it; the hub waits for its drain timeout
            await self._clock.sleep(self._backoff.delay(attempt, self._jitter()))

    def _stop_timeout(self) -> timedelta:
        """Return how long the proxy may take to stop: a moment less than the hub waits before it removes us."""
        if self._drain is None or self._drain.timeout is None:
            return STOP_TIMEOUT
        return max(self._drain.timeout - _MARGIN, self._drain.timeout / 2)

    async def _deregister_quickly(self) -> None:
        """Leave the fleet, if there is a session. A service that stops has little time."""
        if not self._has_session:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_DEREGISTER_TIMEOUT.total_seconds()):
                await self._deregister("the agent stops")

    async def _deregister(self, reason: str) -> HubFailure | None:
        try:
            await self._link.deliver_reports()
            await self._client.deregister(reason)
        except (HubUnavailable, SessionEnded, CallRefused) as failure:
            self._observer.deregistered(failure)
            return failure
        self._observer.deregistered(None)
        return None


def _cause(error: Exception) -> Exception:
    """Return what ended the tasks of a session. Of several errors, that of a bug."""
    if not isinstance(error, ExceptionGroup):
        return error
    causes = [_cause(each) for each in error.exceptions]
    bugs = [each for each in causes if not isinstance(each, HubUnavailable | SessionEnded | CallRefused)]
    return (bugs or causes)[0]


def _is_same(before: HubFailure | None, failure: HubFailure) -> bool:
    return before is not None and (type(before), before.reason) == (type(failure), failure.reason)


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _since(moment: float) -> timedelta:
    return timedelta(seconds=_monotonic() - moment)


def _whole_seconds(duration: timedelta) -> timedelta:
    return timedelta(seconds=int(duration.total_seconds()))
