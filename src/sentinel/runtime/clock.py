"""The real clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class SystemClock:
    """`ports.Clock` on the wall clock and the event loop.

    Sleeps use the monotonic clock, so a step of the wall clock does not change their length.
    """

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())
