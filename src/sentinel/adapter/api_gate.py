"""Calls to the API with retries, and backpressure while the API is unavailable.

Each call is retried separately with backoff, so accepted deliveries are not lost in an outage. Meanwhile the gate
is closed: `wait_until_available` keeps the service from accepting more deliveries, which stay with the broker for
a replica that can reach the API.

Two cases look like an outage and are not:

* The API fails for one resource and works for the others. Its call is given up after a few attempts, and the
  broker delivers the event again later. `keep_probing` tells the cases apart: while reads fail, it makes
  harmless ones.
* Reports fail and reads work. A report has no harmless probe, so every 30 seconds the gate accepts one delivery
  whose report shows whether the API works again. No report keeps its worker for longer than a minute, otherwise as
  many failing resources as there are workers would block all others.

A response with Retry-After is about the whole client: until then no call is made, not even a probe.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

from sentinel.adapter.observer import AdapterObserver, ApiOperation
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping

T = TypeVar("T")

_RETRY = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0.2)
_RETRY_NEEDS_OPERATOR = Backoff(initial=timedelta(seconds=5), maximum=timedelta(seconds=60), jitter=0.2)
_MAX_RETRY_AFTER = timedelta(minutes=5)
"""The longest Retry-After that is honored, in case the header is wrong."""
_MAX_ATTEMPTS = 5
"""How often a call is attempted that fails while others succeed."""
_MAX_ATTEMPTS_NEEDS_OPERATOR = 2
"""The same for a read whose error needs an operator: other reads succeed, so this resource causes the error."""
_REPORT_TIMEOUT = timedelta(minutes=1)
"""How long a report is retried."""


class RetriesExhausted(Exception):
    """The call was given up; the text says why."""


class ApiGate:
    """All calls of one adapter to the API."""

    def __init__(self, *, clock: Clock, observer: AdapterObserver, jitter: Callable[[], float]) -> None:
        self._clock = clock
        self._observer = observer
        self._jitter = jitter
        self._failing: dict[ApiOperation, str] = {}
        """The operations that fail now, with the text of the error."""
        self._successes: Counter[ApiOperation] = Counter()
        self._is_available = asyncio.Event()
        self._is_available.set()
        self._needs_probe = asyncio.Event()
        """Set at first, and while reads fail."""
        self._needs_probe.set()
        self._paused_until: datetime | None = None
        """When the API accepts calls again, by its last Retry-After."""

    def unavailable_reason(self) -> str | None:
        """Why the API cannot be used now, or None."""
        if not self._successes and not self._failing:
            return "the API has not responded yet"
        failing = tuple(self._failing.values())  # the probes' thread is here while it changes
        return failing[0] if failing else None

    async def wait_until_available(self) -> None:
        """Wait while the API is unavailable; at most 30 seconds if only reports fail."""
        while self._failing:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY.maximum.total_seconds()):
                    await self._is_available.wait()
            if ApiOperation.READ not in self._failing:
                return

    async def keep_probing(self, probe: Callable[[], Awaitable[None]], stopping: Stopping) -> None:
        """Probe the API at first and whenever reads have failed, until it responds."""
        while not stopping.requested:
            if await stopping.interrupts(self._needs_probe.wait()):
                return
            with suppress(RetriesExhausted):
                await self.call_with_retry(ApiOperation.READ, probe, stopping)

    async def call_with_retry(
        self, operation: ApiOperation, call: Callable[[], Awaitable[T]], stopping: Stopping
    ) -> T:
        """Return the result of the call, after any number of attempts.

        Raises `RetriesExhausted` if the service stops, if the call fails while others succeed, and if a report has
        failed for a minute.
        """
        successes_before = self._successes[operation]
        started = self._clock.now()
        attempts = 0
        while True:
            while pause := self._remaining_pause():
                if await stopping.interrupts(self._clock.sleep(pause)):
                    raise RetriesExhausted("the service stops")
            try:
                result = await call()
            except ApiUnavailable as error:
                delay = self._failed(operation, error, attempts)
                attempts += 1
                is_only_this_call = self._successes[operation] > successes_before
                if is_only_this_call and attempts >= _max_attempts(operation, error):
                    self._recovered(operation)
                    raise RetriesExhausted(str(error)) from error
                if operation is ApiOperation.REPORT and self._clock.now() - started >= _REPORT_TIMEOUT:
                    raise RetriesExhausted(str(error)) from error
            else:
                self._succeeded(operation)
                return result
            if await stopping.interrupts(self._clock.sleep(delay)):
                raise RetriesExhausted("the service stops")

    def _failed(self, operation: ApiOperation, error: ApiUnavailable, attempts: int) -> timedelta:
        """Close the gate and return the delay before the next attempt."""
        text = str(error)
        if self._failing.get(operation) != text:
            self._failing[operation] = text
            self._observer.api_failed(operation, error)
        self._is_available.clear()
        if operation is ApiOperation.READ:
            self._needs_probe.set()
        if error.retry_after:
            self._paused_until = self._clock.now() + min(error.retry_after, _MAX_RETRY_AFTER)
        backoff = _RETRY_NEEDS_OPERATOR if error.needs_operator else _RETRY
        return backoff.delay(attempts, self._jitter())

    def _remaining_pause(self) -> timedelta:
        """How long Retry-After forbids calls. Other calls may prolong it meanwhile."""
        now = self._clock.now()
        if self._paused_until is None or now >= self._paused_until:
            self._paused_until = None
            return timedelta(0)
        # A wall clock that is set back must not prolong it.
        return min(self._paused_until - now, _MAX_RETRY_AFTER)

    def _succeeded(self, operation: ApiOperation) -> None:
        self._successes[operation] += 1
        self._recovered(operation)

    def _recovered(self, operation: ApiOperation) -> None:
        if operation is ApiOperation.READ:
            self._needs_probe.clear()
        if self._failing.pop(operation, None) is not None:
            self._observer.api_recovered(operation)
        if not self._failing:
            self._is_available.set()


def _max_attempts(operation: ApiOperation, error: ApiUnavailable) -> int:
    if operation is ApiOperation.READ and error.needs_operator:
        return _MAX_ATTEMPTS_NEEDS_OPERATOR
    return _MAX_ATTEMPTS
