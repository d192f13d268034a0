"""Publishing to standard output: one structured CloudEvent in JSON per line, for pipes and trials.

A pipe has no broker that could confirm, so an event is confirmed when the operating system has taken its whole
batch. A write to a full pipe blocks until the reader reads, which may be never. So a thread writes, and the
event loop waits for it until the deadline. The thread is a daemon and writes unbuffered: at exit the
interpreter joins other threads and flushes buffers, and either would hang on a pipe without a reader.

A non-blocking descriptor was rejected: that flag belongs to the open file, which is shared with all other
processes that write to the same terminal or pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from sentinel.core import events
from sentinel.drivers.reconnect import end_now
from sentinel.ports.publisher import PublishOutcome, Receipt

_NOT_OPEN = "the publisher is not open"


class OutputStream(Protocol):
    """The part of a binary stream that is used here; those of `io` have it."""

    def write(self, data: memoryview, /) -> int | None:
        """Return how many bytes were written; None if a non-blocking descriptor took none."""

    def flush(self) -> None: ...

    def fileno(self) -> int: ...


class StdoutPublisher:
    """`ports.publisher.Publisher` that writes lines. It has no binary mode: a line must include the attributes."""

    broker_type = "stdout"

    def __init__(self, *, stream: OutputStream | None = None) -> None:
        """`stream` defaults to standard output and is not closed here."""
        self._stream = stream
        self._is_open = False
        self._unavailable_reason: str | None = None
        self._pending_write: asyncio.Future[_WriteResult] | None = None
        self._has_partial_line = False
        self._attempt: asyncio.Timeout | None = None
        """Ends the current or last `publish`."""

    async def open(self) -> None:
        if self._stream is None:
            sys.stdout.flush()
            self._stream = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
        self._is_open = True

    async def publish(self, events: Sequence[events.Event], *, deadline: timedelta) -> Receipt:
        if not self._is_open or self._stream is None:
            return _unconfirmed(len(events), _NOT_OPEN)
        if not events:
            return Receipt([], [])
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline.total_seconds()) as self._attempt:
                if self._pending_write is not None:
                    # An earlier batch exceeded its deadline; a second thread would write into its lines.
                    await asyncio.wait([self._pending_write])
                start = loop.time()
                # End a line that an error cut off: it will not parse, but the next ones will.
                lines = b"\n" * self._has_partial_line + b"".join(map(_line, events))
                self._pending_write = self._start_write(lines, self._stream)
                result = await asyncio.shield(self._pending_write)
        except TimeoutError:
            self._unavailable_reason = (
                f"standard output took nothing for {deadline.total_seconds():g}s: no process reads it"
            )
            return _unconfirmed(len(events), self._unavailable_reason)
        if result.error:
            return _unconfirmed(len(events), result.error)
        return Receipt([PublishOutcome.CONFIRMED] * len(events), [loop.time() - start] * len(events))

    def abandon(self) -> None:
        """Do not wait any longer. A write that has begun cannot be taken back."""
        end_now(self._attempt)

    def unavailable_reason(self) -> str | None:
        return self._unavailable_reason if self._is_open else _NOT_OPEN

    async def close(self) -> None:
        self._is_open = False

    def _start_write(self, lines: bytes, stream: OutputStream) -> asyncio.Future[_WriteResult]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_WriteResult] = loop.create_future()

        def finish(result: _WriteResult) -> None:
            # Also after the deadline: that is when a full pipe becomes writable again.
            self._unavailable_reason = result.error or None
            self._has_partial_line = result.has_partial_line
            done.set_result(result)

        def write() -> None:
            result = _write(lines, stream)
            # The loop may be closed by now, and then the result is not needed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, result)

        threading.Thread(target=write, name="sentinel-stdout", daemon=True).start()
        return done


class _WriteResult(msgspec.Struct, frozen=True):
    """Without an error, everything was written."""

    error: str = ""
    has_partial_line: bool = False


def _write(lines: bytes, stream: OutputStream) -> _WriteResult:
    rest = memoryview(lines)
    try:
        while rest:
            count = stream.write(rest)
            if count is None:
                select.select([], [stream.fileno()], [])
            else:
                rest = rest[count:]
        stream.flush()
    except BrokenPipeError:
        error = "the reader of standard output has exited (broken pipe)"
    except (OSError, ValueError) as failure:
        error = f"standard output cannot be written: {failure}"
    else:
        return _WriteResult()
    count = len(lines) - len(rest)
    return _WriteResult(error, has_partial_line=count > 0 and not lines[:count].endswith(b"\n"))


def _line(event: events.Event) -> bytes:
    document = events.structured(event)
    if b"\n" in document:
        # Line breaks occur only between tokens, if a template lays out the data on several lines.
        document = msgspec.json.format(document, indent=-1)
    return document + b"\n"


def _unconfirmed(count: int, error: str) -> Receipt:
    return Receipt([PublishOutcome.UNCONFIRMED] * count, [], error)
