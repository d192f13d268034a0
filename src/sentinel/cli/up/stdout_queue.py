"""Standard output, behind a queue: whoever has something to say never waits for whoever reads it.

A reader may be slow, stop reading without leaving (`| less`, a terminal after Ctrl-S), or be a disk that is full.
The loop that keeps a fleet has to go on all the same, so one thread writes, and everybody else only puts things
down. The queue is bounded; what finds no room is left out, and the reader is told how much that was. Text goes to
the descriptor itself: a thread that hangs in Python's own stream would hold its lock, on which the end of the
process waits.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta

ROOM = 1_000_000
"""How many bytes may wait."""


class StdoutQueue:
    """Writes what it is given, in order, as far as anybody takes it. Nothing here raises, and nothing blocks."""

    def __init__(
        self,
        descriptor: int,
        encoding: str = "utf-8",
        *,
        room: int = ROOM,
        on_gone: Callable[[], None] = lambda: None,
        on_failure: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        """What the encoding cannot say is written as an escape. After a failure nothing more is written; the
        thread that writes calls `on_gone` where the reader has left, as `| head` does, else `on_failure`."""
        self._descriptor = descriptor
        self._encoding = encoding
        self._room = room
        self._on_gone = on_gone
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        """In bytes, with what is being written at the moment."""
        self._left_out = 0
        self._is_over = False
        self._writer: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything has been taken; after a failure there is nothing left to take."""
        return self._size == 0

    def write(self, text: str) -> None:
        """Puts a text down to be written, as a whole or not at all."""
        written = text.encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._is_over:
                return
            if self._size and self._size + len(written) > self._room:
                self._left_out += 1
                return
            self._own_up()
            self._put(written)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_on, name="sentinel-outlet", daemon=True)
                self._writer.start()
            self._changed.notify_all()

    def flush(self, *, within: timedelta) -> bool:
        """Waits until everything has been taken; whether it was. For the end, when nobody else is at work."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_idle, within.total_seconds())

    def _own_up(self) -> None:
        """Says what is missing here, if anything is."""
        if self._left_out:
            note = f"… {self._left_out} lines were left out, for nobody took them\n"
            self._left_out = 0
            self._put(note.encode(self._encoding, "backslashreplace"))

    def _put(self, written: bytes) -> None:
        self._waiting.append(written)
        self._size += len(written)

    def _write_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                written = self._waiting.popleft()
            try:
                self._write_out(written)
            except OSError as error:
                self._end()
                if isinstance(error, BrokenPipeError):
                    self._on_gone()
                else:
                    self._on_failure(error)
                return
            with self._changed:
                self._size -= len(written)
                if not self._waiting:
                    self._own_up()
                self._changed.notify_all()

    def _write_out(self, written: bytes) -> None:
        rest = memoryview(written)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody else has made the descriptor one that does not wait
                select.select((), (self._descriptor,), ())

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._waiting.clear()
            self._size = 0
            self._changed.notify_all()
