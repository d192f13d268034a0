"""The cost of publishing a confirmed event to RabbitMQ, against the minimum possible.

    python -m bench.publish [--events N] [--output json]

The minimum is the same frames in the same writes on a bare aiormq connection that only tracks which events are
confirmed. Both run in one process, in alternating turns, on a durable queue of one broker, so that a slow machine
affects both. CPU time is that of this process. Wall time also depends on the broker.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import aio_pika
import aiormq
import msgspec
from aiormq.abc import AbstractConnection, ChannelFrame, ConfirmationFrameType

from bench.command_line import DEFAULT_ROUNDS, make_parser, print_json
from sentinel.core import events
from sentinel.core.ids import uuid7
from sentinel.core.times import timestamp
from sentinel.drivers.rabbitmq.frames import FrameEncoder
from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
from sentinel.ports.publisher import PublishOutcome

URL = "amqp://guest:guest@127.0.0.1:5672/%2F"
BATCH = 1000
WRITE_SIZE = 256 * 1024
DEADLINE = timedelta(seconds=60)
EXCHANGE = "sentinel-bench"
MODE = events.Mode.STRUCTURED

BUDGET_MICROSECONDS = 40.0
BUDGET_RATIO = 0.9


class Publishing(msgspec.Struct, frozen=True):
    """CPU microseconds per confirmed event, and events per second; medians over all batches.

    `bare` is a connection of aiormq that writes the same frames, without our publisher.
    """

    events: int
    rounds: int
    publisher_microseconds: float
    bare_microseconds: float
    publisher_events_per_second: float
    bare_events_per_second: float

    @property
    def cpu_ratio(self) -> float:
        """The CPU of the bare connection relative to the publisher's; 1 is the optimum."""
        return self.bare_microseconds / self.publisher_microseconds

    @property
    def throughput_ratio(self) -> float:
        """The throughput relative to the bare connection."""
        return self.publisher_events_per_second / self.bare_events_per_second

    @property
    def is_within_budget(self) -> bool:
        return self.publisher_microseconds <= BUDGET_MICROSECONDS and self.throughput_ratio >= BUDGET_RATIO


def make_batches(count: int) -> list[list[events.Event]]:
    """Return events as the pulse composes them, with one time per batch."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = [
        events.Event(
            id=uuid7(now, number.to_bytes(10, "big")),
            type="com.redhat.hyperfleet.cluster.reconcile",
            subject=f"cluster-{number:06d}",
            time=timestamp(now + timedelta(microseconds=number // BATCH)),
            data=msgspec.Raw(
                msgspec.json.encode(
                    {
                        "resource_id": f"cluster-{number:06d}",
                        "resource_type": "Cluster",
                        "generation": "3",
                        "region": "us-east",
                    }
                )
            ),
        )
        for number in range(count)
    ]
    return [made[start : start + BATCH] for start in range(0, count, BATCH)]


class _BareChannel(aiormq.Channel):
    """Tracks which events are confirmed, and nothing else."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.sent = 0
        self.unconfirmed: dict[int, events.Event] = {}
        self.is_confirmed = asyncio.Event()
        self._oldest = 1
        super().__init__(connection, 1, frame_buffer=BATCH)

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        tag = frame.delivery_tag or 0
        if getattr(frame, "multiple", False):
            for each in range(self._oldest, tag + 1):
                self.unconfirmed.pop(each, None)
            self._oldest = tag + 1
        else:
            self.unconfirmed.pop(tag, None)
        if not self.unconfirmed:
            self.is_confirmed.set()


class _Bare:
    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel = _BareChannel(connection)
        self._layout = FrameEncoder(
            channel=1,
            exchange=EXCHANGE,
            routing_key="",
            mode=MODE,
            frame_max=connection.connection_tune.frame_max,
        )

    async def open(self) -> None:
        self._connection.channels[1] = self._channel
        await self._channel.open()

    async def publish(self, batch: Sequence[events.Event]) -> None:
        channel = self._channel
        channel.unconfirmed.update(enumerate(batch, channel.sent + 1))
        channel.sent += len(batch)
        channel.is_confirmed.clear()
        frames: list[bytes] = []
        size = 0
        for event in batch:
            encoded = self._layout.encode(event)
            frames.append(encoded)
            size += len(encoded)
            if size >= WRITE_SIZE:
                await self._write(frames)
                frames, size = [], 0
        if frames:
            await self._write(frames)
        await channel.is_confirmed.wait()

    async def _write(self, frames: Sequence[bytes]) -> None:
        drained = asyncio.get_running_loop().create_future()
        await self._connection.write_queue.put(ChannelFrame(b"".join(frames), False, drained))
        await drained


