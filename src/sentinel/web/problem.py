"""Errors as RFC 9457 problems: one shape for everything that our servers refuse.

A `Problem` is raised where a request cannot be accepted, and the application renders it. Its detail is for
people and says what was expected, what came, and where; its code, one of `core.problem_codes`, is for programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from typing import Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.problem_codes import Code

CONTENT_TYPE: Final = "application/problem+json"

_LONGEST_VALUE = 80


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one field of a request."""

    field: str
    """Its path, such as `spec.rules[0].host`; the name of a parameter or header; empty for a body as a whole."""
    message: str
    line: int | UnsetType = UNSET
    """Of a body that is not JSON."""
    column: int | UnsetType = UNSET


class ProblemDocument(msgspec.Struct, frozen=True):
    """An error, as it goes over the wire."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[FieldError, ...] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    """Under which the server's log has more."""


@cache
def document_type(error_type: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The type of a problem's document whose `errors` are of this type, for OpenAPI."""
    return msgspec.defstruct(
        f"{error_type.__name__}Problem",
        [("errors", tuple[error_type, ...] | UnsetType, UNSET)],  # type: ignore[valid-type]  # made at run time
        bases=(ProblemDocument,),
        module=error_type.__module__,
        frozen=True,
    )


class Problem(Exception):
    """A request that is refused. The application answers with it."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Iterable[FieldError] = (),
        findings: Iterable[msgspec.Struct] = (),
        headers: Mapping[str, str] | None = None,
        request_id: str = "",
    ) -> None:
        """`findings` are entries of `errors` in a shape of the component's own."""
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.findings = tuple(findings)
        self.headers = dict(headers or {})
        self.request_id = request_id

    def encode(self) -> bytes:
        """As `application/problem+json`."""
        # The document's type names the usual entries; msgspec encodes whatever struct is there.
        errors = cast("tuple[FieldError, ...]", (*self.errors, *self.findings))
        return _encode(
            ProblemDocument(
                type="about:blank",
                title=self.status.phrase,
                status=self.status.value,
                detail=self.detail,
                code=self.code,
                errors=errors or UNSET,
                request_id=self.request_id or UNSET,
            )
        )


def bad_field(field: str, message: str) -> Problem:
    """400: one field, parameter or header will not do."""
    return bad_fields([FieldError(field, message)])


def bad_fields(errors: Iterable[FieldError]) -> Problem:
    """400: several will not do, each named."""
    errors = tuple(errors)
    detail = "; ".join(f"{error.field}: {error.message}" if error.field else error.message for error in errors)
    return Problem(HTTPStatus.BAD_REQUEST, Code.INVALID, detail, errors=errors)


def malformed(message: str, *, field: str = "", line: int | None = None, column: int | None = None) -> Problem:
    """400: the body cannot even be read."""
    is_placed = line is not None and column is not None
    error = FieldError(field, message, *((line, column) if is_placed else ()))
    place = f" (line {line}, column {column})" if is_placed else ""
    return Problem(HTTPStatus.BAD_REQUEST, Code.MALFORMED, f"{message}{place}", errors=[error])


def bad_request(detail: str) -> Problem:
    """400: the request as such cannot be understood."""
    return Problem(HTTPStatus.BAD_REQUEST, Code.MALFORMED, detail)


def unauthorized(*, has_token: bool) -> Problem:
    """401: no token, or one that nobody knows. It says no more: whoever guesses should not learn."""
    if has_token:
        challenge, code, detail = (
            'Bearer error="invalid_token"',
            Code.WRONG_CREDENTIALS,
            "expected a bearer token that is known and still valid",
        )
    else:
        challenge, code, detail = (
            "Bearer",
            Code.NO_CREDENTIALS,
            "expected a bearer token in the header Authorization",
        )
    return Problem(HTTPStatus.UNAUTHORIZED, code, detail, headers={"WWW-Authenticate": challenge})


def forbidden(detail: str, *, code: str = Code.NOT_PERMITTED) -> Problem:
    """403: we know who asks, and they may not."""
    return Problem(HTTPStatus.FORBIDDEN, code, detail)


def misdirected(detail: str) -> Problem:
    """421: the request is for another server, by the name that it calls this one."""
    return Problem(HTTPStatus.MISDIRECTED_REQUEST, Code.FOREIGN, detail)


def no_route(path: str) -> Problem:
    """404: there is nothing of this path, whatever might be stored."""
    return Problem(HTTPStatus.NOT_FOUND, Code.NO_ROUTE, f"there is no endpoint {shown(path)}")


def not_found(detail: str) -> Problem:
    """404: the endpoint is there, the resource is not."""
    return Problem(HTTPStatus.NOT_FOUND, Code.NOT_FOUND, detail)


def method_not_allowed(method: str, allowed: Iterable[str]) -> Problem:
    """405."""
    listed = ", ".join(sorted(allowed))
    detail = f"expected one of {listed}, got {shown(method)}"
    return Problem(HTTPStatus.METHOD_NOT_ALLOWED, Code.METHOD_NOT_ALLOWED, detail, headers={"Allow": listed})


def conflict(detail: str) -> Problem:
    """409: it would do, but not with what is there now."""
    return Problem(HTTPStatus.CONFLICT, Code.CONFLICT, detail)


def precondition_failed(detail: str) -> Problem:
    """412: somebody has changed it since the caller looked."""
    return Problem(HTTPStatus.PRECONDITION_FAILED, Code.PRECONDITION_FAILED, detail)


def too_slow(*, part: timedelta, whole: timedelta) -> Problem:
    """408: the body, or the next part of it, does not come."""
    parts, all_of_it = f"{part.total_seconds():g}", f"{whole.total_seconds():g}"
    return Problem(
        HTTPStatus.REQUEST_TIMEOUT,
        Code.BODY_TOO_SLOW,
        f"expected each part of the body within {parts} s and all of it within {all_of_it} s, got less",
        headers={"Connection": "close"},
    )


def payload_too_large(limit: int) -> Problem:
    """413."""
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Code.TOO_LARGE, f"expected a body of at most {limit} bytes, got more"
    )


def unsupported_media_type(detail: str, *, accepted: Iterable[str] = ()) -> Problem:
    """415; with what would be accepted, as RFC 9110 asks for."""
    listed = ", ".join(accepted)
    return Problem(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        Code.UNSUPPORTED_MEDIA_TYPE,
        detail,
        headers={"Accept": listed} if listed else {},
    )


def unprocessable(detail: str, *, errors: Iterable[msgspec.Struct] = ()) -> Problem:
    """422: every field is valid, but they contradict each other; or the content of one is not acceptable."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, Code.UNPROCESSABLE, detail, findings=errors)


def unavailable(
    detail: str, *, retry_after: timedelta = timedelta(seconds=1), code: str = Code.UNAVAILABLE
) -> Problem:
    """503: not now; the same request may well succeed later."""
    seconds = max(1, round(retry_after.total_seconds()))
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, code, detail, headers={"Retry-After": str(seconds)})


def internal(request_id: str) -> Problem:
    """500: a fault of our own, of which strangers learn nothing but where to point us to."""
    detail = "the server failed to handle this request; its log has the reason under the request id"
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, Code.INTERNAL, detail, request_id=request_id)


def shown(value: str) -> str:
    """What a client sent, as a message quotes it: on one line, cut where it is long."""
    cut = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
    return msgspec.json.encode(cut.encode("utf-8", "replace").decode()).decode()


_encode = msgspec.json.Encoder().encode
