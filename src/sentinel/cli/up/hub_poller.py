"""Polling the hub through its API, as any other client, for what the live view and the activities show of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.hub.client import HubApiClient
from sentinel.drivers.rest.errors import ServerError
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping

_INTERVAL: Final = timedelta(seconds=1)

Poll: TypeAlias = Callable[[HubApiClient], Awaitable[None]]
"""Reads something once. May raise `ServerError`."""


class HubPoller:
    """Calls each poll every second."""

    def __init__(self, polls: Sequence[Poll], *, connect: Callable[[], ServerConnection], clock: Clock) -> None:
        self._polls = polls
        self._connect = connect
        self._clock = clock

    async def run(self, stopping: Stopping) -> None:
        """Poll until stopped. Errors are retried at the next poll."""
        async with self._connect() as connection:
            client = HubApiClient(connection)
            while not await stopping.interrupts(self._poll(client)):
                if await stopping.interrupts(self._clock.sleep(_INTERVAL)):
                    return

    async def _poll(self, client: HubApiClient) -> None:
        try:
            for each in self._polls:
                await each(client)
        except ServerError:
            return  # the readiness checks show what is wrong
