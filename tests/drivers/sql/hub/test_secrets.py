"""Secrets in SQL: nobody who has the database can read them, and the key of the file can be rotated."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sentinel.drivers.encryption import Encryption
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.hub.secrets import SqlSecretStore
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secret_text import mask_secret_text
from tests.contract.secret_store import putting
from tests.support.databases import postgresql
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.store_records import together

OLD, NEW = (Encryption([bytes([number]) * 32], source="keys.txt") for number in (1, 2))
BOTH = Encryption([b"\2" * 32, b"\1" * 32], source="keys.txt")
VALUE = b"hunter2-planted"


class Hubs:
    """Hubs that start on one database, each with its own encryption."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.database = engine.database(url, migrate=True, history=HISTORY)

    def store(self, encryption: Encryption | None) -> SqlSecretStore:
        return SqlSecretStore(self.database, encryption=encryption)

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as someone does who has the database."""
        if self._url.startswith("postgresql"):
            return await postgresql.fetch(self._url, statement)
        with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as connection, connection:
            return connection.execute(statement).fetchall()

    async def key_ids(self) -> set[str]:
        return {row[0] for row in await self.run("SELECT key_id FROM hub_secrets")}


@pytest.fixture(params=list(DatabaseKind))
async def hubs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hubs]:
    made = Hubs(empty_database(request.param, request, tmp_path))
    await made.database.open()
    yield made
    await made.database.close()


async def test_the_database_does_not_have_the_value(hubs: Hubs) -> None:
    await hubs.store(OLD).transact(putting("api-cert", VALUE))

    [(name, key_id, value)] = await hubs.run("SELECT name, key_id, value FROM hub_secrets")

    assert (name, key_id) == ("api-cert", OLD.current_key_id)
    assert VALUE not in bytes(value)


async def test_without_a_key_nothing_is_stored(hubs: Hubs) -> None:
    store = hubs.store(None)

    with pytest.raises(RuntimeError, match="without a key"):
        await store.transact(putting("api-cert", VALUE))

    assert not store.has_key
    assert await store.load() == 0


@pytest.mark.parametrize("encryption", [None, NEW], ids=["no key", "another key"])
async def test_a_hub_without_the_key_does_not_start(hubs: Hubs, encryption: Encryption | None) -> None:
    await hubs.store(OLD).transact(putting("api-cert", VALUE))

    with pytest.raises(Misconfigured) as caught:
        await hubs.store(encryption).load()

    text = str(caught.value)
    assert "the secret api-cert in the database is encrypted with the key " + OLD.current_key_id in text
    assert ("--secrets-key-file" if encryption is None else "keys.txt") in text
    assert mask_secret_text(text) == text


async def test_a_rotated_key_encrypts_everything_again(hubs: Hubs) -> None:
    names = [f"secret-{number:03}" for number in range(230)]
    for name in names:
        await hubs.store(OLD).transact(putting(name, name.encode()))

    count = await hubs.store(BOTH).load()

    assert count == len(names)
    assert await hubs.key_ids() == {NEW.current_key_id}
    assert await hubs.store(NEW).load() == 0
    assert await hubs.store(NEW).values(names) == {name: name.encode() for name in names}


async def test_hubs_that_rotate_at_once_lose_nothing(hubs: Hubs) -> None:
    for number in range(10):
        await hubs.store(OLD).transact(putting(f"secret-{number}", VALUE))

    counts = await together(*(hubs.store(BOTH).load() for _ in range(5)))
    values = await hubs.store(NEW).values([f"secret-{number}" for number in range(10)])

    assert sum(each for each in counts if isinstance(each, int)) == 10
    assert set(values.values()) == {VALUE}


async def test_a_value_that_was_moved_to_another_name_is_refused(hubs: Hubs) -> None:
    await hubs.store(OLD).transact(putting("mine", VALUE))
    await hubs.store(OLD).transact(putting("theirs", b"other"))
    await hubs.database.close()

    moved = (
        "UPDATE hub_secrets SET value = (SELECT value FROM hub_secrets WHERE name = 'theirs') WHERE name = 'mine'"
    )
    await hubs.run(moved)
    await hubs.database.open()

    with pytest.raises(Misconfigured, match="the secret mine in the database is damaged"):
        await hubs.store(OLD).values(["mine"])
