"""Errors that use cases raise, independent of HTTP.

The application turns each into a problem. One that is raised inside a transaction rolls it back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sentinel.ports.errors import Unavailable
from sentinel.web import problem
from sentinel.web.problem import FieldError, Problem


class NotFound(Exception):
    """The resource does not exist; the text names it."""


class Conflict(Exception):
    """The state of the resource does not allow this; the text says why."""


class PreconditionFailed(Exception):
    """The resource has changed since the client read it."""


class Invalid(Exception):
    """Some fields are invalid."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors


class Unprocessable(Exception):
    """The request is well-formed, but its content cannot be accepted; the text says why.

    `errors` are `FieldError`s, or the component's own structs with more detail, such as a code and a suggestion.
    The route declares those as `error_type`.
    """

    def __init__(self, detail: str, *, errors: Iterable[msgspec.Struct] = ()) -> None:
        super().__init__(detail)
        self.errors = tuple(errors)


def as_problem(error: Exception) -> Problem | None:
    """Return the problem for this error, or None if it is a bug."""
    match error:
        case Problem():
            return error
        case Invalid(errors=errors):
            return problem.bad_fields(errors)
        case Unprocessable(errors=errors):
            return problem.unprocessable(str(error), errors=errors)
        case NotFound():
            return problem.not_found(str(error))
        case Conflict():
            return problem.conflict(str(error))
        case PreconditionFailed():
            return problem.precondition_failed(str(error))
        case Unavailable():
            return problem.unavailable("the database does not answer")
        case _:
            return None
