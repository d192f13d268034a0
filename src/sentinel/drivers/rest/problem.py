"""What a server says about a refusal: problem+json as RFC 9457 has it, and what other servers send instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from sentinel.core.json import DECODE_ERRORS


class ReceivedFieldError(msgspec.Struct, frozen=True):
    """What a problem says about one field, or about one place in a text that was sent."""

    field: str = ""
    message: str = ""
    line: int | None = None
    """Counted from 1, as is the column."""
    column: int | None = None
    level: int | None = None
    """How deep a check went that found it: 1 syntax, 2 schema, 3 meaning."""
    code: str = ""
    """For programs."""
    suggestion: str = ""

    def __str__(self) -> str:
        named = f"{self.field}: {self.message}" if self.field else self.message
        return named if self.line is None else f"{named} (line {self.line}, column {self.column or 1})"


class _Sent(msgspec.Struct, frozen=True):
    """A problem as it came, its errors not decoded yet: one of an unexpected shape must not hide the code."""

    code: str = ""
    detail: str = ""
    reason: str = ""
    message: str = ""
    title: str = ""
    errors: msgspec.Raw = msgspec.Raw(b"null")


class ReceivedProblem(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    code: str = ""
    """For programs; see `core.problem_codes`."""
    detail: str = ""
    reason: str = ""
    message: str = ""
    title: str = ""
    field_errors: tuple[ReceivedFieldError, ...] = ()
    """What it says about single fields, as far as it can be read."""

    def redacted(self, redact: Callable[[str], str]) -> ReceivedProblem:
        """The problem with every text redacted: a server may echo what it was sent."""
        return ReceivedProblem(
            code=redact(self.code),
            detail=redact(self.detail),
            reason=redact(self.reason),
            message=redact(self.message),
            title=redact(self.title),
            field_errors=tuple(
                msgspec.structs.replace(
                    error,
                    field=redact(error.field),
                    message=redact(error.message),
                    code=redact(error.code),
                    suggestion=redact(error.suggestion),
                )
                for error in self.field_errors
            ),
        )

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


def read_problem(body: bytes) -> ReceivedProblem | None:
    """The problem that a body is; None for anything else."""
    try:
        sent = msgspec.json.decode(body, type=_Sent)
    except DECODE_ERRORS:
        return None
    return ReceivedProblem(
        sent.code, sent.detail, sent.reason, sent.message, sent.title, tuple(_errors(sent.errors))
    )


def _errors(sent: msgspec.Raw) -> Iterator[ReceivedFieldError]:
    try:
        entries = msgspec.json.decode(sent, type=list[msgspec.Raw] | None)
    except DECODE_ERRORS:
        return
    for entry in entries or ():
        with suppress(*DECODE_ERRORS):
            yield msgspec.json.decode(entry, type=ReceivedFieldError)


def explanation(problem: ReceivedProblem | None, body: bytes, *, content_type: str) -> str:
    """A refusal in the server's words; empty for a page of HTML, which says nothing in one line.

    A problem that says nothing but errors of another shape is shown as it came.
    """
    if problem is not None and (problem.full_text or b'"errors"' not in body):
        return problem.full_text
    return "" if "html" in content_type else body.decode("utf-8", "replace")
