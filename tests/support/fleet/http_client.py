"""An HTTP client of a fleet API that runs as a process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Self

import aiohttp
import msgspec

from sentinel.core.fleet.documents import AdapterStatus, ResourceDocument, decode_document, decode_statuses

ROOT = "/api/hyperfleet/v1"
TIMEOUT = aiohttp.ClientTimeout(total=90)

Body = dict[str, Any]


class Reply(msgspec.Struct, frozen=True):
    """A response.

    The names of `headers` are case-insensitive.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Body:
        body: Body = msgspec.json.decode(self.content)
        return body

    @property
    def version(self) -> int:
        """The version in the ETag."""
        return int(self.headers["ETag"].strip('"'))

    @property
    def code(self) -> str:
        """The code of a problem; empty for other responses."""
        if self.headers.get("Content-Type") != "application/problem+json":
            return ""
        return str(self.json["code"])


class FleetHttp:
    """A client of one or more servers of a fleet, used in turn."""

    def __init__(self, *urls: str, token: str = "", connections: int = 32) -> None:
        self._urls = itertools.cycle(urls)
        self._token = token
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections), timeout=TIMEOUT, headers=headers
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self, method: str, path: str, json: object = None, headers: Mapping[str, str] | None = None, **query: str
    ) -> Reply:
        """Send a request. A path without a leading slash is below the API's root."""
        assert self._session is not None
        where = path if path.startswith("/") else f"{ROOT}/{path}"
        fields = dict(headers or {})
        body = None
        if json is not None:
            body = msgspec.json.encode(json)
            fields.setdefault("Content-Type", "application/json")
        url = next(self._urls) + where
        async with self._session.request(method, url, data=body, headers=fields, params=query) as response:
            return Reply(response.status, response.headers, await response.read())

    async def until(self, status: int, path: str) -> Reply:
        """Poll until the response has this status."""
        async with asyncio.timeout(TIMEOUT.total):
            while (reply := await self.call("GET", path)).status != status:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        return reply

    async def create(self, name: str, plural: str = "clusters", **fields: object) -> Body:
        """Create a resource."""
        reply = await self.call("POST", plural, {"name": name, **fields})
        assert reply.status == 201, reply
        return reply.json

    async def get(self, path: str, **query: str) -> Body:
        """Return the body of a GET."""
        reply = await self.call("GET", path, None, None, **query)
        assert reply.status == 200, reply
        return reply.json

    async def read(self, path: str) -> tuple[ResourceDocument, tuple[AdapterStatus, ...]]:
        """Return a resource and its reports, decoded."""
        document = await self.call("GET", path)
        statuses = await self.get(f"{path}/statuses", size="1000")
        assert document.status == 200, document
        return decode_document(document.content), decode_statuses(msgspec.json.encode(statuses["items"]))

    async def report(self, path: str, *adapters: str, generation: int = 1, available: str = "True") -> None:
        """Report as each of these adapters. All reports must be stored."""
        for adapter in adapters:
            body = report(adapter, generation=generation, available=available)
            reply = await self.call("POST", f"{path}/statuses", body)
            assert reply.status == 201, reply

    async def walk(self, plural: str, **query: str) -> AsyncIterator[Body]:
        """Yield every resource of a list, following the cursor."""
        page = await self.get(plural, **query)
        for _ in range(100_000):
            for item in page["items"]:
                yield item
            if page["next"] is None:
                return
            page = await self.get(plural, **query, after=page["next"])
        raise AssertionError("the list does not end")


def report(
    adapter: str, *, generation: int = 1, at: datetime | None = None, available: str = "True", **fields: object
) -> Body:
    """Return the body of a report, by default observed now."""
    return {
        "adapter": adapter,
        "observed_generation": generation,
        "observed_time": at or datetime.now(UTC),
        "conditions": [
            {"type": "Applied", "status": "True", "reason": "Done", "message": "the work has begun"},
            {"type": "Available", "status": available, "reason": "Said", "message": "as it is"},
            {"type": "Health", "status": "True", "reason": "NoErrors", "message": "all is well"},
        ],
        **fields,
    }
