"""One server, over HTTP, for commands that a person runs.

A command asks a few questions and ends, so nothing is retried here: whoever typed it sees at once what is wrong.
What a server says about a refusal is shown as one line; the token is in none, not even where a server echoes it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from sentinel.drivers.rest import responses
from sentinel.drivers.rest.responses import Problem
from sentinel.runtime.settings.report import printable, quoted
from sentinel.version import __version__

LARGEST_BODY = 64 * 1024 * 1024
PATIENCE = timedelta(seconds=30)
"""For one request, from its beginning to the last byte of its answer."""

_EXCERPT = 300
_LARGEST_REFUSAL = 64 * 1024
_MASK = "***"


class ServerError(Exception):
    """The server did not do what it was asked for; the text says why, in one line."""

    may_pass = False
    """Whether the same request may well succeed later."""


class Unreachable(ServerError):
    """No answer came."""

    may_pass = True


class Refused(ServerError):
    """An answer came, and it says no."""

    def __init__(self, text: str, *, status: int, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        """Of the problem, for programs; empty where the answer was none."""
        self.may_pass = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS


class BadName(ValueError):
    """A plural or an id that no URL can contain."""


class Answer(msgspec.Struct, frozen=True):
    """What a server answered that refused nothing."""

    status: int
    body: bytes
    etag: str = ""


class Connection:
    """A server to ask, for as long as its context is entered."""

    def __init__(
        self, *, server: str, token: str = "", ca_file: Path | None = None, patience: timedelta = PATIENCE
    ) -> None:
        """Raises `ValueError` for a URL, a token or a file of authorities that will not do."""
        self.server = _base(server)
        self._token = _checked(token)
        self._authorities = _authorities(ca_file)
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Connection:
        headers = {"Accept": "application/json", "User-Agent": f"sentinel/{__version__}"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._authorities),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request brings its own
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; raises `Refused` for an answer that is not wanted, `Unreachable` where none came."""
        if self._session is None:
            raise RuntimeError("expected a connection that is open")
        asked = "&".join(f"{name}={quote(value, safe='=,')}" for name, value in (query or {}).items() if value)
        url = URL(f"{self.server}{path}{'?' if asked else ''}{asked}", encoded=True)
        try:
            async with (
                asyncio.timeout(self._patience.total_seconds()),
                self._session.request(
                    method, url, data=body, headers=dict(headers or {}), allow_redirects=False
                ) as response,
            ):
                if response.status < 300 or response.status == HTTPStatus.NOT_MODIFIED:
                    content = await responses.read_up_to(response, LARGEST_BODY)
                    if len(content) > LARGEST_BODY:
                        raise ServerError(f"{self.server}: expected an answer of at most {LARGEST_BODY} bytes")
                    return Answer(response.status, content, response.headers.get("ETag", ""))
                raise await self._refusal(response)
        except TimeoutError as error:
            raise Unreachable(
                f"{self.server}: no complete answer within {self._patience.total_seconds():g}s"
            ) from error
        except aiohttp.ClientConnectorCertificateError as error:
            detail = getattr(error.certificate_error, "verify_message", "") or "verification failed"
            raise Unreachable(
                f"{self.server}: its certificate is not trusted ({detail}); --ca-file names who vouches for it"
            ) from error
        except aiohttp.ClientConnectorError as error:
            reason = self._excerpt((error.os_error.strerror or str(error.os_error)).lower())
            raise Unreachable(
                f"cannot reach {self.server}: {reason}; is it running, or is another one meant"
                " (--server, SENTINEL_SERVER)?"
            ) from error
        except aiohttp.ClientResponseError as error:
            # Not chained: the representation of this error shows the headers of the request, token included.
            raise Unreachable(f"{self.server}: malformed HTTP: {self._excerpt(error.message)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self.server}: {self._excerpt(str(error)) or type(error).__name__}") from error

    async def _refusal(self, response: aiohttp.ClientResponse) -> Refused:
        status = response.status
        content = await responses.read_up_to(response, _LARGEST_REFUSAL)
        problem = responses.refusal_in(response, content)
        text = self._excerpt(_said(problem)) or self._excerpt(response.reason or "") or "no reason given"
        if 300 <= status < 400:
            # To follow would hand the token to whomever the answer names.
            text = f"{text}; redirects are not followed, is --server right?"
        elif status == HTTPStatus.UNAUTHORIZED:
            text = f"{text}; {'is SENTINEL_TOKEN still right?' if self._token else 'set SENTINEL_TOKEN'}"
        return Refused(f"refused ({status}): {text}", status=status, code=problem.code)

    def _excerpt(self, text: str) -> str:
        """One line, without the token."""
        if self._token:
            text = text.replace(self._token, _MASK)
        line = printable(" ".join(text.split()))
        return line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…"


def _said(problem: Problem) -> str:
    named = "; ".join(
        f"{error.field}: {error.message}" if error.field else error.message for error in problem.field_errors
    )
    return f"{problem.text}: {named}" if named and named not in problem.text else problem.text


def segment(text: str) -> str:
    """The text as one segment of a path; raises `BadName` where it cannot be one."""
    if text in ("", ".", "..") or "/" in text or not text.isprintable():
        raise BadName(f"expected one segment of a URL, such as the id of a resource, got {quoted(text)}")
    return quote(text, safe="")


def _base(server: str) -> str:
    """What every URL begins with; a bad one is not shown, for it may contain a password."""
    try:
        url = URL(server)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
        raise ValueError("server: expected a URL such as http://127.0.0.1:8080")
    if url.user or url.password:
        raise ValueError("server: expected no credentials in the URL; a token goes into SENTINEL_TOKEN")
    return str(url).rstrip("/")


def _checked(token: str) -> str:
    if not all("!" <= character <= "~" for character in token):
        raise ValueError("SENTINEL_TOKEN: expected visible ASCII characters alone")
    return token


def _authorities(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ValueError(f"ca-file {ca_file}: expected certificates in PEM, got something else") from error
    except OSError as error:
        raise ValueError(f"ca-file {ca_file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
