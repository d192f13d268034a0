"""The command lines of the benchmarks."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from bench.budget import Budget, print_budgets

DEFAULT_ROUNDS = 7

Figures = TypeVar("Figures")


def make_parser(module: str, docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options, described by the first line of the module's docstring."""
    parser = _make_parser(module, docstring)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    return parser


def print_json(result: msgspec.Struct, **computed: float) -> None:
    """Print the fields of a result, and what its properties compute."""
    print(msgspec.json.encode(msgspec.structs.asdict(result) | computed).decode())


def main(
    module: str,
    docstring: str | None,
    measure: Callable[..., Figures | Coroutine[Any, Any, Figures]],
    budgets: Callable[[Figures], Sequence[Budget]],
    section: Callable[[Figures], Sequence[str]] | None = None,
    **options: int,
) -> int:
    """Measure, and print the section and the budgets, or the figures as JSON.

    `options` are arguments of `measure` and their defaults; each is an option of the command line.
    Returns the exit code: 1 if a limit is exceeded.
    """
    parser = _make_parser(module, docstring)
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    output = given.pop("output")
    measured = measure(**given)
    figures = asyncio.run(measured) if isinstance(measured, Coroutine) else measured
    within = budgets(figures)
    if output == "json":
        print(msgspec.json.encode(figures).decode())
        return 0 if all(budget.is_kept for budget in within) else 1
    if section is not None:
        print("\n".join(section(figures)))
    return print_budgets(within)


def _make_parser(module: str, docstring: str | None) -> argparse.ArgumentParser:
    summary = (docstring or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m bench.{module}", description=summary)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    return parser
