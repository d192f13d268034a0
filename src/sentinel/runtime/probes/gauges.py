"""Gauges that are read from a database when metrics are scraped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.runtime.log import Log

REFRESH_INTERVAL: Final = timedelta(seconds=1)
"""Scrapes within this time of the last refresh get the same gauges."""
REFRESH_TIMEOUT: Final = timedelta(seconds=6)
"""How long a scrape waits for the store. Less than Prometheus' scrape timeout of ten seconds, after which the
scrape would fail altogether, and long enough for the store to notice a lost connection and become unready."""


class StoredGauges:
    """Refreshes gauges at most once per `REFRESH_INTERVAL`. They keep their values if the store fails."""

    def __init__(self, refresh: Callable[[], Awaitable[None]], *, clock: Clock, log: Log) -> None:
        """`refresh` reads the gauges. It may raise `Unavailable`."""
        self._refresh = refresh
        self._clock = clock
        self._log = log
        self._refreshed: datetime | None = None

    async def refresh_if_stale(self) -> None:
        """Refresh the gauges before they are rendered."""
        now = self._clock.now()
        if self._refreshed is not None and abs(now - self._refreshed) < REFRESH_INTERVAL:
            return
        self._refreshed = now
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT.total_seconds()):
                await self._refresh()
        except (Unavailable, TimeoutError) as error:
            self._log.warning("metrics.stale", error=error)
