"""The KDL parser survives broken files for minutes, and large ones take no more than their share of time."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from sentinel.core import kdl
from tests.core.kdl.fuzzing import fuzz
from tests.core.kdl.test_limits import HOSTILE

_DURATION = timedelta(minutes=2)


@pytest.mark.timeout(300)
def test_broken_files_are_read_for_minutes() -> None:
    # Other files than those of the short test.
    assert fuzz(seeds=lambda number: 10_000_000 + number, duration=_DURATION) > 0


@pytest.mark.parametrize("unit", HOSTILE)
def test_four_times_the_text_takes_about_four_times_the_cpu(unit: str) -> None:
    # Other load slows a measurement down, but hardly each of three.
    assert any(seconds(unit * 32_000) < 8 * seconds(unit * 8_000) + 0.05 for _ in range(3))


def seconds(text: str) -> float:
    start = time.process_time()
    kdl.upgrade(text)
    return time.process_time() - start
