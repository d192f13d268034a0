"""The deliveries a subscriber holds: limited in number, handed out once, settled once.

A broker driver adds every message it receives as a `BrokerMessage`. It becomes a `HeldDelivery`, which lives
until its work is settled. The broker message may end earlier: its connection is lost, or it is requeued because
brokers limit how long a message may be held. RabbitMQ closes the channel of a consumer that holds a message for
more than 30 minutes, and with it all other messages on that channel. Only an administrator can raise that
timeout, and one channel per message would merely contain the damage. So a message is requeued well before the
timeout while its work goes on.

A requeued message usually returns at once, to the same subscriber. It is recognized by its key and joins the
delivery whose work is in progress. A settlement made in the meantime is applied when it returns. This one rule
covers long tasks, lost connections, broker restarts and duplicates. It does not cover other processes: they may
process the message a second time, as at-least-once delivery always allows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import random
from typing import Any, Generic, Protocol, TypeVar, assert_never

from sentinel.ports.subscription import Message
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

RETRY = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0.2)
"""How long a nacked message is kept back, by its number of attempts."""

_MAX_REMEMBERED = 1_000
"""How many settlements and attempts are remembered for messages that may be redelivered. Forgetting the oldest at
worst causes a duplicate."""
_CLOSE_TIMEOUT = timedelta(seconds=5)


class Settlement(StrEnum):
    ACK = "ack"
    NACK = "nack"
    DEAD_LETTER = "dead_letter"


class BrokerMessage(Protocol):
    """One message as received from a broker, and the calls that settle it there.

    Each call has its own timeout and returns whether the broker has probably received it. An exception other than
    cancellation is a bug and counts as not sent.
    """

    @property
    def message(self) -> Message: ...

    @property
    def key(self) -> Hashable | None:
        """Identifies the message across redeliveries; None if it cannot be identified."""

    @property
    def attempts(self) -> int:
        """How often the message was delivered, according to the broker."""

    @property
    def published_time(self) -> datetime | None: ...

    async def ack(self) -> bool: ...

    async def nack(self) -> bool: ...

    async def dead_letter(self, reason: str, *, attempts: int) -> bool:
        """Publish the message to the dead letters, then ack it. Return False if either fails."""


M = TypeVar("M", bound=BrokerMessage)


class HeldDelivery(Generic[M]):
    """`ports.subscription.Delivery` held by `HeldDeliveries`."""

    def __init__(
        self, holder: HeldDeliveries[M], broker_message: M, *, attempts: int, received_time: datetime
    ) -> None:
        self.message = broker_message.message
        self.key = broker_message.key
        self.attempts = attempts
        self.received_time = received_time
        self.published_time = broker_message.published_time
        self.broker_messages: dict[M, asyncio.TimerHandle | None] = {}
        """Unsettled at the broker, each with the timer that requeues it. Usually one; none after a requeue."""
        self.settlement: Settlement | None = None
        self._holder = holder

    async def ack(self) -> None:
        await self._holder.settle(self, Settlement.ACK)

    async def nack(self) -> None:
        await self._holder.settle(self, Settlement.NACK)

    async def dead_letter(self, reason: str) -> None:
        await self._holder.settle(self, Settlement.DEAD_LETTER, reason)

    def drop_broker_messages(self) -> None:
        for timer in self.broker_messages.values():
            if timer is not None:
                timer.cancel()
        self.broker_messages.clear()


class Notifier:
    """Wakes every waiting task. It keeps no state: a task that wakes up checks its own condition again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def notify(self) -> None:
        self._event.set()
        self._event.clear()


