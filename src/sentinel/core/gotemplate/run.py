"""The state of one execution of a template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sentinel.core.gotemplate.errors import RenderError
from sentinel.core.gotemplate.printer import OutputBuffer
from sentinel.core.gotemplate.values import Slot, Value

MAX_STEPS: Final = 100_000
"""The maximum number of steps of a run; takes well under a second."""


class Run:
    """One execution: dot, variables, scopes, output, and the steps that are left."""

    __slots__ = ("calls", "dot", "has_missing", "loops", "out", "scopes", "steps", "variables")

    def __init__(self, document: Value) -> None:
        self.dot: Slot = document
        self.variables: list[tuple[str, Slot]] = [("$", document)]
        """A stack that is searched from its top, as in Go: which variables exist depends on what was evaluated."""
        self.scopes: list[tuple[Slot, int]] = []
        self.loops: list[Loop] = []
        self.calls: list[tuple[int, Slot, list[tuple[str, Slot]]]] = []
        self.out = OutputBuffer()
        self.steps = MAX_STEPS
        self.has_missing = False
        """Whether a missing field was printed."""

    def spend(self, steps: int) -> None:
        """Count steps. Raises `RenderError` if there are too many."""
        self.steps -= steps
        if self.steps < 0:
            raise RenderError(f"stopped after {MAX_STEPS} steps: a loop or a recursion without end?")

    def get(self, name: str, at: int) -> Slot:
        """Return the innermost variable of this name."""
        for known, slot in reversed(self.variables):
            if known == name:
                return slot
        raise RenderError(f"undefined variable: {name}", at)

    def set(self, name: str, slot: Slot, at: int) -> None:
        """Assign to the innermost variable of this name."""
        for index in range(len(self.variables) - 1, -1, -1):
            if self.variables[index][0] == name:
                self.variables[index] = name, slot
                return
        raise RenderError(f"undefined variable: {name}", at)


class Loop:
    """A running `range`."""

    __slots__ = ("depth", "mark", "members")

    def __init__(self, members: Iterator[tuple[Slot, Slot]], mark: int, depth: int) -> None:
        self.members = members
        self.mark = mark
        self.depth = depth
