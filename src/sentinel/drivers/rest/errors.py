"""Exceptions of requests: there was no response, or it has an error status.

Texts are one line without secrets, even if the server echoes the token. An invalid token or CA file raises
`ports.errors.Misconfigured`.
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
    """The request failed."""

    is_retryable = False
    """Whether the same request may succeed later."""


class UnreachableReason(StrEnum):
    """Why there was no response."""

    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    """The server's certificate is not trusted."""
    CONNECTION = "connection"
    """Connecting to the server failed."""
    PROXY = "proxy"
    """Connecting to the proxy failed, or it rejected the request."""
    MALFORMED = "malformed"
    """The response is not HTTP."""
    BROKEN = "broken"
    """The connection was lost."""


class Unreachable(ServerError, Unavailable):
    """There was no response."""

    is_retryable = True

    def __init__(
        self, text: str, *, reason: UnreachableReason, detail: str = "", needs_operator: bool = False
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.detail = detail
        """The cause without the address, such as `connection refused`."""
        self.needs_operator = needs_operator
        """Whether it fails the same way until an operator changes something."""

    @property
    def was_sent(self) -> bool:
        """Whether the server may have received the request."""
        return self.reason not in (
            UnreachableReason.CERTIFICATE,
            UnreachableReason.CONNECTION,
            UnreachableReason.PROXY,
        )


class StreamIdle(Unreachable):
    """Nothing was received for so long that the connection is probably lost."""

    def __init__(self, idle_timeout: timedelta) -> None:
        super().__init__(
            f"nothing received for {idle_timeout.total_seconds():.3g} s", reason=UnreachableReason.TIMEOUT
        )


class TooLarge(ServerError):
    """The body of the response, or a line of it, is larger than the caller's limit.

    It was read only up to the limit, so that a huge body cannot exhaust the memory.
    """

    def __init__(self, limit: int, *, part: str = "response") -> None:
        super().__init__(f"expected a {part} of at most {limit} bytes, got more")
        self.limit = limit


class UnexpectedContent(ServerError):
    """The response has another content type than the caller expects."""

    def __init__(self, *, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")


class ErrorResponse(msgspec.Struct, frozen=True):
    """A response with an error status, without the secrets of the request."""

    status: int
    phrase: str = ""
    """The server's reason phrase."""
    explanation: str = ""
    """The server's explanation, which may have several lines."""
    problem: ReceivedProblem | None = None
    """The body, if it is problem+json."""
    origin: str = ""
    """The target of a redirect, without path and query, which may contain secrets."""
    retry_after: timedelta = timedelta(0)
    """The delay that the server requests; zero if waiting does not help."""
    has_new_token: bool = False
    """Whether the rejected token has been replaced since it was sent."""

    @property
    def is_redirect(self) -> bool:
        """Whether it is a redirect. Redirects are not followed: the token would go to another server."""
        return 300 <= self.status < 400

    @property
    def is_temporary(self) -> bool:
        """Whether the status says that the same request may succeed later."""
        return is_temporary(self.status)

    @property
    def needs_operator(self) -> bool:
        """Whether it fails the same way until an operator changes something."""
        return self.status < 500 and not self.is_temporary and not self.has_new_token


class RequestRejected(ServerError):
    """The response has an error status."""

    def __init__(self, text: str, response: ErrorResponse, *, body: bytes = b"") -> None:
        super().__init__(text)
        self.response = response
        self.body = body
        """As received, so it may contain the token. For servers whose errors have a format of their own."""
        self.is_retryable = response.is_temporary

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def code(self) -> str:
        """The problem's code, or ""."""
        return self.response.problem.code if self.response.problem is not None else ""


def is_temporary(status: int) -> bool:
    """Whether a status says that the same request may succeed later."""
    return status in _TEMPORARY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
