"""What a subscriber holds, whichever broker it came from: bounded, settled once, and handed out once.

A broker hands over parcels. Each becomes a delivery; the delivery lives until its work is settled, and a parcel
may end before that: its connection was lost, or it was given back because no broker lets a message be held for
ever. RabbitMQ closes the channel of a consumer that keeps one longer than half an hour, with all that others
work on over it. Extending that is an administrator's setting which we cannot rely on, and a channel for each
message would only limit the damage. So a parcel is given back well before, while the work goes on.

A message that was given back comes back, mostly at once and to the same subscriber. It is then known by its key
and joins the delivery that its work belongs to instead of becoming another; what was decided while it was away
is carried out when it arrives. That one rule covers a long task, a lost connection, a restarted broker and a
broker that repeats itself. It cannot cover another process: there the message may be worked on a second time,
as at-least-once delivery always allows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import random as system_random
from typing import Any, Generic, Protocol, TypeVar, assert_never

import msgspec

from sentinel.ports.subscription import Message
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import Log, get_logger

RETRY = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0.2)
"""How long a nacked message is kept back, by how often it was delivered."""

_REMEMBERED = 1_000
"""How many verdicts and attempts are remembered of messages that are elsewhere; the oldest are forgotten first,
and the worst that comes of it is a repetition."""
_CLOSING = timedelta(seconds=5)


class BrokerMessage(Protocol):
    """A message as a broker handed it over, and the way to tell the broker what is to become of it.

    The three say whether the broker can be expected to have heard, and end by themselves after a while. What they
    raise, beside cancellation, is a fault, and taken for not having been heard.
    """

    @property
    def message(self) -> Message: ...

    @property
    def key(self) -> Hashable | None:
        """The same whenever this message comes, and no other's; None where the message cannot be told apart."""

    @property
    def attempts(self) -> int:
        """How often it was delivered, as far as the broker knows."""

    @property
    def published_time(self) -> datetime | None: ...

    async def accept(self) -> bool: ...

    async def give_back(self) -> bool: ...

    async def bury(self, reason: str, *, attempts: int) -> bool:
        """Puts it among the dead letters, then accepts it; false where either fails."""


P = TypeVar("P", bound=BrokerMessage)


class _Verdict(StrEnum):
    DONE = "done"
    AGAIN = "again"
    NEVER = "never"


class _Judgement(msgspec.Struct, frozen=True):
    verdict: _Verdict
    reason: str = ""


class HeldDelivery(Generic[P]):
    """`ports.subscription.Delivery` of an `HeldDeliveries`."""

    def __init__(self, intake: HeldDeliveries[P], parcel: P, *, attempts: int, received_time: datetime) -> None:
        self.message = parcel.message
        self.key = parcel.key
        self.attempts = attempts
        self.received_time = received_time
        self.published_time = parcel.published_time
        self.parcels: dict[P, asyncio.TimerHandle | None] = {}
        """What the broker waits for an answer about: as a rule one, none while the message is away."""
        self.judgement: _Judgement | None = None
        self._intake = intake

    async def ack(self) -> None:
        await self._intake.settle(self, _Judgement(_Verdict.DONE))

    async def nack(self) -> None:
        await self._intake.settle(self, _Judgement(_Verdict.AGAIN))

    async def dead_letter(self, reason: str) -> None:
        await self._intake.settle(self, _Judgement(_Verdict.NEVER, reason))


