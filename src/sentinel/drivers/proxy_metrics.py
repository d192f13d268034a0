"""Fetches the metrics that a proxy serves."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.ports.errors import Misconfigured, Unavailable

MAX_BYTES: Final = 8 * 1024 * 1024
_HEADERS: Final = {"Accept": "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5"}


class ProxyMetrics:
    """The page of metrics at one URL."""

    def __init__(self, url: str, *, user_agent: str = "sentinel-agent") -> None:
        """Raises `Misconfigured` for an invalid URL."""
        parts = urlsplit(url)
        self._url = url
        self._path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self._client = RestClient(
            base_url=urlunsplit((parts.scheme, parts.netloc, "", "", "")), user_agent=user_agent, connections=1
        )

    async def fetch(self, timeout: timedelta) -> str:
        """Return the page. Raises `Unavailable`."""
        try:
            response = await self._client.request(
                "GET", self._path, timeout=timeout, limit=MAX_BYTES, headers=_HEADERS
            )
        except RequestRejected as error:
            raise Unavailable(f"{self._url}: responded {error.response.status}") from error
        except (ServerError, Misconfigured) as error:
            raise Unavailable(str(error)) from error
        return response.body.decode("utf-8", "replace")

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()
