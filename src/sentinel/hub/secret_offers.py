"""Tells instances that a secret has changed which their configuration needs.

An agent asks for secrets when it fetches a configuration, so it is told to fetch the assigned version once more. A
secret may have thousands of users. They are told in batches, each a transaction that also stores how far it got.
If a hub stops in between, it or another one goes on after the last instance that was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from sentinel.core.hub import sync as syncing
from sentinel.hub import instance_changes
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.secret_store import SecretRecord, SecretStore, SecretTransaction
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

INTERVAL: Final = timedelta(seconds=1)
BATCH: Final = 100
_MAX_SECRETS: Final = 100


class SecretOffers:
    """Offers changed secrets to their users."""

    def __init__(self, store: SecretStore, *, clock: Clock, log: Log) -> None:
        self._store = store
        self._clock = clock
        self._log = log

    async def run(self, stopping: Stopping) -> None:
        """Offer until stopped. Failures are logged and retried."""
        while not await stopping.interrupts(self._clock.sleep(INTERVAL)):
            try:
                await self.offer()
            except Unavailable as error:
                self._log.warning("secrets.offer_failed", error=error)
            except Exception as error:
                self._log.exception("secrets.offer_failed", error=error)

    async def offer(self) -> None:
        """Tell everyone who was not told yet. Raises `Unavailable`."""
        while unfinished := await self._store.unfinished_offers(limit=_MAX_SECRETS):
            for secret in unfinished:
                await self._offer_batch(secret)

    async def _offer_batch(self, secret: SecretRecord) -> None:
        users = await self._store.users(secret.name, after=secret.offered_to or "", limit=BATCH)
        following = users[-1] if len(users) == BATCH else None
        told = await self._store.transact(lambda transaction: self._tell(transaction, secret, users, following))
        if told:
            self._log.info("secret.offered", secret=secret.name, instances=told)

    def _tell(
        self, transaction: SecretTransaction, secret: SecretRecord, users: Sequence[str], following: str | None
    ) -> int:
        now = self._clock.now()
        told = 0
        for instance_id in users:
            found = transaction.instance(instance_id)
            if found is None or found.sync.assignment is None:
                continue
            again = msgspec.structs.replace(found, sync=syncing.offer_again(found.sync, now))
            instance_changes.save(transaction, again, (), now)
            told += 1
        # It may have been changed or deleted since, or another hub may have told the same instances.
        present = transaction.secret(secret.name)
        if present is not None and present.offered_to == secret.offered_to:
            transaction.note_offered(secret.name, following)
        return told
