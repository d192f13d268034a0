"""Waiting for an event, but not forever."""

from __future__ import annotations

import asyncio
from datetime import timedelta


async def wait_for_event(event: asyncio.Event, timeout: timedelta) -> bool:
    """Return True once the event is set, or False after the timeout."""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await event.wait()
    except TimeoutError:
        return False
    return True
