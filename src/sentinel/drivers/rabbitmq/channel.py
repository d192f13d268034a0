"""A channel that publishes batches and knows the outcome of every message.

aiormq publishes one message at a time, with a lock, three futures and a loop iteration each: several hundred
microseconds per message. Here many messages become one write on the same connection, and one table maps the
broker's confirms to them. Only two hooks of aiormq's channel are replaced, those for confirms and returned
messages. Opening, closing, heartbeats and socket I/O stay aiormq's.
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
from sentinel.drivers.rabbitmq.connection import set_lost, set_lost_on_close
from sentinel.drivers.rabbitmq.frames import FrameEncoder, Unsendable
from sentinel.ports.publisher import PublishOutcome

_CHANNEL_NUMBER = 1
_WRITE_SIZE = 256 * 1024
"""Size at which a write is handed over: large enough to make its fixed cost negligible."""


class ConfirmingChannel:
    """Publishes to one exchange over one connection until either is lost."""

    def __init__(
        self, *, connection: AbstractConnection, exchange: str, routing_key: str, mode: Mode, window: int
    ) -> None:
        """At most `window` messages are unconfirmed at any time. Raises ValueError if a name is invalid."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with the reason when the channel can no longer be used."""
        self._connection = connection
        self._window = window
        self._encoder = FrameEncoder(
            channel=_CHANNEL_NUMBER,
            exchange=exchange,
            routing_key=routing_key,
            mode=mode,
            frame_max=connection.connection_tune.frame_max,
        )
        self._now = asyncio.get_running_loop().time
        self._outstanding = OutstandingConfirms()
        self._last_confirm_time = self._now()
        self._write_done: asyncio.Future[None] | None = None
        self._progress = asyncio.Event()
        self._awaited_condition: Callable[[], bool] = _never
        self.lost.add_done_callback(lambda _: self._progress.set())

    async def open(self) -> None:
        channel = _Channel(
            self._connection,
            on_confirm=self._on_confirm,
            on_return=self._outstanding.message_returned,
            frame_buffer=self._window,
        )
        self._connection.channels[_CHANNEL_NUMBER] = channel
        set_lost_on_close(self.lost, channel, self._connection)
        await channel.open()

    async def send(self, batch: EventBatch) -> None:
        """Write the batch as the window allows. Return when all of it is confirmed or the channel is lost.

        Nothing is written while the broker blocks the connection. May be cancelled at any time.
        """
        while batch.remaining:
            await self._wait_until(lambda: self._is_written() and self._has_room(batch))
            if self.is_blocked():
                await self._wait_until_unblocked()
            if self.lost.done():
                return
            await self._write(batch)
        await self._wait_until(lambda: batch.unconfirmed == 0)

    def is_blocked(self) -> bool:
        """Whether the broker has blocked the connection (`connection.blocked`).

        aiormq does not expose this; its `ready` coroutine waits while blocked. So one step of it shows the state.
        """
        ready = self._connection.ready()
        try:
            ready.send(None)
        except StopIteration:
            return False
        ready.close()
        return True

    def fail_if_silent(self, timeout: timedelta) -> None:
        """Mark the channel as lost if confirms are due and none has arrived within the timeout.

        Heartbeats notice a vanished peer only after three intervals. A broker that blocks the connection does not
        count as silent.
        """
        since = self._outstanding.oldest_send_time
        if since is None or self.is_blocked():
            return
        silence = self._now() - max(since, self._last_confirm_time)
        if silence > timeout.total_seconds():
            set_lost(self.lost, f"no response for {silence:.1f}s")

    async def _write(self, batch: EventBatch) -> None:
        """Write as many of the next events as fit one write and the window."""
        room = min(batch.remaining, self._window - self._outstanding.count)
        frames: list[bytes] = []
        size = 0
        unsendable_reason = ""
        for position in range(batch.handled, batch.handled + room):
            try:
                encoded = self._encoder.encode(batch.events[position])
            except Unsendable as error:
                unsendable_reason = str(error)
                break
            frames.append(encoded)
            size += len(encoded)
            if size >= _WRITE_SIZE:
                break
        if frames:
            written = asyncio.get_running_loop().create_future()
            written.add_done_callback(self._check_condition)
            await self._connection.write_queue.put(ChannelFrame(b"".join(frames), False, written))
            # Recorded only after the put: if cancelled while the queue was full, the broker has received and
            # numbered nothing. It cannot have confirmed in between.
            self._outstanding.add(batch, len(frames), self._now())
            self._write_done = written
        if unsendable_reason:
            batch.skip_next(unsendable_reason)

    def _has_room(self, batch: EventBatch) -> bool:
        # Do not write one message per confirm: wait for a quarter of the window.
        return self._window - self._outstanding.count >= min(batch.remaining, max(1, self._window // 4))

    def _is_written(self) -> bool:
        return self._write_done is None or self._write_done.done()

    def _on_confirm(self, number: int, outcome: PublishOutcome, multiple: bool) -> None:
        self._last_confirm_time = now = self._now()
        self._outstanding.confirm(number, outcome, now, multiple=multiple)
        self._check_condition()

    def _check_condition(self, _: object = None) -> None:
        if self._awaited_condition():
            self._progress.set()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for the condition or the loss of the channel; wake up only when one of them holds."""
        self._awaited_condition = condition
        try:
            while not (condition() or self.lost.done()):
                self._progress.clear()
                await self._progress.wait()
        finally:
            self._awaited_condition = _never

    async def _wait_until_unblocked(self) -> None:
        ready = asyncio.ensure_future(self._connection.ready())
        try:
            await asyncio.wait((ready, self.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()


class _Channel(aiormq.Channel):
    """aiormq's channel with its own handling of confirms and returned messages.

    Both hooks are replaced together, because order matters: a returned message arrives before its confirm.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        *,
        on_confirm: Callable[[int, PublishOutcome, bool], None],
        on_return: Callable[[str], None],
        frame_buffer: int,
    ) -> None:
        self._on_confirm = on_confirm
        self._on_return = on_return
        super().__init__(connection, _CHANNEL_NUMBER, frame_buffer=frame_buffer)

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        outcome = PublishOutcome.CONFIRMED if isinstance(frame, Basic.Ack) else PublishOutcome.REFUSED
        self._on_confirm(frame.delivery_tag or 0, outcome, bool(getattr(frame, "multiple", False)))

    async def _on_return_frame(self, frame: Basic.Return) -> None:
        header = await self._get_frame()
        if not isinstance(header, ContentHeader):
            raise InvalidFrameError(header)
        message = await self._read_content(frame, header)
        self._on_return(message.header.properties.message_id or "")


def _never() -> bool:
    return False
