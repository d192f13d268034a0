"""A channel that publishes batches and knows what became of every message.

aiormq publishes one message at a time: a lock, three futures and a round through the loop for each, several
hundred microseconds together. Here many messages become one write on the same connection, and one table maps
the broker's answers to them. Only two hooks of aiormq's channel are replaced, those that receive confirms and
returned messages; opening, closing, heartbeats, the reading and writing of the socket stay aiormq's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import aiormq
from aiormq.abc import AbstractConnection, ChannelFrame, ConfirmationFrameType
from aiormq.exceptions import InvalidFrameError
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from sentinel.core.events import Event, Mode
from sentinel.drivers.amqp_frames import FrameLayout, Unsendable
from sentinel.ports import Outcome

_NUMBER = 1
_WRITE_SIZE = 128 * 1024
"""Where a write is closed and handed over: large enough that its fixed cost is spread thin."""


class Batch:
    """Events on their way, and what is known of each."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.outcomes = [Outcome.UNCONFIRMED] * len(events)
        self.seconds: list[float] = []
        self.unsendable: dict[int, Unsendable] = {}
        """By position, those that never left because the protocol has no room for them."""
        self.begun = 0
        """How many of them, from the first, were handed to a connection or found unsendable."""
        self.unanswered = 0
        """How many of those still wait for the broker's word."""

    @property
    def unbegun(self) -> int:
        return len(self.events) - self.begun

    def refuse_next(self, error: Unsendable) -> None:
        self.outcomes[self.begun] = Outcome.REFUSED
        self.unsendable[self.begun] = error
        self.begun += 1


class _Run(NamedTuple):
    """Messages handed over in one write: consecutive in their batch as in the broker's count."""

    batch: Batch
    offset: int
    """From the delivery tag of a message to its position in the batch."""
    handed_over: float


