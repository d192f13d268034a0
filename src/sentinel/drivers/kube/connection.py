"""Authenticated requests to one Kubernetes API server, with its errors translated to those of the port.

Watches have connections of their own, so that they never take one from the other calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus

import msgspec

from sentinel.core.json import Malformed
from sentinel.drivers.kube import status
from sentinel.drivers.kube.access import ClusterAccess
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import (
    RequestRejected,
    ServerError,
    StreamIdle,
    Unreachable,
    UnreachableReason,
)
from sentinel.drivers.rest.url import InvalidUrl
from sentinel.ports.errors import Misconfigured
from sentinel.ports.kube import KubeUnavailable

REQUEST_TIMEOUT = timedelta(seconds=30)
IDLE_TIMEOUT = timedelta(seconds=75)
"""A watch that was silent for so long is assumed dead: the server sends a bookmark about every minute."""
JSON = "application/json"

_CONNECTIONS = 20
_NO_LIMIT = 0


class ApiConnection:
    """Sends requests with the credentials of a cluster access."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str,
        timeout: timedelta = REQUEST_TIMEOUT,
        idle_timeout: timedelta = IDLE_TIMEOUT,
    ) -> None:
        """`timeout` bounds each request, and for a stream the time until the response begins. A stream ends after
        a silence of `idle_timeout`. Raises `Misconfigured`.
        """
        self.server = access.server
        """The URL of the API server."""
        self._credentials = access.credentials
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._requests = _connect(access, user_agent, connections=_CONNECTIONS)
        self._watches = _connect(access, user_agent, connections=_NO_LIMIT)

    async def send(self, method: str, path: str, *, body: object = None, content_type: str = JSON) -> bytes:
        """Send a request, a second time if the first one was refused for credentials that are outdated."""
        content = None if body is None else msgspec.json.encode(body)
        headers = None if body is None else {"Content-Type": content_type}
        is_retried = False
        while True:
            version = await self._refresh()
            try:
                response = await self._requests.request(
                    method, path, timeout=self._timeout, body=content, headers=headers
                )
            except RequestRejected as error:
                if is_retried or not await self._renew(error, version):
                    raise status.rejected(error, self.redact) from None
                is_retried = True
            except (ServerError, Misconfigured) as error:
                raise self.unavailable(error) from error.__cause__
            else:
                return response.body

    async def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch. Ends normally when the server ends it, or was silent for too long."""
        is_retried = False
        while True:
            version = await self._refresh()
            try:
                async with aclosing(
                    self._watches.stream_lines("GET", path, timeout=self._timeout, idle_timeout=self._idle_timeout)
                ) as lines:
                    async for line in lines:
                        yield line
                return
            except StreamIdle:
                return
            except RequestRejected as error:  # only instead of the first line
                if is_retried or not await self._renew(error, version):
                    raise status.rejected(error, self.redact) from None
                is_retried = True
            except (ServerError, Misconfigured) as error:
                raise self.unavailable(error) from error.__cause__

    async def close(self) -> None:
        """Close all connections, also those of open watches. Idempotent."""
        await self._watches.close()
        await self._requests.close()

    def redact(self, text: str) -> str:
        """Remove the credentials from a text."""
        return self._credentials.redact(text)

    def unavailable(self, error: ServerError | Misconfigured | Malformed) -> KubeUnavailable:
        """Translate an error without a usable response."""
        match error:
            case Unreachable(reason=UnreachableReason.CERTIFICATE):
                text = (
                    f"its certificate is not trusted ({error.detail}); check the cluster's certificate authority"
                )
            case Unreachable(reason=UnreachableReason.CONNECTION):
                return KubeUnavailable(f"cannot reach {self.server}: {self.redact(error.detail)}")
            case Misconfigured():
                return KubeUnavailable(self.redact(str(error)))
            case _:
                text = self.redact(str(error))
        return KubeUnavailable(f"{self.server}: {text}")

    async def _refresh(self) -> int:
        try:
            return await self._credentials.refresh()
        except Misconfigured as error:
            raise self.unavailable(error) from error.__cause__

    async def _renew(self, error: RequestRejected, version: int) -> bool:
        """Whether the server refused credentials that have been replaced since."""
        if error.status != HTTPStatus.UNAUTHORIZED:
            return False
        if error.response.has_new_token:
            return True
        try:
            return await self._credentials.renew(version)
        except Misconfigured as problem:
            raise self.unavailable(problem) from problem.__cause__


def _connect(access: ClusterAccess, user_agent: str, *, connections: int) -> RestClient:
    try:
        return RestClient(
            base_url=access.server,
            user_agent=user_agent,
            token=access.credentials.token,
            tls=access.credentials.tls,
            proxies=access.proxies,
            connections=connections,
        )
    except InvalidUrl as error:
        raise Misconfigured(f"{access.origin}: server: {error}") from None
