"""The real clock: the machine's wall time, and the event loop's sleep."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class SystemClock:
    """`ports.Clock` as every service runs it.

    A sleep is measured on the monotonic clock, so that a step of the wall clock neither cuts it short nor
    stretches it.
    """

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())
