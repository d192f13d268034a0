"""The errors of templates.

A source that is not a template is rejected once, with the position of the error. A template that cannot be
rendered for one document fails for that document only. No message contains a value of the document: it may be a
secret.
"""

from __future__ import annotations

from typing import Final

NO_OFFSET: Final = -1


class TemplateError(ValueError):
    """A source that cannot be compiled: what is wrong, and where."""

    def __init__(self, problem: str, *, line: int, column: int) -> None:
        super().__init__(f"{problem} (line {line}, column {column} of the template)")
        self.problem = problem
        self.line = line
        self.column = column


class RenderError(ValueError):
    """The template cannot be rendered for this document."""

    def __init__(self, problem: str, at: int = NO_OFFSET) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at
        """The offset in the source, while the template runs."""


class MissingField(LookupError):
    """The template prints a field that the document does not have."""

    def __init__(self, text: str) -> None:
        super().__init__("the document lacks a field that is printed")
        self.text = text
        """The rendered text."""


def position(source: str, at: int) -> tuple[int, int]:
    """Return line and column of an offset, both counted from one."""
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)
