"""Publishing lines to a stream: their format, and streams that are full, closed or fail."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from sentinel.core.events import Event
from sentinel.drivers.stdout import OutputStream, StdoutPublisher
from sentinel.ports.publisher import PublishOutcome
from tests.contract.publisher import make_event, make_events

TIMEOUT = timedelta(seconds=20)
SHORT = timedelta(milliseconds=50)


class Pipe:
    """A pipe that the test reads."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.reader = os.fdopen(reading, "rb")
        self.writer = os.fdopen(writing, "wb", buffering=0)

    async def read_ids(self, count: int) -> list[str]:
        """Read the ids of the next `count` events."""
        lines = await asyncio.to_thread(lambda: [self.reader.readline() for _ in range(count)])
        return [msgspec.json.decode(line)["id"] for line in lines]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.writer.close()
    pipe.reader.close()


async def opened(stream: OutputStream) -> StdoutPublisher:
    publisher = StdoutPublisher(stream=stream)
    await publisher.open()
    return publisher


async def test_each_event_is_one_line() -> None:
    stream = io.BytesIO()
    publisher = await opened(stream)

    await publisher.publish(make_events(2), deadline=TIMEOUT)

    lines = stream.getvalue().splitlines(keepends=True)
    assert [line[-1:] for line in lines] == [b"\n", b"\n"]
    assert [msgspec.json.decode(line)["id"] for line in lines] == ["event-0", "event-1"]


async def test_data_on_several_lines_becomes_one() -> None:
    stream = io.BytesIO()
    publisher = await opened(stream)
    event = Event("event-1", "type", "cls-1", "2026-03-01T12:00:00Z", msgspec.Raw(b'{\n  "text": "a\\nb"\n}'))

    await publisher.publish([event], deadline=TIMEOUT)

    [line] = stream.getvalue().splitlines()
    assert msgspec.json.decode(line)["data"] == {"text": "a\nb"}


async def test_a_reader_that_exited_makes_it_unavailable_without_raising(pipe: Pipe) -> None:
    publisher = await opened(pipe.writer)
    pipe.reader.close()

    receipt = await publisher.publish(make_events(2), deadline=TIMEOUT)

    assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED] * 2
    assert receipt.error == "the reader of standard output has exited (broken pipe)"
    assert publisher.unavailable_reason() == receipt.error


