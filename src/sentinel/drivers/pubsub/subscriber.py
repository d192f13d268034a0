"""Receiving from Google Cloud Pub/Sub.

Messages are pulled, never more than there is room for. A streaming pull would answer sooner by a few
milliseconds, but how much it brings is the server's choice; here it is ours, and a subscriber that has no room
leaves everything to others. A pull waits for messages only for a few seconds, and is not cut short even when
the subscriber closes: one that is cancelled may be answered all the same, and what it brings would be nobody's
until its lease is over.

While a message is held, its lease is extended; when a process dies, its messages go to others after one lease.
"""

from __future__ import annotations

import asyncio
import random as system_random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from google.api_core import exceptions
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.types import PublishRequest, PubsubMessage, PullRequest, ReceivedMessage

from sentinel.drivers.deliveries import RETRY, HeldDeliveries, HeldDelivery
from sentinel.drivers.event_messages import Received
from sentinel.drivers.pubsub import client, received_messages
from sentinel.drivers.pubsub.client import CALL_FAILED, DEFAULT_ENDPOINT, LazyConnection, describe
from sentinel.drivers.reconnect import ConnectionSupervisor, loss_as_error
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

LEASE = timedelta(seconds=20)
"""For how long a message is ours at a time; Pub/Sub allows 10 to 600 seconds."""
MAX_HOLD = timedelta(hours=1)
"""For how long a lease is extended before the message is given back and taken again, as in Google's clients."""
PULL = timedelta(seconds=4)
"""How long a pull waits for messages, and closing for a pull."""
RECONNECT = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)

_FIRST_LOOK = timedelta(seconds=3)
"""How long opening waits for an answer before it leaves the rest to the background."""
_NEXT_LOOK = timedelta(seconds=30)
_CALL = timedelta(seconds=5)
_SHORTEST_LEASE = timedelta(seconds=10)
"""What a subscription that others have made allows at least: before it is over, the lease must be ours."""
_SHORTEST_PULL = timedelta(milliseconds=100)
_AT_ONCE = 1_000
"""As many as one request may name."""


