"""A fleet to measure: a database of any size, and servers on it whose CPU time is counted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import aiohttp
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import msgspec

from bench import expressions
from bench.fleet_rows import NAME, REGION, Cloning, PostgresqlCloning, SqliteCloning
from bench.processes import Memory, cpu_seconds, memory, peak_mebibytes
from tests.support.databases.postgresql import database
from tests.support.fleet.http_client import ROOT, report
from tests.support.processes.service import ApiProcess
from tools.services.postgresql import POSTGRESQL_URL_VARIABLE

PAGE_SIZE = 500
DOCUMENT_BYTES = 1_800
ADAPTERS = ("validation", "dns")

_KINDS = ({"plural": "clusters", "kind": "Cluster", "required_adapters": list(ADAPTERS)},)
_SITES = {
    "plural": "sites",
    "kind": "Site",
    "required_adapters": list(ADAPTERS),
    "available": expressions.AVAILABLE,
    "ready": expressions.READY,
}
_TIMEOUT = aiohttp.ClientTimeout(total=60)


class DatabaseName(StrEnum):
    """The database of the fleet.

    The values are its name on the performance page.
    """

    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"


class Cost(msgspec.Struct, frozen=True):
    """CPU microseconds of one item."""

    server: float
    database: float
    """Of the database's processes; 0 for SQLite."""

    def __str__(self) -> str:
        beside = f" + {self.database:.1f}" if self.database else ""
        return f"{self.server:.1f}{beside} µs"


class Testbed:
    """A database, a way to fill it, and servers on it."""

    def __init__(self, name: DatabaseName, url: str, cloning: Cloning, directory: Path) -> None:
        self.name = name
        self.url = url
        self.cloning = cloning
        self.template = ""
        """The id of the resource that is cloned."""
        self._directory = directory

    async def create_template(self) -> None:
        """Create the first resource through the server: ready, and of the size that the budgets assume."""
        async with self.server() as server:
            # One label: with two, the document would exceed the size.
            new = {"name": NAME, "labels": {"region": REGION}}
            spare = DOCUMENT_BYTES - len(await server.create({**new, "spec": {"padding": ""}}, is_trial=True))
            document = await server.create({**new, "spec": {"padding": "x" * spare}})
            assert abs(len(document) - DOCUMENT_BYTES) < 50, len(document)
            self.template = msgspec.json.decode(document)["id"]

    @asynccontextmanager
    async def server(self, *, with_expressions: bool = False) -> AsyncIterator[ServerUnderTest]:
        """Run a server that has started. `with_expressions` adds sites, whose conditions are by expression."""
        kinds = (*_KINDS, _SITES) if with_expressions else _KINDS
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(ApiProcess(self.url, kinds=kinds, directory=self._directory))
            session = await stack.enter_async_context(aiohttp.ClientSession(await process.url(), timeout=_TIMEOUT))
            yield ServerUnderTest(self, process, session)
            assert await process.stop() == 0

    async def database_cpu_seconds(self) -> dict[int, float]:
        """Return the CPU time of each database process that serves our server, by process id."""
        if self.name is DatabaseName.SQLITE:
            return {}
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch(
                "SELECT pid FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'sentinel'"
            )
        finally:
            await connection.close()
        return {row[0]: cpu_seconds(row[0]) for row in rows}


