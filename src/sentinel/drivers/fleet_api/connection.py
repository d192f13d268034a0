"""How requests reach the HyperFleet API: with the token, within a time, and with errors in plain words.

What an answer means is for whoever asked. What keeps an answer from coming is the same for everybody: a server
that is not there, a certificate that nobody vouches for, a token that cannot be read. Nothing that an error says
can contain the token, not even where the server echoes it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import aiohttp
from yarl import URL

from sentinel.core.resource import ROOT
from sentinel.drivers.rest import responses
from sentinel.ports.api_trouble import ApiTrouble

T = TypeVar("T")


class ApiConnection:
    """The way to one API, kept open between requests."""

    def __init__(
        self,
        *,
        endpoint: str,
        user_agent: str,
        connections: int = 100,
        keep_alive: timedelta,
        token: str = "",
        token_file: Path | None = None,
        ca_file: Path | None = None,
        gzip: bool = False,
        on_token: Callable[[str], None] = lambda token: None,
    ) -> None:
        """`endpoint` is what goes before the API's root; one that will not do is a `ValueError`.

        `token` wins over `token_file`, which is read for every request and may change at any time; `on_token`
        hears of every token that it has held, before it is used: it must be kept out of the log. `ca_file`
        replaces the system's authorities.
        """
        base = _base(endpoint)
        self.root = f"{str(base).rstrip('/')}{ROOT}"
        """What every URL begins with; free of secrets."""
        self._is_tls = base.scheme == "https"
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip" if gzip else "identity",
            "User-Agent": user_agent,
        }
        self._connections = connections
        self._keep_alive = keep_alive
        self._token = token
        self._token_file = token_file
        self._token_read = ""
        self._on_token = on_token
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        patience: timedelta,
        read: Callable[[aiohttp.ClientResponse, str], Awaitable[T]],
        body: bytes | None = None,
    ) -> T:
        """What `read` makes of the answer and the token that was sent, all of it within this time.

        `path` is what comes below the root, encoded, with its query. Raises `ApiTrouble` where no answer came, and
        whatever `read` raises.
        """
        token = self._read_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = URL(f"{self.root}/{path}", encoded=True)
        session = self._open()
        try:
            async with (
                asyncio.timeout(patience.total_seconds()),
                # To follow a redirect would hand the token to whomever the answer names.
                session.request(method, url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return await read(response, token)
        except TimeoutError as error:
            raise ApiTrouble(f"no complete answer within {patience.total_seconds():.3g} s") from error
        except aiohttp.ClientConnectorCertificateError as error:
            # The file may have been replaced since it was read; the next request reads it again.
            await self.close()
            detail = getattr(error.certificate_error, "verify_message", "") or "verification failed"
            text = f"the server's certificate is not trusted ({detail}); is ca_file right?"
            raise ApiTrouble(text, needs_person=True) from error
        except aiohttp.ClientResponseError as error:
            # Not chained: the representation of this error shows the headers of the request, token included.
            raise ApiTrouble(f"malformed HTTP: {responses.excerpt(error.message, token)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ApiTrouble(responses.excerpt(str(error), token) or type(error).__name__) from error

    async def close(self) -> None:
        """Closes the connections; harmless when repeated. A request opens them again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def has_replaced(self, token: str) -> bool:
        """Whether there is another token by now, so that a 401 says nothing of it; raises as `request` does."""
        return self._read_token() != token

    def _read_token(self) -> str:
        """The token as it is now; raises `ApiTrouble` where there should be one and is none."""
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

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._authorities() if self._is_tls else True,
                    limit=self._connections,
                    keepalive_timeout=self._keep_alive.total_seconds(),
                ),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # each request brings its own
            )
        return self._session

    def _authorities(self) -> ssl.SSLContext | bool:
        if self._ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:  # which includes ssl.SSLError
            text = f"ca_file {self._ca_file}: {error.strerror or error}"
            raise ApiTrouble(text, needs_person=True) from error


def _base(endpoint: str) -> URL:
    """What goes before the root; a bad one is not shown, for it may contain a password."""
    try:
        base = URL(endpoint)
    except ValueError:
        base = URL()
    if base.scheme not in {"http", "https"} or not base.host or base.query_string or base.fragment:
        raise ValueError("endpoint: expected http(s)://host[:port][/path]")
    if base.user or base.password:
        raise ValueError("endpoint: expected no credentials; they belong into a token")
    return base
