"""Requests are shared among targets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.proxy.balancing import choose, first_turns
from sentinel.core.proxy.model import LoadBalancing


def take(
    count: int,
    algorithm: LoadBalancing,
    *,
    weights: list[int],
    available: list[int] | None = None,
    active: list[int] | None = None,
) -> list[int]:
    """Return the choices of `count` requests, each of which ends before the next."""
    turns, chosen = first_turns(len(weights)), list[int]()
    for _ in range(count):
        turns, index = choose(
            turns,
            algorithm,
            weights=weights,
            active=active or [0] * len(weights),
            available=range(len(weights)) if available is None else available,
        )
        chosen.append(index)
    return chosen


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any))
def test_over_one_round_each_target_gets_exactly_its_weight(weights: list[int]) -> None:
    chosen = Counter(take(sum(weights), LoadBalancing.WEIGHTED, weights=weights))

    assert [chosen[index] for index in range(len(weights))] == weights


@given(st.integers(1, 6), st.integers(1, 4))
def test_round_robin_ignores_weights_and_repeats_its_order(targets: int, rounds: int) -> None:
    chosen = take(targets * rounds, LoadBalancing.ROUND_ROBIN, weights=list(range(targets)))

    assert chosen == list(range(targets)) * rounds


@given(
    st.sampled_from(list(LoadBalancing)),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=5).filter(
        lambda targets: any(is_available for _, _, is_available in targets)
    ),
)
def test_only_available_targets_are_chosen(algorithm: LoadBalancing, targets: list[tuple[int, int, bool]]) -> None:
    available = [index for index, (_, _, is_available) in enumerate(targets) if is_available]

    chosen = take(
        12,
        algorithm,
        weights=[weight for weight, _, _ in targets],
        active=[active for _, active, _ in targets],
        available=available,
    )

    assert set(chosen) <= set(available)


def test_weighted_turns_are_spread_out() -> None:
    assert take(8, LoadBalancing.WEIGHTED, weights=[3, 1]) == [0, 0, 1, 0, 0, 0, 1, 0]


def test_the_least_busy_targets_take_turns() -> None:
    assert take(4, LoadBalancing.LEAST_CONNECTIONS, weights=[1, 1, 1], active=[2, 1, 1]) == [1, 2, 1, 2]


def test_targets_of_weight_zero_take_turns_if_there_are_no_others() -> None:
    assert take(3, LoadBalancing.WEIGHTED, weights=[5, 0, 0], available=[1, 2]) == [1, 2, 1]
