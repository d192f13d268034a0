"""Why a request cannot be carried out, in words that know nothing of HTTP.

Use cases raise these; the application translates each into a problem, for the routes of every component. A refusal
raised within a transaction rolls it back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sentinel.ports.errors import Unavailable
from sentinel.web import problem
from sentinel.web.problem import FieldError, Problem


class NotFound(Exception):
    """There is no such resource; the text says which."""


class Conflict(Exception):
    """The resource is not in a state that allows this; the text says why."""


class PreconditionFailed(Exception):
    """The resource is no longer what the client has seen."""


class Invalid(Exception):
    """Fields that cannot be taken as they are."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors


class Unprocessable(Exception):
    """The request is well-formed, but what it contains cannot be accepted; the text says why.

    `errors` are `FieldError`s, or structs of the component's own that say more about its content, such as a code
    and a suggestion. A route whose errors are its own declares them as `error_type`.
    """

    def __init__(self, detail: str, *, errors: Iterable[msgspec.Struct] = ()) -> None:
        super().__init__(detail)
        self.errors = tuple(errors)


def as_problem(error: Exception) -> Problem | None:
    """The problem that answers this error; None if it is not one that a client can be told about."""
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
