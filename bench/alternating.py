"""Compares the CPU of several ways to do the same thing.

Other load on the machine adds to a figure, in bursts of seconds. Short alternating turns spread a burst over all
ways, and the cheapest turn of each was disturbed least.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

Variant: TypeAlias = Callable[[], Awaitable[int]]
"""Does it a number of times and returns how often."""

OURS = "ours"
SQLALCHEMY = "SQLAlchemy"


async def cheapest(variants: Mapping[str, Variant], *, rounds: int) -> dict[str, float]:
    """Return the CPU microseconds of doing it once, each way, in all threads of this process."""
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds):
        for name, variant in variants.items():
            before = time.process_time()
            times = await variant()
            best[name] = min(best[name], (time.process_time() - before) / times * 1e6)
    return best
