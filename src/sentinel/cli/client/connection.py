"""An HTTP connection to one server, for interactive commands.

A command sends a few requests and exits, so nothing is retried: the user sees at once what is wrong, in one line
that names the flags and variables to check.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import assert_never

from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.core.labels import parse
from sentinel.core.server_sent_events import EventDecoder, ServerSentEvent
from sentinel.drivers.fleet_api.fleet_stream import HttpFleetStream
from sentinel.drivers.rest import url
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, ServerError, TooLarge, Unreachable, UnreachableReason
from sentinel.drivers.rest.proxies import Proxies
from sentinel.drivers.rest.responses import RestResponse
from sentinel.drivers.rest.tls import ssl_context
from sentinel.drivers.rest.token import BearerToken
from sentinel.ports.errors import Misconfigured
from sentinel.ports.fleet_stream import FleetStream
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import get_logger
from sentinel.runtime.settings.report import printable
from sentinel.version import __version__

REQUEST_TIMEOUT = timedelta(seconds=30)
"""Limit for one request, up to the last byte of its response."""

_EVENT_STREAM = "text/event-stream"
_IDLE_TIMEOUT = timedelta(seconds=45)
"""A stream has a comment at least every 15 seconds."""

_MAX_REASON_LENGTH = 300

_RECONNECTING = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=5), jitter=0.3)
"""Shorter than that of services, because a person is waiting."""

_log = get_logger("client")


class ServerConnection:
    """A connection to a server; leaving the context closes it."""

    def __init__(
        self,
        *,
        server: str,
        token: str = "",
        ca_file: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        timeout: timedelta = REQUEST_TIMEOUT,
    ) -> None:
        """Read proxy settings from `environ`.

        Raises `ValueError` for an unusable URL, token, CA file or proxy.
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
                "server: expected no credentials in the URL; set the token in SENTINEL_TOKEN"
            ) from None
        except url.InvalidUrl:
            raise ValueError("server: expected a URL such as http://127.0.0.1:8080") from None
        except Misconfigured as error:
            raise ValueError(str(error)) from None
        _check_ca_file(ca_file)
        self.server = self._client.base_url
        self._has_token = bool(token)
        self._timeout = timeout

    async def __aenter__(self) -> ServerConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RestResponse:
        """Send one request. Raises `RequestRejected` for an error response, `Unreachable` without one."""
        target = f"{path}{url.query(query or {})}"
        loop = asyncio.get_running_loop()
        began = loop.time()
        status: int | None = None
        try:
            response = await self._client.request(
                method, target, timeout=self._timeout, body=body, headers=headers
            )
            status = response.status
        except TooLarge as error:
            raise ServerError(f"{self.server}: {error}") from None
        except Misconfigured as error:
            raise ServerError(str(error)) from error.__cause__
        except Unreachable as error:
            raise Unreachable(self._unreachable_message(error), reason=error.reason) from error.__cause__
        except RequestRejected as error:
            status = error.status
            raise RequestRejected(self._rejected_message(error), error.response, body=error.body) from None
        finally:
            _log.debug(
                "request.done",
                method=method,
                url=f"{self.server}{target}",
                status=status,
                seconds=round(loop.time() - began, 3),
            )
        return response

    def stream(self, plural: str, resource_id: str = "", *, labels: str = "", fields: str = "") -> FleetStream:
        """Return the stream of a list, or of one resource. It ends with the connection.

        Raises `SelectorError` for invalid labels.
        """
        return HttpFleetStream(
            self._client,
            resource_type=plural,
            resource_id=resource_id,
            selector=parse(labels),
            checks_labels=False,
            timeout=self._timeout,
            fields=tuple(fields.split(",")) if fields else (),
            root=API_ROOT,
            resuming=_RECONNECTING,
        )

    async def events(self, path: str, last_id: str = "") -> AsyncGenerator[Sequence[ServerSentEvent], None]:
        """Yield server-sent events as they arrive: first none, when the stream begins.

        Raises the errors of `request`, and `EventTooLarge`.
        """
        decoder = EventDecoder()
        headers = {"Accept": _EVENT_STREAM, "Cache-Control": "no-cache"}
        chunks = self._client.stream(
            "GET",
            path,
            timeout=self._timeout,
            idle_timeout=_IDLE_TIMEOUT,
            headers={**headers, "Last-Event-ID": last_id} if last_id else headers,
            content_type=_EVENT_STREAM,
        )
        has_begun = False
        async with aclosing(chunks):
            async for chunk in chunks:
                events = decoder.feed(chunk)
                if events or not has_begun:
                    has_begun = True
                    yield events

    def _unreachable_message(self, error: Unreachable) -> str:
        match error.reason:
            case UnreachableReason.TIMEOUT:
                return f"{self.server}: no complete response within {self._timeout.total_seconds():g}s"
            case UnreachableReason.CERTIFICATE:
                return (
                    f"{self.server}: its certificate is not trusted ({error.detail}); "
                    "name its CA certificates with --ca-file"
                )
            case UnreachableReason.CONNECTION:
                return (
                    f"cannot reach {self.server}: {error.detail}; check that it runs and that the URL is right"
                    " (--server, SENTINEL_SERVER)"
                )
            case UnreachableReason.PROXY | UnreachableReason.MALFORMED | UnreachableReason.BROKEN:
                return f"{self.server}: {error}"
            case _:
                assert_never(error.reason)

    def _rejected_message(self, error: RequestRejected) -> str:
        refusal = error.response
        text = _one_line(refusal.explanation) or _one_line(refusal.phrase) or "no reason given"
        if refusal.is_redirect:
            text = f"{text}; redirects are not followed; check --server"
        elif refusal.status == HTTPStatus.UNAUTHORIZED:
            text = f"{text}; {'check' if self._has_token else 'set'} SENTINEL_TOKEN"
        return f"refused ({refusal.status}): {text}"


def _one_line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_REASON_LENGTH else f"{line[:_MAX_REASON_LENGTH]}…"


def _check_ca_file(ca_file: Path | None) -> None:
    try:
        ssl_context(ca_file)
    except ssl.SSLError as error:
        raise ValueError(f"ca-file {ca_file}: expected certificates in PEM, got something else") from error
    except OSError as error:
        raise ValueError(f"ca-file {ca_file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
