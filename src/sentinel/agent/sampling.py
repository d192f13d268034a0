"""Measures the proxy at the interval of heartbeats, and keeps what was not delivered.

It goes on while the hub is away. Its tick is the time of a heartbeat, so that each carries fresh metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

import msgspec

from sentinel.agent.observer import AgentObserver
from sentinel.core.agent import metrics_buffer, proxy_metrics
from sentinel.core.agent.proxy_metrics import MetricNames, Scrape
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.runtime.lifecycle.stopping import Stopping

FetchMetrics: TypeAlias = Callable[[timedelta], Awaitable[str]]
"""Returns the proxy's page of metrics within a timeout. Raises `Unavailable`."""

MAX_TIMEOUT: Final = timedelta(seconds=5)
_FIRST_INTERVAL: Final = timedelta(seconds=30)
"""The interval until the hub names one."""


class Undelivered(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat has to deliver."""

    metrics: Metrics | None
    buffered: Sequence[Sample]
    samples: Sequence[Sample]
    """All of them."""


class Sampling:
    """Samples of one proxy."""

    def __init__(
        self, fetch: FetchMetrics | None, *, names: MetricNames, clock: Clock, observer: AgentObserver
    ) -> None:
        """If `fetch` is None, it only ticks."""
        self.tick = asyncio.Event()
        """Set after each sample. The reader clears it."""
        self.active_connections = 0
        self.proxy_version = ""
        """Empty until the proxy has said it."""
        self._fetch = fetch
        self._names = names
        self._clock = clock
        self._observer = observer
        self._interval = _FIRST_INTERVAL
        self._period = Stopping()
        self._last: Scrape | None = None
        self._samples: Sequence[Sample] = ()
        self._is_fresh = False
        """Whether the last sample was taken for the next heartbeat. Otherwise it is reported with its time."""

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self._period = Stopping()
            await self._period.interrupts(self._run_period())

    def set_interval(self, interval: timedelta) -> None:
        """Sample at this interval. Another one than before begins at once."""
        if interval != self._interval:
            self._interval = interval
            self._period.request()

    def expire(self) -> None:
        """Take note that the last sample was taken before the session began."""
        self._is_fresh = False

    async def sample(self) -> None:
        """Scrape once. A proxy that cannot be scraped has no sample; it may be restarting."""
        if self._fetch is None:
            return
        try:
            page = await self._fetch(min(MAX_TIMEOUT, self._interval / 2))
        except Unavailable as error:
            self.active_connections = 0
            self._observer.scraped(str(error))
            return
        scrape = proxy_metrics.read(page, self._names)
        metrics = proxy_metrics.measure(self._last, scrape)
        self._last = scrape
        self.active_connections = scrape.active_connections
        self.proxy_version = scrape.version or self.proxy_version
        self._samples = metrics_buffer.add(self._samples, Sample(self._clock.now(), metrics))
        self._is_fresh = True
        self._observer.scraped("")
        self._observer.buffered(len(self._samples))

    def undelivered(self) -> Undelivered:
        """Return what the next heartbeat has to deliver."""
        samples = self._samples
        is_fresh, self._is_fresh = self._is_fresh, False
        if samples and is_fresh:
            return Undelivered(metrics=samples[-1].metrics, buffered=samples[:-1], samples=samples)
        return Undelivered(metrics=None, buffered=samples, samples=samples)

    def delivered(self, undelivered: Undelivered) -> None:
        """Forget what a heartbeat has delivered."""
        self._samples = metrics_buffer.without(self._samples, undelivered.samples)
        self._observer.buffered(len(self._samples))

    async def _run_period(self) -> None:
        await self._clock.sleep(self._interval)
        await self.sample()
        self.tick.set()
