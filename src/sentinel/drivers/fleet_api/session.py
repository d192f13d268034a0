"""Single questions to the HyperFleet API, and what can be said of every answer.

Whether the server let us in, and whether it is overloaded, is said here. What a 404 or a 400 means depends on the
question, so those are answers like any other.
"""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus

import aiohttp
import msgspec

from sentinel.drivers.fleet_api.connection import ApiConnection
from sentinel.drivers.rest import responses
from sentinel.drivers.rest.responses import Problem
from sentinel.ports.api_trouble import ApiTrouble

_MAX_BODY = 16 * 1024 * 1024
_FOR_A_PERSON = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST})
_FOR_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class Reply(msgspec.Struct, frozen=True):
    """An answer, read to its end."""

    status: int
    body: bytes
    discard_reason: str
    problem: Problem | None
    """For a status of 400 or more, where the body is one."""
    text: str
    """The status and what the server says about it, for people."""


class FleetSession:
    """Asks one API, and judges what is the same about every answer."""

    def __init__(self, connection: ApiConnection, *, timeout: timedelta) -> None:
        """`timeout` bounds each request. The connection is closed with this."""
        self._connection = connection
        self._timeout = timeout

    async def request(self, method: str, path: str, *, body: bytes | None = None) -> Reply:
        """One request for what is below the API's root; raises `ApiTrouble` where that says nothing about it."""
        return await self._connection.request(method, path, patience=self._timeout, read=self._judge, body=body)

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        await self._connection.close()

    async def _judge(self, response: aiohttp.ClientResponse, token: str) -> Reply:
        status, body = response.status, await _read(response)
        text = responses.status_line(response, token)
        if 300 <= status < 400:
            raise ApiTrouble(f"{text}; redirects are not followed, is endpoint right?", needs_person=True)
        problem = responses.problem_in(body) if status >= 400 else None
        if problem is not None and problem.text:
            text = f"{text}: {responses.excerpt(problem.text, token)}"
        if status in _FOR_A_PERSON:
            is_replaced = status == HTTPStatus.UNAUTHORIZED and self._connection.has_replaced(token)
            raise ApiTrouble(text, needs_person=not is_replaced)
        if status in _FOR_LATER or status >= 500:
            raise ApiTrouble(text, retry_after=responses.retry_after(response))
        return Reply(status, body, response.headers.get("Discard-Reason", ""), problem, text)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = await responses.read_up_to(response, _MAX_BODY)
    if len(body) > _MAX_BODY:
        raise ApiTrouble(f"an answer of more than {_MAX_BODY} bytes came")
    return body
