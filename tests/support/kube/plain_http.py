"""Plain HTTP requests to an API server, without our client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from sentinel.core.json import Json
from tests.support.kube.watching import TIMEOUT

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class PlainResponse(msgspec.Struct, frozen=True):
    status: int
    body: Any
    """Decoded, or the text if it is not JSON."""
    headers: Mapping[str, str]


class PlainStream:
    """The events of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self._response = response

    async def next(self) -> dict[str, Any]:
        """Return the next event; empty at the end."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            line = await self._response.content.readline()
        decoded: dict[str, Any] = msgspec.json.decode(line) if line else {}
        return decoded

    async def summary(self) -> tuple[str, str]:
        """Return type and name of the next event."""
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")


class PlainHttp:
    """Sends requests."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def call(
        self,
        method: str,
        path: str,
        body: Json | bytes = None,
        *,
        content_type: str = "application/json",
        token: str = "",
        **query: str,
    ) -> PlainResponse:
        """Send a request and return the response."""
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type} if content is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            async with self._session.request(
                method, path, data=content, headers=headers, params=query
            ) as response:
                text = await response.text()
        is_json = response.content_type == "application/json"
        return PlainResponse(
            response.status, msgspec.json.decode(text) if is_json else text, dict(response.headers)
        )

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[PlainStream]:
        """Open a watch."""
        async with self._session.get(path, params={"watch": "true", **query}) as response:
            yield PlainStream(response)


@asynccontextmanager
async def plain_http(url: str, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[PlainHttp]:
    """Open a client of a server."""
    connector = aiohttp.TCPConnector(ssl=tls) if tls is not None else None
    async with aiohttp.ClientSession(url, connector=connector, headers={"User-Agent": "curl/8.1"}) as session:
        yield PlainHttp(session)