class ConfirmingChannel:
    """Publishes to one exchange over one connection until either is lost."""

    def __init__(
        self,
        *,
        connection: AbstractConnection,
        exchange: str,
        routing_key: str,
        mode: Mode,
        window: int,
    ) -> None:
        """At most `window` messages are unconfirmed at any time. Raises ValueError on an impossible name."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the channel is of no more use; the result says why."""
        self._connection = connection
        self._window = window
        self._layout = FrameLayout(
            channel=_NUMBER,
            exchange=exchange,
            routing_key=routing_key,
            mode=mode,
            frame_max=connection.connection_tune.frame_max,
        )
        self._now = asyncio.get_running_loop().time
        self._tag = 0
        self._pending: dict[int, _Run] = {}
        """By delivery tag, what the broker has not answered yet.

        Messages whose publisher gave up at its deadline stay here until they are answered. Late answers
        therefore find their own batch, which nobody reads any more, and the window counts what the broker
        still has to digest.
        """
        self._oldest = 1
        self._returned: dict[str, int] = {}
        self._last_answer = self._now()
        self._written: asyncio.Future[None] | None = None
        self._progress = asyncio.Event()
        self._is_awaited: Callable[[], bool] = bool

    async def open(self) -> None:
        channel = _Channel(self._connection, settle=self._settle, take_back=self._take_back, buffer=self._window)
        self._connection.channels[_NUMBER] = channel
        for closing in (channel.closing, self._connection.closing):
            closing.add_done_callback(self._lose_by)
        await channel.open()

    async def send(self, batch: Batch) -> None:
        """Hands over the batch as the window allows, and returns when every answer is there or all is lost.

        Nothing is written while the broker has blocked the connection. May be cancelled at any time.
        """
        while batch.unbegun:
            await self._until(lambda: self._is_written() and self._has_room(batch))
            if self.is_blocked():
                await self._until_unblocked()
            if self.lost.done():
                return
            await self._write(batch)
        await self._until(lambda: batch.unanswered == 0)

    def is_blocked(self) -> bool:
        """Whether the broker has asked for silence.

        aiormq knows and tells nobody; only its `ready` waits for as long as that lasts. One step of it shows.
        """
        ready = self._connection.ready()
        try:
            ready.send(None)
        except StopIteration:
            return False
        ready.close()
        return True

    def give_up_if_silent(self, longest: timedelta) -> None:
        """Ends the channel if answers are due and none has come for so long.

        A peer that vanished without a word is noticed by heartbeats only after three of them; a broker that
        asked for silence is not silent.
        """
        if not self._pending or self.lost.done() or self.is_blocked():
            return
        oldest = next(iter(self._pending.values()))
        silence = self._now() - max(oldest.handed_over, self._last_answer)
        if silence > longest.total_seconds():
            self.lost.set_result(f"no answer for {silence:.1f}s")

    async def _write(self, batch: Batch) -> None:
        """Hands over as many of the next events as one write and the window take, one at least."""
        first = batch.begun
        frames: list[bytes] = []
        size = 0
        unsendable: Unsendable | None = None
        for position in range(first, min(first + self._window - len(self._pending), len(batch.events))):
            try:
                encoded = self._layout.encode(batch.events[position])
            except Unsendable as error:
                unsendable = error
                break
            frames.append(encoded)
            size += len(encoded)
            if size >= _WRITE_SIZE:
                break
        if frames:
            written = asyncio.get_running_loop().create_future()
            written.add_done_callback(self._on_written)
            await self._connection.write_queue.put(
                ChannelFrame(payload=b"".join(frames), should_close=False, drain_future=written)
            )
            # Counted only now: the broker numbers what it receives, and had this been cancelled while the
            # queue was full, it would have received nothing. It cannot have answered in between.
            run = _Run(batch, first - self._tag - 1, self._now())
            self._pending.update(dict.fromkeys(range(self._tag + 1, self._tag + 1 + len(frames)), run))
            self._tag += len(frames)
            self._written = written
            batch.begun += len(frames)
            batch.unanswered += len(frames)
        if unsendable is not None:
            batch.refuse_next(unsendable)

    def _has_room(self, batch: Batch) -> bool:
        # Not one message for each confirm: a quarter of the window is worth a write.
        return self._window - len(self._pending) >= min(batch.unbegun, max(1, self._window // 4))

    def _is_written(self) -> bool:
        return self._written is None or self._written.done()

    def _on_written(self, written: asyncio.Future[None]) -> None:
        if self._is_awaited():
            self._progress.set()

    def _settle(self, tag: int, is_multiple: bool, outcome: Outcome) -> None:
        self._last_answer = now = self._now()
        pending, returned = self._pending, self._returned
        for each in range(self._oldest, tag + 1) if is_multiple else (tag,):
            run = pending.pop(each, None)
            if run is not None:
                batch, offset, handed_over = run
                position = offset + each
                was_returned = returned and self._was_returned(batch.events[position].id)
                batch.outcomes[position] = Outcome.UNROUTABLE if was_returned else outcome
                batch.seconds.append(now - handed_over)
                batch.unanswered -= 1
        if is_multiple:
            self._oldest = tag + 1
        if self._is_awaited():
            self._progress.set()

    def _take_back(self, message_id: str) -> None:
        # The broker returns a message before it confirms it, but names no delivery tag.
        self._returned[message_id] = self._returned.get(message_id, 0) + 1

    def _was_returned(self, message_id: str) -> bool:
        times = self._returned.pop(message_id, 0)
        if times > 1:
            self._returned[message_id] = times - 1
        return times > 0

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Waits for the condition, or for the loss of the channel; woken only when it holds."""
        self._is_awaited = reached
        try:
            while not (reached() or self.lost.done()):
                self._progress.clear()
                await self._progress.wait()
        finally:
            self._is_awaited = bool

    async def _until_unblocked(self) -> None:
        ready = asyncio.ensure_future(self._connection.ready())
        try:
            await asyncio.wait((ready, self.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()

    def _lose_by(self, closing: asyncio.Future[object]) -> None:
        if not self.lost.done():
            self.lost.set_result("closed" if closing.cancelled() else describe(closing.exception()))
        self._progress.set()


class _Channel(aiormq.Channel):
    """aiormq's channel, except that confirms and returned messages go elsewhere.

    Both are replaced together: they arrive in one stream, and a message that comes back does so before its
    confirm.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        *,
        settle: Callable[[int, bool, Outcome], None],
        take_back: Callable[[str], None],
        buffer: int,
    ) -> None:
        self._settle = settle
        self._take_back = take_back
        super().__init__(connection, _NUMBER, frame_buffer=buffer)

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        outcome = Outcome.CONFIRMED if isinstance(frame, Basic.Ack) else Outcome.REFUSED
        self._settle(frame.delivery_tag or 0, bool(getattr(frame, "multiple", False)), outcome)

    async def _on_return_frame(self, frame: Basic.Return) -> None:
        header = await self._get_frame()
        if not isinstance(header, ContentHeader):
            raise InvalidFrameError(header)
        message = await self._read_content(frame, header)
        self._take_back(message.header.properties.message_id or "")


def describe(error: BaseException | None) -> str:
    """What a library's error says, without its class and numbers; never the address, which holds a secret."""
    texts = [text for text in error.args if isinstance(text, str) and text] if error is not None else []
    return texts[-1] if texts else type(error).__name__ if error is not None else "closed"
