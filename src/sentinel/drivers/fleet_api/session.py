"""Requests to the HyperFleet API, one at a time: with the token, within limits, and with errors in plain words.

What can be said of every request is said here: whether the server was reached, whether it let us in, whether it is
overloaded. What a 404 or a 400 means depends on the question, so those are answers like any other. Nothing that
an error says can contain the token, not even where the server echoes it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from yarl import URL

from sentinel.core.model import UNREADABLE
from sentinel.core.resource import ROOT
from sentinel.drivers import http_answers
from sentinel.ports.reporting import ApiTrouble

_MAX_BODY = 16 * 1024 * 1024
_KEEP_ALIVE = timedelta(seconds=30)
_FOR_A_PERSON = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST})
_FOR_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class FieldError(msgspec.Struct, frozen=True):
    """What a problem says about one field."""

    field: str = ""
    message: str = ""


class Problem(msgspec.Struct, frozen=True):
    """An error's body, as RFC 9457 has it and as others do."""

    code: str = ""
    detail: str = ""
    reason: str = ""
    message: str = ""
    title: str = ""
    errors: tuple[FieldError, ...] | None = None

    @property
    def text(self) -> str:
        return self.detail or self.reason or self.message or self.title


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
        self._connections = connections
        self._token = token
        self._token_file = token_file
        self._token_read = ""
        self._on_token = on_token
        self._ca_file = ca_file
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._session: aiohttp.ClientSession | None = None

    async def request(self, method: str, path: str, *, body: bytes | None = None) -> Reply:
        """One request for what is below the API's root; raises `ApiTrouble` where that says nothing about it."""
        token = self._read_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = URL(f"{self._root}/{path}", encoded=True)
        try:
            async with (
                asyncio.timeout(self._timeout.total_seconds()),
                self._open().request(method, url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return self._judge(response, await _read(response), token)
        except TimeoutError as error:
            raise ApiTrouble(f"no complete answer within {self._timeout.total_seconds():.3g} s") from error
        except aiohttp.ClientConnectorCertificateError as error:
            # The file may have been replaced since it was read; the next request reads it again.
            await self.close()
            detail = getattr(error.certificate_error, "verify_message", "") or "verification failed"
            text = f"the server's certificate is not trusted ({detail}); is ca_file right?"
            raise ApiTrouble(text, needs_person=True) from error
        except aiohttp.ClientResponseError as error:
            # Not chained: the representation of this error shows the headers of the request, token included.
            raise ApiTrouble(f"malformed HTTP: {http_answers.excerpt(error.message, token)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ApiTrouble(http_answers.excerpt(str(error), token) or type(error).__name__) from error

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _judge(self, response: aiohttp.ClientResponse, body: bytes, token: str) -> Reply:
        status = response.status
        text = f"{status} {http_answers.excerpt(response.reason or '', token)}".rstrip()
        if 300 <= status < 400:
            # Following would hand the token to whomever the answer names.
            raise ApiTrouble(f"{text}; redirects are not followed, is endpoint right?", needs_person=True)
        problem = _problem(body) if status >= 400 else None
        if problem is not None and problem.text:
            text = f"{text}: {http_answers.excerpt(problem.text, token)}"
        if status in _FOR_A_PERSON:
            is_replaced = status == HTTPStatus.UNAUTHORIZED and self._read_token() != token
            raise ApiTrouble(text, needs_person=not is_replaced)
        if status in _FOR_LATER or status >= 500:
            raise ApiTrouble(text, retry_after=http_answers.retry_after(response))
        return Reply(status, body, response.headers.get("Discard-Reason", ""), problem, text)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._authorities(),
                    limit=self._connections,
                    keepalive_timeout=_KEEP_ALIVE.total_seconds(),
                ),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request brings its own
            )
        return self._session

    def _authorities(self) -> ssl.SSLContext | bool:
        if self._ca_file is None or not self._root.startswith("https:"):
            return True
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:  # which includes ssl.SSLError
            text = f"ca_file {self._ca_file}: {error.strerror or error}"
            raise ApiTrouble(text, needs_person=True) from error

    def _read_token(self) -> str:
        token, where = self._token, "token"
        if not token and self._token_file is not None:
            where = f"token_file {self._token_file}"
            try:
                token = self._token_file.read_bytes().strip().decode("ascii", "replace")
            except OSError as error:
                raise ApiTrouble(f"{where}: {error.strerror}", needs_person=True) from error
            if not token:
                raise ApiTrouble(f"{where}: expected a token, got nothing", needs_person=True)
        if not all("!" <= character <= "~" for character in token):
            raise ApiTrouble(f"{where}: expected visible ASCII characters alone", needs_person=True)
        if token != self._token_read:
            self._on_token(token)
            self._token_read = token
        return token


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = await http_answers.read_up_to(response, _MAX_BODY)
    if len(body) > _MAX_BODY:
        raise ApiTrouble(f"an answer of more than {_MAX_BODY} bytes came")
    return body


def _problem(body: bytes) -> Problem | None:
    try:
        return msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return None
