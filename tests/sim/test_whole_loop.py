"""The API, two pulses and four adapters together, under all kinds of faults.

Whatever happens, no checker finds a violation, and after the faults every resource becomes ready and every deleted
one is removed. Planted faults show that the checkers work: each must be found within a few seeds.

`make sim SEEDS=1000:5000` simulates more seeds. Add a seed that fails to `seeds.txt`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest

from tests.core.hub import rollout_simulation as rollouts
from tests.sim import planted_faults
from tests.sim.agents import history as agents
from tests.sim.history import Summary, simulate
from tests.sim.trace import first_violation

SEEDS = range(25)
"""CI simulates more of them, on all cores."""
FEW_SEEDS = range(40)
"""A planted fault must be found within these seeds."""

ACKED_TOO_EARLY = "is acked before its report was answered"


@cache
def history(seed: int) -> Summary:
    """Simulate a seed once for all tests."""
    return simulate(seed)


def seeds_with_past_violations() -> list[int]:
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("seed", sorted({*SEEDS, *seeds_with_past_violations()}))
def test_a_history_has_no_violation_and_converges(seed: int) -> None:
    history(seed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("WITHOUT_PACING", "a storm"),
        ("UNSTABLE_AVAILABLE", "Available contradicts the reports on .*: it is False"),
        ("EARLY_ACKS", ACKED_TOO_EARLY),
        ("WITHOUT_REPUBLISHING", "is paced without a reason"),
        ("IGNORED_EVENTS", "after the last fault .* is not (ready|gone)"),
        ("CHANGING_TRANSITION_TIMES", "Available contradicts"),
        ("LOST_REPORTS", "a report was accepted but never stored"),
        ("REMOVED_REPORTS", "the report of an adapter has disappeared: .* validation"),
        ("FALLING_GENERATIONS", "a generation must rise by one"),
        ("RAISING_MAINTENANCE", "maintenance: unexpected error"),
        ("RAISING_LATE_REPORTS", "api: unexpected error"),
        ("FORGOTTEN_WORK", "a report was discarded wrongly"),
        ("IGNORED_REQUESTS", ACKED_TOO_EARLY),
        ("IGNORED_PROGRESS", ACKED_TOO_EARLY),
        ("IGNORED_INTERRUPTIONS", ACKED_TOO_EARLY),
        ("FORGOTTEN_STREAMED", "the stream publishes .*, which is no news"),
        ("REPEATED_STREAMED", "a storm"),
        ("ENDLESS_STREAMED", "is paced without a reason"),
        ("BELIEVED_STREAM", "the stream publishes .*, which is no news"),
    ],
)
def test_a_planted_fault_is_found(name: str, message: str) -> None:
    planted = getattr(planted_faults, name)

    violation = first_violation(partial(simulate, planted=planted), FEW_SEEDS)

    assert re.search(rf"^seed \d+: .*{message}.*\n\nrepeat with: make sim SEEDS=\d+$", violation, re.MULTILINE)


def test_some_seeds_interrupt_an_adapter_at_work() -> None:
    assert any(history(seed).interruptions for seed in FEW_SEEDS)


def test_a_seed_has_the_same_history_in_every_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "3", "--digest"],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
            timeout=90,
        ).stdout
        for salt in ("1", "2")
    }

    assert digests == {f"3 {history(3).digest} {agents.simulate(3).digest} {rollouts.simulate(3).digest}\n"}