async def test_a_new_reader_makes_it_available_again(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    first_reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(os.open(path, os.O_WRONLY), "wb", buffering=0) as stream:
        publisher = await opened(stream)
        os.close(first_reader)
        lost = await publisher.publish([make_event(1)], deadline=TIMEOUT)
        second_reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

        receipt = await publisher.publish([make_event(2)], deadline=TIMEOUT)

        assert list(lost.outcomes) == [PublishOutcome.UNCONFIRMED]
        assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
        assert publisher.unavailable_reason() is None
        assert msgspec.json.decode(os.read(second_reader, 65_536))["id"] == "event-2"
        os.close(second_reader)


async def test_a_full_pipe_is_unavailable_until_it_is_read(pipe: Pipe) -> None:
    publisher = await opened(pipe.writer)
    events = make_events(1_000)

    lost = await publisher.publish(events, deadline=SHORT)
    while_full = publisher.unavailable_reason()
    afterwards = asyncio.create_task(publisher.publish([make_event(1_000)], deadline=TIMEOUT))
    read = await pipe.read_ids(1_001)

    assert set(lost.outcomes) == {PublishOutcome.UNCONFIRMED}
    assert lost.error == while_full == "standard output took nothing for 0.05s: no process reads it"
    assert list((await afterwards).outcomes) == [PublishOutcome.CONFIRMED]
    assert publisher.unavailable_reason() is None
    assert read == [f"event-{number}" for number in range(1_001)]


async def test_a_batch_waits_for_a_blocked_one_to_be_written(pipe: Pipe) -> None:
    publisher = await opened(pipe.writer)

    await publisher.publish(make_events(1_000), deadline=SHORT)
    lost = await publisher.publish([make_event(-1)], deadline=SHORT)
    read = await pipe.read_ids(1_000)
    receipt = await publisher.publish([make_event(1_000)], deadline=TIMEOUT)

    assert list(lost.outcomes) == [PublishOutcome.UNCONFIRMED]
    assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
    assert [*read, *await pipe.read_ids(1)] == [f"event-{number}" for number in range(1_001)]


class FailsOnce(io.RawIOBase):
    """A stream that accepts some bytes and then fails once."""

    def __init__(self, takes: int, error: OSError) -> None:
        self.taken = b""
        self._left: int | None = takes
        self._error = error

    def writable(self) -> bool:
        return True

    def write(self, data: memoryview, /) -> int:  # type: ignore[override]  # narrower than any buffer
        if self._left is None:
            self.taken += data
            return len(data)
        if self._left == 0:
            self._left = None
            raise self._error
        taken = bytes(data[: self._left])
        self._left -= len(taken)
        self.taken += taken
        return len(taken)


async def test_a_partial_line_does_not_affect_the_next() -> None:
    stream = FailsOnce(10, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    publisher = await opened(stream)

    lost = await publisher.publish([make_event(1)], deadline=TIMEOUT)
    receipt = await publisher.publish([make_event(2)], deadline=TIMEOUT)

    assert list(lost.outcomes) == [PublishOutcome.UNCONFIRMED]
    assert lost.error == "standard output cannot be written: [Errno 28] No space left on device"
    assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED]
    partial, whole = stream.taken.splitlines()
    assert len(partial) == 10
    assert msgspec.json.decode(whole)["id"] == "event-2"


async def test_an_error_between_lines_leaves_no_empty_line() -> None:
    stream = FailsOnce(0, OSError(errno.EIO, os.strerror(errno.EIO)))
    publisher = await opened(stream)

    await publisher.publish([make_event(1)], deadline=TIMEOUT)
    await publisher.publish([make_event(2)], deadline=TIMEOUT)

    [line] = stream.taken.splitlines()
    assert msgspec.json.decode(line)["id"] == "event-2"


async def test_a_closed_stream_is_unavailable() -> None:
    stream = io.BytesIO()
    publisher = await opened(stream)
    stream.close()

    receipt = await publisher.publish([make_event(1)], deadline=TIMEOUT)

    assert list(receipt.outcomes) == [PublishOutcome.UNCONFIRMED]
    assert "closed file" in receipt.error


async def test_a_non_blocking_descriptor_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer.fileno(), False)
    publisher = await opened(pipe.writer)

    publishing = asyncio.create_task(publisher.publish(make_events(1_000), deadline=TIMEOUT))
    read = await pipe.read_ids(1_000)

    assert set((await publishing).outcomes) == {PublishOutcome.CONFIRMED}
    assert read == [f"event-{number}" for number in range(1_000)]


def test_standard_output_is_the_default_and_keeps_the_order() -> None:
    finished = subprocess.run(program("print('before')", events=1), capture_output=True, timeout=60, check=True)

    before, line = finished.stdout.splitlines()
    assert before == b"before"
    assert msgspec.json.decode(line)["id"] == "event-0"


def test_a_process_exits_although_the_pipe_is_not_read(pipe: Pipe) -> None:
    finished = subprocess.run(
        program(events=1_000), stdout=pipe.writer, stderr=subprocess.PIPE, timeout=60, check=False
    )

    assert (finished.returncode, finished.stderr) == (0, b"")


@pytest.mark.parametrize("events", [1, 1_000])
def test_a_process_exits_without_errors_if_its_reader_exited(pipe: Pipe, events: int) -> None:
    pipe.reader.close()

    finished = subprocess.run(
        program(events=events), stdout=pipe.writer, stderr=subprocess.PIPE, timeout=60, check=False
    )

    assert (finished.returncode, finished.stderr) == (0, b"")


def program(before: str = "", *, events: int) -> list[str]:
    """Return a command that publishes to its standard output and exits."""
    return [
        *("env", "-u", "PYTHONUNBUFFERED"),  # it would hide what buffers do at exit
        sys.executable,
        "-c",
        f"""
import asyncio, msgspec
from datetime import timedelta
from sentinel.core.events import Event
from sentinel.drivers.stdout import StdoutPublisher

async def main():
    publisher = StdoutPublisher()
    await publisher.open()
    data = msgspec.Raw(b'{{"padding": "' + b"x" * 300 + b'"}}')
    events = [Event(f"event-{{n}}", "type", "cls", "2026-03-01T12:00:00Z", data) for n in range({events})]
    await publisher.publish(events, deadline=timedelta(milliseconds=200))
    await publisher.close()

{before}
asyncio.run(main())
""",
    ]
