"""SQLite and PostgreSQL databases for the contract suites."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.support.databases import backends, postgresql
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import Stores


class _SqlStores(Stores):
    async def reopened(self, backend: Backend) -> Backend:
        await backend.database.close()
        return await self._opened()

    async def _opened(self) -> Backend:
        backend = backends.sql(self._url)
        await backend.database.open()
        return backend

    _url: str


class SqliteStores(_SqlStores):
    def __init__(self, directory: Path) -> None:
        self._files = (directory / f"{number}.db" for number in itertools.count())

    async def empty(self) -> Backend:
        self._url = f"sqlite:///{next(self._files)}"
        return await self._opened()


class PostgresqlStores(_SqlStores):
    def __init__(self, url: str) -> None:
        self._url = url

    async def empty(self) -> Backend:
        backend = await self._opened()
        await postgresql.empty(self._url)
        return backend
