"""A broker inside the process, for trying things out and for tests that should not need a server.

It keeps the promises of the real ones. A subscription is a queue of its own that outlives its subscribers;
they share it, and different subscriptions each get everything. It is bounded and never drops: a subscription
that has no room makes publishers wait, and what found no room by the deadline was refused - not unconfirmed,
because an event is placed into every subscription at once or into none, so the broker knows. With no
subscription at all there is nowhere to put an event, and it is unroutable, as on an exchange to which nothing
is bound.

Everything happens on one event loop; nothing is kept beyond the life of the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from sentinel import ports
from sentinel.core import events

CAPACITY = 10_000

_NOT_OPEN = "the publisher is not open"


class MemoryBroker:
    """The subscriptions, and what waits in them."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        """`capacity` bounds the messages of each subscription, those held without an answer included."""
        if capacity < 1:
            raise ValueError(f"capacity: expected 1 or more, got {capacity}")
        self._capacity = capacity
        self._subscriptions: dict[str, _Subscription] = {}
        self._room = _Bell()

    def publisher(self, *, mode: events.Mode = events.Mode.STRUCTURED) -> MemoryPublisher:
        """A publisher to every subscription of this broker; open it before use, as any other."""
        return MemoryPublisher(broker=self, mode=mode)

    def subscribe(self, subscription: str) -> MemorySubscriber:
        """A subscriber, ready at once; the subscription is made where it does not exist yet."""
        queue = self._subscriptions.get(subscription)
        if queue is None:
            queue = self._subscriptions[subscription] = _Subscription(self._room)
        return MemorySubscriber(queue)

    def unsubscribe(self, subscription: str) -> None:
        """Removes a subscription, if there is one, with all it keeps; its subscribers' deliveries end."""
        queue = self._subscriptions.pop(subscription, None)
        if queue is not None:
            queue.remove()
            self._room.ring()

    def backlog(self, subscription: str) -> int:
        """How many messages the subscription keeps, waiting or held; none where it does not exist."""
        queue = self._subscriptions.get(subscription)
        return 0 if queue is None else queue.kept

    def full(self) -> list[str]:
        """The subscriptions that have no room for one more message, by name."""
        return [name for name, queue in self._subscriptions.items() if queue.kept >= self._capacity]

    async def place(self, message: ports.Message) -> bool:
        """Waits for room everywhere, then puts the message into every subscription; False if there is none.

        Nothing is awaited once there is room: a caller that gives up knows that the message is nowhere.
        """
        while self.full():
            await self._room.wait()
        for queue in self._subscriptions.values():
            queue.put(message)
        return bool(self._subscriptions)


class MemoryPublisher:
    """`ports.Publisher` on a `MemoryBroker`; delivers in the order in which events were published."""

    broker_type = "memory"

    def __init__(self, *, broker: MemoryBroker, mode: events.Mode) -> None:
        self._broker = broker
        self._mode = mode
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def publish(self, events: Sequence[events.Event], *, deadline: timedelta) -> ports.Receipt:
        if not self._is_open:
            return ports.Receipt([ports.Outcome.UNCONFIRMED] * len(events), [], _NOT_OPEN)
        loop = asyncio.get_running_loop()
        outcomes: list[ports.Outcome] = []
        seconds: list[float] = []
        error = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                for event in events:
                    begun = loop.time()
                    if await self._broker.place(_message(event, self._mode)):
                        outcomes.append(ports.Outcome.CONFIRMED)
                    else:
                        outcomes.append(ports.Outcome.UNROUTABLE)
                        error = error or "the memory broker has no subscription"
                    seconds.append(loop.time() - begun)
        except TimeoutError:
            full = ", ".join(self._broker.full())
            error = error or f"no room within {deadline.total_seconds():g}s in subscription {full}"
            outcomes.extend([ports.Outcome.REFUSED] * (len(events) - len(outcomes)))
        return ports.Receipt(outcomes, seconds, error)

    def trouble(self) -> str | None:
        return None if self._is_open else _NOT_OPEN

    async def close(self) -> None:
        self._is_open = False


class MemorySubscriber:
    """`ports.Subscriber` on a `MemoryBroker`.

    A message that was nacked goes to the back of its subscription, so that one which always fails does not
    keep the rest waiting. What is unsettled at close goes back to the front, in its old order: nobody has
    judged it.
    """

    def __init__(self, subscription: _Subscription) -> None:
        self._subscription = subscription
        self._held: dict[MemoryDelivery, None] = {}
        self._is_closed = False

    async def deliveries(self) -> AsyncIterator[ports.Delivery]:
        while not self._is_closed and not self._subscription.is_removed:
            message = self._subscription.take()
            if message is None:
                await self._subscription.arrival.wait()
            else:
                delivery = MemoryDelivery(message, self)
                self._held[delivery] = None
                yield delivery

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._subscription.give_back_first([delivery.message for delivery in self._held])
            self._held.clear()

    def settle(self, delivery: MemoryDelivery, *, is_done: bool) -> None:
        """What `ack` and `nack` come to; settling what is no longer held is harmless."""
        if delivery in self._held:
            del self._held[delivery]
            if is_done:
                self._subscription.forget()
            else:
                self._subscription.give_back_last(delivery.message)


class MemoryDelivery:
    """`ports.Delivery` of a `MemorySubscriber`."""

    def __init__(self, message: ports.Message, subscriber: MemorySubscriber) -> None:
        self._message = message
        self._subscriber = subscriber

    @property
    def message(self) -> ports.Message:
        return self._message

    async def ack(self) -> None:
        self._subscriber.settle(self, is_done=True)

    async def nack(self) -> None:
        self._subscriber.settle(self, is_done=False)


class _Bell:
    """Wakes everybody who waits, and remembers nothing: whoever wakes looks again at what it waited for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def ring(self) -> None:
        self._event.set()
        self._event.clear()


class _Subscription:
    """A queue, and the number of messages that were taken from it and not settled.

    Held messages count, so that one which is given back always finds room.
    """

    def __init__(self, room: _Bell) -> None:
        self.arrival = _Bell()
        self.is_removed = False
        self._room = room
        self._waiting: deque[ports.Message] = deque()
        self._held = 0

    @property
    def kept(self) -> int:
        return len(self._waiting) + self._held

    def put(self, message: ports.Message) -> None:
        self._waiting.append(message)
        self.arrival.ring()

    def take(self) -> ports.Message | None:
        if not self._waiting:
            return None
        self._held += 1
        return self._waiting.popleft()

    def forget(self) -> None:
        self._held -= 1
        self._room.ring()

    def give_back_last(self, message: ports.Message) -> None:
        self._held -= 1
        self.put(message)

    def give_back_first(self, messages: Sequence[ports.Message]) -> None:
        self._held -= len(messages)
        self._waiting.extendleft(reversed(messages))
        self.arrival.ring()

    def remove(self) -> None:
        self.is_removed = True
        self._waiting.clear()
        self.arrival.ring()


def _message(event: events.Event, mode: events.Mode) -> ports.Message:
    return ports.Message(events.body(event, mode), events.content_type(mode), events.attributes(event))
