"""The signing key in SQL: encrypted where a key for that is given, and encrypted again when that changes."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sentinel.drivers.encryption import Encryption
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.hub.signing_keys import SqlSigningKeys
from sentinel.ports.errors import Misconfigured
from sentinel.ports.signing_keys import SigningKey
from sentinel.runtime.secret_text import mask_secret_text
from tests.support.databases import postgresql
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.store_records import MOMENT, together

OLD, NEW = (Encryption([bytes([number]) * 32], source="keys.txt") for number in (1, 2))
BOTH = Encryption([b"\2" * 32, b"\1" * 32], source="keys.txt")


class Hubs:
    """Hubs that start on one database, each with its own encryption."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database = engine.database(url, migrate=True, history=HISTORY)
        self._others: list[SqlDatabase] = []

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        for database in (*self._others, self._database):
            await database.close()

    async def start(self, encryption: Encryption | None) -> SigningKey:
        return await SqlSigningKeys(self._database, encryption=encryption).load(MOMENT)

    async def another(self) -> SqlDatabase:
        """A connection of another hub. SQLite serves one process, whose parts share the connection."""
        if self._url.startswith("sqlite"):
            return self._database
        self._others.append(engine.database(self._url, migrate=True, history=HISTORY))
        await self._others[-1].open()
        return self._others[-1]

    async def stored(self) -> tuple[Any, ...]:
        """Return what anyone with the database can read: the id of a key, and the secret."""
        query = "SELECT key_id, secret, created_time FROM hub_signing_keys"
        if self._url.startswith("postgresql"):
            [row] = await postgresql.fetch(self._url, query)
        else:
            with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as connection:
                [row] = connection.execute(query).fetchall()
        return row

    async def damage(self) -> None:
        change = "UPDATE hub_signing_keys SET secret = "
        if self._url.startswith("postgresql"):
            await postgresql.execute(self._url, f"{change} 'nonsense'::bytea")
            return
        await self._database.close()
        with closing(sqlite3.connect(self._url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(f"{change} CAST('nonsense' AS BLOB)")
        await self._database.open()


@pytest.fixture(params=list(DatabaseKind))
async def hubs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hubs]:
    made = Hubs(empty_database(request.param, request, tmp_path))
    await made.open()
    yield made
    await made.close()


async def test_without_encryption_the_secret_is_stored(hubs: Hubs) -> None:
    key = await hubs.start(None)

    assert (await hubs.stored())[:2] == ("", key.secret)


async def test_with_encryption_the_database_does_not_have_the_secret(hubs: Hubs) -> None:
    key = await hubs.start(OLD)

    key_id, secret, _ = await hubs.stored()
    assert key_id == OLD.current_key_id
    assert key.secret not in bytes(secret)
    assert await hubs.start(OLD) == key


async def test_two_databases_have_different_keys(hubs: Hubs, tmp_path: Path) -> None:
    other = Hubs(f"sqlite:///{tmp_path / 'other.db'}")
    await other.open()

    keys = {await hubs.start(None), await other.start(None)}

    await other.close()
    assert len(keys) == 2


@pytest.mark.parametrize("encryption", [None, OLD], ids=["plain", "encrypted"])
async def test_several_hubs_that_start_at_once_get_the_same_key(hubs: Hubs, encryption: Encryption | None) -> None:
    databases = [await hubs.another() for _ in range(4)]

    loaded = await together(
        *(SqlSigningKeys(database, encryption=encryption).load(MOMENT) for database in databases for _ in range(5))
    )

    assert all(isinstance(each, SigningKey) for each in loaded), loaded
    assert len(set(loaded)) == 1
    assert await hubs.start(encryption) == loaded[0]


async def test_a_plain_key_is_encrypted_once_there_is_a_key_for_it(hubs: Hubs) -> None:
    before = await hubs.start(None)
    created = (await hubs.stored())[2]

    after = await hubs.start(OLD)

    key_id, secret, still_created = await hubs.stored()
    assert after == before
    assert (key_id, still_created) == (OLD.current_key_id, created)
    assert before.secret not in bytes(secret)


async def test_after_a_rotation_the_old_key_is_not_needed(hubs: Hubs) -> None:
    before = await hubs.start(OLD)

    rotated = await hubs.start(BOTH)
    after = await hubs.start(NEW)

    assert before == rotated == after
    assert (await hubs.stored())[0] == NEW.current_key_id


async def test_what_is_encrypted_with_the_current_key_is_left_alone(hubs: Hubs) -> None:
    await hubs.start(NEW)
    before = await hubs.stored()

    await hubs.start(BOTH)

    assert await hubs.stored() == before


async def test_hubs_that_rotate_at_once_keep_the_key(hubs: Hubs) -> None:
    key = await hubs.start(OLD)
    databases = [await hubs.another() for _ in range(4)]

    loaded = await together(*(SqlSigningKeys(each, encryption=BOTH).load(MOMENT) for each in databases))

    assert loaded == [key] * 4
    assert await hubs.start(NEW) == key


@pytest.mark.parametrize(
    ("encryption", "what_to_do"),
    [
        (None, "; expected a file with it by --secrets-key-file"),
        (NEW, f", which is not in keys.txt; it has {NEW.current_key_id}"),
    ],
    ids=["no file", "another key"],
)
async def test_without_the_key_the_error_names_it_and_nothing_changes(
    hubs: Hubs, encryption: Encryption | None, what_to_do: str
) -> None:
    await hubs.start(OLD)
    before = await hubs.stored()

    with pytest.raises(Misconfigured) as caught:
        await hubs.start(encryption)

    encrypted = f"the signing key of agent sessions in the database is encrypted with the key {OLD.current_key_id}"
    assert str(caught.value) == f"{encrypted}{what_to_do}"
    assert mask_secret_text(str(caught.value)) == str(caught.value)
    assert await hubs.stored() == before


async def test_a_damaged_key_is_an_error(hubs: Hubs) -> None:
    await hubs.start(OLD)
    await hubs.damage()

    with pytest.raises(Misconfigured, match="in the database is damaged"):
        await hubs.start(OLD)
