"""Standard output that nobody has to wait for."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from sentinel.cli.up.stdout_queue import StdoutQueue

PATIENCE = timedelta(seconds=10)
AT_ONCE = timedelta(0)
_SMALLEST_PIPE = 4096


class Pipe:
    """A pipe with little room, and whoever reads it when told to."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, _SMALLEST_PIPE)

    def read_until(self, end: bytes) -> bytes:
        read = b""
        while not read.endswith(end) and (some := os.read(self.reading, 65_536)):
            read += some
        return read

    def close(self) -> None:
        for descriptor in (self.reading, self.writing):
            os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_what_is_written_comes_out_in_order(pipe: Pipe) -> None:
    outlet = StdoutQueue(pipe.writing)

    for number in range(100):
        outlet.write(f"line {number}\n")

    assert pipe.read_until(b"line 99\n").splitlines() == [f"line {number}".encode() for number in range(100)]
    assert outlet.flush(within=PATIENCE)


def test_a_reader_that_does_not_read_keeps_nobody_waiting_and_is_told_what_it_missed(pipe: Pipe) -> None:
    outlet = StdoutQueue(pipe.writing, room=10_000)

    for number in range(10_000):
        outlet.write(f"line {number}\n")
    was_taken = outlet.flush(within=AT_ONCE)
    with os.fdopen(os.dup(pipe.reading)) as lines:
        expected = 0
        has_gap = False
        while expected < 10_000:
            line = lines.readline()
            if missing := re.fullmatch(r"… (\d+) lines were left out, for nobody took them\n", line):
                has_gap = True
                expected += int(missing[1])
            else:
                assert line == f"line {expected}\n"
                expected += 1

    assert (was_taken, has_gap) == (False, True)
    assert outlet.flush(within=PATIENCE)


def test_what_the_encoding_cannot_say_is_escaped(pipe: Pipe) -> None:
    outlet = StdoutQueue(pipe.writing, encoding="ascii")

    outlet.write("zwölf …\n")

    assert pipe.read_until(b"\n") == b"zw\\xf6lf \\u2026\n"


def test_a_descriptor_that_does_not_wait_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    outlet = StdoutQueue(pipe.writing)

    outlet.write("x" * 100_000 + "\n")

    assert len(pipe.read_until(b"\n")) == 100_001


def test_a_reader_that_has_gone_is_told_and_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    gone, failed = threading.Event(), threading.Event()
    outlet = StdoutQueue(writing, on_gone=gone.set, on_failure=lambda error: failed.set())

    outlet.write("anything\n")

    assert gone.wait(PATIENCE.total_seconds())
    assert not failed.is_set()
    os.close(writing)


def test_after_a_failure_nothing_more_is_tried() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    failures: list[OSError] = []
    failed = threading.Event()

    def on_failure(error: OSError) -> None:
        failures.append(error)
        failed.set()

    outlet = StdoutQueue(full, on_failure=on_failure)
    outlet.write("anything\n")
    assert failed.wait(PATIENCE.total_seconds())
    os.close(full)
    outlet.write("more\n")

    assert outlet.is_idle
    assert len(failures) == 1
