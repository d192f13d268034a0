"""A channel that publishes batches and knows what became of every message.

aiormq publishes one message at a time: a lock, three futures and a round through the loop for each, several
hundred microseconds together. Here many messages become one write on the same connection, and one table maps
the broker's answers to them. Only two hooks of aiormq's channel are replaced, those that receive confirms and
returned messages; opening, closing, heartbeats, the reading and writing of the socket stay aiormq's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import aiormq
from aiormq.abc import AbstractConnection, ChannelFrame, ConfirmationFrameType
from aiormq.exceptions import InvalidFrameError
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from sentinel.core.events import Mode
from sentinel.drivers.rabbitmq.confirms import EventBatch, OutstandingConfirms
from sentinel.drivers.rabbitmq.frames import FrameEncoder, Unsendable
from sentinel.ports.publisher import Outcome

_NUMBER = 1
_WRITE_SIZE = 256 * 1024
"""Where a write is closed and handed over: large enough that its fixed cost is spread thin."""


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
        self._layout = FrameEncoder(
            channel=_NUMBER,
            exchange=exchange,
            routing_key=routing_key,
            mode=mode,
            frame_max=connection.connection_tune.frame_max,
        )
        self._now = asyncio.get_running_loop().time
        self._unconfirmed = OutstandingConfirms()
        self._last_answer = self._now()
        self._written: asyncio.Future[None] | None = None
        self._progress = asyncio.Event()
        self._is_reached: Callable[[], bool] = _never

    async def open(self) -> None:
        channel = _Channel(
            self._connection, answered=self._answered, returned=self._unconfirmed.returned, buffer=self._window
        )
        self._connection.channels[_NUMBER] = channel
        for closing in (channel.closing, self._connection.closing):
            closing.add_done_callback(self._lose_by)
        await channel.open()

    async def send(self, batch: EventBatch) -> None:
        """Hands over the batch as the window allows, and returns when every answer is there or all is lost.

        Nothing is written while the broker has blocked the connection. May be cancelled at any time.
        """
        while batch.rest:
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
        since = self._unconfirmed.since
        if since is None or self.is_blocked():
            return
        silence = self._now() - max(since, self._last_answer)
        if silence > longest.total_seconds():
            self._lose(f"no answer for {silence:.1f}s")

    async def _write(self, batch: EventBatch) -> None:
        """Hands over as many of the next events as one write and the window take."""
        room = min(batch.rest, self._window - self._unconfirmed.count)
        frames: list[bytes] = []
        size = 0
        refusal = ""
        for position in range(batch.begun, batch.begun + room):
            try:
                encoded = self._layout.encode(batch.events[position])
            except Unsendable as error:
                refusal = str(error)
                break
            frames.append(encoded)
            size += len(encoded)
            if size >= _WRITE_SIZE:
                break
        if frames:
            written = asyncio.get_running_loop().create_future()
            written.add_done_callback(self._look_again)
            await self._connection.write_queue.put(ChannelFrame(b"".join(frames), False, written))
            # Noted only now: the broker numbers what it receives, and had this been cancelled while the queue
            # was full, it would have received nothing. It cannot have answered in between.
            self._unconfirmed.sent(batch, len(frames), self._now())
            self._written = written
        if refusal:
            batch.refuse_next(refusal)

    def _has_room(self, batch: EventBatch) -> bool:
        # Not one message for each confirm: a quarter of the window is worth a write.
        return self._window - self._unconfirmed.count >= min(batch.rest, max(1, self._window // 4))

    def _is_written(self) -> bool:
        return self._written is None or self._written.done()

    def _answered(self, number: int, outcome: Outcome, and_all_before: bool) -> None:
        self._last_answer = now = self._now()
        self._unconfirmed.answered(number, outcome, now, and_all_before=and_all_before)
        self._look_again()

    def _look_again(self, _: object = None) -> None:
        if self._is_reached():
            self._progress.set()

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Waits for the condition or the loss of the channel, and is woken only when one of them holds."""
        self._is_reached = reached
        try:
            while not (reached() or self.lost.done()):
                self._progress.clear()
                await self._progress.wait()
        finally:
            self._is_reached = _never

    async def _until_unblocked(self) -> None:
        ready = asyncio.ensure_future(self._connection.ready())
        try:
            await asyncio.wait((ready, self.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()

    def _lose_by(self, closing: asyncio.Future[object]) -> None:
        self._lose("closed" if closing.cancelled() else describe(closing.exception()))

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
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
        answered: Callable[[int, Outcome, bool], None],
        returned: Callable[[str], None],
        buffer: int,
    ) -> None:
        self._answered = answered
        self._returned = returned
        super().__init__(connection, _NUMBER, frame_buffer=buffer)

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        outcome = Outcome.CONFIRMED if isinstance(frame, Basic.Ack) else Outcome.REFUSED
        self._answered(frame.delivery_tag or 0, outcome, bool(getattr(frame, "multiple", False)))

    async def _on_return_frame(self, frame: Basic.Return) -> None:
        header = await self._get_frame()
        if not isinstance(header, ContentHeader):
            raise InvalidFrameError(header)
        message = await self._read_content(frame, header)
        self._returned(message.header.properties.message_id or "")


def _never() -> bool:
    return False


def describe(error: BaseException | None) -> str:
    """What a library's error says, without its class and numbers; never the address, which holds a secret."""
    if error is None:
        return "closed"
    texts = [text for text in error.args if isinstance(text, str) and text]
    if texts:
        return texts[-1]
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__
