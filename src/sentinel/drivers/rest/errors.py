"""How a request fails: no response came, or one came that refuses it.

Texts are one line and free of secrets, even where a server echoes the token. A token or a file of authorities that
cannot be used is `ports.errors.Misconfigured`.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus

import msgspec

from sentinel.drivers.rest.problem import ReceivedProblem
from sentinel.ports.errors import Unavailable

_TEMPORARY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class ServerError(Exception):
    """The server did not do what it was asked for."""

    is_retryable = False
    """Whether the same request may well succeed later."""


class UnreachableReason(StrEnum):
    """Why no response came."""

    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    """The server's certificate is not trusted."""
    CONNECTION = "connection"
    """The server cannot be connected to."""
    PROXY = "proxy"
    """The proxy cannot be connected to, or does not let us through."""
    MALFORMED = "malformed"
    """What came is not HTTP."""
    BROKEN = "broken"
    """The connection broke on the way."""


class Unreachable(ServerError, Unavailable):
    """No response came."""

    is_retryable = True

    def __init__(
        self, text: str, *, reason: UnreachableReason, detail: str = "", needs_operator: bool = False
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.detail = detail
        """The reason alone, such as `connection refused`."""
        self.needs_operator = needs_operator
        """Whether it will fail the same way until a person changes something."""

    @property
    def was_sent(self) -> bool:
        """Whether the server may have received the request."""
        return self.reason not in (
            UnreachableReason.CERTIFICATE,
            UnreachableReason.CONNECTION,
            UnreachableReason.PROXY,
        )


class TooLarge(ServerError):
    """The response has a larger body than the caller takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"expected a response of at most {limit} bytes, got more")
        self.limit = limit


class ErrorResponse(msgspec.Struct, frozen=True):
    """What a response that refuses says, free of what the request carried."""

    status: int
    phrase: str = ""
    """What the server calls the status."""
    explanation: str = ""
    """The server's explanation, on any number of lines."""
    problem: ReceivedProblem | None = None
    """Where the body is one."""
    origin: str = ""
    """Where a redirect leads, without path and query, which may carry secrets."""
    retry_after: timedelta = timedelta(0)
    """How long the server asks clients to wait; zero where waiting does not help."""
    has_new_token: bool = False
    """Whether the token that was refused has been replaced since it was sent."""

    @property
    def is_redirect(self) -> bool:
        """Whether it names another place. Redirects are not followed: they would carry the token elsewhere."""
        return 300 <= self.status < 400

    @property
    def is_temporary(self) -> bool:
        """Whether the status says that the same request may succeed later."""
        return is_temporary(self.status)

    @property
    def needs_operator(self) -> bool:
        """Whether it will fail the same way until a person changes something."""
        return self.status < 500 and not self.is_temporary and not self.has_new_token


class RequestRejected(ServerError):
    """A response came, and it refuses the request."""

    def __init__(self, text: str, response: ErrorResponse) -> None:
        super().__init__(text)
        self.response = response
        self.is_retryable = response.is_temporary

    @property
    def status(self) -> int:
        """The status of the response."""
        return self.response.status

    @property
    def code(self) -> str:
        """The problem's code, for programs; empty where there is none."""
        return self.response.problem.code if self.response.problem is not None else ""


def is_temporary(status: int) -> bool:
    """Whether a status says that the same request may succeed later."""
    return status in _TEMPORARY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
