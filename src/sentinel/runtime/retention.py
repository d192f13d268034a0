"""Deletes old rows in bounded batches.

One loop for the rows of all components. A batch can be interrupted and repeated at any point: at worst, several
servers on one database do the same work twice.
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

BATCH_SIZE = 500
INTERVAL = timedelta(minutes=1)


class Expire(Protocol):
    """A store's method that deletes old rows."""

    async def __call__(self, before: datetime, *, limit: int) -> int:
        """Delete at most `limit` rows older than `before`. Returns how many. Raises `Unavailable`."""


class RetentionRule(msgspec.Struct, frozen=True):
    """How long some rows are kept."""

    name: str
    """The name of the rows in logs."""
    max_age: timedelta
    expire: Expire


class Retention:
    """Deletes old rows every minute, until none are left."""

    def __init__(self, rules: Sequence[RetentionRule], *, clock: Clock, log: Log) -> None:
        self._rules = rules
        self._clock = clock
        self._log = log

    async def run(self, stopping: Stopping) -> None:
        """Run until stopped. Failures are logged and retried after the interval."""
        while not stopping.requested:
            try:
                while await self.expire() >= BATCH_SIZE:
                    if stopping.requested:
                        return
            except Unavailable as error:
                self._log.warning("retention.failed", task="retention", error=error)
            if await stopping.interrupts(self._clock.sleep(INTERVAL)):
                return

    async def expire(self) -> int:
        """Delete one batch of each kind of rows. Returns how many in total. Raises `Unavailable`."""
        now = self._clock.now()
        deleted = 0
        for rule in self._rules:
            try:
                deleted += await rule.expire(now - rule.max_age, limit=BATCH_SIZE)
            except Unavailable:
                raise
            except Exception as error:
                # A bug in one store must not stop the others.
                self._log.exception("retention.failed", task="retention", rows=rule.name, error=error)
        if deleted:
            self._log.info("retention.expired", entries=deleted)
        return deleted
