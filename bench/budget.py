"""Measured figures and their limits, and the tables that show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class Budget(msgspec.Struct, frozen=True):
    """A figure and its limit."""

    what: str
    figure: float
    unit: str
    limit: float
    is_floor: bool = False

    @property
    def is_kept(self) -> bool:
        return self.figure >= self.limit if self.is_floor else self.figure <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.is_floor else "≤"
        return f"{self.what} | {self.figure:.2f} {self.unit} | {sign} {self.limit:g} {self.unit}"


def print_budgets(budgets: Iterable[Budget]) -> int:
    """Print each budget. Returns the exit code: 1 if a limit is exceeded."""
    code = 0
    for budget in budgets:
        print(f"{'ok  ' if budget.is_kept else 'OVER'} {budget}")
        code = code if budget.is_kept else 1
    return code


def print_progress(what: str) -> None:
    """Print what is being measured."""
    print(f"measuring {what} ...", flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [_row(columns), f"|{'---|' * len(columns)}", *map(_row, rows)]


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
