"""The metrics that agents report: what is believed, how much a counter grew, and what is kept for long.

Counters begin at zero when a proxy restarts. `increase` counts across such resets, and `thin_out` keeps every
sample that it needs for that, so that a sum over old samples is as exact as over recent ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Final

import msgspec

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent measured, by the names of the protocol."""

    requests_total: int = 0
    requests_failed: int = 0
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0

    @property
    def counters(self) -> tuple[int, int, int, int]:
        """The values that only grow, until the proxy restarts."""
        return self.requests_total, self.requests_failed, self.bytes_sent, self.bytes_received

    @property
    def is_plausible(self) -> bool:
        """Whether they can be stored and added up: no negative or infinite values."""
        latencies = (self.latency_p50_ms, self.latency_p99_ms)
        return min(self.counters) >= 0 and all(math.isfinite(each) and each >= 0 for each in latencies)


class Sample(msgspec.Struct, frozen=True):
    """Metrics at a time."""

    time: datetime
    metrics: Metrics


class Increase(msgspec.Struct, frozen=True, kw_only=True):
    """How much the counters grew."""

    requests_total: int = 0
    requests_failed: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


def admit_buffered(
    samples: Iterable[Sample], *, latest: datetime | None, now: datetime, retention: timedelta
) -> Sequence[Sample]:
    """Return which of the samples that an agent has buffered are stored, one for each time, ascending.

    They were taken after `latest`, the last sample that was stored, and before now. A sample with another time
    comes from a wrong clock, or was stored already. In another order, counters would seem to be reset, so it is
    dropped, like what is implausible or older than the retention.
    """
    start = max(latest or _EPOCH, now - retention)
    believed = {
        sample.time: sample for sample in samples if start < sample.time < now and sample.metrics.is_plausible
    }
    return [believed[time] for time in sorted(believed)]


def increase(samples: Sequence[Sample]) -> Increase:
    """Return how much the counters grew from the first of these samples to the last.

    `samples` are ascending. Where a counter is lower than before, the proxy has restarted: all have begun again at
    zero, also those that are higher than before by now.
    """
    grown = [0, 0, 0, 0]
    for before, after in pairwise(samples):
        has_restarted = _has_restarted(before, after)
        for index, (old, new) in enumerate(zip(before.metrics.counters, after.metrics.counters, strict=True)):
            grown[index] += new if has_restarted else new - old
    total, failed, sent, received = grown
    return Increase(requests_total=total, requests_failed=failed, bytes_sent=sent, bytes_received=received)


def thin_out(samples: Sequence[Sample], width: timedelta) -> Sequence[Sample]:
    """Return the samples to keep when they are old; the others can be deleted.

    `samples` are ascending. Of each interval of this width, the last one is kept, and the one with the worst
    latency, so that a peak stays visible. Both samples beside a reset are kept. Doing it again changes nothing.
    """
    kept = {sample.time for sample in _beside_resets(samples)}
    for _, group in groupby(samples, key=lambda sample: (sample.time - _EPOCH) // width):
        interval = list(group)
        kept |= {interval[-1].time, max(interval, key=_latency).time}
    return [sample for sample in samples if sample.time in kept]


def _latency(sample: Sample) -> tuple[float, datetime]:
    """Return the latency of a sample.

    Of equal latencies, the last sample counts as the worst: it is kept anyway.
    """
    return sample.metrics.latency_p99_ms, sample.time


def _beside_resets(samples: Sequence[Sample]) -> Iterator[Sample]:
    for before, after in pairwise(samples):
        if _has_restarted(before, after):
            yield before
            yield after


def _has_restarted(before: Sample, after: Sample) -> bool:
    counters = zip(before.metrics.counters, after.metrics.counters, strict=True)
    return any(new < old for old, new in counters)
