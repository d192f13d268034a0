"""Why a request cannot be carried out. Raised within a transaction, so that nothing of it remains."""

from __future__ import annotations

from sentinel.web.problem import FieldError


class NotFound(Exception):
    """There is no such resource; the text says which."""


class Conflict(Exception):
    """The resource is not in a state that allows this; the text says why."""


class PreconditionFailed(Exception):
    """The resource is no longer what the client has seen."""


class KeyReused(Exception):
    """An idempotency key came with another request than at first."""


class Invalid(Exception):
    """Fields that cannot be taken as they are."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors
