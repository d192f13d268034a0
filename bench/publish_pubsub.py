"""The cost of publishing a confirmed event to Pub/Sub.

    python -m tools.services pubsub -- python -m bench.publish_pubsub [--events N] [--output json]

On Google's emulator on loopback. CPU time is that of this process, including gRPC's threads. Wall time also
depends on the emulator.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

import msgspec

from bench.command_line import DEFAULT_ROUNDS, make_parser, print_json
from bench.publish import DEADLINE, make_batches
from sentinel.drivers.pubsub.publisher import PubSubPublisher
from sentinel.ports.publisher import PublishOutcome
from tools.services.pubsub import EMULATOR_VARIABLE

BUDGET_MICROSECONDS = 15.0


class PubSubPublishing(msgspec.Struct, frozen=True):
    """CPU microseconds per confirmed event, and events per second; medians over the rounds."""

    events: int
    rounds: int
    microseconds: float
    events_per_second: float

    @property
    def is_within_budget(self) -> bool:
        return self.microseconds <= BUDGET_MICROSECONDS


async def _measure(*, host: str, count: int, rounds: int) -> PubSubPublishing:
    batches = make_batches(count)
    # Without subscriptions, so that the emulator stores nothing. Its responses are the same.
    publisher = PubSubPublisher(
        project_id="sentinel-bench", topic=f"bench-{os.getpid()}", create_topic=True, emulator_host=host
    )
    cpu: list[float] = []
    wall: list[float] = []
    await publisher.open()
    try:
        for turn in range(rounds + 1):
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            for batch in batches:
                receipt = await publisher.publish(batch, deadline=DEADLINE)
                if receipt.outcomes.count(PublishOutcome.CONFIRMED) != len(batch):
                    raise RuntimeError(f"not confirmed: {receipt.error}")
            if turn:  # the first turn warms up
                cpu.append(time.process_time() - cpu_start)
                wall.append(time.perf_counter() - wall_start)
    finally:
        await publisher.close()
    return PubSubPublishing(
        events=count,
        rounds=rounds,
        microseconds=statistics.median(cpu) * 1e6 / count,
        events_per_second=count / statistics.median(wall),
    )


def measure(*, host: str = "", count: int = 20_000, rounds: int = DEFAULT_ROUNDS) -> PubSubPublishing:
    """Publish `count` events in batches, `rounds` times. The default host is that of the environment."""
    chosen = host or os.environ.get(EMULATOR_VARIABLE, "")
    if not chosen:
        raise RuntimeError(f"no Pub/Sub emulator: {EMULATOR_VARIABLE} is not set")
    return asyncio.run(_measure(host=chosen, count=count, rounds=rounds))


def main() -> int:
    parser = make_parser("publish_pubsub", __doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--host", default="")
    options = parser.parse_args()
    result = measure(host=options.host, count=options.events, rounds=options.rounds)
    if options.output == "json":
        print_json(result, is_within_budget=result.is_within_budget)
    else:
        print(f"{'CPU µs/event':>14}{'events/s':>12}")
        print(f"{result.microseconds:14.1f}{result.events_per_second:12.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
