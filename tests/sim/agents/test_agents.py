"""A hub and its agents together, under all kinds of faults.

Whatever happens, no proxy runs what was not assigned to it, no report is false, and after the faults every
instance runs what is assigned to it or says why not. Planted faults show that the checkers work.

`make sim SEEDS=1000:5000` simulates more seeds.
"""

from __future__ import annotations

import re
from functools import cache, partial

import pytest

from tests.sim.agents import planted_faults
from tests.sim.agents.history import Summary, simulate
from tests.sim.trace import first_violation

SEEDS = range(10)
"""CI simulates more of them, on all cores."""
FEW_SEEDS = range(12)
"""A planted fault must be found within these seeds."""
NOT_REACHED = "after the last fault, edge-.: it runs .* instead of .*, and only says"


@cache
def history(seed: int) -> Summary:
    return simulate(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_agents_end_with_what_is_assigned_or_say_truly_why_not(seed: int) -> None:
    history(seed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("UNCHECKED_HEALTH", "never worked there"),
        ("MISSING_RESTORES", "(it runs .*, which does not work|which never ran) there"),
        ("MISSING_RELOADS", "never worked there"),
        ("TORN_WRITES", "the file of .* was never assigned to it: something else"),
        ("IGNORED_NEWS", NOT_REACHED),
        ("UNTOLD_ASSIGNMENTS", NOT_REACHED),
        ("SWAPPED_ASSIGNMENTS", "(never assigned to it|instead of)"),
        ("SWAPPED_CONTENTS", "it says what is not true|which is not true"),
        ("HIDDEN_REASONS", NOT_REACHED),
        ("FALSE_HEARTBEATS", "a heartbeat says that it was applied, but .* never worked there"),
        ("FALSE_REASONS", "has failed, which is not true"),
        ("EARLY_COMPLETIONS", "reports COMPLETED, but .* never worked there"),
        ("MIXED_DEPLOYMENTS", "reports on a deployment that does not exist"),
        ("RESTING_RUNNER", "the deployment . is running"),
    ],
)
def test_a_planted_fault_is_found(name: str, message: str) -> None:
    planted = getattr(planted_faults, name)

    violation = first_violation(partial(simulate, planted=planted), FEW_SEEDS)

    assert re.search(rf"^seed \d+: .*{message}.*\n\nrepeat with: make sim SEEDS=\d+$", violation, re.MULTILINE)


def test_the_seeds_contain_what_has_to_be_survived() -> None:
    histories = [history(seed) for seed in SEEDS]

    assert sum(each.deployments for each in histories) > 20
    assert any(each.rollbacks for each in histories)
    assert any(each.failures for each in histories)


def test_a_seed_has_the_same_history_twice() -> None:
    assert simulate(3) == history(3)
