"""Simulates more seeds: `python -m tests.sim 1000:5000`, or `make sim SEEDS=1000:5000`.

Each seed has three histories: the whole loop, a hub with its agents, and a rollout to a fleet.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

from tests.core.hub import rollout_simulation as rollouts
from tests.sim.agents import history as agents
from tests.sim.history import simulate
from tests.sim.trace import Violation


def _seeds(text: str) -> range:
    first, separator, end = text.partition(":")
    return range(int(first), int(end) if separator else int(first) + 1)


def _simulate(seed: int) -> tuple[int, str, str]:
    """Return the seed, the digests of its histories, and their first violation or an empty string."""
    try:
        return seed, f"{simulate(seed).digest} {agents.simulate(seed).digest} {rollouts.simulate(seed).digest}", ""
    except Violation as violation:
        return seed, "", str(violation)
    except Exception as error:
        return seed, "", "".join(traceback.format_exception(error))


def _simulate_all(seeds: Iterable[int]) -> Iterator[tuple[int, str, str]]:
    numbers = list(seeds)
    if len(numbers) == 1:
        yield _simulate(numbers[0])
        return
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        yield from processes.map(_simulate, numbers, chunksize=8)


def main() -> int:
    """Return 0 if no seed has a violation, else 1."""
    parser = argparse.ArgumentParser(
        description="Simulate the whole loop, a hub with its agents, and a rollout, for each seed."
    )
    parser.add_argument("seeds", nargs="+", type=_seeds, metavar="SEED|FIRST:END")
    parser.add_argument("--digest", action="store_true", help="print digests of the histories")
    arguments = parser.parse_args()
    logging.getLogger("sentinel").addHandler(
        logging.NullHandler()
    )  # hides what services log about simulated faults
    count = failed = 0
    for seed, digest, violation in _simulate_all(chain.from_iterable(arguments.seeds)):
        count += 1
        if violation:
            failed += 1
            sys.stdout.write(f"{violation}\n\n")
        elif arguments.digest:
            sys.stdout.write(f"{seed} {digest}\n")
        sys.stdout.flush()
    if not arguments.digest:
        sys.stdout.write(f"{count} seeds, {failed} with violations\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
