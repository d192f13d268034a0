"""Events as lines: one structured CloudEvent in JSON per line, for pipes and trials.

A pipe has no broker that could answer, so an event is confirmed when the operating system has taken all of
its batch. Whoever reads a pipe may stop reading, and a write to a full one blocks for as long as it likes, so
writing happens on a thread: the event loop waits for it until the deadline and no longer. The thread is a
daemon and writes past any buffer, because at exit the interpreter joins threads of the other kind and flushes
buffers, and either would hang on a pipe that nobody reads.

Making the descriptor non-blocking was rejected: that flag belongs to the open file, which is shared with
every other process that writes to the same terminal or pipe.
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
from sentinel.ports.publisher import Outcome, Receipt

_NOT_OPEN = "the publisher is not open"


class OutputStream(Protocol):
    """What is asked of a binary stream; those of `io` have it."""

    def write(self, data: memoryview, /) -> int | None:
        """How many bytes were taken; None where a non-blocking descriptor took none."""

    def flush(self) -> None: ...

    def fileno(self) -> int: ...


class StdoutPublisher:
    """`ports.Publisher` that writes lines. It has no binary mode: a line has to carry the attributes too."""

    broker_type = "stdout"

    def __init__(self, *, stream: OutputStream | None = None) -> None:
        """`stream` remains the caller's to close; standard output where none is given."""
        self._stream = stream
        self._is_open = False
        self._trouble: str | None = None
        self._writing: asyncio.Future[_Written] | None = None
        self._is_torn = False

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
            async with asyncio.timeout(deadline.total_seconds()):
                if self._writing is not None:
                    # An earlier batch outlasted its deadline; a second thread would write into its lines.
                    await asyncio.wait([self._writing])
                begun = loop.time()
                # The end of a line that an error cut off: it will not parse, those after it will.
                lines = b"\n" * self._is_torn + b"".join(map(_line, events))
                self._writing = self._start_writing(lines, self._stream)
                written = await asyncio.shield(self._writing)
        except TimeoutError:
            self._trouble = f"standard output took nothing for {deadline.total_seconds():g}s: nobody reads it"
            return _unconfirmed(len(events), self._trouble)
        if written.error:
            return _unconfirmed(len(events), written.error)
        return Receipt([Outcome.CONFIRMED] * len(events), [loop.time() - begun] * len(events))

    def trouble(self) -> str | None:
        return self._trouble if self._is_open else _NOT_OPEN

    async def close(self) -> None:
        self._is_open = False

    def _start_writing(self, lines: bytes, stream: OutputStream) -> asyncio.Future[_Written]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Written] = loop.create_future()

        def settle(written: _Written) -> None:
            # Also long after the deadline: that is when a pipe which was full is no longer in trouble.
            self._trouble = written.error or None
            self._is_torn = written.is_torn
            answer.set_result(written)

        def write() -> None:
            written = _write(lines, stream)
            # A loop that is closed has nobody left who would ask.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, written)

        threading.Thread(target=write, name="sentinel-stdout", daemon=True).start()
        return answer


class _Written(msgspec.Struct, frozen=True):
    """How a write ended; without an error, all of it was taken."""

    error: str = ""
    is_torn: bool = False


def _write(lines: bytes, stream: OutputStream) -> _Written:
    rest = memoryview(lines)
    try:
        while rest:
            taken = stream.write(rest)
            if taken is None:
                select.select([], [stream.fileno()], [])
            else:
                rest = rest[taken:]
        stream.flush()
    except BrokenPipeError:
        error = "whoever read standard output has gone (broken pipe)"
    except (OSError, ValueError) as failure:
        error = f"standard output cannot be written: {failure}"
    else:
        return _Written()
    taken = len(lines) - len(rest)
    return _Written(error, is_torn=taken > 0 and not lines[:taken].endswith(b"\n"))


def _line(event: events.Event) -> bytes:
    document = events.structured(event)
    if b"\n" in document:
        # Only between tokens, where whoever composed the data laid it out on several lines.
        document = msgspec.json.format(document, indent=-1)
    return document + b"\n"


def _unconfirmed(count: int, error: str) -> Receipt:
    return Receipt([Outcome.UNCONFIRMED] * count, [], error)
