"""Translates the errors of an API server: `Status` objects and HTTP statuses to the exceptions of the port."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from sentinel.core.json import DECODE_ERRORS
from sentinel.drivers.rest import errors
from sentinel.drivers.rest.responses import excerpt
from sentinel.ports import kube
from sentinel.ports.kube import Cause, KubeError, KubeUnavailable

Redact: TypeAlias = Callable[[str], str]

_MAX_TEXT = 1000
"""A rejected object may have many mistakes, and the message names them all."""

_ERRORS: dict[int, type[KubeError]] = {
    HTTPStatus.BAD_REQUEST: kube.InvalidObject,
    HTTPStatus.UNAUTHORIZED: kube.Unauthorized,
    HTTPStatus.FORBIDDEN: kube.Forbidden,
    HTTPStatus.NOT_FOUND: kube.ObjectNotFound,
    HTTPStatus.CONFLICT: kube.Conflict,
    HTTPStatus.GONE: kube.ResourceExpired,
    HTTPStatus.UNPROCESSABLE_ENTITY: kube.InvalidObject,
}
_NOT_TYPED = "failed to create typed patch object"
"""The message for an applied object with an unknown field or a wrong type, which Kubernetes answers with 500."""
_ALREADY_EXISTS = "AlreadyExists"
_EXPIRED = ("Expired", "Gone")


class _StatusCause(msgspec.Struct, frozen=True):
    field: str = ""
    message: str = ""
    reason: str = ""


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: list[_StatusCause] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """An error as the API server sends it, in a response or in a watch."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: msgspec.Raw = msgspec.Raw(b"null")
    """Decoded separately: details of an unexpected shape must not hide the reason."""


_status_decoder = msgspec.json.Decoder(Status)
_details_decoder = msgspec.json.Decoder(_StatusDetails | None)


def decode_status(body: bytes | msgspec.Raw) -> Status | None:
    """Decode a body; return None if it is not a `Status`. The texts may contain secrets."""
    try:
        status = _status_decoder.decode(body)
    except DECODE_ERRORS:
        return None
    return status if status.kind == "Status" else None


def rejected(error: errors.RequestRejected, redact: Redact) -> KubeError | KubeUnavailable:
    """Translate an error response. Without a `Status` it comes from a proxy, or there is no such API."""
    status = decode_status(error.body)
    if status is None:
        text = redact(str(error))
        if error.status < HTTPStatus.BAD_REQUEST or error.is_retryable:
            return KubeUnavailable(text, retry_after=error.response.retry_after, status=error.status)
        return _ERRORS.get(error.status, KubeError)(text, status=error.status)
    return _translate(status, code=error.status, redact=redact, retry_after=error.response.retry_after)


def reported(status: Status, redact: Redact) -> KubeError | KubeUnavailable:
    """Translate an error in a watch."""
    # Kubernetes ends a watch with errors of any kind, and not every server gives them a code.
    code = status.code or (HTTPStatus.GONE if status.reason in _EXPIRED else HTTPStatus.INTERNAL_SERVER_ERROR)
    return _translate(status, code=code, redact=redact)


def _translate(
    status: Status, *, code: int, redact: Redact, retry_after: timedelta = timedelta(0)
) -> KubeError | KubeUnavailable:
    details = _details(status)
    if code == HTTPStatus.INTERNAL_SERVER_ERROR and status.message.startswith(_NOT_TYPED):
        code = HTTPStatus.UNPROCESSABLE_ENTITY
    text = excerpt(redact(status.message), _MAX_TEXT) or f"{code} {excerpt(redact(status.reason))}".rstrip()
    if code < HTTPStatus.BAD_REQUEST or errors.is_temporary(code):
        if details.retry_after_seconds:
            retry_after = max(retry_after, timedelta(seconds=min(details.retry_after_seconds, 86_400)))
        return KubeUnavailable(text, retry_after=retry_after, status=code)
    kind = _ERRORS.get(code, KubeError)
    if kind is kube.Conflict and status.reason == _ALREADY_EXISTS:
        kind = kube.AlreadyExists
    causes = [
        Cause(field=redact(cause.field), message=excerpt(redact(cause.message)), reason=cause.reason)
        for cause in details.causes or ()
    ]
    return kind(text, status=code, reason=redact(status.reason), causes=causes)


def _details(status: Status) -> _StatusDetails:
    try:
        return _details_decoder.decode(status.details) or _StatusDetails()
    except DECODE_ERRORS:
        return _StatusDetails()
