"""The store of identities on SQL, for both SQLite and PostgreSQL.

Every change of a user, token or sign-in first updates the one row of `identity_revision`. Its lock orders changes,
so that two admins cannot remove each other at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, TypeVar

from sentinel.core.access import Identity, Role
from sentinel.drivers.sql.engine.columns import from_micros, to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.drivers.sql.identity import tables
from sentinel.drivers.sql.transaction import SqlTransaction, transact
from sentinel.ports.database import AlreadyExists
from sentinel.ports.identity_store import (
    Failures,
    IdentityTransaction,
    IssuedToken,
    SignIn,
    TokenOwner,
    User,
    UserTaken,
)

T = TypeVar("T")


class SqlIdentityTransaction(SqlTransaction):
    """`ports.identity_store.IdentityTransaction` in a SQL database."""

    errors_by_constraint: ClassVar[Mapping[str, type[AlreadyExists]]] = {tables.USER_CONSTRAINT: UserTaken}

    def lock(self) -> None:
        self._change(tables.RAISE_REVISION)

    def user(self, name: str) -> User | None:
        found = self._rows(tables.LOCK_USER, name=name)
        return _user(found[0]) if found else None

    def count_users(self, role: Role) -> int:
        return int(self._rows(tables.COUNT_ROLE, role=role.value)[0][0])

    def add_user(self, user: User) -> None:
        self._run(tables.ADD_USER, _user_values(user))

    def replace_user(self, user: User) -> None:
        self._change(
            tables.REPLACE_USER,
            of=user.name,
            role=user.role.value,
            password_hash=user.password_hash,
            updated_time=to_micros(user.updated_time),
        )

    def remove_user(self, name: str) -> None:
        self._change(tables.REMOVE_USER, name=name)

    def token(self, token_id: str) -> IssuedToken | None:
        found = self._rows(tables.TOKEN, id=token_id)
        return _token(found[0]) if found else None

    def add_token(self, token: IssuedToken) -> None:
        self._run(tables.ADD_TOKEN, _token_values(token))

    def remove_token(self, token_id: str) -> None:
        self._change(tables.REMOVE_TOKEN, id=token_id)

    def add_sign_in(self, sign_in: SignIn) -> None:
        self._run(
            tables.ADD_SIGN_IN,
            {
                "digest": sign_in.digest,
                "user_name": sign_in.user,
                "created_time": to_micros(sign_in.created_time),
                "expires_time": to_micros(sign_in.expires_time),
            },
        )

    def end_sign_in(self, digest: bytes) -> bool:
        return self._change(tables.END_SIGN_IN, digest=digest) > 0

    def end_sign_ins(self, user: str) -> int:
        return self._change(tables.END_SIGN_INS, name=user)

    def failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        self._require_open()
        return _failures(self._session, keys)

    def lock_failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        wanted = sorted(keys)  # in one order, so that two transactions do not wait for each other
        for key in wanted:
            self._change(tables.LOCK_FAILED_SIGN_INS, key=key, times="", last_time=0)
        return dict.fromkeys(wanted, ()) | _failures(self._session, wanted)

    def replace_failed_sign_ins(self, key: bytes, times: Sequence[datetime]) -> None:
        stored = [to_micros(time) for time in times]
        self._change(
            tables.REPLACE_FAILED_SIGN_INS, of=key, times=",".join(map(str, stored)), last_time=stored[-1]
        )

    def _change(self, statement: Statement, **values: SqlValue) -> int:
        self._require_open()
        return self._session.run(statement, **values)


class SqlIdentityStore:
    """`ports.identity_store.IdentityStore` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def transact(self, work: Callable[[IdentityTransaction], T]) -> T:
        return await transact(self._database, SqlIdentityTransaction, work)

    async def revision(self) -> int:
        return int((await self._rows(tables.REVISION))[0][0])

    async def owner(self, digest: bytes) -> TokenOwner | None:
        found = await self._rows(tables.OWNER, digest=digest)
        if not found:
            return None
        name, role, adapter, instance, expires = found[0]
        return TokenOwner(Identity(name, Role(role), adapter, instance), _time(expires))

    async def has_credentials(self) -> bool:
        return bool((await self._rows(tables.HAS_CREDENTIALS))[0][0])

    async def failed_sign_ins(self, keys: Iterable[bytes]) -> Failures:
        return await self._database.read(lambda session: _failures(session, keys))

    async def user(self, name: str) -> User | None:
        found = await self._rows(tables.USER, name=name)
        return _user(found[0]) if found else None

    async def users(self, *, after: str, limit: int) -> Sequence[User]:
        return [_user(row) for row in await self._rows(tables.USERS, after=after, limit=limit)]

    async def count_users(self) -> int:
        return int((await self._rows(tables.COUNT_USERS))[0][0])

    async def token(self, token_id: str) -> IssuedToken | None:
        found = await self._rows(tables.TOKEN, id=token_id)
        return _token(found[0]) if found else None

    async def tokens(self, *, after: str, limit: int) -> Sequence[IssuedToken]:
        return [_token(row) for row in await self._rows(tables.TOKENS, after=after, limit=limit)]

    async def count_tokens(self) -> int:
        return int((await self._rows(tables.COUNT_TOKENS))[0][0])

    async def expire_sign_ins(self, before: datetime, *, limit: int) -> int:
        def delete(session: Session) -> int:
            return session.run(tables.EXPIRE_SIGN_INS, before=to_micros(before), limit=limit)

        return await self._database.write(delete)

    async def expire_failed_sign_ins(self, before: datetime, *, limit: int) -> int:
        def delete(session: Session) -> int:
            return session.run(tables.EXPIRE_FAILED_SIGN_INS, before=to_micros(before), limit=limit)

        return await self._database.write(delete)

    async def _rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        return await self._database.read(lambda session: session.rows(statement, **values))


def _failures(session: Session, keys: Iterable[bytes]) -> dict[bytes, Sequence[datetime]]:
    found = {key: times for key in keys for (times,) in session.rows(tables.FAILED_SIGN_INS, of=key)}
    # A row that was only locked has no times.
    return {key: [from_micros(int(time)) for time in times.split(",")] for key, times in found.items() if times}


def _time(stored: int | None) -> datetime | None:
    return None if stored is None else from_micros(stored)


def _user(row: Row) -> User:
    name, role, password_hash, created_by, created, updated = row
    return User(
        name=name,
        role=Role(role),
        password_hash=password_hash,
        created_by=created_by,
        created_time=from_micros(created),
        updated_time=from_micros(updated),
    )


def _user_values(user: User) -> dict[str, SqlValue]:
    return {
        "name": user.name,
        "role": user.role.value,
        "password_hash": user.password_hash,
        "created_by": user.created_by,
        "created_time": to_micros(user.created_time),
        "updated_time": to_micros(user.updated_time),
    }


def _token(row: Row) -> IssuedToken:
    token_id, name, role, adapter, instance, created_by, digest, created, expires = row
    return IssuedToken(
        id=token_id,
        name=name,
        role=Role(role),
        adapter=adapter,
        instance=instance,
        created_by=created_by,
        digest=bytes(digest),
        created_time=from_micros(created),
        expires_time=_time(expires),
    )


def _token_values(token: IssuedToken) -> dict[str, SqlValue]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "adapter": token.adapter,
        "instance": token.instance,
        "created_by": token.created_by,
        "digest": token.digest,
        "created_time": to_micros(token.created_time),
        "expires_time": None if token.expires_time is None else to_micros(token.expires_time),
    }
