"""A figure beside what it may be."""

from __future__ import annotations

import msgspec


class Budget(msgspec.Struct, frozen=True):
    """A figure beside what it may be."""

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
