"""A broker inside the process, for trials and for tests that should not need a server.

It behaves like a real one. A subscription is a queue that outlives its subscribers. They share it, and different
subscriptions each get every message. A queue is bounded and drops nothing: a full subscription makes publishers
wait, and an event for which there is no room by the deadline is refused. It is not unconfirmed, because an event
is put into all subscriptions at once or into none. Without any subscription an event is unroutable, as on an
exchange without bindings.

Everything happens on one event loop, and nothing outlives the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from sentinel.core import events
from sentinel.drivers import event_messages
from sentinel.drivers.deliveries import RETRY, HeldDeliveries, HeldDelivery, Notifier
from sentinel.drivers.reconnect import end_now
from sentinel.ports.errors import Unavailable
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

CAPACITY = 10_000

_NOT_OPEN = "the publisher is not open"
_REPLAY_TIMEOUT = timedelta(seconds=5)


class MemoryBroker:
    """The subscriptions and their messages."""

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        retry: Backoff = RETRY,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        log: Log | None = None,
    ) -> None:
        """`capacity` limits the messages of each subscription, including unsettled ones, and separately its dead
        letters. `retry` delays nacked messages."""
        if capacity < 1:
            raise ValueError(f"capacity: expected 1 or more, got {capacity}")
        self._capacity = capacity
        self._retry = retry
        self._now = now
        self._log = log or get_logger("subscriber")
        self._subscriptions: dict[str, _Subscription] = {}
        self._room = Notifier()

    def publisher(self, *, mode: events.Mode = events.Mode.STRUCTURED) -> MemoryPublisher:
        """Create a publisher to all subscriptions; open it before use."""
        return MemoryPublisher(broker=self, mode=mode)

    def subscribe(self, subscription: str, *, max_in_flight: int | None = None) -> MemorySubscriber:
        """Create a subscriber that is ready at once, and the subscription if it does not exist.

        `max_in_flight` defaults to the capacity.
        """
        queue = self._subscriptions.get(subscription)
        if queue is None:
            queue = _Subscription(self._room, max_dead_letters=self._capacity, now=self._now)
            self._subscriptions[subscription] = queue
        in_flight = self._capacity if max_in_flight is None else max_in_flight
        return MemorySubscriber(queue, max_in_flight=in_flight, retry=self._retry, now=self._now, log=self._log)

    def dead_letters(self, subscription: str) -> MemoryDeadLetters:
        """The newest dead letters of a subscription; empty if it does not exist."""
        return MemoryDeadLetters(broker=self, subscription=subscription)

    def subscription(self, name: str) -> _Subscription | None:
        return self._subscriptions.get(name)

    def unsubscribe(self, subscription: str) -> None:
        """Remove a subscription, if it exists, with its messages; its subscribers' deliveries end."""
        queue = self._subscriptions.pop(subscription, None)
        if queue is not None:
            queue.remove()
            self._room.notify()

    def backlog(self, subscription: str) -> int:
        """Return how many messages wait or are unsettled; 0 if the subscription does not exist."""
        queue = self._subscriptions.get(subscription)
        return 0 if queue is None else queue.size

    def full_subscriptions(self) -> list[str]:
        return [name for name, queue in self._subscriptions.items() if queue.size >= self._capacity]

    async def publish_to(self, name: str, message: Message) -> bool:
        """Wait for room in one subscription and put the message there. Return False if it does not exist."""
        while name in self.full_subscriptions():
            await self._room.wait()
        queue = self._subscriptions.get(name)
        if queue is not None:
            queue.put(message)
        return queue is not None

    async def publish(self, message: Message) -> bool:
        """Wait for room in all subscriptions and put the message into each. Return False if there are none.

        Nothing is awaited once there is room: a cancelled caller knows that the message was not published.
        """
        while self.full_subscriptions():
            await self._room.wait()
        for queue in self._subscriptions.values():
            queue.put(message)
        return bool(self._subscriptions)


class MemoryPublisher:
    """`ports.publisher.Publisher` on a `MemoryBroker`; keeps the order of the events."""

    broker_type = "memory"

    def __init__(self, *, broker: MemoryBroker, mode: events.Mode) -> None:
        self._broker = broker
        self._mode = mode
        self._is_open = False
        self._attempt: asyncio.Timeout | None = None
        """Ends the current or last `publish`."""

    async def open(self) -> None:
        self._is_open = True

    async def publish(self, events: Sequence[events.Event], *, deadline: timedelta) -> Receipt:
        if not self._is_open:
            return Receipt([PublishOutcome.UNCONFIRMED] * len(events), [], _NOT_OPEN)
        loop = asyncio.get_running_loop()
        outcomes: list[PublishOutcome] = []
        seconds: list[float] = []
        error = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()) as self._attempt:
                for event in events:
                    start = loop.time()
                    if await self._broker.publish(_message(event, self._mode)):
                        outcomes.append(PublishOutcome.CONFIRMED)
                    else:
                        outcomes.append(PublishOutcome.UNROUTABLE)
                        error = error or "the memory broker has no subscription"
                    seconds.append(loop.time() - start)
        except TimeoutError:
            full = ", ".join(self._broker.full_subscriptions())
            error = error or f"no room within {deadline.total_seconds():g}s in subscription {full}"
            outcomes.extend([PublishOutcome.REFUSED] * (len(events) - len(outcomes)))
        return Receipt(outcomes, seconds, error)

    def abandon(self) -> None:
        end_now(self._attempt)

    def unavailable_reason(self) -> str | None:
        return None if self._is_open else _NOT_OPEN

    async def close(self) -> None:
        self._is_open = False


