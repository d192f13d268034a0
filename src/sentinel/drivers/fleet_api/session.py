"""Questions to the HyperFleet API, one at a time, and what can be said of every answer.

Whether the server let us in, and whether it is overloaded, is said here. What a 404 or a 400 means depends on the
question, so those are answers like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from yarl import URL

from sentinel.core.resource import ROOT
from sentinel.drivers import http_answers
from sentinel.drivers.fleet_api.connection import ApiConnection
from sentinel.drivers.http_answers import Problem
from sentinel.ports.reporting import ApiTrouble

_MAX_BODY = 16 * 1024 * 1024
_KEEP_ALIVE = timedelta(seconds=30)
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
    """A few connections to one API, kept alive between requests."""

    def __init__(
        self,
        *,
        endpoint: str,
        timeout: timedelta,
        user_agent: str,
        connections: int = 100,
        token: str = "",
        token_file: Path | None = None,
        ca_file: Path | None = None,
        on_token: Callable[[str], None] = lambda token: None,
    ) -> None:
        """`timeout` bounds each request. `token` wins over `token_file`, which is read for every request and may
        change at any time; `on_token` hears of every token that it has held, before it is used: it must be kept
        out of the log. `ca_file` replaces the system's authorities."""
        self._root = f"{endpoint.rstrip('/')}{ROOT}"
        self._timeout = timeout
        self._connection = ApiConnection(
            user_agent=user_agent,
            connections=connections,
            keep_alive=_KEEP_ALIVE,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            on_token=on_token,
        )

    async def request(self, method: str, path: str, *, body: bytes | None = None) -> Reply:
        """One request for what is below the API's root; raises `ApiTrouble` where that says nothing about it."""
        return await self._connection.request(
            method,
            URL(f"{self._root}/{path}", encoded=True),
            patience=self._timeout.total_seconds(),
            read=self._judge,
            body=body,
        )

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        await self._connection.close()

    async def _judge(self, response: aiohttp.ClientResponse, token: str) -> Reply:
        status, body = response.status, await _read(response)
        text = f"{status} {http_answers.excerpt(response.reason or '', token)}".rstrip()
        if 300 <= status < 400:
            raise ApiTrouble(f"{text}; redirects are not followed, is endpoint right?", needs_person=True)
        problem = http_answers.problem_in(body) if status >= 400 else None
        if problem is not None and problem.text:
            text = f"{text}: {http_answers.excerpt(problem.text, token)}"
        if status in _FOR_A_PERSON:
            is_replaced = status == HTTPStatus.UNAUTHORIZED and self._connection.read_token() != token
            raise ApiTrouble(text, needs_person=not is_replaced)
        if status in _FOR_LATER or status >= 500:
            raise ApiTrouble(text, retry_after=http_answers.retry_after(response))
        return Reply(status, body, response.headers.get("Discard-Reason", ""), problem, text)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = await http_answers.read_up_to(response, _MAX_BODY)
    if len(body) > _MAX_BODY:
        raise ApiTrouble(f"an answer of more than {_MAX_BODY} bytes came")
    return body
