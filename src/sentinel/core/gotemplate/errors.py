"""What can go wrong with a template: before it runs, while it runs, and what it lacked.

A text that is not a template is refused once, at the start, with its place; a template that cannot be evaluated on
one resource fails for that resource alone. Neither ever repeats a value of the document: it may be a secret.
"""

from __future__ import annotations

from typing import Final

NOWHERE: Final = -1


class TemplateError(ValueError):
    """A text that cannot be compiled: what is wrong, and where within the text."""

    def __init__(self, problem: str, *, line: int, column: int) -> None:
        super().__init__(f"{problem} (line {line}, column {column} of the template)")
        self.problem = problem
        self.line = line
        self.column = column


class Failed(ValueError):
    """The template cannot be evaluated on this document; the text says why."""


class Missing(LookupError):
    """The template prints what the document does not have."""

    def __init__(self, text: str) -> None:
        super().__init__("the document lacks a field that is printed")
        self.text = text
        """What was printed all the same."""


class Trouble(Failed):
    """A failure at an offset within the source; whoever knows the source says which line that is."""

    def __init__(self, problem: str, at: int = NOWHERE) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at


def position(source: str, at: int) -> tuple[int, int]:
    """Line and column of an offset, both counted from one."""
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)
