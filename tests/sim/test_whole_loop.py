"""The API, two pulses and four adapters together, under everything that goes wrong: many seeds, one claim.

Whatever happens, nothing that must never be is ever seen (`fleet_witness`, `pulse_witness`, `message_witness`),
and when the faults have stopped every resource becomes ready, and every deleted one goes. That this is worth
something is shown by planting faults: each has to be found, and within a few seeds.

`make sim SEEDS=1000:5000` tries seeds that nobody has tried before; one that fails belongs into `seeds.txt`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import planted
from tests.sim.history import simulate
from tests.sim.trace import Violation
from tests.sim.world import Plan

SEEDS = range(200)
ENOUGH = range(40)
"""Within so many seeds a planted fault has to be found."""


def seeds_that_found_something() -> list[int]:
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def first_violation(plan: Plan) -> str:
    for seed in ENOUGH:
        try:
            simulate(seed, plan)
        except Violation as violation:
            return str(violation)
    return ""


@pytest.mark.parametrize("seed", sorted({*SEEDS, *seeds_that_found_something()}))
def test_nothing_forbidden_ever_happens_and_in_the_end_all_is_well(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        pytest.param(planted.WITHOUT_PACING, "a storm", id="pacing-off"),
        pytest.param(
            planted.WITHOUT_STICKINESS,
            "Available contradicts the reports on .*: it is False",
            id="stickiness-broken",
        ),
        pytest.param(
            planted.ACKNOWLEDGED_TOO_EARLY,
            "is acknowledged before its report was answered",
            id="ack-before-the-report",
        ),
        pytest.param(planted.WITHOUT_REPETITION, "is held back for nothing", id="nothing-said-twice"),
        pytest.param(planted.DEAF, "after the last fault .* is not (ready|gone)", id="adapters-go-deaf"),
        pytest.param(planted.WITH_RESTLESS_TRANSITIONS, "Available contradicts", id="restless-transition-times"),
        pytest.param(
            planted.WITH_LOST_REPORTS, "a report was accepted, and the store never had it", id="lost-reports"
        ),
        pytest.param(
            planted.WITH_FORGOTTEN_REPORTS,
            "the report of an adapter is gone: .* validation",
            id="forgotten-reports",
        ),
        pytest.param(planted.WITH_FALLING_GENERATIONS, "a generation rises by one", id="falling-generations"),
        pytest.param(planted.WITH_STUMBLING_UPKEEP, "upkeep: a fault of our own", id="stumbling-upkeep"),
        pytest.param(planted.WITH_LATE_REPORTS_THAT_FAIL, "api: a fault of our own", id="late-reports-fail"),
        *(
            pytest.param(plan, "is acknowledged before its report was answered", id=f"{what}-overlooked")
            for what, plan in (
                ("requests", planted.OVERLOOKING_REQUESTS),
                ("progress", planted.OVERLOOKING_PROGRESS),
                ("interruptions", planted.OVERLOOKING_INTERRUPTIONS),
            )
        ),
    ],
)
def test_a_planted_fault_is_found(plan: Plan, found: str) -> None:
    violation = first_violation(plan)

    assert re.search(rf"^seed \d+: .*{found}.*\n\nrepeat with: make sim SEEDS=\d+$", violation, re.MULTILINE)


def test_work_is_cut_off_by_the_end_of_an_adapter_within_a_few_seeds() -> None:
    assert any(simulate(seed).interruptions for seed in ENOUGH)


def test_a_seed_is_the_same_history_in_every_process() -> None:
    histories = {
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "3", "--digest"],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for salt in ("1", "2")
    }

    assert histories == {f"3 {simulate(3).digest}\n"}
