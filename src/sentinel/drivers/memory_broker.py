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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from sentinel.core import events
from sentinel.drivers import event_messages
from sentinel.drivers.deliveries import RETRY, HeldDeliveries, HeldDelivery, Notifier
from sentinel.ports.errors import Unavailable
from sentinel.ports.publisher import Outcome, Receipt
from sentinel.ports.subscription import DeadLetter, Message
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

CAPACITY = 10_000

_NOT_OPEN = "the publisher is not open"
_PATIENCE = timedelta(seconds=5)


class MemoryBroker:
    """The subscriptions, and what waits in them."""

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        retry: Backoff = RETRY,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        log: Log | None = None,
    ) -> None:
        """`capacity` bounds the messages of each subscription, those held without an answer included, and its
        dead letters apart from them. A nacked message is kept back by `retry`. `log` hears of faults of ours."""
        if capacity < 1:
            raise ValueError(f"capacity: expected 1 or more, got {capacity}")
        self._capacity = capacity
        self._retry = retry
        self._now = now
        self._log = log or get_logger("subscriber")
        self._subscriptions: dict[str, _Subscription] = {}
        self._room = Notifier()

    def publisher(self, *, mode: events.Mode = events.Mode.STRUCTURED) -> MemoryPublisher:
        """A publisher to every subscription of this broker; open it before use, as any other."""
        return MemoryPublisher(broker=self, mode=mode)

    def subscribe(self, subscription: str, *, max_in_flight: int | None = None) -> MemorySubscriber:
        """A subscriber, ready at once; the subscription is made where it does not exist yet.

        Without `max_in_flight` it may hold all that the subscription has room for.
        """
        queue = self._subscriptions.get(subscription)
        if queue is None:
            queue = _Subscription(self._room, dead_letters=self._capacity, now=self._now)
            self._subscriptions[subscription] = queue
        most = self._capacity if max_in_flight is None else max_in_flight
        return MemorySubscriber(queue, max_in_flight=most, retry=self._retry, now=self._now, log=self._log)

    def dead_letters(self, subscription: str) -> MemoryDeadLetters:
        """The dead letters of a subscription, of which the newest are kept; none where it does not exist."""
        return MemoryDeadLetters(broker=self, subscription=subscription)

    def subscription(self, name: str) -> _Subscription | None:
        return self._subscriptions.get(name)

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

    async def place_in(self, name: str, message: Message) -> bool:
        """Waits for room in one subscription, and puts the message there; False if it does not exist."""
        while name in self.full():
            await self._room.wait()
        queue = self._subscriptions.get(name)
        if queue is not None:
            queue.put(message)
        return queue is not None

    async def place(self, message: Message) -> bool:
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

    async def publish(self, events: Sequence[events.Event], *, deadline: timedelta) -> Receipt:
        if not self._is_open:
            return Receipt([Outcome.UNCONFIRMED] * len(events), [], _NOT_OPEN)
        loop = asyncio.get_running_loop()
        outcomes: list[Outcome] = []
        seconds: list[float] = []
        error = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                for event in events:
                    begun = loop.time()
                    if await self._broker.place(_message(event, self._mode)):
                        outcomes.append(Outcome.CONFIRMED)
                    else:
                        outcomes.append(Outcome.UNROUTABLE)
                        error = error or "the memory broker has no subscription"
                    seconds.append(loop.time() - begun)
        except TimeoutError:
            full = ", ".join(self._broker.full())
            error = error or f"no room within {deadline.total_seconds():g}s in subscription {full}"
            outcomes.extend([Outcome.REFUSED] * (len(events) - len(outcomes)))
        return Receipt(outcomes, seconds, error)

    def trouble(self) -> str | None:
        return None if self._is_open else _NOT_OPEN

    async def close(self) -> None:
        self._is_open = False


