"""Rollouts under faults with five times the seeds of `make test`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.core.hub.rollout_simulation import simulate

SEEDS = range(10_000, 11_000)


@pytest.mark.timeout(900)
def test_under_faults_the_fleet_ends_new_old_or_as_reported() -> None:
    ends = Counter(simulate(seed).end for seed in SEEDS)

    assert set(ends) == {"all new", "all old", "as reported"}