class HeldDeliveries(Generic[M]):
    """The deliveries of one subscriber: those waiting to be handed out and those in progress."""

    def __init__(
        self,
        *,
        max_in_flight: int,
        max_hold: timedelta | None = None,
        retry: Backoff = RETRY,
        jitter: Callable[[], float] = random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        source: Callable[[], M | None] = lambda: None,
        notifier: Notifier | None = None,
        log: Log | None = None,
    ) -> None:
        """A message is requeued after `max_hold`; None for a broker without a limit.

        Messages arrive through `add`, or are pulled one by one from `source`, whose owner calls `notifier` when
        there is another one.
        """
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight: expected 1 or more, got {max_in_flight}")
        self._max_in_flight = max_in_flight
        self._max_hold = max_hold
        self._retry = retry
        self._jitter = jitter
        self._now = now
        self._source = source
        self._notifier = notifier or Notifier()
        self._log = log or get_logger("subscriber")
        self._waiting: deque[HeldDelivery[M]] = deque()
        self._in_progress: dict[HeldDelivery[M], None] = {}
        self._by_key: dict[Hashable, HeldDelivery[M]] = {}
        """Waiting and in progress, if the message has a key."""
        self._settled_while_away: OrderedDict[Hashable, tuple[Settlement, str]] = OrderedDict()
        self._nacked_attempts: OrderedDict[Hashable, int] = OrderedDict()
        """Attempts of nacked messages; most brokers do not count them."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_ended = False
        self._closing = asyncio.Event()

    # --- for broker drivers -----------------------------------------------------------------------------------

    def add(self, broker_message: M) -> None:
        """Turn the message into a delivery, or join it to the one that it belongs to.

        After close it is ignored: the broker requeues it when the connection ends.
        """
        if self._closing.is_set():
            return
        key = broker_message.key
        held = None if key is None else self._by_key.get(key)
        if held is None:
            settled = None if key is None else self._settled_while_away.pop(key, None)
            if settled is not None:
                self._start_task(self._send(*settled, {broker_message: None}, self._attempts_of(broker_message)))
                return
            attempts = self._attempts_of(broker_message)
            held = HeldDelivery(self, broker_message, attempts=attempts, received_time=self._now())
            if key is not None:
                self._by_key[key] = held
            self._waiting.append(held)
            self._notifier.notify()
        timer = None
        if self._max_hold is not None:
            delay = self._max_hold.total_seconds()
            timer = asyncio.get_running_loop().call_later(delay, self._requeue, held, broker_message)
        held.broker_messages[broker_message] = timer

    def connection_lost(self) -> None:
        """Drop all broker messages: they can no longer be settled over the lost connection."""
        for held in (*self._waiting, *self._in_progress):
            held.drop_broker_messages()
        for held in self._waiting:
            self._forget(held)
        self._waiting.clear()

    async def wait_for_capacity(self) -> int:
        """Wait until at least one more message may be added. Return how many may be."""
        while (free := self._max_in_flight - len(self._waiting) - len(self._in_progress)) < 1:
            await self._notifier.wait()
        return free

    def unsettled(self) -> list[M]:
        """Return the broker messages that are not settled, oldest first."""
        return [each for held in (*self._in_progress, *self._waiting) for each in held.broker_messages]

    # --- for consumers ----------------------------------------------------------------------------------------

    async def deliveries(self) -> AsyncIterator[HeldDelivery[M]]:
        while not self._is_ended:
            held = self._next_delivery()
            if held is None:
                await self._notifier.wait()
            else:
                yield held

    def end_deliveries(self) -> None:
        """Hand out no more deliveries. Those in progress can still be settled."""
        self._is_ended = True
        self._notifier.notify()

    async def close(self) -> list[M]:
        """End the deliveries, finish pending settlements and return the unsettled broker messages.

        Settling a delivery afterwards has no effect.
        """
        self.end_deliveries()
        self._closing.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT.total_seconds())
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        unsettled = self.unsettled()
        for held in (*self._waiting, *self._in_progress):
            held.drop_broker_messages()
            held.settlement = held.settlement or Settlement.NACK
        self._waiting.clear()
        self._in_progress.clear()
        self._by_key.clear()
        return unsettled

    async def settle(self, held: HeldDelivery[M], settlement: Settlement, reason: str = "") -> None:
        """Settle the delivery if it is not settled yet. Wait for the broker call, except for the delay of a
        nack."""
        if held.settlement is not None:
            return
        held.settlement = settlement
        task = self._start_task(self._finish(held, settlement, reason))
        if settlement is not Settlement.NACK:
            # The task continues if this call is cancelled: a half-sent settlement would occupy its slot forever.
            # If close() cancelled the task, the caller was not cancelled and must not see it.
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

    # --- internal ---------------------------------------------------------------------------------------------

    def _next_delivery(self) -> HeldDelivery[M] | None:
        if len(self._in_progress) >= self._max_in_flight:
            return None
        if not self._waiting and (broker_message := self._source()) is not None:
            self.add(broker_message)
        if not self._waiting:
            return None
        held = self._waiting.popleft()
        self._in_progress[held] = None
        return held

    async def _finish(self, held: HeldDelivery[M], settlement: Settlement, reason: str) -> None:
        is_nack = settlement is Settlement.NACK
        try:
            if is_nack:
                if held.key is not None:
                    _remember(self._nacked_attempts, held.key, held.attempts)
                await self._back_off(held.attempts)
            messages = held.broker_messages
            was_sent = bool(messages) and await self._send(settlement, reason, messages, held.attempts)
            if not was_sent and not is_nack and held.key is not None:
                _remember(self._settled_while_away, held.key, (settlement, reason))
        finally:
            self._in_progress.pop(held, None)
            self._forget(held)
            self._notifier.notify()

    async def _send(
        self,
        settlement: Settlement,
        reason: str,
        broker_messages: dict[M, asyncio.TimerHandle | None],
        attempts: int,
    ) -> bool:
        """Settle all broker messages of one delivery. Return False if the broker may not know."""
        was_sent, is_dead_lettered = True, False
        while broker_messages:
            message = next(iter(broker_messages))
            timer = broker_messages.pop(message)
            if timer is not None:
                timer.cancel()
            match settlement:
                case Settlement.ACK:
                    was_sent &= await self._call(message, message.ack())
                case Settlement.NACK:
                    was_sent &= await self._call(message, message.nack())
                case Settlement.DEAD_LETTER if is_dead_lettered:
                    was_sent &= await self._call(message, message.ack())
                case Settlement.DEAD_LETTER:
                    is_dead_lettered = await self._call(message, message.dead_letter(reason, attempts=attempts))
                    if not is_dead_lettered:
                        await self._back_off(attempts)
                        await self._call(message, message.nack())
                case _:
                    assert_never(settlement)
        return was_sent

    async def _call(self, broker_message: M, call: Coroutine[Any, Any, bool]) -> bool:
        """Return whether the call was sent. A bug in one call must not stop the rest; the broker redelivers."""
        try:
            return await call
        except Exception as error:  # a bug in the call
            event_id = broker_message.message.attributes.get("id", "")
            key, attempts = broker_message.key, broker_message.attempts
            self._log.exception("message.unsettled", event_id=event_id, key=key, attempts=attempts, error=error)
            return False

    async def _back_off(self, attempts: int) -> None:
        """Wait before the next attempt; return early if the subscriber closes."""
        delay = self._retry.delay(attempts - 1, self._jitter()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._closing.wait()

    def _requeue(self, held: HeldDelivery[M], broker_message: M) -> None:
        """Nack a message that was held for `max_hold`, without ending the work on it."""
        if broker_message not in held.broker_messages:
            return
        del held.broker_messages[broker_message]
        if not held.broker_messages and held in self._waiting:
            self._waiting.remove(held)
            self._forget(held)
        self._start_task(self._call(broker_message, broker_message.nack()))

    def _attempts_of(self, broker_message: M) -> int:
        key = broker_message.key
        nacked = 0 if key is None else self._nacked_attempts.get(key, 0)
        return max(broker_message.attempts, nacked + 1)

    def _forget(self, held: HeldDelivery[M]) -> None:
        if held.key is None or self._by_key.get(held.key) is not held:
            return
        del self._by_key[held.key]
        if held.settlement in (Settlement.ACK, Settlement.DEAD_LETTER):
            self._nacked_attempts.pop(held.key, None)

    def _start_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _remember(table: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > _MAX_REMEMBERED:
        table.popitem(last=False)
