"""Metrics that could not be delivered yet, within a bound.

A day of them is kept, because the hub keeps no older ones. If there are too many, they are thinned out as the hub
does it, so that peaks and restarts of the proxy stay visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sentinel.core.hub.metrics_samples import Sample, thin_out

MAX_AGE: Final = timedelta(hours=24)
MAX_SAMPLES: Final = 4096
"""A day at an interval of 30 seconds is 2,880. In a message, they take a third of what the hub accepts."""

_FIRST_WIDTH: Final = timedelta(minutes=1)


def add(samples: Sequence[Sample], sample: Sample, *, max_samples: int = MAX_SAMPLES) -> Sequence[Sample]:
    """Return the samples, ascending, with a new one.

    The protocol has whole seconds, so of one second only the last is kept. A sample later than the new one was
    taken before the clock was set back; its time is wrong, and it is dropped.
    """
    start = sample.time - MAX_AGE
    second = sample.time.replace(microsecond=0)
    # They are ascending, so only the ends have to be looked at.
    first = next((index for index, each in enumerate(samples) if each.time > start), len(samples))
    kept = [*samples[first:]]
    while kept and kept[-1].time >= second:
        kept.pop()
    kept.append(sample)
    width = _FIRST_WIDTH
    while len(kept) > max_samples and width < MAX_AGE:
        kept = [*thin_out(kept, width)]
        width *= 2
    # Restarts of the proxy in every interval are all kept by thinning out.
    return kept[-max_samples:]


def without(samples: Sequence[Sample], delivered: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples that were not delivered."""
    if not delivered:
        return samples
    return [sample for sample in samples if sample.time > delivered[-1].time]
