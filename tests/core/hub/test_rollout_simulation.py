from __future__ import annotations

from collections import Counter

import pytest

from sentinel.core.hub import rollout
from tests.core.hub import rollout_faults, rollout_hub_faults
from tests.core.hub.rollout_checker import Advance
from tests.core.hub.rollout_simulation import Faults, Hub, simulate
from tests.support.examples import examples

CALM = Faults()
BAD = Faults(bad=0.1)
SEEDS = range(examples(1_000))
"""A fifth of these in `make test`. `make e2e` and `make sim` simulate others."""

IN_SIMULATION = (
    rollout_faults.leaves_completed_ones_behind,
    rollout_faults.keeps_the_assignment_of_a_failed_one,
    rollout_faults.does_not_ask_which_way_a_report_is_about,
    rollout_faults.does_not_wait_for_the_batch,
    rollout_faults.forgets_earlier_failures,
    rollout_faults.goes_back_to_the_same_version_everywhere,
    rollout_faults.does_not_await_the_failed_ones,
    rollout_faults.sends_again_what_is_done,
    rollout_faults.leaves_rows_waiting,
)
"""Those that are found soon. The property test finds all."""


def test_without_faults_the_fleet_is_all_new() -> None:
    assert Counter(simulate(seed, CALM).end for seed in range(5)) == {"all new": 5}


def test_a_bad_version_ends_as_it_is_reported() -> None:
    ends = Counter(simulate(seed, BAD).end for seed in range(examples(50)))

    assert ends["all old"] > 0


def test_under_faults_the_fleet_ends_new_old_or_as_reported() -> None:
    ends = Counter(simulate(seed).end for seed in SEEDS)

    assert len(SEEDS) >= 200
    assert set(ends) == {"all new", "all old", "as reported"}
    assert min(ends.values()) > len(SEEDS) / 20


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert simulate(seed) == simulate(seed)


@pytest.mark.parametrize("fault", IN_SIMULATION, ids=lambda fault: fault.__name__)
def test_a_planted_fault_of_the_rollout_is_found(fault: rollout_faults.Fault) -> None:
    with pytest.raises(AssertionError, match="repeat with: make sim SEEDS="):
        simulate_many(advance=fault(rollout.advance))


@pytest.mark.parametrize("hub", rollout_hub_faults.ALL, ids=lambda hub: hub.__name__)
def test_a_planted_fault_of_the_hub_is_found(hub: type[Hub]) -> None:
    with pytest.raises(AssertionError):
        simulate_many(hub=hub)


def simulate_many(*, advance: Advance = rollout.advance, hub: type[Hub] = Hub) -> None:
    for seed in range(100):
        simulate(seed, advance=advance, hub=hub)
