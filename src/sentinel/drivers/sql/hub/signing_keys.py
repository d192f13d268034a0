"""The key that signs session tokens, in SQL: one row, encrypted if there is a key for it.

The row is encrypted again whenever the current key for that is another: the key is new, or there was none before.
So the old key can be removed once a hub has started with the new one.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from sentinel.drivers.encryption import CannotDecrypt, EncryptedValue, Encryption
from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, required, to_micros
from sentinel.drivers.sql.engine.statements import Duplicate, SqlDatabase, SqlValue, Statement
from sentinel.ports.errors import Misconfigured
from sentinel.ports.signing_keys import SigningKey

metadata = sa.MetaData()

keys = sa.Table(
    "hub_signing_keys",
    metadata,
    # key_id is the id of the key that encrypted the secret, or empty if none did.
    *required(TEXT, "name", "key_id"),
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.Column("created_time", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("name", name="hub_signing_keys_name"),
    sqlite_with_rowid=False,
)

_SESSIONS: Final = "sessions"
_PLACE: Final = f"hub_signing_keys/{_SESSIONS}"
_SECRET_BYTES: Final = 32
_WHAT: Final = "the signing key of agent sessions in the database"

_FIND = Statement(sa.select(keys.c.key_id, keys.c.secret).where(keys.c.name == sa.bindparam("name")))
_ADD = Statement(sa.insert(keys).inline(), *keys.c.keys())
_ENCRYPT = Statement(
    sa.update(keys)
    .where(
        keys.c.name == sa.bindparam("of"),
        keys.c.key_id == sa.bindparam("old_key_id"),
        keys.c.secret == sa.bindparam("old_secret", type_=sa.LargeBinary),
    )
    .values(key_id=sa.bindparam("new_key_id"), secret=sa.bindparam("new_secret", type_=sa.LargeBinary))
)


class SqlSigningKeys:
    """`ports.signing_keys.SigningKeys` in a SQL database."""

    def __init__(self, database: SqlDatabase, *, encryption: Encryption | None) -> None:
        """Without encryption, the key is stored as it is."""
        self._database = database
        self._encryption = encryption

    async def load(self, now: datetime) -> SigningKey:
        stored = await self._find()
        while stored is None:
            await self._add(secrets.token_bytes(_SECRET_BYTES), now)
            stored = await self._find()
        secret = self._decrypted(stored)
        if self._encryption is not None and stored.key_id != self._encryption.current_key_id:
            await self._encrypt_again(stored, secret)
        return SigningKey(secret)

    async def _find(self) -> EncryptedValue | None:
        found = await self._database.read(lambda session: session.rows(_FIND, name=_SESSIONS))
        return EncryptedValue(found[0][0], bytes(found[0][1])) if found else None

    async def _add(self, secret: bytes, now: datetime) -> None:
        """Store a key, unless another hub was faster."""
        stored = self._encrypted(secret)
        values: dict[str, SqlValue] = {
            "name": _SESSIONS,
            "key_id": stored.key_id,
            "secret": stored.data,
            "created_time": to_micros(now),
        }
        with suppress(Duplicate):
            await self._database.write(lambda session: session.run(_ADD, **values))

    async def _encrypt_again(self, stored: EncryptedValue, secret: bytes) -> None:
        """Replace what is stored. If another hub has done so, nothing changes."""
        new = self._encrypted(secret)
        await self._database.write(
            lambda session: session.run(
                _ENCRYPT,
                of=_SESSIONS,
                old_key_id=stored.key_id,
                old_secret=stored.data,
                new_key_id=new.key_id,
                new_secret=new.data,
            )
        )

    def _encrypted(self, secret: bytes) -> EncryptedValue:
        if self._encryption is None:
            return EncryptedValue("", secret)
        return self._encryption.encrypt(secret, place=_PLACE)

    def _decrypted(self, stored: EncryptedValue) -> bytes:
        if not stored.key_id:
            return stored.data
        if self._encryption is None:
            raise Misconfigured(
                f"{_WHAT} is encrypted with the key {stored.key_id}; expected a file with it by --secrets-key-file"
            )
        try:
            return self._encryption.decrypt(stored, place=_PLACE)
        except CannotDecrypt as error:
            raise Misconfigured(f"{_WHAT} {error}") from error
