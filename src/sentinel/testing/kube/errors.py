"""The API server's error responses, with the codes, reasons and messages of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Self

import msgspec

from sentinel.core.json import Json
from sentinel.ports.kube import Cause, KubeKind, KubeObject


class ApiError(Exception):
    """A request that the API server rejects. `status` is the body of its response."""

    def __init__(
        self,
        code: HTTPStatus,
        reason: str,
        message: str,
        *,
        details: KubeObject | None = None,
        causes: Sequence[Cause] = (),
        retry_after: int = 0,
        continue_token: str = "",
        has_details: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = tuple(causes)
        self.retry_after = retry_after
        """The delay in seconds; also the header `Retry-After`."""
        self._details = details or {}
        self._continue_token = continue_token
        self._has_details = has_details

    @property
    def status(self) -> KubeObject:
        """The `Status` object."""
        details = dict(self._details)
        if self.causes:
            details["causes"] = [
                {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in self.causes
            ]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        metadata: KubeObject = {"continue": self._continue_token} if self._continue_token else {}
        status: KubeObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": str(self),
            "code": self.code.value,
        }
        if self.reason:
            status["reason"] = self.reason
        if details or self._has_details:
            status["details"] = details
        return status

    @classmethod
    def bad_request(cls, message: str) -> Self:
        """400: the request cannot be read."""
        return cls(HTTPStatus.BAD_REQUEST, "BadRequest", message)

    @classmethod
    def unauthorized(cls) -> Self:
        """401: no user is known."""
        return cls(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")

    @classmethod
    def forbidden(cls, kind: KubeKind, name: str, why: str) -> Self:
        """403: the user may not do this, or an admission plugin prevents it."""
        subject = f'{kind} "{name}"' if name else f"{kind}"
        return cls(
            HTTPStatus.FORBIDDEN, "Forbidden", f"{subject} is forbidden: {why}", details=_details(kind, name)
        )

    @classmethod
    def not_found(cls, kind: KubeKind, name: str) -> Self:
        """404: no such object."""
        return cls(HTTPStatus.NOT_FOUND, "NotFound", f'{kind} "{name}" not found', details=_details(kind, name))

    @classmethod
    def no_such_path(cls) -> Self:
        """404: no such kind, or nothing under this path."""
        return cls(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")

    @classmethod
    def method_not_allowed(cls, kind: KubeKind | None, verb: str) -> Self:
        """405: this cannot be done with this resource."""
        if kind is None:
            return cls(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", f"{verb} is not supported here")
        message = f'{verb} is not supported on resources of kind "{kind}"'
        return cls(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, details=_details(kind, ""))

    @classmethod
    def already_exists(cls, kind: KubeKind, name: str, *, is_being_deleted: bool = False) -> Self:
        """409: the name is taken."""
        message = f'{"object is being deleted: " if is_being_deleted else ""}{kind} "{name}" already exists'
        return cls(HTTPStatus.CONFLICT, "AlreadyExists", message, details=_details(kind, name))

    @classmethod
    def conflict(cls, kind: KubeKind, name: str, why: str, *, names_kind: bool = False) -> Self:
        """409: the object is not the one that the request expects. Some messages name the kind, not the plural."""
        named = msgspec.structs.replace(kind, plural=kind.kind) if names_kind else kind
        message = f'Operation cannot be fulfilled on {named} "{name}": {why}'
        return cls(HTTPStatus.CONFLICT, "Conflict", message, details=_details(named, name))

    @classmethod
    def apply_conflict(cls, causes: Sequence[Cause]) -> Self:
        """409: other managers own fields that an apply would change."""
        if len(causes) == 1:
            message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
            return cls(HTTPStatus.CONFLICT, "Conflict", message, causes=causes)
        lines: list[str] = []
        for one in dict.fromkeys(cause.message for cause in causes):
            lines.append(f"{one.replace('conflict with', 'conflicts with', 1)}:")
            lines += [f"- {cause.field}" for cause in causes if cause.message == one]
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
        return cls(HTTPStatus.CONFLICT, "Conflict", message, causes=causes)

    @classmethod
    def expired(cls, message: str, *, continue_token: str = "") -> Self:
        """410: the version is too old."""
        return cls(HTTPStatus.GONE, "Expired", message, continue_token=continue_token)

    @classmethod
    def unsupported_media_type(cls, accepted: Sequence[str]) -> Self:
        """415: the body has another content type."""
        listed = ", ".join(accepted)
        message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        return cls(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)

    @classmethod
    def invalid(cls, group: str, kind: str, name: str, causes: Sequence[Cause]) -> Self:
        """422: the object breaks the rules of its kind."""
        subject = f"{kind}.{group}" if group else kind
        problems = [f"{cause.field}: {cause.message}" for cause in causes]
        listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        details: KubeObject = {"name": name, "group": group, "kind": kind}
        return cls(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "Invalid",
            f'{subject} "{name}" is invalid: {listed}',
            details={key: value for key, value in details.items() if value},
            causes=causes,
        )

    @classmethod
    def patch_failed(cls) -> Self:
        """422: a JSON patch does not fit the object, or its test failed."""
        return cls(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
            has_details=True,
        )

    @classmethod
    def version_too_large(cls, requested: int, current: int) -> Self:
        """504: the version is not there yet."""
        cause = Cause("", "Too large resource version", "ResourceVersionTooLarge")
        message = f"Timeout: Too large resource version: {requested}, current: {current}"
        return cls(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message, causes=[cause], retry_after=1)


def _details(kind: KubeKind, name: str) -> KubeObject:
    details: dict[str, Json] = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}
