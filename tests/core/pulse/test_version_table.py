"""The table of versions says what a dict would say."""

from __future__ import annotations

import random
import sys

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse.version_table import VersionTable

KEYS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(2, 6).map(lambda number: number << 40),  # the same slot
    st.integers(2, 6).map(lambda number: (number << 40) - 1),  # the last slot, so that the search wraps around
    st.sampled_from([2, 3, -1, -2]),
)
NUMBERS = st.one_of(st.integers(0, 5), st.integers(0, 2**124), st.sampled_from([2**64 - 2, 2**64 - 1, 2**64]))


@given(st.lists(st.tuples(KEYS.filter(lambda key: key not in (0, 1)), NUMBERS)), st.lists(KEYS))
def test_a_table_is_like_a_dict(writes: list[tuple[int, int]], others: list[int]) -> None:
    table, expected = VersionTable(), dict[int, int]()

    for key, number in writes:
        table.put(key, number)
        expected[key] = number

    assert len(table) == len(expected)
    assert {key: table.get(key) for key in expected} == expected
    assert all(table.get(key) == expected.get(key) for key in others if key not in (0, 1))


def test_a_table_that_grows_keeps_everything() -> None:
    numbers = random.Random(1)  # noqa: S311  # the same keys every time
    expected = {numbers.getrandbits(64) - 2**63: numbers.choice((3, 2**48 + 1, 2**100)) for _ in range(10_000)}
    table = VersionTable()

    for key, number in expected.items():
        table.put(key, 1)
        table.put(key, number)

    assert len(table) == len(expected)
    assert all(table.get(key) == number for key, number in expected.items())
    assert table.get(numbers.getrandbits(63)) is None


def test_the_key_zero_has_a_number_too() -> None:
    table = VersionTable()
    before = table.get(0)

    table.put(0, 7)

    assert (before, table.get(0), len(table)) == (None, 7, 1)


def test_a_large_number_may_become_small_and_large_again() -> None:
    table = VersionTable()
    found = []
    for number in (2**90, 4, 2**64 - 1, 0):
        table.put(99, number)
        found.append(table.get(99))

    assert found == [2**90, 4, 2**64 - 1, 0]


def test_a_cleared_table_is_empty_and_works() -> None:
    table = VersionTable()
    for key in range(1, 5000):
        table.put(key, 2**70)

    table.clear()
    table.put(3, 4)

    assert (len(table), table.get(2), table.get(3)) == (1, None, 4)


def test_a_table_takes_half_of_the_memory_of_a_dict() -> None:
    numbers = random.Random(2)  # noqa: S311  # the same keys every time
    keys = [numbers.getrandbits(64) - 2**63 for _ in range(100_000)]
    table, plain = VersionTable(), dict.fromkeys(keys, 1)

    for key in keys:
        table.put(key, 1)

    of_dict = sys.getsizeof(plain) + sum(map(sys.getsizeof, plain))
    of_table = sum(sys.getsizeof(each) for each in vars(table).values())
    assert of_table < of_dict / 2
