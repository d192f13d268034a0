"""Fetches the metrics that a proxy serves."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import aiohttp

from sentinel.ports.errors import Unavailable

MAX_BYTES: Final = 8 * 1024 * 1024
_ACCEPT: Final = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5"


class ProxyMetrics:
    """The page of metrics at one URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: aiohttp.ClientSession | None = None

    async def fetch(self, timeout: timedelta) -> str:
        """Return the page. Raises `Unavailable`."""
        client = self._client = self._client or aiohttp.ClientSession(headers={"Accept": _ACCEPT})
        try:
            async with client.get(
                self._url, timeout=aiohttp.ClientTimeout(total=timeout.total_seconds()), allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise Unavailable(f"{self._url}: expected 200, got {response.status}")
                body = await _read(response)
        except TimeoutError as error:
            raise Unavailable(f"{self._url}: no response within {timeout.total_seconds():g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"{self._url}: {error}") from error
        if len(body) > MAX_BYTES:
            raise Unavailable(f"{self._url}: expected at most {MAX_BYTES >> 20} MiB, got more")
        return body.decode("utf-8", "replace")

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return bytes(body)
