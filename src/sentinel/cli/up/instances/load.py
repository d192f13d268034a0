"""Requests to the proxies of the demo, so that the canaries of a rollout have something to measure.

A gentle client: a few requests a second to each proxy, one at a time, each on a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from sentinel.cli.up.instances.ports import LOOPBACK
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping

INTERVAL: Final = timedelta(milliseconds=500)
"""Between two requests to one proxy."""

_TIMEOUT: Final = timedelta(seconds=5)
_MAX_STATUS_LINE: Final = 1024
_REQUEST: Final = b"GET / HTTP/1.1\r\nHost: edge\r\nUser-Agent: sentinel-demo\r\nConnection: close\r\n\r\n"
UNREACHABLE: Final = "unreachable"


class LoadGenerator:
    """Sends requests to ports of loopback until it is stopped."""

    def __init__(self, ports: Sequence[int], *, clock: Clock) -> None:
        self._ports = ports
        self._clock = clock
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many responses there were, by the first digit of their status; or `UNREACHABLE`."""
        return self._counts

    def part(self) -> Part:
        """Return the part."""
        return Part(name="load", loops=(self.run,))

    async def run(self, stopping: Stopping) -> None:
        """Send to one proxy after the other."""
        pause = INTERVAL / max(len(self._ports), 1)
        while not stopping.requested:
            for port in self._ports:
                self._counts[await _status(port)] += 1
                if await stopping.interrupts(self._clock.sleep(pause)):
                    return


async def _status(port: int) -> str:
    """Return the class of the response's status, such as 2."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=_MAX_STATUS_LINE)
            writer.write(_REQUEST)
            status_line = await reader.readline()
            while await reader.read(_MAX_STATUS_LINE):
                pass
        return status_line.split(b" ")[1][:1].decode("ascii", "replace")
    except (OSError, TimeoutError, ValueError, IndexError):
        return UNREACHABLE  # a proxy that restarts
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
