"""Receiving from Google Cloud Pub/Sub.

Messages are pulled, at most as many as there is capacity for. A streaming pull would be a few milliseconds faster,
but there the server decides how many messages it sends. A pull waits for messages for a few seconds only and is
not cancelled, not even on close: the server may still answer a cancelled pull, and its messages would then be
unavailable until their lease ends.

The lease of a held message is extended. When a process dies, its messages go to others after one lease.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Unpack

from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from sentinel.drivers.deliveries import RETRY, HeldDeliveries, HeldDelivery
from sentinel.drivers.event_messages import DecodedMessage
from sentinel.drivers.pubsub import client, received_messages
from sentinel.drivers.pubsub.client import ConnectOptions, PubSubConnection
from sentinel.drivers.reconnect import ConnectionSupervisor, connection_loss_as_error
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

LEASE = timedelta(seconds=20)
"""How long a message is leased at a time; Pub/Sub allows 10 to 600 seconds."""
MAX_HOLD = timedelta(hours=1)
"""How long the lease is extended before the message is requeued and pulled again, as in Google's clients."""
PULL_TIMEOUT = timedelta(seconds=4)
"""How long a pull waits for messages, and close waits for a pull."""
RECONNECT = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)

_OPEN_TIMEOUT = timedelta(seconds=3)
"""How long opening waits for a response before it continues in the background."""
_CHECK_INTERVAL = timedelta(seconds=30)
_CALL_TIMEOUT = timedelta(seconds=5)
_MIN_LEASE = timedelta(seconds=10)
"""The shortest ack deadline of an existing subscription; our own lease must be set before it ends."""
_MIN_PULL_INTERVAL = timedelta(milliseconds=100)


