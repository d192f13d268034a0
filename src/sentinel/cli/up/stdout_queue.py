"""A queue for standard output, so that a slow reader never blocks the event loop.

A reader may be slow, stop reading (`| less`, Ctrl-S in a terminal) or be a full disk. So one thread writes, and
other code only enqueues. The queue is bounded; texts that do not fit are dropped, and a notice counts them. The
thread writes to the file descriptor itself: blocked in Python's stream it would hold a lock that the interpreter
needs to exit.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta

MAX_QUEUED_BYTES = 1_000_000


class StdoutQueue:
    """A queue of texts for a writer thread. Its methods do not raise, and only `flush` blocks."""

    def __init__(
        self,
        descriptor: int,
        encoding: str = "utf-8",
        *,
        max_bytes: int = MAX_QUEUED_BYTES,
        on_closed: Callable[[], None] = lambda: None,
        on_failure: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        """Escape characters that the encoding lacks. After an error nothing more is written: the writer thread
        calls `on_closed` if the reader has closed the pipe, as `| head` does, and otherwise `on_failure`."""
        self._descriptor = descriptor
        self._encoding = encoding
        self._max_bytes = max_bytes
        self._on_closed = on_closed
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._size = 0
        """The size in bytes, including what is being written."""
        self._dropped = 0
        self._is_closed = False
        self._writer: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything has been written; always true after an error."""
        return self._size == 0

    def write(self, text: str) -> None:
        """Enqueue a text, as a whole or not at all."""
        data = self._encode(text)
        with self._changed:
            if self._is_closed:
                return
            if self._size and self._size + len(data) > self._max_bytes:
                self._dropped += 1
                return
            self._enqueue_drop_notice()
            self._enqueue(data)
            if self._writer is None:
                self._writer = threading.Thread(target=self._run, name="sentinel-stdout", daemon=True)
                self._writer.start()
            self._changed.notify_all()

    def flush(self, *, timeout: timedelta) -> bool:
        """Block until everything is written. Return whether it was, before the timeout. Only for use at exit."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_idle, timeout.total_seconds())

    def _encode(self, text: str) -> bytes:
        return text.encode(self._encoding, "backslashreplace")

    def _enqueue_drop_notice(self) -> None:
        if self._dropped:
            notice = f"… {self._dropped} lines were dropped, because the reader was too slow\n"
            self._dropped = 0
            self._enqueue(self._encode(notice))

    def _enqueue(self, data: bytes) -> None:
        self._queue.append(data)
        self._size += len(data)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                data = self._queue.popleft()
            try:
                self._write_all(data)
            except OSError as error:
                self._close()
                if isinstance(error, BrokenPipeError):
                    self._on_closed()
                else:
                    self._on_failure(error)
                return
            with self._changed:
                self._size -= len(data)
                if not self._queue:
                    self._enqueue_drop_notice()
                self._changed.notify_all()

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process has made the shared descriptor non-blocking
                select.select((), (self._descriptor,), ())

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._size = 0
            self._changed.notify_all()
