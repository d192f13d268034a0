"""Single questions to the HyperFleet API, and what can be said of every answer.

Whether the server let us in, and whether it is overloaded, is said here. What a 404 or a 400 means depends on the
question, so those are answers like any other.
"""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus

import msgspec

from sentinel.drivers.fleet_api.connection import FAILURES, trouble
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.drivers.rest.problem import ReceivedProblem

_MAX_BODY = 16 * 1024 * 1024
_NO_ANSWER = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.MISDIRECTED_REQUEST,
    }
)
"""Statuses below 500 that do not answer the request. Redirects and temporary statuses do not, either."""
_JSON = {"Content-Type": "application/json"}


class Reply(msgspec.Struct, frozen=True):
    """An answer, read to its end."""

    status: int
    body: bytes
    discard_reason: str
    problem: ReceivedProblem | None
    """For a status of 400 or more, where the body is one."""
    text: str
    """The status and what the server says about it, for people."""


class FleetSession:
    """Asks one API, and judges what is the same about every answer."""

    def __init__(self, client: RestClient, *, timeout: timedelta) -> None:
        """`timeout` bounds each request. The client is closed with this."""
        self._client = client
        self._timeout = timeout

    async def request(self, method: str, path: str, *, body: bytes | None = None) -> Reply:
        """One request for what is below the API's root; raises `ApiTrouble` where that says nothing about it."""
        headers = _JSON if body is not None else None
        try:
            response = await self._client.request(
                method, f"/{path}", timeout=self._timeout, limit=_MAX_BODY, body=body, headers=headers
            )
        except FAILURES as failure:
            if isinstance(failure, RequestRejected) and _is_answer(failure):
                return Reply(failure.status, b"", "", failure.response.problem, str(failure))
            raise trouble(failure) from failure.__cause__
        discard_reason = response.headers.get("Discard-Reason", "")
        return Reply(response.status, response.body, discard_reason, None, response.line)

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        await self._client.close()


def _is_answer(refused: RequestRejected) -> bool:
    refusal = refused.response
    return not (refusal.is_redirect or refusal.is_temporary or refusal.status in _NO_ANSWER)
