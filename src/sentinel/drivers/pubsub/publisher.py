"""Publishing to Google Cloud Pub/Sub with confirms.

Events are sent in requests of many messages, several requests at a time. Pub/Sub confirms a request by giving
each message an id. gRPC keeps the connection. This module adds a background check of the topic: until it is
found, after publishing errors, and at intervals, so that readiness shows a problem before the next event is
sent.

Pub/Sub cannot report an unroutable event: a topic without subscriptions accepts and drops it. So no outcome
here is ever unroutable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Unpack

from google.api_core import exceptions
from google.pubsub_v1.types import PublishRequest, PublishResponse

from sentinel.core.events import Event, Mode
from sentinel.drivers.pubsub import client
from sentinel.drivers.pubsub.client import CALL_ERRORS, ConnectOptions, LazyConnection, describe_error
from sentinel.drivers.pubsub.publish_requests import EncodedRequest, PublishBatch, RequestEncoder, RequestLimits
from sentinel.drivers.reconnect import ConnectionSupervisor, end_now
from sentinel.ports.publisher import Connectivity, PublishOutcome, Receipt
from sentinel.runtime.backoff import Backoff

WINDOW = 4
LIMITS = RequestLimits()
RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)
"""Short delays, so that a broker that is back is found within one poll."""

_MAX_ATTEMPTS = 5
"""After these attempts a request is unconfirmed: in about 1.5 s if the server is unreachable. The caller retries
for longer and should not be blocked here."""
_ATTEMPT_TIMEOUT = timedelta(seconds=5)
_OPEN_TIMEOUT = timedelta(seconds=3)
"""How long opening waits for a response before it continues in the background."""
_CHECK_INTERVAL = timedelta(seconds=30)

_TRANSIENT = (
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.ResourceExhausted,
    exceptions.ServiceUnavailable,
    exceptions.Unknown,
)
"""The errors that Google's own publisher retries; all others are refusals."""


