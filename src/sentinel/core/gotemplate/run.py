"""The state of one execution, and the account of what it has done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sentinel.core.gotemplate.errors import Trouble
from sentinel.core.gotemplate.printer import Output
from sentinel.core.gotemplate.values import Slot, Value

MOST_STEPS: Final = 100_000
"""How much a run may do; well under a second."""


class Run:
    """The state of one execution."""

    __slots__ = ("calls", "dot", "lacks", "loops", "out", "scopes", "steps", "variables")

    def __init__(self, document: Value) -> None:
        self.dot: Slot = document
        self.variables: list[tuple[str, Slot]] = [("$", document)]
        """As in Go, a stack that is searched from its top: what is declared depends on what has been evaluated."""
        self.scopes: list[tuple[Slot, int]] = []
        self.loops: list[Loop] = []
        self.calls: list[tuple[int, Slot, list[tuple[str, Slot]]]] = []
        self.out = Output()
        self.steps = MOST_STEPS
        self.lacks = False
        """Whether something absent was printed."""

    def spend(self, steps: int) -> None:
        """Accounts for work."""
        self.steps -= steps
        if self.steps < 0:
            raise Trouble(f"stopped after {MOST_STEPS} steps: a loop or a recursion without end?")

    def get(self, name: str, at: int) -> Slot:
        """The variable of this name that was declared last."""
        for known, slot in reversed(self.variables):
            if known == name:
                return slot
        raise Trouble(f"undefined variable: {name}", at)

    def set(self, name: str, slot: Slot, at: int) -> None:
        """Assigns to the variable of this name that was declared last."""
        for index in range(len(self.variables) - 1, -1, -1):
            if self.variables[index][0] == name:
                self.variables[index] = name, slot
                return
        raise Trouble(f"undefined variable: {name}", at)


class Loop:
    """A `range` under way."""

    __slots__ = ("depth", "mark", "members")

    def __init__(self, members: Iterator[tuple[Slot, Slot]], mark: int, depth: int) -> None:
        self.members = members
        self.mark = mark
        self.depth = depth
