"""A shard has one holder; others wait for it and are woken when it is free."""

from __future__ import annotations

import pytest

from sentinel.core.kube.objects import ObjectKey
from sentinel.core.labels import equality
from sentinel.operator.held_shards import HeldShards
from sentinel.pulse.definition import ShardKey

EAST: ShardKey = ("clusters", frozenset({equality("region", "east")}))
WEST: ShardKey = ("clusters", frozenset({equality("region", "west")}))
NORTH: ShardKey = ("clusters", frozenset({equality("region", "north")}))
ONE, TWO, THREE = (ObjectKey("system", name) for name in ("one", "two", "three"))


@pytest.fixture
def woken() -> list[ObjectKey]:
    return []


@pytest.fixture
def shards(woken: list[ObjectKey]) -> HeldShards:
    return HeldShards(wake=woken.append)


def test_a_free_shard_is_taken_and_stays_with_its_holder(shards: HeldShards) -> None:
    assert shards.take(EAST, ONE) is None

    assert shards.take(EAST, ONE) is None
    assert shards.take(EAST, TWO) == ONE
    assert shards.take(WEST, TWO) is None


def test_those_that_wait_are_woken_when_the_shard_is_free(shards: HeldShards, woken: list[ObjectKey]) -> None:
    shards.take(EAST, ONE)
    shards.take(EAST, TWO)
    shards.take(EAST, THREE)

    shards.release(ONE)

    assert woken == [TWO, THREE]
    assert shards.take(EAST, THREE) is None
    assert shards.take(EAST, TWO) == THREE


def test_the_shard_of_the_new_pulse_is_kept(shards: HeldShards, woken: list[ObjectKey]) -> None:
    shards.take(EAST, ONE)
    shards.take(WEST, ONE)
    shards.take(EAST, TWO)

    shards.release(ONE, kept=WEST)

    assert woken == [TWO]
    assert shards.take(WEST, TWO) == ONE


def test_two_that_exchange_their_shards_are_deadlocked(shards: HeldShards) -> None:
    shards.take(EAST, ONE)
    shards.take(WEST, TWO)

    assert shards.take(WEST, ONE) == TWO
    assert (shards.is_deadlocked(ONE), shards.is_deadlocked(TWO)) == (False, False)

    assert shards.take(EAST, TWO) == ONE
    assert (shards.is_deadlocked(ONE), shards.is_deadlocked(TWO)) == (True, True)


def test_three_in_a_circle_are_deadlocked(shards: HeldShards) -> None:
    for shard, key in ((EAST, ONE), (WEST, TWO), (NORTH, THREE)):
        shards.take(shard, key)
    shards.take(WEST, ONE)
    shards.take(NORTH, TWO)

    assert not shards.is_deadlocked(TWO)
    shards.take(EAST, THREE)
    assert shards.is_deadlocked(THREE)


def test_one_that_waits_for_a_circle_is_not_part_of_it(shards: HeldShards) -> None:
    shards.take(EAST, ONE)
    shards.take(WEST, TWO)
    shards.take(WEST, ONE)
    shards.take(EAST, TWO)

    shards.take(EAST, THREE)

    assert not shards.is_deadlocked(THREE)


def test_one_whose_shard_has_become_free_is_not_deadlocked(shards: HeldShards) -> None:
    shards.take(EAST, ONE)
    shards.take(EAST, TWO)

    shards.release(ONE)

    assert not shards.is_deadlocked(TWO)


def test_those_that_wait_are_woken_when_the_holder_stays(shards: HeldShards, woken: list[ObjectKey]) -> None:
    shards.take(EAST, ONE)
    shards.take(WEST, TWO)
    shards.take(EAST, THREE)

    shards.wake_waiting(TWO)
    assert woken == []
    shards.wake_waiting(ONE)
    assert woken == [THREE]


def test_one_that_wants_something_else_waits_no_longer(shards: HeldShards, woken: list[ObjectKey]) -> None:
    shards.take(EAST, ONE)
    shards.take(EAST, TWO)

    shards.stop_waiting(TWO)

    shards.release(ONE)
    assert woken == []
