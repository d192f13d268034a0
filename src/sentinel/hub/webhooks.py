"""Sends the hub's events to other servers, each at least once, in signed requests.

A webhook copies its events from the log, and tries each copy until the server takes it, with growing delays, or
gives it up as a dead letter. Position and copies are stored, so nothing is lost by a restart, and any hub on the
database can go on. A slow server delays nobody else: each webhook has its own loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sentinel.core.hub import webhook
from sentinel.hub.event_streams import PUBLIC_TYPES
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.hub_store import HubEvent, HubEventType, HubStore
from sentinel.ports.task_http import HttpClient, HttpFailure
from sentinel.ports.webhook_store import Delivery, WebhookStore
from sentinel.runtime import bounded_file
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.secrets import Secret
from sentinel.runtime.workqueue import is_cancelled

INTERVAL: Final = timedelta(seconds=1)
"""How long an event may wait until it is noticed."""
LEASE: Final = timedelta(seconds=60)
TIMEOUT: Final = timedelta(seconds=10)
"""The timeout of an attempt."""
ATTEMPTS: Final = 12
"""About six hours."""
MAX_PENDING: Final = 10_000
"""With this many waiting, no more are copied. The log keeps the newer ones."""
BACKOFF: Final = Backoff(initial=timedelta(seconds=5), maximum=timedelta(hours=1), factor=3.0, jitter=0.2)
"""Between the attempts of one event."""
_PAUSE: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1), jitter=0.2)
"""The pause after consecutive failures of a server, whatever the event."""
_PAGE: Final = 100
_BATCH: Final = 20
_MAX_SECRET_BYTES: Final = 64 * 1024
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class WebhookObserver(Protocol):
    """Gets told what happens to events. Methods must not block."""

    def webhook_started(self, name: str) -> None: ...

    def webhook_delivered(self, name: str) -> None: ...

    def webhook_failed(self, name: str, delivery: Delivery) -> None:
        """An attempt has failed; the delivery says why, and whether it is a dead letter now."""

    def webhook_missed(self, name: str, events: int) -> None:
        """This many events were deleted from the log before they were copied."""

    def webhook_pending(self, name: str, count: int) -> None: ...


def read_secret(path: Path) -> bytes:
    """Return the secret in a file, without a line break at its end. Raises `Misconfigured`."""
    content = bounded_file.read(path, max_bytes=_MAX_SECRET_BYTES)
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if not secret:
        raise Misconfigured(f"{path}: expected the secret of a webhook, got nothing")
    return secret


class Webhook:
    """Sends events to one URL."""

    def __init__(
        self,
        *,
        name: str,
        url: Secret,
        secret_file: Path,
        types: Collection[HubEventType],
        holder: str,
        events: HubStore,
        store: WebhookStore,
        http: HttpClient,
        clock: Clock,
        observer: WebhookObserver,
        log: Log,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`holder` names this process. Raises `Misconfigured` if the secret cannot be read."""
        self.name = name
        self._url = url
        self._secret_file = secret_file
        self._secret = read_secret(secret_file)
        self._types = frozenset(types) or PUBLIC_TYPES
        self._holder = holder
        self._events = events
        self._store = store
        self._http = http
        self._clock = clock
        self._observer = observer
        self._log = log
        self._jitter = jitter
        self._position: int | None = None
        """The number of the last event that was copied; None while another hub works for this webhook."""
        self._renew_time = _NEVER
        self._failures = 0
        self._paused_until = _NEVER
        observer.webhook_started(name)

    async def run(self, stopping: Stopping) -> None:
        """Deliver until stopped. Failures are logged and retried."""
        while True:
            # At once: a webhook begins with what happens after it was looked at for the first time.
            try:
                await stopping.interrupts(self.deliver())
            except Unavailable as error:
                self._log.warning("webhook.unavailable", webhook=self.name, error=error)
            except Exception as error:
                self._log.exception("webhook.error", webhook=self.name, error=error)
            if await stopping.interrupts(self._clock.sleep(INTERVAL)):
                break
        if self._position is not None:
            try:
                await self._store.release(self.name, self._holder)
            except Unavailable as error:
                self._log.debug("webhook.not_released", webhook=self.name, error=error)

    async def deliver(self) -> None:
        """Copy new events, and try what is due. Raises `Unavailable`."""
        if not await self._holds_lease():
            return
        await self._copy()
        while self._clock.now() >= self._paused_until:
            due = await self._store.due(self.name, self._clock.now(), limit=_BATCH)
            for delivery in due:
                if not await self._holds_lease() or not await self._attempt(delivery):
                    return
            if len(due) < _BATCH:
                return

    async def _holds_lease(self) -> bool:
        now = self._clock.now()
        if now >= self._renew_time:
            newest = await self._events.newest_event()
            self._position = await self._store.acquire(
                self.name, self._holder, now=now, until=now + LEASE, newest=newest
            )
            self._renew_time = now + LEASE / 2 if self._position is not None else now + LEASE / 10
        return self._position is not None

    async def _copy(self) -> None:
        pending = await self._store.count_pending(self.name)
        while self._position is not None and pending < MAX_PENDING:
            after = self._position
            found = await self._events.events(after, limit=_PAGE)
            if not found:
                break
            # Numbers have no gaps.
            if (missed := found[0].number - after - 1) > 0:
                self._observer.webhook_missed(self.name, missed)
            wanted = [self._new(event) for event in found if event.type in self._types]
            if not await self._store.copy(self.name, wanted, after=after, position=found[-1].number):
                self._position, self._renew_time = None, _NEVER
                break
            self._position = found[-1].number
            pending += len(wanted)
        self._observer.webhook_pending(self.name, pending)

    def _new(self, event: HubEvent) -> Delivery:
        return Delivery(webhook=self.name, event=event, next_time=self._clock.now())

    async def _attempt(self, delivery: Delivery) -> bool:
        """Send an event, and store what became of it. Returns whether the server took it."""
        error = await self._post(delivery.event)
        now = self._clock.now()
        if error is None:
            await self._store.remove(delivery.id)
            self._failures, self._paused_until = 0, _NEVER
            self._observer.webhook_delivered(self.name)
            return True
        attempts = delivery.attempts + 1
        failed = msgspec.structs.replace(
            delivery,
            attempts=attempts,
            error=error,
            next_time=now + BACKOFF.delay(delivery.attempts, self._jitter()),
            failed_time=now if attempts >= ATTEMPTS else None,
        )
        await self._store.save(failed)
        self._paused_until = now + _PAUSE.delay(self._failures, self._jitter())
        self._failures += 1
        self._observer.webhook_failed(self.name, failed)
        return False

    async def _post(self, event: HubEvent) -> str | None:
        """Send an event. Returns why it was not taken, without the URL, which may be secret."""
        content = webhook.body(
            event.type, number=event.number, subject=event.subject, time=event.time, data=event.data
        )
        headers = {
            "Content-Type": webhook.CONTENT_TYPE,
            webhook.SIGNATURE_HEADER: webhook.signature(self._read_secret(), content, self._clock.now()),
        }
        try:
            response = await self._http.post(self._url.reveal(), data=content, headers=headers, timeout=TIMEOUT)
        except HttpFailure as error:
            _, _, cause = str(error).rpartition(": ")
            url = self._url.reveal()
            return "the server cannot be reached" if url in cause else f"the server cannot be reached: {cause}"
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return type(error).__name__
        return None if response.is_success else f"the server responded {response.status}"

    def _read_secret(self) -> bytes:
        """Read the file again, which may have been replaced. What was read before serves while it cannot be."""
        try:
            self._secret = read_secret(self._secret_file)
        except Misconfigured as error:
            self._log.warning("webhook.secret_unusable", webhook=self.name, error=error)
        return self._secret
