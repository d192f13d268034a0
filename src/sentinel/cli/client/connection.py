"""One server, over HTTP, for commands that a person runs.

A command asks a few questions and ends, so nothing is retried: its user sees at once what is wrong, in one line
that names the flags and variables to look at.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import assert_never

from sentinel.drivers.rest import url
from sentinel.drivers.rest.client import RestClient, ssl_context
from sentinel.drivers.rest.errors import RequestRejected, ServerError, TooLarge, Unreachable, UnreachableReason
from sentinel.drivers.rest.proxies import Proxies
from sentinel.drivers.rest.responses import RestResponse
from sentinel.drivers.rest.token import BearerToken
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.settings.report import printable
from sentinel.version import __version__

PATIENCE = timedelta(seconds=30)
"""For one request, from its beginning to the last byte of its answer."""

_EXCERPT = 300


class ServerConnection:
    """A server to ask, for as long as its context is entered."""

    def __init__(
        self,
        *,
        server: str,
        token: str = "",
        ca_file: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        patience: timedelta = PATIENCE,
    ) -> None:
        """Raises `ValueError` for a URL, a token, a file of authorities or a proxy that cannot be used.

        `environ` says which proxy leads to the server.
        """
        bearer = BearerToken(token, name="SENTINEL_TOKEN")
        try:
            bearer.read()
            self._client = RestClient(
                base_url=server,
                user_agent=f"sentinel/{__version__}",
                token=bearer,
                ca_file=ca_file,
                proxies=Proxies(environ),
                gzip=True,
            )
        except url.CredentialsInUrl:
            raise ValueError(
                "server: expected no credentials in the URL; a token goes into SENTINEL_TOKEN"
            ) from None
        except url.InvalidUrl:
            raise ValueError("server: expected a URL such as http://127.0.0.1:8080") from None
        except Misconfigured as error:
            raise ValueError(str(error)) from None
        _check_authorities(ca_file)
        self.server = self._client.base_url
        self._has_token = bool(token)
        self._patience = patience

    async def __aenter__(self) -> ServerConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RestResponse:
        """One request. Raises `RequestRejected` for an unexpected response, `Unreachable` without one."""
        try:
            return await self._client.request(
                method, f"{path}{url.query(query or {})}", timeout=self._patience, body=body, headers=headers
            )
        except TooLarge as error:
            raise ServerError(f"{self.server}: expected an answer of at most {error.limit} bytes") from None
        except Misconfigured as error:
            raise ServerError(str(error)) from error.__cause__
        except Unreachable as error:
            raise Unreachable(self._unreachable(error), reason=error.reason) from error.__cause__
        except RequestRejected as error:
            raise RequestRejected(self._refused(error), error.response) from None

    def _unreachable(self, error: Unreachable) -> str:
        match error.reason:
            case UnreachableReason.TIMEOUT:
                return f"{self.server}: no complete answer within {self._patience.total_seconds():g}s"
            case UnreachableReason.CERTIFICATE:
                return (
                    f"{self.server}: its certificate is not trusted ({error.detail}); "
                    "--ca-file names who vouches for it"
                )
            case UnreachableReason.CONNECTION:
                return (
                    f"cannot reach {self.server}: {error.detail}; is it running, or is another one meant"
                    " (--server, SENTINEL_SERVER)?"
                )
            case UnreachableReason.PROXY | UnreachableReason.MALFORMED | UnreachableReason.BROKEN:
                return f"{self.server}: {error}"
            case _:
                assert_never(error.reason)

    def _refused(self, error: RequestRejected) -> str:
        refusal = error.response
        text = _line(refusal.explanation) or _line(refusal.phrase) or "no reason given"
        if refusal.is_redirect:
            text = f"{text}; redirects are not followed, is --server right?"
        elif refusal.status == HTTPStatus.UNAUTHORIZED:
            text = f"{text}; {'is SENTINEL_TOKEN still right?' if self._has_token else 'set SENTINEL_TOKEN'}"
        return f"refused ({refusal.status}): {text}"


def _line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _EXCERPT else f"{line[:_EXCERPT]}…"


def _check_authorities(ca_file: Path | None) -> None:
    try:
        ssl_context(ca_file)
    except ssl.SSLError as error:
        raise ValueError(f"ca-file {ca_file}: expected certificates in PEM, got something else") from error
    except OSError as error:
        raise ValueError(f"ca-file {ca_file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
