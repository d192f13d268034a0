"""Standard output behind a queue."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from sentinel.cli.up.stdout_queue import StdoutQueue

TIMEOUT = timedelta(seconds=10)
NO_WAIT = timedelta(0)
_SMALLEST_PIPE = 4096


class Pipe:
    """A pipe with the smallest buffer."""

    def __init__(self) -> None:
        self.validation, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, _SMALLEST_PIPE)

    def read_until(self, end: bytes) -> bytes:
        read = b""
        while not read.endswith(end) and (some := os.read(self.validation, 65_536)):
            read += some
        return read

    def close(self) -> None:
        for descriptor in (self.validation, self.writing):
            os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_output_is_written_in_order(pipe: Pipe) -> None:
    queue = StdoutQueue(pipe.writing)

    for number in range(100):
        queue.write(f"line {number}\n")

    assert pipe.read_until(b"line 99\n").splitlines() == [f"line {number}".encode() for number in range(100)]
    assert queue.flush(timeout=TIMEOUT)


def test_a_blocked_reader_blocks_nothing_and_sees_what_was_dropped(pipe: Pipe) -> None:
    queue = StdoutQueue(pipe.writing, max_bytes=10_000)

    for number in range(10_000):
        queue.write(f"line {number}\n")
    was_flushed = queue.flush(timeout=NO_WAIT)
    with os.fdopen(os.dup(pipe.validation)) as lines:
        expected = 0
        has_gap = False
        while expected < 10_000:
            line = lines.readline()
            if missing := re.fullmatch(r"… (\d+) lines were dropped, because the reader was too slow\n", line):
                has_gap = True
                expected += int(missing[1])
            else:
                assert line == f"line {expected}\n"
                expected += 1

    assert (was_flushed, has_gap) == (False, True)
    assert queue.flush(timeout=TIMEOUT)


def test_characters_missing_in_the_encoding_are_escaped(pipe: Pipe) -> None:
    queue = StdoutQueue(pipe.writing, encoding="ascii")

    queue.write("zwölf …\n")

    assert pipe.read_until(b"\n") == b"zw\\xf6lf \\u2026\n"


def test_a_non_blocking_descriptor_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    queue = StdoutQueue(pipe.writing)

    queue.write("x" * 100_000 + "\n")

    assert len(pipe.read_until(b"\n")) == 100_001


def test_a_closed_pipe_is_not_a_failure() -> None:
    validation, writing = os.pipe()
    os.close(validation)
    closed, failed = threading.Event(), threading.Event()
    queue = StdoutQueue(writing, on_closed=closed.set, on_failure=lambda error: failed.set())

    queue.write("anything\n")

    assert closed.wait(TIMEOUT.total_seconds())
    assert not failed.is_set()
    os.close(writing)


def test_after_a_failure_nothing_more_is_written() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    failures: list[OSError] = []
    failed = threading.Event()

    def on_failure(error: OSError) -> None:
        failures.append(error)
        failed.set()

    queue = StdoutQueue(full, on_failure=on_failure)
    queue.write("anything\n")
    assert failed.wait(TIMEOUT.total_seconds())
    os.close(full)
    queue.write("more\n")

    assert queue.is_idle
    assert len(failures) == 1