class ServerUnderTest:
    """A server under test, and its client."""

    def __init__(self, testbed: Testbed, process: ApiProcess, session: aiohttp.ClientSession) -> None:
        self._testbed = testbed
        self._process = process
        self._session = session

    async def create(self, body: object, *, is_trial: bool = False) -> bytes:
        """Create a resource and report all adapters. Returns its document. A trial resource is deleted again."""
        async with self._session.post(f"{ROOT}/clusters", json=body) as response:
            assert response.status == 201, await response.text()
            path = response.headers["Location"]
        for adapter in ADAPTERS:
            await self.report(path, adapter)
        async with self._session.get(path) as response:
            document = await response.read()
        if is_trial:
            async with self._session.delete(path) as response:
                assert response.status == 202
            async with self._session.post(f"{path}/force-delete", json={"reason": "measured"}) as response:
                assert response.status == 204
        return document

    async def create_sites(self, count: int) -> list[str]:
        """Create resources whose conditions are by expression. Returns their paths."""
        paths = []
        for number in range(count):
            async with self._session.post(f"{ROOT}/sites", json={"name": f"site-{number}"}) as response:
                assert response.status == 201, await response.text()
                paths.append(response.headers["Location"])
        return paths

    async def report(self, path: str, adapter: str) -> None:
        async with self._session.post(
            f"{path}/statuses",
            data=msgspec.json.encode(report(adapter, at=datetime.now(UTC))),
            headers={"Content-Type": "application/json"},
        ) as response:
            assert response.status == 201, await response.text()

    async def paths(self, count: int) -> list[str]:
        """Return the paths of `count` resources, the oldest first."""
        found: list[str] = []
        after = ""
        while len(found) < count:
            query = {"size": str(PAGE_SIZE), "fields": "href"} | ({"after": after} if after else {})
            async with self._session.get(f"{ROOT}/clusters", params=query) as response:
                listed = msgspec.json.decode(await response.read(), type=_PathPage)
            found += [item.href for item in listed.items]
            if listed.next is None:
                break
            after = listed.next
        return found[:count]

    async def page(self, after: str = "", **query: str) -> CursorPage:
        if after:
            query["after"] = after
        async with self._session.get(f"{ROOT}/clusters", params={"size": str(PAGE_SIZE), **query}) as response:
            assert response.status == 200, await response.text()
            return msgspec.json.decode(await response.read(), type=CursorPage)

    def walk(self, **query: str) -> Walk:
        """Return a repeated walk through the list, from the first page to the last."""
        return Walk(self, query)

    async def last_cursor(self) -> str:
        """Walk through the whole list. Returns the cursor of its last page."""
        after = ""
        while (page := await self.page(after)).next is not None:
            after = page.next
        return after

    async def costs(self, works: Sequence[Callable[[], Awaitable[int]]], *, rounds: int) -> list[Cost]:
        """Return the minimum cost per item of each work. A work returns its number of items."""
        measured = [[await self._cost(work) for work in works] for _ in range(rounds)]
        return [min(costs, key=lambda cost: cost.server) for costs in zip(*measured, strict=True)]

    async def _cost(self, work: Callable[[], Awaitable[int]]) -> Cost:
        before, started = await self._testbed.database_cpu_seconds(), cpu_seconds(self._process.pid)
        items = await work()
        server = cpu_seconds(self._process.pid) - started
        # The CPU of connections that were closed meanwhile is lost, which is little.
        database = sum(
            spent - before.get(pid, 0.0) for pid, spent in (await self._testbed.database_cpu_seconds()).items()
        )
        return Cost(server / items * 1e6, database / items * 1e6)

    def peak_mebibytes(self) -> float:
        return peak_mebibytes(self._process.pid)

    def memory(self) -> Memory:
        return memory(self._process.pid)


class CursorPage(msgspec.Struct, frozen=True):
    """The fields of a page that a walk needs.

    The items are skipped.
    """

    size: int
    total: int
    next: str | None


class _Path(msgspec.Struct, frozen=True):
    href: str


class _PathPage(msgspec.Struct, frozen=True):
    """The fields of a page that reports need."""

    items: list[_Path]
    next: str | None


class Walk:
    """A list and the current position in it."""

    def __init__(self, server: ServerUnderTest, query: Mapping[str, str]) -> None:
        self._server = server
        self._query = query
        self._after = ""

    async def advance(self, pages: int) -> int:
        """Fetch this many pages. Returns the number of resources."""
        items = 0
        for _ in range(pages):
            page = await self._server.page(self._after, **self._query)
            items += page.size
            self._after = page.next or ""
        return items


@asynccontextmanager
async def open_testbed(name: DatabaseName) -> AsyncIterator[Testbed]:
    with tempfile.TemporaryDirectory(prefix="sentinel-bench-") as path:
        directory = Path(path)
        match name:
            case DatabaseName.SQLITE:
                file = directory / "fleet.db"
                yield Testbed(name, f"sqlite:///{file}", SqliteCloning(str(file)), directory)
            case DatabaseName.POSTGRESQL:
                with database(os.environ[POSTGRESQL_URL_VARIABLE]) as url:
                    yield Testbed(name, url, PostgresqlCloning(url), directory)
            case _:
                assert_never(name)