class MemorySubscriber:
    """`ports.subscription.Subscriber` on a `MemoryBroker`.

    A nacked message goes to the back of the queue, so that one that always fails does not block the others.
    Messages that are unsettled at close go back to the front in their old order.
    """

    broker_type = "memory"

    def __init__(
        self,
        subscription: _Subscription,
        *,
        max_in_flight: int,
        retry: Backoff,
        now: Callable[[], datetime],
        log: Log,
    ) -> None:
        self._subscription = subscription
        self._held: HeldDeliveries[_QueuedMessage] = HeldDeliveries(
            max_in_flight=max_in_flight,
            retry=retry,
            now=now,
            source=subscription.take,
            notifier=subscription.arrival,
            log=log,
        )
        self._is_closed = False
        subscription.subscribers.append(self)

    async def open(self) -> None:
        """Do nothing: it is ready when created."""

    def deliveries(self) -> AsyncIterator[HeldDelivery[_QueuedMessage]]:
        return self._held.deliveries()

    def unavailable_reason(self) -> str | None:
        return "the subscriber is closed" if self._is_closed else None

    def end_deliveries(self) -> None:
        """Called when the subscription is removed."""
        self._held.end_deliveries()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._subscription.subscribers.remove(self)
            self._subscription.requeue_first(await self._held.close())


class _QueuedMessage:
    """`deliveries.BrokerMessage` in a subscription."""

    key = None  # It is never redelivered while it is in progress, so it need not be recognized.

    def __init__(self, message: Message, subscription: _Subscription, published_time: datetime) -> None:
        self.message = message
        self.published_time = published_time
        self.attempts = 0
        self._subscription = subscription

    async def ack(self) -> bool:
        self._subscription.remove_unsettled(self)
        return True

    async def nack(self) -> bool:
        self._subscription.requeue_last(self)
        return True

    async def dead_letter(self, reason: str, *, attempts: int) -> bool:
        self._subscription.add_dead_letter(self, reason, attempts)
        return True


class _Subscription:
    """A queue, its unsettled messages and its dead letters.

    Unsettled messages count towards the capacity, so that there is always room to requeue them.
    """

    def __init__(self, room: Notifier, *, max_dead_letters: int, now: Callable[[], datetime]) -> None:
        self.arrival = Notifier()
        self.subscribers: list[MemorySubscriber] = []
        self.dead_letters: deque[DeadLetter] = deque(maxlen=max_dead_letters)
        self._room = room
        self._now = now
        self._waiting: deque[_QueuedMessage] = deque()
        self._unsettled: dict[_QueuedMessage, None] = {}

    @property
    def size(self) -> int:
        return len(self._waiting) + len(self._unsettled)

    def put(self, message: Message) -> None:
        self._waiting.append(_QueuedMessage(message, self, self._now()))
        self.arrival.notify()

    def take(self) -> _QueuedMessage | None:
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        message.attempts += 1
        self._unsettled[message] = None
        return message

    def remove_unsettled(self, message: _QueuedMessage) -> None:
        del self._unsettled[message]
        self._room.notify()

    def add_dead_letter(self, message: _QueuedMessage, reason: str, attempts: int) -> None:
        headers = event_messages.dead_letter_headers(reason=reason, attempts=attempts, now=self._now())
        self.dead_letters.append(event_messages.read_dead_letter(message.message, headers))
        self.remove_unsettled(message)

    def requeue_last(self, message: _QueuedMessage) -> None:
        del self._unsettled[message]
        self._waiting.append(message)
        self.arrival.notify()

    def requeue_first(self, messages: Sequence[_QueuedMessage]) -> None:
        for message in messages:
            del self._unsettled[message]
        self._waiting.extendleft(reversed(messages))
        self.arrival.notify()

    def remove(self) -> None:
        self._waiting.clear()
        for subscriber in self.subscribers:
            subscriber.end_deliveries()


class MemoryDeadLetters:
    """`ports.subscription.DeadLetters` on a `MemoryBroker`."""

    def __init__(self, *, broker: MemoryBroker, subscription: str) -> None:
        self._broker = broker
        self._subscription = subscription

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        return list(self._letters())[:limit]

    async def replay(self, letter_id: str | None = None) -> int:
        chosen = self._letters_with_id(letter_id)
        try:
            async with asyncio.timeout(_REPLAY_TIMEOUT.total_seconds()):
                for letter in chosen:
                    await self._broker.publish_to(self._subscription, letter.message)
                    with suppress(ValueError):  # removed by a concurrent call
                        self._letters().remove(letter)
        except TimeoutError as error:
            raise Unavailable(f"no room in subscription {self._subscription}") from error
        return len(chosen)

    async def drop(self, letter_id: str | None = None) -> int:
        chosen = self._letters_with_id(letter_id)
        for letter in chosen:
            self._letters().remove(letter)
        return len(chosen)

    def _letters(self) -> deque[DeadLetter]:
        queue = self._broker.subscription(self._subscription)
        return deque() if queue is None else queue.dead_letters

    def _letters_with_id(self, letter_id: str | None) -> list[DeadLetter]:
        return [letter for letter in self._letters() if letter_id in (None, letter.id)]


def _message(event: events.Event, mode: events.Mode) -> Message:
    return Message(events.body(event, mode), events.content_type(mode), events.attributes(event))
