"""Errors as RFC 9457 problems, the one format of all error responses.

Code that cannot accept a request raises a `Problem`, and the application renders it. Its detail is for people: it
says what was expected, what was received, and where. Its code, one of `core.problem_codes`, is for programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from typing import Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.problem_codes import Code

CONTENT_TYPE: Final = "application/problem+json"

_MAX_SHOWN_LENGTH = 80
_MAX_KEY_LENGTH = 80
"""The longest key in a field path. Longer ones could make the response much larger than the request."""


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in one field of a request."""

    field: str
    """A path such as `spec.rules[0].host`, or the name of a parameter or header; empty for the body as a whole."""
    message: str
    line: int | UnsetType = UNSET
    """Only for a body that is not JSON."""
    column: int | UnsetType = UNSET


_RENAMED_TITLES = {413: "Request Entity Too Large", 422: "Unprocessable Entity"}
"""Python 3.13 renamed these phrases. Clients see the same title on every Python."""


def title(status: HTTPStatus) -> str:
    """Return the title of a problem with this status."""
    return _RENAMED_TITLES.get(status, status.phrase)


class ProblemDocument(msgspec.Struct, frozen=True):
    """An error response."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[FieldError, ...] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    """The server's log has details under this id."""


@cache
def document_type(error_type: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return the type of a problem document whose `errors` are of this type, for OpenAPI."""
    return msgspec.defstruct(
        f"{error_type.__name__}Problem",
        [("errors", tuple[error_type, ...] | UnsetType, UNSET)],  # type: ignore[valid-type]  # made at run time
        bases=(ProblemDocument,),
        module=error_type.__module__,
        frozen=True,
    )


class Problem(Exception):
    """A rejected request. The application responds with it."""

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
        """`findings` are entries of `errors` that are structs of the component."""
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.findings = tuple(findings)
        self.headers = dict(headers or {})
        self.request_id = request_id

    def encode(self) -> bytes:
        """Encode it as `application/problem+json`."""
        # The type only names `FieldError`; msgspec encodes any struct.
        errors = cast("tuple[FieldError, ...]", (*self.errors, *self.findings))
        return _encode(
            ProblemDocument(
                type="about:blank",
                title=title(self.status),
                status=self.status.value,
                detail=self.detail,
                code=self.code,
                errors=errors or UNSET,
                request_id=self.request_id or UNSET,
            )
        )


def bad_field(field: str, message: str) -> Problem:
    """400: a field, parameter or header is invalid."""
    return bad_fields([FieldError(field, message)])


def bad_fields(errors: Iterable[FieldError]) -> Problem:
    """400: several fields, parameters or headers are invalid."""
    errors = tuple(errors)
    detail = "; ".join(f"{error.field}: {error.message}" if error.field else error.message for error in errors)
    return Problem(HTTPStatus.BAD_REQUEST, Code.INVALID, detail, errors=errors)


def malformed(message: str, *, field: str = "", line: int | None = None, column: int | None = None) -> Problem:
    """400: the body cannot be parsed."""
    has_position = line is not None and column is not None
    error = FieldError(field, message, *((line, column) if has_position else ()))
    position = f" (line {line}, column {column})" if has_position else ""
    return Problem(HTTPStatus.BAD_REQUEST, Code.MALFORMED, f"{message}{position}", errors=[error])


def bad_request(detail: str) -> Problem:
    """400: the request cannot be parsed."""
    return Problem(HTTPStatus.BAD_REQUEST, Code.MALFORMED, detail)


def unauthorized(*, has_token: bool) -> Problem:
    """401: no token, or an unknown one. It gives no details that would help to guess a token."""
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
    """403: the caller is known and not permitted."""
    return Problem(HTTPStatus.FORBIDDEN, code, detail)


def misdirected(detail: str) -> Problem:
    """421: the request names another server as its host."""
    return Problem(HTTPStatus.MISDIRECTED_REQUEST, Code.FOREIGN, detail)


def no_route(path: str) -> Problem:
    """404: no route has this path."""
    return Problem(HTTPStatus.NOT_FOUND, Code.NO_ROUTE, f"there is no endpoint {shown(path)}")


def not_found(detail: str) -> Problem:
    """404: the route exists, the resource does not."""
    return Problem(HTTPStatus.NOT_FOUND, Code.NOT_FOUND, detail)


def method_not_allowed(method: str, allowed: Iterable[str]) -> Problem:
    """405: the path does not support this method."""
    listed = ", ".join(sorted(allowed))
    detail = f"expected one of {listed}, got {shown(method)}"
    return Problem(HTTPStatus.METHOD_NOT_ALLOWED, Code.METHOD_NOT_ALLOWED, detail, headers={"Allow": listed})


def conflict(detail: str) -> Problem:
    """409: the current state does not allow it."""
    return Problem(HTTPStatus.CONFLICT, Code.CONFLICT, detail)


def gone(detail: str) -> Problem:
    """410: a stream cannot go on after the event that the client names."""
    return Problem(HTTPStatus.GONE, Code.GONE, detail)


def precondition_failed(detail: str) -> Problem:
    """412: the resource has changed since the caller read it."""
    return Problem(HTTPStatus.PRECONDITION_FAILED, Code.PRECONDITION_FAILED, detail)


def too_slow(*, chunk: timedelta, whole: timedelta) -> Problem:
    """408: the body, or the next chunk of it, did not arrive in time."""
    chunk_seconds, all_seconds = f"{chunk.total_seconds():g}", f"{whole.total_seconds():g}"
    return Problem(
        HTTPStatus.REQUEST_TIMEOUT,
        Code.BODY_TOO_SLOW,
        f"expected each part of the body within {chunk_seconds} s and all of it within {all_seconds} s, got less",
        headers={"Connection": "close"},
    )


def payload_too_large(limit: int) -> Problem:
    """413: the body exceeds its limit."""
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Code.TOO_LARGE, f"expected a body of at most {limit} bytes, got more"
    )


def unsupported_media_type(detail: str, *, accepted: Iterable[str] = ()) -> Problem:
    """415: the content type is not accepted. Lists those that are, as RFC 9110 recommends."""
    listed = ", ".join(accepted)
    return Problem(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        Code.UNSUPPORTED_MEDIA_TYPE,
        detail,
        headers={"Accept": listed} if listed else {},
    )


def unprocessable(detail: str, *, errors: Iterable[msgspec.Struct] = ()) -> Problem:
    """422: the fields are valid but contradict each other, or the content of one is not acceptable."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, Code.UNPROCESSABLE, detail, findings=errors)


def too_many_requests(detail: str, *, retry_after: timedelta) -> Problem:
    """429: the same request may succeed after this time."""
    seconds = max(1, math.ceil(retry_after.total_seconds()))
    return Problem(
        HTTPStatus.TOO_MANY_REQUESTS, Code.TOO_MANY_REQUESTS, detail, headers={"Retry-After": str(seconds)}
    )


def unavailable(
    detail: str, *, retry_after: timedelta = timedelta(seconds=1), code: str = Code.UNAVAILABLE
) -> Problem:
    """503: the same request may succeed later."""
    seconds = max(1, round(retry_after.total_seconds()))
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, code, detail, headers={"Retry-After": str(seconds)})


def internal(request_id: str) -> Problem:
    """500: a bug. The client only gets the id under which the log has the details."""
    detail = "the server failed to handle this request; its log has the reason under the request id"
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, Code.INTERNAL, detail, request_id=request_id)


def field_path(path: str, key: str | int) -> str:
    """Return the path of a member or item of the value at `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not 0 < len(key) <= _MAX_KEY_LENGTH or not key.isprintable() or any(mark in key for mark in '.[]" '):
        return f"{path}[{shown(key)}]"
    return f"{path}.{key}" if path else key


def shown(value: str) -> str:
    """Quote a client's value for a message: on one line, truncated if it is long."""
    cut = value if len(value) <= _MAX_SHOWN_LENGTH else value[: _MAX_SHOWN_LENGTH - 1] + "…"
    return msgspec.json.encode(cut.encode("utf-8", "replace").decode()).decode()


_encode = msgspec.json.Encoder().encode
