"""Time, as components see it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Cadence and `now`. Timeouts of I/O are the event loop's own."""

    def now(self) -> datetime:
        """The current moment, aware, in UTC."""

    async def sleep(self, duration: timedelta) -> None:
        """Returns after `duration`, never before; at once (but after yielding) where it is not positive."""
