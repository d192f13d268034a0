"""Several ways to do the same thing, measured in turns: the CPU of each at its cheapest.

Whatever else the machine does adds to a figure and comes in bursts of seconds. Short turns spread a burst over all
ways, and the cheapest turn of each is the one that was disturbed least.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

Way: TypeAlias = Callable[[], Awaitable[int]]
"""Does it a number of times; returns how often."""

OURS = "ours"
SQLALCHEMY = "SQLAlchemy"


async def cheapest(ways: Mapping[str, Way], *, rounds: int) -> dict[str, float]:
    """CPU microseconds of doing it once, each way, in all threads of this process."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            before = time.process_time()
            times = await way()
            best[name] = min(best[name], (time.process_time() - before) / times * 1e6)
    return best