class _Timing(msgspec.Struct, frozen=True):
    """Seconds per event of one batch."""

    cpu: float
    wall: float


async def _time(
    publish: Callable[[Sequence[events.Event]], Awaitable[None]], batch: Sequence[events.Event]
) -> _Timing:
    cpu, wall = time.process_time(), time.perf_counter()
    async with asyncio.timeout(DEADLINE.total_seconds()):
        await publish(batch)
    return _Timing((time.process_time() - cpu) / len(batch), (time.perf_counter() - wall) / len(batch))


async def _measure(*, url: str, count: int, rounds: int) -> Publishing:
    batches = make_batches(count)
    publisher = RabbitMQPublisher(url=url, exchange=EXCHANGE, exchange_type="fanout", mode=MODE)

    async def publish(batch: Sequence[events.Event]) -> None:
        receipt = await publisher.publish(batch, deadline=DEADLINE)
        if receipt.outcomes.count(PublishOutcome.CONFIRMED) != len(batch):
            raise RuntimeError(f"not confirmed: {receipt.error}")

    connection = await aio_pika.connect(url, timeout=5)
    try:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, "fanout", durable=True)
        queue = await channel.declare_queue(f"{EXCHANGE}-{os.getpid()}", durable=True)
        await queue.bind(exchange)
        bare_connection = await aiormq.connect(url)
        bare = _Bare(bare_connection)
        await bare.open()
        await publisher.open()
        try:
            variants = {"publisher": publish, "bare": bare.publish}
            timings: dict[str, list[_Timing]] = {name: [] for name in variants}
            for turn in range(rounds + 1):
                for number, batch in enumerate(batches):
                    # Alternate by batch, in changing order, so that other load affects both.
                    for name in variants if number % 2 else reversed(variants):
                        timing = await _time(variants[name], batch)
                        if turn:  # the first round warms up
                            timings[name].append(timing)
                await queue.purge()
        finally:
            await publisher.close()
            await bare_connection.close()
            await queue.delete(if_unused=False, if_empty=False)
            await exchange.delete()
    finally:
        await connection.close()

    def median(name: str, value: Callable[[_Timing], float]) -> float:
        return statistics.median(value(timing) for timing in timings[name])

    return Publishing(
        events=count,
        rounds=rounds,
        publisher_microseconds=median("publisher", lambda timing: timing.cpu * 1e6),
        bare_microseconds=median("bare", lambda timing: timing.cpu * 1e6),
        publisher_events_per_second=median("publisher", lambda timing: 1 / timing.wall),
        bare_events_per_second=median("bare", lambda timing: 1 / timing.wall),
    )


def measure(*, url: str = URL, count: int = 20_000, rounds: int = DEFAULT_ROUNDS) -> Publishing:
    """Publish `count` events in batches, `rounds` times each way."""
    return asyncio.run(_measure(url=url, count=count, rounds=rounds))


def main() -> int:
    parser = make_parser("publish", __doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--url", default=URL)
    options = parser.parse_args()
    result = measure(url=options.url, count=options.events, rounds=options.rounds)
    if options.output == "json":
        print_json(
            result,
            cpu_ratio=result.cpu_ratio,
            throughput_ratio=result.throughput_ratio,
            is_within_budget=result.is_within_budget,
        )
    else:
        print(f"{'':12}{'CPU µs/event':>14}{'events/s':>12}")
        for name, cpu, rate in (
            ("publisher", result.publisher_microseconds, result.publisher_events_per_second),
            ("bare aiormq", result.bare_microseconds, result.bare_events_per_second),
        ):
            print(f"{name:12}{cpu:14.1f}{rate:12.0f}")
        print(f"{'ratio':12}{result.cpu_ratio:14.2f}{result.throughput_ratio:12.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
