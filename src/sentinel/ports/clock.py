"""Time, as components see it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The current time and sleeping. I/O timeouts use the event loop's own time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    async def sleep(self, duration: timedelta) -> None:
        """Return after `duration`, never earlier. Without a positive duration, yield once and return."""
