from __future__ import annotations

from collections import Counter

import pytest

from sentinel.core.hub import rollout
from tests.core.hub import rollout_faults
from tests.core.hub.rollout_simulation import Faults, World, check_end
from tests.support.examples import examples

CALM = Faults()
BAD = Faults(bad=0.1)
ROUGH = Faults(loss=0.2, duplication=0.2, max_delay=20.0, hub_crash=0.02, agent_crash=0.02, bad=0.01, reject=0.01)

IN_SIMULATION = (
    rollout_faults.leaves_completed_ones_behind,
    rollout_faults.keeps_the_assignment_of_a_failed_one,
    rollout_faults.believes_a_late_success,
    rollout_faults.does_not_wait_for_the_batch,
    rollout_faults.goes_back_to_the_same_version_everywhere,
    rollout_faults.does_not_await_the_failed_ones,
    rollout_faults.sends_again_what_is_done,
)
"""Those that need no user and are found soon."""


def outcome(seed: int, faults: Faults) -> str:
    world = World(seed, faults)
    world.run()
    return check_end(world)


def test_without_faults_the_fleet_is_all_new() -> None:
    assert Counter(outcome(seed, CALM) for seed in range(5)) == {"all new": 5}


def test_a_bad_version_ends_as_it_is_reported() -> None:
    ends = Counter(outcome(seed, BAD) for seed in range(examples(50)))

    assert ends["all old"] > 0


def test_under_faults_the_fleet_ends_new_old_or_as_reported() -> None:
    ends = Counter(outcome(seed, ROUGH) for seed in range(examples(150)))

    assert {"all old", "as reported"} <= set(ends)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    first, second = World(seed, ROUGH), World(seed, ROUGH)

    first.run()
    second.run()

    assert first.hub.rollout == second.hub.rollout
    assert first.now == second.now


@pytest.mark.parametrize("fault", IN_SIMULATION, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: rollout_faults.Fault) -> None:
    with pytest.raises(AssertionError):
        simulate_many(fault)


def simulate_many(fault: rollout_faults.Fault) -> None:
    for seed in range(100):
        world = World(seed, ROUGH, advance=fault(rollout.advance))
        world.run()
        check_end(world)