class PubSubPublisher:
    """`ports.publisher.Publisher` on a Pub/Sub topic.

    Without `credentials_json`, Google's application default credentials are used, and looked up again when they
    are rejected. An emulator needs none.

    A request with a transient error is retried a few times with backoff, within the deadline. A request that
    Pub/Sub rejects as invalid is split until the invalid events are alone.
    """

    broker_type = "gcp-pubsub"

    def __init__(
        self,
        *,
        project_id: str,
        topic: str,
        create_topic: bool = False,
        mode: Mode = Mode.STRUCTURED,
        ordering_key: str = "",
        limits: RequestLimits = LIMITS,
        window: int = WINDOW,
        retry: Backoff = RETRY,
        jitter: Callable[[], float] = random.random,
        observe: Callable[[Connectivity], None] = lambda change: None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """With `create_topic`, a missing topic is created whenever it is found missing.

        With an `ordering_key`, which all events then share, requests are sent one after another, otherwise up to
        `window` at once. `observe` is called on changes, not on every attempt.
        """
        if window < 1:
            raise ValueError(f"window: expected 1 or more, got {window}")
        self._topic = f"projects/{project_id}/topics/{topic}"
        self._may_create = create_topic
        self._window = 1 if ordering_key else window
        self._retry = retry
        self._jitter = jitter
        self._encoder = RequestEncoder(
            topic=self._topic, mode=mode, ordering_key=ordering_key, limits=limits, now=self._now
        )
        self._connection = LazyConnection(**options)
        self._supervisor = ConnectionSupervisor(
            name="pubsub", broker=self._connection.broker, open_timeout=_OPEN_TIMEOUT, observe=observe
        )
        self._recheck = asyncio.Event()
        """Set when the topic should be checked again."""
        self._confirmations = 0
        self._attempt: asyncio.Timeout | None = None
        """Ends the current or last `publish`."""

    async def open(self) -> None:
        await self._supervisor.start(self._keep_checking_topic)

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        batch = PublishBatch(events)
        reason = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()) as self._attempt:
                # A deadline that has already passed raises here, before anything is sent.
                await asyncio.sleep(0)
                if self._supervisor.is_running and self._connection.current is None:
                    await self._supervisor.wait_for_attempt()
                if self._connection.current is not None:
                    await self._send(batch)
                reason = self.unavailable_reason() or "the connection was closed"
        except TimeoutError:
            self._recheck.set()
            reason = self.unavailable_reason() or f"no response within {deadline.total_seconds():g}s"
        return Receipt(batch.outcomes.copy(), batch.seconds.copy(), batch.first_error(reason))

    def abandon(self) -> None:
        # This cancels the requests. gRPC then discards what it has not sent.
        end_now(self._attempt)

    def unavailable_reason(self) -> str | None:
        return self._supervisor.unavailable_reason()

    async def close(self) -> None:
        await self._supervisor.stop()

    # --- publishing -------------------------------------------------------------------------------------------

    async def _send(self, batch: PublishBatch) -> None:
        """Send the batch as the window allows. Return when every request has ended."""
        window = asyncio.Semaphore(self._window)
        is_reachable = True

        async def send(request: EncodedRequest) -> None:
            nonlocal is_reachable
            try:
                is_reachable = await self._send_request(request) and is_reachable
            finally:
                window.release()

        async with asyncio.TaskGroup() as group:
            for request in self._encoder.encode(batch):
                await window.acquire()
                if not is_reachable:
                    # Do not multiply failures: the rest would only wait for the same error.
                    break
                group.create_task(send(request))
                # Encoding a request takes milliseconds, so let other tasks run in between.
                await asyncio.sleep(0)

    async def _send_request(self, request: EncodedRequest) -> bool:
        """Send one request until it has an outcome. Return False if it got none."""
        start = self._now()
        for attempt in range(_MAX_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._retry.delay(attempt - 1, self._jitter()).total_seconds())
            if self._connection.current is None:
                return False
            try:
                response = await self._connection.current.publisher.publish(
                    PublishRequest.wrap(request.content), retry=None, timeout=_ATTEMPT_TIMEOUT.total_seconds()
                )
            except exceptions.InvalidArgument as error:
                halves = request.split()
                if halves:
                    return await self._send_request(halves[0]) and await self._send_request(halves[1])
                request.set_error(describe_error(error))
                request.set_outcome(PublishOutcome.REFUSED, self._now() - start)
                return True
            except CALL_ERRORS as error:
                request.set_error(describe_error(error))
                self._recheck.set()
                if not self._is_transient(error):
                    request.set_outcome(PublishOutcome.REFUSED, self._now() - start)
                    return True
            else:
                return self._confirm(request, response, self._now() - start)
        return False

    def _is_transient(self, error: Exception) -> bool:
        # A topic that we may create is missing only briefly.
        is_being_created = self._may_create and isinstance(error, exceptions.NotFound)
        return (
            is_being_created
            or not isinstance(error, exceptions.GoogleAPICallError)
            or isinstance(error, _TRANSIENT)
        )

    def _confirm(self, request: EncodedRequest, response: PublishResponse, seconds: float) -> bool:
        ids = len(PublishResponse.pb(response).message_ids)
        if ids != len(request):
            request.set_error(f"{len(request)} messages were sent, but {ids} confirmed")
            return False
        request.set_outcome(PublishOutcome.CONFIRMED, seconds)
        self._confirmations += 1
        self._supervisor.connected()
        return True

    # --- checking the topic -----------------------------------------------------------------------------------

    async def _keep_checking_topic(self) -> None:
        failures = 0
        try:
            while True:
                self._recheck.clear()
                confirmations = self._confirmations
                try:
                    async with self._connection.acquire() as connection:
                        is_visible = await client.require_topic(
                            connection.publisher, self._topic, may_create=self._may_create
                        )
                    self._supervisor.attempt_succeeded()
                    failures = 0
                    await self._wait_for_recheck(connection, is_visible=is_visible)
                except Exception as error:
                    # A confirm in the meantime is better evidence.
                    if self._confirmations == confirmations:
                        self._supervisor.disconnected(describe_error(error))
                    self._supervisor.attempt_failed(error)
                    failures += 1
                # Also after a success: a connection that is lost immediately must not be reopened immediately.
                await asyncio.sleep(self._retry.delay(failures, self._jitter()).total_seconds())
        finally:
            await self._connection.close()

    async def _wait_for_recheck(self, connection: client.PubSubConnection, *, is_visible: bool) -> None:
        # Without permission to look up the topic, do not repeat it: each try may add an entry to an audit log.
        timeout = _CHECK_INTERVAL.total_seconds() if is_visible else None
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._recheck_when_lost(connection))
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._recheck.wait()
            watching.cancel()

    async def _recheck_when_lost(self, connection: client.PubSubConnection) -> None:
        await connection.wait_until_lost()
        self._recheck.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
