"""Why a request cannot be carried out, and what its sender is told.

Refusals are raised within a transaction, so that nothing of it remains. They say nothing of HTTP: there, each
becomes a problem.
"""

from __future__ import annotations

from sentinel.ports.errors import Unavailable
from sentinel.web import problem
from sentinel.web.problem import FieldError
from sentinel.web.routing import Answer, Handler, Request


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


def translating(handler: Handler) -> Handler:
    """The handler, with refusals turned into problems."""

    async def translated(request: Request) -> Answer:
        try:
            return await handler(request)
        except Invalid as error:
            raise problem.bad_fields(error.errors) from None
        except NotFound as error:
            raise problem.not_found(str(error)) from None
        except Conflict as error:
            raise problem.conflict(str(error)) from None
        except PreconditionFailed as error:
            raise problem.precondition_failed(str(error)) from None
        except Unavailable as error:
            raise problem.unavailable("the database does not answer") from error

    return translated
