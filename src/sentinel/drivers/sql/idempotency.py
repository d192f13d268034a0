"""Idempotency keys in SQL: one table for all components, written in their transactions."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, from_micros, required, to_micros
from sentinel.drivers.sql.engine.statements import Row, SqlDatabase, SqlValue, Statement
from sentinel.ports.idempotency import StoredResponse

KEY_CONSTRAINT = "idempotency_keys_key"

metadata = sa.MetaData()

keys = sa.Table(
    "idempotency_keys",
    metadata,
    *required(TEXT, "actor", "key", "fingerprint"),
    *required(NUMBER, "time", "version"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("actor", "key", name=KEY_CONSTRAINT),
    sa.Index("idempotency_keys_by_time", "time"),
)

RECALL = Statement(sa.select(keys).where(keys.c.actor == sa.bindparam("actor"), keys.c.key == sa.bindparam("key")))
REMEMBER = Statement(sa.insert(keys).inline(), *keys.c.keys())

_oldest = (
    sa.select(keys.c.actor, keys.c.key)
    .where(keys.c.time < sa.bindparam("before", type_=NUMBER))
    .order_by(keys.c.time)
    .limit(sa.bindparam("limit"))
)
_EXPIRE = Statement(sa.delete(keys).where(sa.tuple_(keys.c.actor, keys.c.key).in_(_oldest)))


def values(response: StoredResponse) -> dict[str, SqlValue]:
    """The parameters of `REMEMBER` for a response."""
    return {
        "actor": response.actor,
        "key": response.key,
        "fingerprint": response.fingerprint,
        "time": to_micros(response.time),
        "version": response.version,
        "body": response.body,
    }


def response(row: Row) -> StoredResponse:
    """Decode a row of `RECALL`."""
    return StoredResponse(
        actor=row[0], key=row[1], fingerprint=row[2], time=from_micros(row[3]), version=row[4], body=row[5]
    )


class SqlIdempotencyStore:
    """`ports.idempotency.IdempotencyStore` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def expire(self, before: datetime, *, limit: int) -> int:
        return await self._database.write(
            lambda session: session.run(_EXPIRE, before=to_micros(before), limit=limit)
        )
