"""Secrets in SQL, each encrypted and bound to its name.

A value is stored with the id of the key that encrypted it. When a hub starts, values with an old key are encrypted
again, so an old key can be removed from the file afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

import sqlalchemy as sa

from sentinel.core.hub.versions import VersionName
from sentinel.drivers.encryption import CannotDecrypt, EncryptedValue, Encryption
from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, from_micros, required, to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.drivers.sql.hub import rows
from sentinel.drivers.sql.hub.statements import is_one_of
from sentinel.drivers.sql.hub.store import transact
from sentinel.drivers.sql.hub.tables import configs, instances, is_present, secret_uses
from sentinel.drivers.sql.hub.transaction import SqlHubTransaction
from sentinel.ports.errors import Misconfigured
from sentinel.ports.secret_store import SecretRecord, SecretTransaction

T = TypeVar("T")

metadata = sa.MetaData()

secrets = sa.Table(
    "hub_secrets",
    metadata,
    # key_id is the id of the key that encrypted the value.
    *required(TEXT, "name", "key_id"),
    sa.Column("value", sa.LargeBinary, nullable=False),
    sa.Column("updated_time", NUMBER, nullable=False),
    # While users are told of a change: the last instance that was told.
    sa.Column("offered_to", TEXT, nullable=True),
    sa.PrimaryKeyConstraint("name", name="hub_secrets_name"),
    sqlite_with_rowid=False,
)

_BATCH: Final = 100
"""How many values are encrypted again at once."""

_name = secrets.c.name == sa.bindparam("name", type_=TEXT)
_of = secrets.c.name == sa.bindparam("of", type_=TEXT)
_after = sa.bindparam("after", type_=TEXT)
_limit = sa.bindparam("limit", type_=NUMBER)
_record = (secrets.c.name, secrets.c.updated_time, secrets.c.offered_to)
_value = (secrets.c.name, secrets.c.key_id, secrets.c.value)

_LOCK = Statement(sa.select(*_record).where(_name).with_for_update())
_ADD = Statement(sa.insert(secrets).inline(), *secrets.c.keys())
_REPLACE = Statement(
    sa.update(secrets)
    .where(_of)
    .values({each.name: sa.bindparam(each.name, type_=each.type) for each in secrets.c if each.name != "name"})
)
_NOTE_OFFERED = Statement(sa.update(secrets).where(_of).values(offered_to=sa.bindparam("offered_to", type_=TEXT)))
_REMOVE = Statement(sa.delete(secrets).where(_name))
_ENCRYPT_AGAIN = Statement(
    sa.update(secrets)
    .where(_of, secrets.c.value == sa.bindparam("old_value", type_=sa.LargeBinary))
    .values(key_id=sa.bindparam("new_key_id", type_=TEXT), value=sa.bindparam("new_value", type_=sa.LargeBinary))
)

_LIST = Statement(sa.select(*_record).where(secrets.c.name > _after).order_by(secrets.c.name).limit(_limit))
_COUNT = Statement(sa.select(sa.func.count()).select_from(secrets))
_BY_NAME = Statement(sa.select(*_record).where(is_one_of(secrets.c.name)))
_VALUES = Statement(sa.select(*_value).where(is_one_of(secrets.c.name)))
_ALL_VALUES = Statement(sa.select(*_value).where(secrets.c.name > _after).order_by(secrets.c.name).limit(_limit))
_UNFINISHED = Statement(
    sa.select(*_record).where(secrets.c.offered_to.is_not(None)).order_by(secrets.c.name).limit(_limit)
)

_is_assigned = (
    sa.select(instances.c.id)
    .where(
        instances.c.assigned_config == secret_uses.c.config_id,
        instances.c.assigned_hash == secret_uses.c.hash,
        is_present,
    )
    .exists()
)
_USED_BY = Statement(
    sa.select(secret_uses.c.secret, secret_uses.c.config_id, secret_uses.c.number)
    .join_from(secret_uses, configs, configs.c.id == secret_uses.c.config_id)
    .where(is_one_of(secret_uses.c.secret), sa.or_(secret_uses.c.number == configs.c.latest_version, _is_assigned))
    .order_by(secret_uses.c.secret, secret_uses.c.config_id, secret_uses.c.number)
)
_names_it = (
    sa.select(secret_uses.c.number)
    .where(
        secret_uses.c.secret == sa.bindparam("secret", type_=TEXT),
        secret_uses.c.config_id == instances.c.assigned_config,
        secret_uses.c.hash == instances.c.assigned_hash,
    )
    .exists()
)
_USERS = Statement(
    sa.select(instances.c.id)
    .where(is_present, instances.c.id > _after, _names_it)
    .order_by(instances.c.id)
    .limit(_limit)
)


class SqlSecretTransaction(SqlHubTransaction):
    """`ports.secret_store.SecretTransaction` in a SQL database."""

    def __init__(self, session: Session, *, encryption: Encryption | None) -> None:
        super().__init__(session)
        self._encryption = encryption
        self._stored_secrets: dict[str, bool] = {}
        """Whether each secret that was read is stored."""

    def secret(self, name: str) -> SecretRecord | None:
        found = self._rows(_LOCK, name=name)
        self._stored_secrets[name] = bool(found)
        return _to_record(found[0]) if found else None

    def save_secret(self, secret: SecretRecord, value: bytes) -> None:
        is_stored = self._require_secret(secret.name)
        if self._encryption is None:
            raise RuntimeError("a secret cannot be stored without a key")
        encrypted = self._encryption.encrypt(value, place=_place(secret.name))
        values: dict[str, SqlValue] = {
            "key_id": encrypted.key_id,
            "value": encrypted.data,
            "updated_time": to_micros(secret.updated_time),
            "offered_to": secret.offered_to,
        }
        if is_stored:
            self._run(_REPLACE, {**values, "of": secret.name})
        else:
            self._run(_ADD, {**values, "name": secret.name})
            self._stored_secrets[secret.name] = True

    def note_offered(self, name: str, offered_to: str | None) -> None:
        self._require_secret(name)
        self._run(_NOTE_OFFERED, {"of": name, "offered_to": offered_to})

    def remove_secret(self, name: str) -> None:
        self._require_secret(name)
        self._run(_REMOVE, {"name": name})
        self._stored_secrets[name] = False

    def _require_secret(self, name: str) -> bool:
        self._require_open()
        is_stored = self._stored_secrets.get(name)
        if is_stored is None:
            raise RuntimeError(f"the secret {name} was not read in this transaction")
        return is_stored


class SqlSecretStore:
    """`ports.secret_store.SecretStore` in a SQL database."""

    def __init__(self, database: SqlDatabase, *, encryption: Encryption | None) -> None:
        self._database = database
        self._encryption = encryption

    @property
    def has_key(self) -> bool:
        return self._encryption is not None

    async def load(self) -> int:
        count, after = 0, ""
        while page := await self._rows(_ALL_VALUES, after=after, limit=_BATCH):
            for row in page:
                count += await self._encrypt_again(row)
            after = page[-1][0]
        return count

    async def _encrypt_again(self, row: Row) -> bool:
        """Encrypt a value with the first key. Skip it if it has changed: that write has used the first key."""
        name, key_id, stored = row[0], row[1], bytes(row[2])
        value = self._decrypted(row)
        if self._encryption is None or key_id == self._encryption.current_key_id:
            return False
        new = self._encryption.encrypt(value, place=_place(name))
        changed = await self._database.write(
            lambda session: session.run(
                _ENCRYPT_AGAIN, of=name, old_value=stored, new_key_id=new.key_id, new_value=new.data
            )
        )
        return changed > 0

    async def transact(self, work: Callable[[SecretTransaction], T]) -> T:
        return await transact(
            self._database, lambda session: SqlSecretTransaction(session, encryption=self._encryption), work
        )

    async def secrets(self, *, after: str, limit: int) -> Sequence[SecretRecord]:
        return [_to_record(row) for row in await self._rows(_LIST, after=after, limit=limit)]

    async def count_secrets(self) -> int:
        return int((await self._rows(_COUNT))[0][0])

    async def secrets_by_name(self, names: Collection[str]) -> Mapping[str, SecretRecord]:
        return {row[0]: _to_record(row) for row in await self._rows(_BY_NAME, ids=rows.json_texts(names))}

    async def values(self, names: Collection[str]) -> Mapping[str, bytes]:
        if not names:
            return {}
        found = await self._rows(_VALUES, ids=rows.json_texts(names))
        return {row[0]: self._decrypted(row) for row in found}

    async def used_by(self, names: Collection[str]) -> Mapping[str, Sequence[VersionName]]:
        found: dict[str, list[VersionName]] = {}
        for name, config_id, number in await self._rows(_USED_BY, ids=rows.json_texts(names)):
            found.setdefault(name, []).append(VersionName(config_id, number))
        return found

    async def users(self, name: str, *, after: str, limit: int) -> Sequence[str]:
        return [row[0] for row in await self._rows(_USERS, secret=name, after=after, limit=limit)]

    async def unfinished_offers(self, *, limit: int) -> Sequence[SecretRecord]:
        return [_to_record(row) for row in await self._rows(_UNFINISHED, limit=limit)]

    def _decrypted(self, row: Row) -> bytes:
        name, key_id, data = row
        what = f"the secret {name} in the database"
        if self._encryption is None:
            raise Misconfigured(
                f"{what} is encrypted with the key {key_id}; expected a file with it by --secrets-key-file"
            )
        try:
            return self._encryption.decrypt(EncryptedValue(key_id, bytes(data)), place=_place(name))
        except CannotDecrypt as error:
            raise Misconfigured(f"{what} {error}") from error

    async def _rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        return await self._database.read(lambda session: session.rows(statement, **values))


def _place(name: str) -> str:
    return f"hub_secrets/{name}"


def _to_record(row: Row) -> SecretRecord:
    name, updated_time, offered_to = row
    time: datetime = from_micros(updated_time)
    return SecretRecord(name=name, updated_time=time, offered_to=offered_to)
