"""Chooses the target of a request.

Turns are taken smoothly: of the weights 3 and 1 the second target gets every fourth request, not the last one of a
row. The state is a value, so that a test can predict every choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sentinel.core.proxy.model import LoadBalancing


class Turns(msgspec.Struct, frozen=True):
    """How much each target is owed. The one that is owed most is next."""

    credits: tuple[int, ...]


def first_turns(targets: int) -> Turns:
    """Return the state before the first request."""
    return Turns((0,) * targets)


def choose(
    turns: Turns,
    algorithm: LoadBalancing,
    *,
    weights: Sequence[int],
    active: Sequence[int],
    available: Sequence[int],
) -> tuple[Turns, int]:
    """Return the next state and the index of the chosen target, one of those in `available`, which is not empty.

    `active` is how many requests each target is working on.
    """
    if len(available) == 1:
        return turns, available[0]
    if algorithm is LoadBalancing.LEAST_CONNECTIONS:
        fewest = min(active[index] for index in available)
        available = [index for index in available if active[index] == fewest]
    if algorithm is not LoadBalancing.WEIGHTED or not any(weights[index] for index in available):
        weights = (1,) * len(weights)
    return _take_turn(turns, weights, available)


def _take_turn(turns: Turns, weights: Sequence[int], available: Sequence[int]) -> tuple[Turns, int]:
    owed = list(turns.credits)
    for index in available:
        owed[index] += weights[index]
    # A target of weight 0 gets nothing, even while the others are owed less.
    chosen = max((index for index in available if weights[index]), key=owed.__getitem__)
    owed[chosen] -= sum(weights[index] for index in available)
    return Turns(tuple(owed)), chosen
