"""Simulates seeds that the tests do not: `python -m tests.sim 1000:5000`, or `make sim SEEDS=1000:5000`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain

from tests.sim.history import simulate
from tests.sim.trace import Violation


def _seeds(text: str) -> range:
    first, separator, end = text.partition(":")
    return range(int(first), int(end) if separator else int(first) + 1)


def _tried(seed: int) -> tuple[int, str, str]:
    """The seed, its history's digest, and what it has found."""
    try:
        return seed, simulate(seed).digest, ""
    except Violation as violation:
        return seed, "", str(violation)


def _all_tried(seeds: Iterable[int]) -> Iterator[tuple[int, str, str]]:
    numbers = list(seeds)
    if len(numbers) == 1:
        yield _tried(numbers[0])
        return
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        yield from processes.map(_tried, numbers, chunksize=8)


def main() -> int:
    """0 where nothing was found, else 1."""
    parser = argparse.ArgumentParser(description="Simulates the whole loop, one history for each seed.")
    parser.add_argument("seeds", nargs="+", type=_seeds, metavar="SEED|FIRST:END")
    parser.add_argument("--digest", action="store_true", help="print what tells one history from another")
    arguments = parser.parse_args()
    logging.getLogger("sentinel").addHandler(logging.NullHandler())  # what services log about faults is no news
    tried = failed = 0
    for seed, digest, found in _all_tried(chain.from_iterable(arguments.seeds)):
        tried += 1
        if found:
            failed += 1
            sys.stdout.write(f"{found}\n\n")
        elif arguments.digest:
            sys.stdout.write(f"{seed} {digest}\n")
        sys.stdout.flush()
    if not arguments.digest:
        sys.stdout.write(f"{tried} seeds, {failed} of them found something\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
