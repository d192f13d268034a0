"""The command line that the benchmarks of a single figure share."""

from __future__ import annotations

import argparse

import msgspec

DEFAULT_ROUNDS = 7


def make_parser(module: str, docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options, described by the first line of the module's docstring."""
    summary = (docstring or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m bench.{module}", description=summary)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    return parser


def print_json(result: msgspec.Struct, **computed: float) -> None:
    """Print the fields of a result, and what its properties compute."""
    print(msgspec.json.encode(msgspec.structs.asdict(result) | computed).decode())
