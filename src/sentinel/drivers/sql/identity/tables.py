"""The tables of identities, and the statements on them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, required
from sentinel.drivers.sql.engine.statements import Statement

USER_CONSTRAINT = "identity_users_name"

metadata = sa.MetaData()

users = sa.Table(
    "identity_users",
    metadata,
    *required(TEXT, "name", "role", "password_hash", "created_by"),
    *required(NUMBER, "created_time", "updated_time"),
    sa.PrimaryKeyConstraint("name", name=USER_CONSTRAINT),
    sqlite_with_rowid=False,
)

tokens = sa.Table(
    "identity_tokens",
    metadata,
    *required(TEXT, "id", "name", "role", "adapter", "instance", "created_by"),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("created_time", NUMBER, nullable=False),
    sa.Column("expires_time", NUMBER, nullable=True),
    sa.PrimaryKeyConstraint("id", name="identity_tokens_id"),
    sa.UniqueConstraint("digest", name="identity_tokens_digest"),
    sqlite_with_rowid=False,
)

sign_ins = sa.Table(
    "identity_sign_ins",
    metadata,
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("user_name", TEXT, nullable=False),
    *required(NUMBER, "created_time", "expires_time"),
    sa.PrimaryKeyConstraint("digest", name="identity_sign_ins_digest"),
    sa.Index("identity_sign_ins_by_user", "user_name"),
    sa.Index("identity_sign_ins_by_expiry", "expires_time"),
    sqlite_with_rowid=False,
)

failed_sign_ins = sa.Table(
    "identity_failed_sign_ins",
    metadata,
    # The hash of a name or address. Not its text: people type passwords in the wrong field.
    sa.Column("key", sa.LargeBinary, nullable=False),
    # As many times as count, joined by commas.
    sa.Column("times", TEXT, nullable=False),
    sa.Column("last_time", NUMBER, nullable=False),
    sa.PrimaryKeyConstraint("key", name="identity_failed_sign_ins_key"),
    sa.Index("identity_failed_sign_ins_by_time", "last_time"),
    sqlite_with_rowid=False,
)

revisions = sa.Table(
    "identity_revision",
    metadata,
    # One row, which the migration inserts. Its lock orders all changes, and its number tells servers to forget
    # what they remember of tokens.
    *required(NUMBER, "id", "number"),
    sa.PrimaryKeyConstraint("id", name="identity_revision_id"),
)

_name = users.c.name == sa.bindparam("name")
_token_id = tokens.c.id == sa.bindparam("id")
_digest = sa.bindparam("digest", type_=sa.LargeBinary)
_after: sa.BindParameter[str] = sa.bindparam("after")
_limit: sa.BindParameter[int] = sa.bindparam("limit")

REVISION = Statement(sa.select(revisions.c.number))
RAISE_REVISION = Statement(sa.update(revisions).values(number=revisions.c.number + 1))

OWNER = Statement(
    sa.select(tokens.c.name, tokens.c.role, tokens.c.adapter, tokens.c.instance, tokens.c.expires_time)
    .where(tokens.c.digest == _digest)
    .union_all(
        sa.select(
            users.c.name,
            users.c.role,
            sa.literal_column("''", TEXT),
            sa.literal_column("''", TEXT),
            sign_ins.c.expires_time,
        )
        .select_from(sign_ins.join(users, users.c.name == sign_ins.c.user_name))
        .where(sign_ins.c.digest == _digest)
    )
)
HAS_CREDENTIALS = Statement(
    sa.select(sa.or_(sa.exists(sa.select(users.c.name)), sa.exists(sa.select(tokens.c.id))))
)

USER = Statement(sa.select(users).where(_name))
LOCK_USER = Statement(sa.select(users).where(_name).with_for_update())
USERS = Statement(
    sa.select(users)
    .where(users.c.name > sa.bindparam("after"))
    .order_by(users.c.name)
    .limit(sa.bindparam("limit"))
)
COUNT_USERS = Statement(sa.select(sa.func.count()).select_from(users))
COUNT_ROLE = Statement(sa.select(sa.func.count()).select_from(users).where(users.c.role == sa.bindparam("role")))
ADD_USER = Statement(sa.insert(users).inline(), *users.c.keys())
REPLACE_USER = Statement(
    sa.update(users)
    .where(users.c.name == sa.bindparam("of"))
    .values(
        role=sa.bindparam("role"),
        password_hash=sa.bindparam("password_hash"),
        updated_time=sa.bindparam("updated_time"),
    )
)
REMOVE_USER = Statement(sa.delete(users).where(_name))

TOKEN = Statement(sa.select(tokens).where(_token_id))
TOKENS = Statement(sa.select(tokens).where(tokens.c.id > _after).order_by(tokens.c.id).limit(_limit))
COUNT_TOKENS = Statement(sa.select(sa.func.count()).select_from(tokens))
ADD_TOKEN = Statement(sa.insert(tokens).inline(), *tokens.c.keys())
REMOVE_TOKEN = Statement(sa.delete(tokens).where(_token_id))

ADD_SIGN_IN = Statement(sa.insert(sign_ins).inline(), *sign_ins.c.keys())
END_SIGN_IN = Statement(sa.delete(sign_ins).where(sign_ins.c.digest == _digest))
END_SIGN_INS = Statement(sa.delete(sign_ins).where(sign_ins.c.user_name == sa.bindparam("name")))
_ended = (
    sa.select(sign_ins.c.digest)
    .where(sign_ins.c.expires_time < sa.bindparam("before", type_=NUMBER))
    .order_by(sign_ins.c.expires_time)
    .limit(_limit)
)
EXPIRE_SIGN_INS = Statement(sa.delete(sign_ins).where(sign_ins.c.digest.in_(_ended)))

_key = failed_sign_ins.c.key == sa.bindparam("of", type_=sa.LargeBinary)
FAILED_SIGN_INS = Statement(sa.select(failed_sign_ins.c.times).where(_key))
# Both databases know this clause of PostgreSQL. It locks the row, whether it was there or not.
LOCK_FAILED_SIGN_INS = Statement(
    postgresql.insert(failed_sign_ins)
    .inline()
    .on_conflict_do_update(index_elements=["key"], set_={"times": failed_sign_ins.c.times}),
    *failed_sign_ins.c.keys(),
)
REPLACE_FAILED_SIGN_INS = Statement(
    sa.update(failed_sign_ins)
    .where(_key)
    .values(times=sa.bindparam("times"), last_time=sa.bindparam("last_time", type_=NUMBER))
)
_is_old = failed_sign_ins.c.last_time < sa.bindparam("before", type_=NUMBER)
_old = sa.select(failed_sign_ins.c.key).where(_is_old).order_by(failed_sign_ins.c.last_time).limit(_limit)
# The first condition is for PostgreSQL, which checks it again if the row has changed meanwhile.
EXPIRE_FAILED_SIGN_INS = Statement(sa.delete(failed_sign_ins).where(_is_old, failed_sign_ins.c.key.in_(_old)))
