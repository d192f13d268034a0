"""Delete what is older than retention allows, in bounded batches.

One loop for the rows of all components. A batch may stop anywhere and be repeated: several servers on one database
do the same work twice at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

BATCH = 500
INTERVAL = timedelta(minutes=1)


class Expire(Protocol):
    """A store's method that deletes old rows."""

    async def __call__(self, before: datetime, *, limit: int) -> int:
        """Deletes what is older than this moment, at most `limit`; says how many. Raises `Unavailable`."""


class RetentionRule(msgspec.Struct, frozen=True):
    """Rows that are kept for a while."""

    name: str
    """As logs call them."""
    age: timedelta
    """How old they may become."""
    expire: Expire


class Retention:
    """Deletes old rows, every minute and as long as there are any."""

    def __init__(self, retained: Sequence[RetentionRule], *, clock: Clock, log: Log) -> None:
        self._retained = retained
        self._clock = clock
        self._log = log

    async def run(self, stopping: Stopping) -> None:
        """Goes on until it is stopped, whatever goes wrong: that is logged, and tried again a minute later."""
        while not stopping.requested:
            try:
                while await self.expire() >= BATCH:
                    if stopping.requested:
                        return
            except Unavailable as error:
                self._log.warning("upkeep.failed", task="retention", error=error)
            if await stopping.interrupts(self._clock.sleep(INTERVAL)):
                return

    async def expire(self) -> int:
        """Deletes one batch of everything; says how many rows. Raises `Unavailable`."""
        now = self._clock.now()
        deleted = 0
        for each in self._retained:
            try:
                deleted += await each.expire(now - each.age, limit=BATCH)
            except Unavailable:
                raise
            except Exception as error:
                # A bug in one store must not keep the others from shrinking.
                self._log.exception("upkeep.failed", task="retention", rows=each.name, error=error)
        if deleted:
            self._log.info("upkeep.expired", entries=deleted)
        return deleted