class PubSubSubscriber:
    """`ports.subscription.Subscriber` on a Pub/Sub subscription.

    Google's application default credentials are used, and looked up again when they are rejected. An emulator
    needs none. Dead letters have their own topic and subscription, which must exist or be created like the
    subscription itself: a topic without a subscription would keep nothing.
    """

    broker_type = "gcp-pubsub"

    def __init__(
        self,
        *,
        project_id: str,
        topic: str,
        subscription: str,
        max_in_flight: int,
        create_topic: bool = False,
        lease: timedelta = LEASE,
        max_hold: timedelta = MAX_HOLD,
        pull_timeout: timedelta = PULL_TIMEOUT,
        reconnect: Backoff = RECONNECT,
        retry: Backoff = RETRY,
        jitter: Callable[[], float] = random.random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        observe: Callable[[Connectivity], None] = lambda change: None,
        log: Log | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """With `create_topic`, missing topics and subscriptions are created, those for dead letters included.

        `observe` is called on changes, not on every attempt.
        """
        project = f"projects/{project_id}"
        self._topic = f"{project}/topics/{topic}"
        self._name = subscription
        self._subscription = f"{project}/subscriptions/{subscription}"
        self._dead_letter_topic = f"{project}/topics/{subscription}{DEAD_LETTERS_SUFFIX}"
        self._dead_letter_subscription = f"{project}/subscriptions/{subscription}{DEAD_LETTERS_SUFFIX}"
        self._may_create = create_topic
        self._lease = lease
        self._pull_timeout = pull_timeout
        self._reconnect = reconnect
        self._jitter = jitter
        self._now = now
        self._log = log or get_logger("subscriber")
        self._held: HeldDeliveries[_PulledMessage] = HeldDeliveries(
            max_in_flight=max_in_flight, max_hold=max_hold, retry=retry, jitter=jitter, now=now, log=self._log
        )
        self._connection = client.LazyConnection(**options)
        self._supervisor = ConnectionSupervisor(
            name="pubsub",
            broker=self._connection.broker,
            open_timeout=_OPEN_TIMEOUT,
            observe=observe,
            role="subscriber",
        )
        self._pull_lock = asyncio.Lock()
        self._is_closing = False

    async def open(self) -> None:
        await self._supervisor.start(self._run)

    def deliveries(self) -> AsyncIterator[HeldDelivery[_PulledMessage]]:
        return self._held.deliveries()

    def unavailable_reason(self) -> str | None:
        return self._supervisor.unavailable_reason()

    async def close(self) -> None:
        self._is_closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pull_timeout.total_seconds()), self._pull_lock:
                pass
        unsettled = await self._held.close()
        await self.set_lease([message.ack_id for message in unsettled], timedelta(0))
        await self._supervisor.stop()

    # --- receiving --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._extend_leases())
                group.create_task(self._keep_pulling())
        finally:
            await self._connection.close()

    async def _keep_pulling(self) -> None:
        failures = 0
        while not self._is_closing:
            try:
                async with self._connection.acquire() as connection:
                    await self._require_all(connection)
                self._supervisor.attempt_succeeded()
                failures = 0
                await self._pull_until_silent(connection)
            except Exception as error:  # the next attempt may succeed
                self._supervisor.disconnected(client.describe_error(error))
                self._supervisor.attempt_failed(error)
                failures += 1
            await asyncio.sleep(self._reconnect.delay(failures, self._jitter()).total_seconds())

    async def _pull_until_silent(self, connection: PubSubConnection) -> None:
        """Pull until no response has come for a while. Errors of calls are raised."""
        now = asyncio.get_running_loop().time
        last_response = now()
        while now() - last_response < _CHECK_INTERVAL.total_seconds():
            capacity = await self._held.wait_for_capacity()
            async with self._pull_lock:
                if self._is_closing:
                    return
                start = now()
                pulled = await connection.pull(
                    self._subscription, max_messages=capacity, timeout=self._pull_timeout
                )
                if pulled is not None:
                    last_response = now()
                skipped = [each.ack_id for each in pulled or () if not self._add(each)]
            if skipped:
                await self.acknowledge(skipped)
            if not pulled:
                # Do not poll a server in a tight loop if it does not wait for messages.
                await asyncio.sleep(start + _MIN_PULL_INTERVAL.total_seconds() - now())

    def _add(self, pulled: ReceivedMessage) -> bool:
        if received_messages.is_replay_for_other(pulled.message, self._name):
            return False
        decoded = received_messages.decode(pulled, log=self._log)
        self._held.add(_PulledMessage(self, pulled, decoded))
        return True

    async def _extend_leases(self) -> None:
        interval = min(self._lease / 2, _MIN_LEASE / 2)
        while True:
            await asyncio.sleep(interval.total_seconds())
            # If it fails, the message is redelivered and joins the work in progress.
            await self.set_lease([message.ack_id for message in self._held.unsettled()], self._lease)

    # --- settling; each method returns False if the call may have failed ---------------------------------------

    async def acknowledge(self, ack_ids: Sequence[str]) -> bool:
        return await self._was_sent(
            lambda connection: connection.acknowledge(self._subscription, ack_ids, timeout=_CALL_TIMEOUT)
        )

    async def set_lease(self, ack_ids: Sequence[str], lease: timedelta) -> bool:
        """Hold the messages for the lease from now on; a lease of zero requeues them."""
        return await self._was_sent(
            lambda connection: connection.set_lease(self._subscription, ack_ids, lease, timeout=_CALL_TIMEOUT)
        )

    async def publish_dead_letter(self, message: PubsubMessage, reason: str, attempts: int) -> bool:
        letter = received_messages.make_dead_letter(message, reason=reason, attempts=attempts, now=self._now())

        async def publish(connection: PubSubConnection) -> None:
            # An operator who emptied the subscription may have deleted it as well.
            await self._require_dead_letters(connection)
            await connection.publish(self._dead_letter_topic, letter, timeout=_CALL_TIMEOUT)

        return await self._was_sent(publish)

    async def _was_sent(self, call: Callable[[PubSubConnection], Awaitable[None]]) -> bool:
        connection = self._connection.current
        if connection is None:
            return False
        try:
            with connection_loss_as_error():
                await call(connection)
        except (*client.CALL_ERRORS, ConnectionError, Misconfigured):
            return False
        return True

    # --- topics and subscriptions -----------------------------------------------------------------------------

    async def _require_all(self, connection: PubSubConnection) -> None:
        if self._may_create:
            await client.require_topic(connection.publisher, self._topic, may_create=True)
        await self._require_subscription(connection, self._subscription, self._topic)
        await self._require_dead_letters(connection)

    async def _require_dead_letters(self, connection: PubSubConnection) -> None:
        await client.require_topic(connection.publisher, self._dead_letter_topic, may_create=self._may_create)
        await self._require_subscription(connection, self._dead_letter_subscription, self._dead_letter_topic)

    async def _require_subscription(self, connection: PubSubConnection, subscription: str, topic: str) -> None:
        await client.require_subscription(
            connection.subscriber, subscription, topic=topic, may_create=self._may_create, lease=self._lease
        )


class _PulledMessage:
    """`deliveries.BrokerMessage`. Its ack id outlives connections."""

    def __init__(self, subscriber: PubSubSubscriber, pulled: ReceivedMessage, decoded: DecodedMessage) -> None:
        self.message = decoded.message
        self.key = decoded.key
        self.attempts = decoded.attempts
        self.published_time = decoded.published_time
        self.ack_id = pulled.ack_id
        self._pulled = pulled.message
        self._subscriber = subscriber

    async def ack(self) -> bool:
        return await self._subscriber.acknowledge([self.ack_id])

    async def nack(self) -> bool:
        return await self._subscriber.set_lease([self.ack_id], timedelta(0))

    async def dead_letter(self, reason: str, *, attempts: int) -> bool:
        return await self._subscriber.publish_dead_letter(self._pulled, reason, attempts) and await self.ack()
