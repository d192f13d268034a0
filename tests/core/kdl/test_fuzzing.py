"""No broken file makes the parser fail, or say something about a place that the file does not have."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from sentinel.core import kdl
from tests.core.kdl.fuzzing import DOCUMENTS, broken, check, fuzz


def test_broken_files_are_read_for_ten_seconds() -> None:
    count = fuzz(seeds=lambda number: number, duration=timedelta(seconds=10))

    assert count > 0


@pytest.mark.parametrize("data", DOCUMENTS)
def test_a_file_cut_anywhere_is_read(data: bytes) -> None:
    for end in range(0, len(data), 7):
        check(data[:end])


def test_most_broken_files_have_problems_but_not_all_of_them() -> None:
    found = [kdl.parse(broken(Random(seed))).is_valid for seed in range(200)]  # noqa: S311  # reproducible

    assert 10 < sum(found) < 100
