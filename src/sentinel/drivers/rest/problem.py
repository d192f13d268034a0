"""Reading error bodies: problem+json (RFC 9457), and the similar objects that other servers send.

The errors about single fields are in `errors`, or in `details` of earlier releases of the public API. Each is an
object, or only its text. Some servers send an object with the field names as keys instead of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json

_FIELD_NAMES = ("field", "pointer")
_MESSAGE_NAMES = ("message", "error", "detail", "reason")
_MAX_TEXT = 150
"""A longer text of a problem is shortened if field errors follow it, so that they are not cut off."""


class ReceivedFieldError(msgspec.Struct, frozen=True):
    """An error about one field of the request, or about one place in a text that was sent."""

    field: str = ""
    message: str = ""
    line: int | None = None
    """Counted from 1, as is the column."""
    column: int | None = None
    level: int | None = None
    """The level of the check that found it: 1 syntax, 2 schema, 3 semantics."""
    code: str = ""
    """For programs."""
    suggestion: str = ""

    def __str__(self) -> str:
        named = f"{self.field}: {self.message}" if self.field else self.message
        return named if self.line is None else f"{named} (line {self.line}, column {self.column or 1})"


class _ProblemTexts(msgspec.Struct, frozen=True):
    code: str = ""
    """For programs; see `core.problem_codes`."""
    detail: str = ""
    reason: str = ""
    message: str = ""
    title: str = ""


class _WireProblem(_ProblemTexts, frozen=True):
    errors: msgspec.Raw = msgspec.Raw(b"null")
    """Decoded separately: errors of an unexpected shape must not hide the code."""
    details: msgspec.Raw = msgspec.Raw(b"null")


class ReceivedProblem(_ProblemTexts, frozen=True):
    """The body of an error response."""

    field_errors: tuple[ReceivedFieldError, ...] = ()
    """Those that could be decoded."""

    def redacted(self, redact: Callable[[str], str]) -> ReceivedProblem:
        """Redact every text: a server may echo the request."""
        return msgspec.structs.replace(
            self,
            **{name: redact(getattr(self, name)) for name in _ProblemTexts.__struct_fields__},
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
        """The most specific text of the problem."""
        return self.detail or self.reason or self.message or self.title

    @property
    def full_text(self) -> str:
        """The text, followed by the field errors that it does not contain."""
        fields = "; ".join(map(str, self.field_errors))
        if not fields or fields in self.text:
            return self.text
        text = self.text if len(self.text) <= _MAX_TEXT else f"{self.text[:_MAX_TEXT]}…"
        return f"{text}: {fields}" if text else fields


def read_problem(body: bytes) -> ReceivedProblem | None:
    """Decode a body; return None if it is not a problem."""
    try:
        sent = msgspec.json.decode(body, type=_WireProblem)
    except DECODE_ERRORS:
        return None
    errors = (*_field_errors(sent.errors), *_field_errors(sent.details))
    return ReceivedProblem(sent.code, sent.detail, sent.reason, sent.message, sent.title, errors)


def _field_errors(encoded: msgspec.Raw) -> Iterator[ReceivedFieldError]:
    """Yield the errors that have a known shape."""
    try:
        errors: Json = msgspec.json.decode(encoded)
    except DECODE_ERRORS:
        return
    entries = _with_fields(errors) if isinstance(errors, dict) else errors
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, str):
            entry = {"message": entry}
        if isinstance(entry, dict):
            with suppress(msgspec.ValidationError):
                error = msgspec.convert(
                    {**entry, "field": _first(entry, _FIELD_NAMES), "message": _first(entry, _MESSAGE_NAMES)},
                    ReceivedFieldError,
                )
                if error.field or error.message:
                    yield error


def _with_fields(errors: dict[str, Json]) -> list[Json]:
    """Return the errors of an object that has a text, or a list of texts, for each field."""
    return [
        {"field": field, "message": text}
        for field, texts in errors.items()
        for text in (texts if isinstance(texts, list) else [texts])
        if isinstance(text, str)
    ]


def _first(entry: dict[str, Json], names: tuple[str, ...]) -> Json:
    """Return the first of these members that is there, or ""."""
    return next((entry[name] for name in names if entry.get(name)), "")


def explanation(problem: ReceivedProblem | None, body: bytes, *, content_type: str) -> str:
    """Return the server's explanation of an error; "" for an HTML page, which says nothing in one line.

    A problem without text whose errors have an unknown shape is returned as it is.
    """
    if problem is not None and (problem.full_text or b'"errors"' not in body):
        return problem.full_text
    return "" if "html" in content_type else body.decode("utf-8", "replace")