class PubSubSubscriber:
    """`ports.subscription.Subscriber` on a Pub/Sub subscription.

    Credentials are found in the ordinary Google ways, and found anew when they are no longer accepted. An
    emulator needs none. Dead letters go to a topic and subscription of their own, which must exist, or be made,
    like the subscription itself: a topic without a subscription would keep nothing.
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
        emulator_host: str = "",
        endpoint: str = DEFAULT_ENDPOINT,
        lease: timedelta = LEASE,
        max_hold: timedelta = MAX_HOLD,
        pull: timedelta = PULL,
        reconnect: Backoff = RECONNECT,
        retry: Backoff = RETRY,
        random: Callable[[], float] = system_random.random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        observe: Callable[[Connectivity], None] = lambda change: None,
        log: Log | None = None,
    ) -> None:
        """With `create_topic` the topic, the subscription, and both for dead letters are created where they are
        not there. `emulator_host` and `endpoint` are as for the publisher. `observe` hears of changes, not of
        every attempt; `log` of messages that a fault of ours keeps from being read or settled."""
        project = f"projects/{project_id}"
        self._topic = f"{project}/topics/{topic}"
        self._name = subscription
        self._subscription = f"{project}/subscriptions/{subscription}"
        self._dead_topic = f"{project}/topics/{subscription}{DEAD_LETTERS_SUFFIX}"
        self._dead_subscription = f"{project}/subscriptions/{subscription}{DEAD_LETTERS_SUFFIX}"
        self._may_create = create_topic
        self._lease = lease
        self._wait = pull
        self._reconnect = reconnect
        self._random = random
        self._now = now
        self._log = log or get_logger("subscriber")
        self._intake: HeldDeliveries[_Parcel] = HeldDeliveries(
            max_in_flight=max_in_flight,
            max_hold=max_hold,
            retry=retry,
            random=random,
            now=now,
            log=self._log,
        )
        self._line = LazyConnection(endpoint=endpoint, emulator_host=emulator_host)
        self._keeper = ConnectionSupervisor(
            name="pubsub",
            broker=self._line.broker,
            patience=_FIRST_LOOK,
            observe=observe,
            role="subscriber",
        )
        self._pulling = asyncio.Lock()
        self._is_closing = False

    async def open(self) -> None:
        await self._keeper.open(self._keep_receiving)

    def deliveries(self) -> AsyncIterator[HeldDelivery[_Parcel]]:
        return self._intake.deliveries()

    def trouble(self) -> str | None:
        return self._keeper.trouble()

    async def close(self) -> None:
        self._is_closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._wait.total_seconds()), self._pulling:
                pass
        rest = await self._intake.close()
        await self.change_lease([parcel.ack_id for parcel in rest], timedelta(0))
        await self._keeper.close()

    # --- receiving --------------------------------------------------------------------------------------------

    async def _keep_receiving(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_leases())
                group.create_task(self._keep_pulling())
        finally:
            await self._line.close()

    async def _keep_pulling(self) -> None:
        failures = 0
        while not self._is_closing:
            try:
                async with self._line.looking() as connection:
                    await self._require_all(connection)
                self._keeper.connected()
                self._keeper.ring()
                failures = 0
                await self._receive(connection)
            except Exception as error:  # the loop's edge: whatever it was, the next attempt may be luckier
                self._keeper.failed(error)
                self._keeper.disconnected(describe(error))
                self._keeper.ring()
                failures += 1
            await asyncio.sleep(self._reconnect.delay(failures, self._random()).total_seconds())

    async def _receive(self, connection: client.PubSubConnection) -> None:
        """Goes on until nobody has answered for a while; a call that fails is raised."""
        now = asyncio.get_running_loop().time
        answered = now()
        while now() - answered < _NEXT_LOOK.total_seconds():
            room = await self._intake.room()
            async with self._pulling:
                if self._is_closing:
                    return
                begun = now()
                pulled = await self._pull(connection, min(room, _AT_ONCE))
                if pulled is not None:
                    answered = now()
                foreign = [each for each in pulled or () if not self._take(each)]
            if foreign:
                await self.acknowledge([each.ack_id for each in foreign])
            if not pulled:
                # A server that does not wait for messages is not to be asked without end.
                await asyncio.sleep(begun + _SHORTEST_PULL.total_seconds() - now())

    async def _pull(self, connection: client.PubSubConnection, most: int) -> Sequence[ReceivedMessage] | None:
        """What there is; None where nobody has answered, as Pub/Sub may do when there is nothing."""
        request = PullRequest(subscription=self._subscription, max_messages=most)
        try:
            answer = await connection.subscriber.pull(request, retry=None, timeout=self._wait.total_seconds())
        except exceptions.DeadlineExceeded:
            return None
        return list(answer.received_messages)

    def _take(self, pulled: ReceivedMessage) -> bool:
        if not received_messages.is_for(pulled.message, self._name):
            return False
        self._intake.arrived(_Parcel(self, pulled, received_messages.receive(pulled, log=self._log)))
        return True

    async def _keep_leases(self) -> None:
        every = min(self._lease / 2, _SHORTEST_LEASE / 2)
        while True:
            await asyncio.sleep(every.total_seconds())
            # Where that fails, the message comes again, and joins the work that goes on.
            await self.change_lease([parcel.ack_id for parcel in self._intake.held()], self._lease)

    # --- answering --------------------------------------------------------------------------------------------

    async def acknowledge(self, ack_ids: Sequence[str]) -> bool:
        """Says that these are done; false where it was not heard."""

        async def call(client: SubscriberAsyncClient, part: list[str]) -> None:
            await client.acknowledge(
                subscription=self._subscription, ack_ids=part, retry=None, timeout=_CALL.total_seconds()
            )

        return await self._say(call, ack_ids)

    async def change_lease(self, ack_ids: Sequence[str], lease: timedelta) -> bool:
        """Keeps these for so long from now, or gives them back at once; false where it was not heard."""

        async def call(client: SubscriberAsyncClient, part: list[str]) -> None:
            await client.modify_ack_deadline(
                subscription=self._subscription,
                ack_ids=part,
                ack_deadline_seconds=round(lease.total_seconds()),
                retry=None,
                timeout=_CALL.total_seconds(),
            )

        return await self._say(call, ack_ids)

    async def _say(
        self, call: Callable[[SubscriberAsyncClient, list[str]], Awaitable[None]], ack_ids: Sequence[str]
    ) -> bool:
        if self._line.connection is None:
            return False
        client = self._line.connection.subscriber
        try:
            with loss_as_error():
                for begin in range(0, len(ack_ids), _AT_ONCE):
                    await call(client, list(ack_ids[begin : begin + _AT_ONCE]))
        except (*CALL_FAILED, ConnectionError):
            return False
        return True

    async def bury(self, pulled: PubsubMessage, reason: str, attempts: int) -> bool:
        """Publishes a message among the dead letters; false where that is not certain."""
        connection = self._line.connection
        if connection is None:
            return False
        letter = received_messages.as_dead_letter(pulled, reason=reason, attempts=attempts, now=self._now())
        try:
            with loss_as_error():
                # Whoever emptied the subscription may have removed it, too.
                await self._require_dead_letters(connection)
                await connection.publisher.publish(
                    PublishRequest(topic=self._dead_topic, messages=[letter]),
                    retry=None,
                    timeout=_CALL.total_seconds(),
                )
        except (*CALL_FAILED, ConnectionError, Misconfigured):
            return False
        return True

    # --- what has to exist ------------------------------------------------------------------------------------

    async def _require_all(self, connection: client.PubSubConnection) -> None:
        if self._may_create:
            await client.require_topic(connection.publisher, self._topic, may_create=True)
        await self._require(connection, self._subscription, self._topic)
        await self._require_dead_letters(connection)

    async def _require_dead_letters(self, connection: client.PubSubConnection) -> None:
        await client.require_topic(connection.publisher, self._dead_topic, may_create=self._may_create)
        await self._require(connection, self._dead_subscription, self._dead_topic)

    async def _require(self, connection: client.PubSubConnection, subscription: str, topic: str) -> None:
        await client.require_subscription(
            connection.subscriber, subscription, topic=topic, may_create=self._may_create, lease=self._lease
        )


class _Parcel:
    """A message that was pulled; `intake.Parcel`. Its acknowledgement id outlives connections."""

    def __init__(self, subscriber: PubSubSubscriber, pulled: ReceivedMessage, received: Received) -> None:
        self.message = received.message
        self.key = received.key
        self.attempts = received.attempts
        self.published_time = received.published_time
        self.ack_id = pulled.ack_id
        self._pulled = pulled.message
        self._subscriber = subscriber

    async def accept(self) -> bool:
        return await self._subscriber.acknowledge([self.ack_id])

    async def give_back(self) -> bool:
        return await self._subscriber.change_lease([self.ack_id], timedelta(0))

    async def bury(self, reason: str, *, attempts: int) -> bool:
        return await self._subscriber.bury(self._pulled, reason, attempts) and await self.accept()
