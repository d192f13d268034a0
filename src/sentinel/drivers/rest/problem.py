"""What a server says about a refusal: problem+json as RFC 9457 has it, and what other servers send instead."""

from __future__ import annotations

import msgspec

from sentinel.core.model import UNREADABLE


class FieldError(msgspec.Struct, frozen=True):
    """What a problem says about one field."""

    field: str = ""
    message: str = ""
    line: int | None = None
    """In a text that was sent, counted from 1, as is the column."""
    column: int | None = None

    def __str__(self) -> str:
        named = f"{self.field}: {self.message}" if self.field else self.message
        return named if self.line is None else f"{named} (line {self.line}, column {self.column or 1})"


class Problem(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    code: str = ""
    """For programs; see `core.problem_codes`."""
    detail: str = ""
    reason: str = ""
    message: str = ""
    title: str = ""
    errors: tuple[FieldError, ...] | None = None

    @property
    def field_errors(self) -> tuple[FieldError, ...]:
        """What it says about single fields; empty where the server says null, or nothing."""
        return self.errors or ()

    @property
    def text(self) -> str:
        """What it says in words, the most telling that there are."""
        return self.detail or self.reason or self.message or self.title

    @property
    def full_text(self) -> str:
        """The text, and the fields that it does not mention."""
        fields = "; ".join(map(str, self.field_errors))
        if not fields or fields in self.text:
            return self.text
        return f"{self.text}: {fields}" if self.text else fields


def read_problem(body: bytes) -> Problem | None:
    """The problem that a body is; None for anything else."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return None


def explanation(body: bytes, *, content_type: str) -> str:
    """A refusal in the server's words; empty for a page of HTML, which says nothing in one line."""
    problem = read_problem(body)
    if problem is not None:
        return problem.full_text
    return "" if "html" in content_type else body.decode("utf-8", "replace")