class MemorySubscriber:
    """`ports.subscription.Subscriber` on a `MemoryBroker`.

    A message that was nacked goes to the back of its subscription, so that one which always fails does not
    keep the rest waiting. What is unsettled at close goes back to the front, in its old order: nobody has
    judged it.
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
        self._intake: HeldDeliveries[_Parcel] = HeldDeliveries(
            max_in_flight=max_in_flight,
            retry=retry,
            now=now,
            source=subscription.take,
            bell=subscription.arrival,
            log=log,
        )
        self._is_closed = False
        subscription.subscribers.append(self)

    async def open(self) -> None:
        """It is ready from the beginning."""

    def deliveries(self) -> AsyncIterator[HeldDelivery[_Parcel]]:
        return self._intake.deliveries()

    def trouble(self) -> str | None:
        return "the subscriber is closed" if self._is_closed else None

    def end(self) -> None:
        """The subscription is gone: there is nothing more to deliver."""
        self._intake.end()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._subscription.subscribers.remove(self)
            self._subscription.give_back_first(await self._intake.close())


class _Parcel:
    """A message in a subscription; `intake.Parcel` while it is held."""

    key = None  # Nothing ever comes between a parcel and its subscription, so it need not be recognised.

    def __init__(self, message: Message, subscription: _Subscription, published_time: datetime) -> None:
        self.message = message
        self.published_time = published_time
        self.attempts = 0
        self._subscription = subscription

    async def accept(self) -> bool:
        self._subscription.forget(self)
        return True

    async def give_back(self) -> bool:
        self._subscription.give_back_last(self)
        return True

    async def bury(self, reason: str, *, attempts: int) -> bool:
        self._subscription.bury(self, reason, attempts)
        return True


class _Subscription:
    """A queue, the messages that were taken from it and not settled, and its dead letters.

    Held messages count, so that one which is given back always finds room.
    """

    def __init__(self, room: Notifier, *, dead_letters: int, now: Callable[[], datetime]) -> None:
        self.arrival = Notifier()
        self.subscribers: list[MemorySubscriber] = []
        self.dead_letters: deque[DeadLetter] = deque(maxlen=dead_letters)
        self._room = room
        self._now = now
        self._waiting: deque[_Parcel] = deque()
        self._held: dict[_Parcel, None] = {}

    @property
    def kept(self) -> int:
        return len(self._waiting) + len(self._held)

    def put(self, message: Message) -> None:
        self._waiting.append(_Parcel(message, self, self._now()))
        self.arrival.ring()

    def take(self) -> _Parcel | None:
        if not self._waiting:
            return None
        parcel = self._waiting.popleft()
        parcel.attempts += 1
        self._held[parcel] = None
        return parcel

    def forget(self, parcel: _Parcel) -> None:
        del self._held[parcel]
        self._room.ring()

    def bury(self, parcel: _Parcel, reason: str, attempts: int) -> None:
        headers = event_messages.given_up(reason=reason, attempts=attempts, now=self._now())
        self.dead_letters.append(event_messages.dead_letter(parcel.message, headers))
        self.forget(parcel)

    def give_back_last(self, parcel: _Parcel) -> None:
        del self._held[parcel]
        self._waiting.append(parcel)
        self.arrival.ring()

    def give_back_first(self, parcels: Sequence[_Parcel]) -> None:
        for parcel in parcels:
            del self._held[parcel]
        self._waiting.extendleft(reversed(parcels))
        self.arrival.ring()

    def remove(self) -> None:
        self._waiting.clear()
        for subscriber in self.subscribers:
            subscriber.end()


class MemoryDeadLetters:
    """`ports.subscription.DeadLetters` on a `MemoryBroker`."""

    def __init__(self, *, broker: MemoryBroker, subscription: str) -> None:
        self._broker = broker
        self._subscription = subscription

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        return list(self._letters())[:limit]

    async def replay(self, letter_id: str | None = None) -> int:
        chosen = self._chosen(letter_id)
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                for letter in chosen:
                    await self._broker.place_in(self._subscription, letter.message)
                    with suppress(ValueError):  # somebody else was faster
                        self._letters().remove(letter)
        except TimeoutError as error:
            raise Unavailable(f"no room in subscription {self._subscription}") from error
        return len(chosen)

    async def drop(self, letter_id: str | None = None) -> int:
        chosen = self._chosen(letter_id)
        for letter in chosen:
            self._letters().remove(letter)
        return len(chosen)

    def _letters(self) -> deque[DeadLetter]:
        queue = self._broker.subscription(self._subscription)
        return deque() if queue is None else queue.dead_letters

    def _chosen(self, letter_id: str | None) -> list[DeadLetter]:
        return [letter for letter in self._letters() if letter_id in (None, letter.id)]


def _message(event: events.Event, mode: events.Mode) -> Message:
    return Message(events.body(event, mode), events.content_type(mode), events.attributes(event))