class Notifier:
    """Wakes everybody who waits, and remembers nothing: whoever wakes looks again at what it waited for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def ring(self) -> None:
        self._event.set()
        self._event.clear()


class HeldDeliveries(Generic[P]):
    """The deliveries of one subscriber: those that wait to be handed out, and those that are worked on."""

    def __init__(
        self,
        *,
        max_in_flight: int,
        max_hold: timedelta | None = None,
        retry: Backoff = RETRY,
        random: Callable[[], float] = system_random,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        source: Callable[[], P | None] = lambda: None,
        bell: Notifier | None = None,
        log: Log | None = None,
    ) -> None:
        """A parcel is given back after `max_hold`; None for a broker that has all the time in the world.

        Parcels come by `arrived`, or are asked for one by one from a `source`, which rings the `bell` when there
        is one more. `log` hears of parcels that could not be settled by a fault of ours.
        """
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight: expected 1 or more, got {max_in_flight}")
        self._most = max_in_flight
        self._max_hold = max_hold
        self._retry = retry
        self._random = random
        self._now = now
        self._source = source
        self._bell = bell or Notifier()
        self._log = log or get_logger("subscriber")
        self._waiting: deque[HeldDelivery[P]] = deque()
        self._working: dict[HeldDelivery[P], None] = {}
        self._known: dict[Hashable, HeldDelivery[P]] = {}
        """Those of both that can be told apart."""
        self._judged: OrderedDict[Hashable, _Judgement] = OrderedDict()
        """What was decided about messages while they were away."""
        self._failures: OrderedDict[Hashable, int] = OrderedDict()
        """How often messages were nacked here; most brokers do not count."""
        self._errands: set[asyncio.Task[Any]] = set()
        self._is_ended = False
        self._closing = asyncio.Event()

    # --- the broker's side ------------------------------------------------------------------------------------

    def arrived(self, parcel: P) -> None:
        """Takes a parcel in: it becomes a delivery, or joins the one that it belongs to.

        After closing it is left alone, to go back with its connection.
        """
        if self._closing.is_set():
            return
        key = parcel.key
        held = None if key is None else self._known.get(key)
        if held is None:
            judgement = None if key is None else self._judged.pop(key, None)
            if judgement is not None:
                self._start(self._carry_out(judgement, {parcel: None}, self._count(parcel)))
                return
            held = HeldDelivery(self, parcel, attempts=self._count(parcel), received_time=self._now())
            if key is not None:
                self._known[key] = held
            self._waiting.append(held)
            self._bell.ring()
        timer = None
        if self._max_hold is not None:
            delay = self._max_hold.total_seconds()
            timer = asyncio.get_running_loop().call_later(delay, self._let_go, held, parcel)
        held.parcels[parcel] = timer

    def lost(self) -> None:
        """No parcel so far is worth anything any more, because the connection they came over is gone."""
        for held in (*self._waiting, *self._working):
            _forget_parcels(held)
        for held in self._waiting:
            self._forget(held)
        self._waiting.clear()

    async def room(self) -> int:
        """How many more parcels may be taken in; waits until it is one."""
        while (free := self._most - len(self._waiting) - len(self._working)) < 1:
            await self._bell.wait()
        return free

    def held(self) -> list[P]:
        """Every parcel that the broker waits for an answer about, the oldest first."""
        return [parcel for held in (*self._working, *self._waiting) for parcel in held.parcels]

    # --- the consumer's side ----------------------------------------------------------------------------------

    async def deliveries(self) -> AsyncIterator[HeldDelivery[P]]:
        while not self._is_ended:
            held = self._next()
            if held is None:
                await self._bell.wait()
            else:
                yield held

    def end(self) -> None:
        """No more deliveries; those that are held can still be settled."""
        self._is_ended = True
        self._bell.ring()

    async def close(self) -> list[P]:
        """Ends the deliveries, and sees to it that what was settled is said; the rest is returned.

        From then on settling has no effect.
        """
        self.end()
        self._closing.set()
        if self._errands:
            _, late = await asyncio.wait(self._errands, timeout=_CLOSING.total_seconds())
            for errand in late:
                errand.cancel()
            if late:
                await asyncio.wait(late)
        rest = self.held()
        for held in (*self._waiting, *self._working):
            _forget_parcels(held)
            held.judgement = held.judgement or _Judgement(_Verdict.AGAIN)
        self._waiting.clear()
        self._working.clear()
        self._known.clear()
        return rest

    async def settle(self, held: HeldDelivery[P], judgement: _Judgement) -> None:
        """What `ack`, `nack` and `dead_letter` come to."""
        if held.judgement is not None:
            return
        held.judgement = judgement
        errand = self._start(self._conclude(held, judgement))
        if judgement.verdict is not _Verdict.AGAIN:
            # It goes on if this is cancelled: half an answer would leave the broker waiting, and its slot taken,
            # for ever. And if closing has cut it short, that is not a cancellation of whoever settles.
            await asyncio.wait((errand,))
            if not errand.cancelled():
                errand.result()

    # --- in between -------------------------------------------------------------------------------------------

    def _next(self) -> HeldDelivery[P] | None:
        if len(self._working) >= self._most:
            return None
        if not self._waiting and (parcel := self._source()) is not None:
            self.arrived(parcel)
        if not self._waiting:
            return None
        held = self._waiting.popleft()
        self._working[held] = None
        return held

    async def _conclude(self, held: HeldDelivery[P], judgement: _Judgement) -> None:
        try:
            if judgement.verdict is _Verdict.AGAIN:
                self._count_failure(held)
                await self._pause(held.attempts)
            is_heard = bool(held.parcels) and await self._carry_out(judgement, held.parcels, held.attempts)
            if not is_heard and judgement.verdict is not _Verdict.AGAIN and held.key is not None:
                _remember(self._judged, held.key, judgement)
        finally:
            self._working.pop(held, None)
            self._forget(held)
            self._bell.ring()

    async def _carry_out(
        self, judgement: _Judgement, parcels: dict[P, asyncio.TimerHandle | None], attempts: int
    ) -> bool:
        """Tells the broker, about all of a message's parcels; false where it may not have heard."""
        is_heard, is_buried = True, False
        while parcels:
            parcel = next(iter(parcels))
            timer = parcels.pop(parcel)
            if timer is not None:
                timer.cancel()
            match judgement.verdict:
                case _Verdict.DONE:
                    is_heard &= await self._heard(parcel, parcel.accept())
                case _Verdict.AGAIN:
                    is_heard &= await self._heard(parcel, parcel.give_back())
                case _Verdict.NEVER if is_buried:
                    is_heard &= await self._heard(parcel, parcel.accept())
                case _Verdict.NEVER:
                    is_buried = await self._heard(parcel, parcel.bury(judgement.reason, attempts=attempts))
                    if not is_buried:
                        await self._pause(attempts)
                        await self._heard(parcel, parcel.give_back())
                case _:
                    assert_never(judgement.verdict)
        return is_heard

    async def _heard(self, parcel: P, saying: Coroutine[Any, Any, bool]) -> bool:
        """Whether the broker has heard. A fault of ours in saying one thing must not end all the rest; the message
        stays with the broker, and comes again."""
        try:
            return await saying
        except Exception as error:  # the edge
            event_id = parcel.message.attributes.get("id", "")
            self._log.unexpected(
                "message.unsettled", event_id=event_id, key=parcel.key, attempts=parcel.attempts, error=error
            )
            return False

    async def _pause(self, attempts: int) -> None:
        """Keeps something back for a while, by how often it was tried; ends early when the subscriber closes."""
        delay = self._retry.delay(attempts - 1, self._random()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._closing.wait()

    def _let_go(self, held: HeldDelivery[P], parcel: P) -> None:
        if parcel not in held.parcels:
            return
        del held.parcels[parcel]
        if not held.parcels and held in self._waiting:
            self._waiting.remove(held)
            self._forget(held)
        self._start(self._heard(parcel, parcel.give_back()))

    def _count(self, parcel: P) -> int:
        failures = 0 if parcel.key is None else self._failures.get(parcel.key, 0)
        return max(parcel.attempts, failures + 1)

    def _count_failure(self, held: HeldDelivery[P]) -> None:
        if held.key is not None:
            _remember(self._failures, held.key, held.attempts)

    def _forget(self, held: HeldDelivery[P]) -> None:
        if held.key is None or self._known.get(held.key) is not held:
            return
        del self._known[held.key]
        if held.judgement is not None and held.judgement.verdict is not _Verdict.AGAIN:
            self._failures.pop(held.key, None)

    def _start(self, errand: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)
        return task


def _forget_parcels(held: HeldDelivery[Any]) -> None:
    for timer in held.parcels.values():
        if timer is not None:
            timer.cancel()
    held.parcels.clear()


def _remember(table: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > _REMEMBERED:
        table.popitem(last=False)
