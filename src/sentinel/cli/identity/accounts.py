"""Users and tokens as the commands see them: on a server, or in a database.

The first admin is made in the database, because no server would accept a request to add one.
"""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.wiring.extras import extra
from sentinel.core.access import Identity, Role
from sentinel.drivers.rest import url
from sentinel.runtime import durations
from sentinel.runtime.secrets import Secret
from sentinel.web.accounts.schemas import (
    NewTokenDocument,
    TokenDocument,
    TokenList,
    UserDocument,
    UserList,
)
from sentinel.web.lists import MAX_PAGE_SIZE, Page

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ROOT = "/api/v1"


class Accounts(Protocol):
    """The users and tokens of a server or database."""

    async def add_user(self, name: str, role: Role, password: str) -> UserDocument: ...

    async def users(self) -> Sequence[UserDocument]: ...

    async def change_user(
        self, name: str, *, role: Role | None = None, password: str | None = None
    ) -> UserDocument: ...

    async def remove_user(self, name: str) -> None: ...

    async def issue_token(
        self, *, name: str, role: Role, adapter: str, instance: str, lifetime: timedelta | None
    ) -> NewTokenDocument: ...

    async def tokens(self) -> Sequence[TokenDocument]: ...

    async def revoke_token(self, token_id: str) -> None: ...


class ServerAccounts:
    """The accounts of a server, over its REST API. Every call raises `ServerError`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def add_user(self, name: str, role: Role, password: str) -> UserDocument:
        body = {"name": name, "role": role.value, "password": password}
        return await self._send("POST", "users", body, UserDocument)

    async def users(self) -> Sequence[UserDocument]:
        return await self._list("users", UserList)

    async def change_user(
        self, name: str, *, role: Role | None = None, password: str | None = None
    ) -> UserDocument:
        given = {"role": None if role is None else role.value, "password": password}
        body = {key: value for key, value in given.items() if value is not None}
        return await self._send("PATCH", f"users/{url.segment(name)}", body, UserDocument)

    async def remove_user(self, name: str) -> None:
        await self._connection.request("DELETE", f"{_ROOT}/users/{url.segment(name)}")

    async def issue_token(
        self, *, name: str, role: Role, adapter: str, instance: str, lifetime: timedelta | None
    ) -> NewTokenDocument:
        body = {"name": name, "role": role.value}
        optional = {
            "adapter": adapter,
            "instance": instance,
            "expires_in": "" if lifetime is None else durations.render(lifetime),
        }
        body |= {key: value for key, value in optional.items() if value}
        return await self._send("POST", "tokens", body, NewTokenDocument)

    async def tokens(self) -> Sequence[TokenDocument]:
        return await self._list("tokens", TokenList)

    async def revoke_token(self, token_id: str) -> None:
        await self._connection.request("DELETE", f"{_ROOT}/tokens/{url.segment(token_id)}")

    async def _send(self, method: str, path: str, body: object, kind: type[T]) -> T:
        response = await self._connection.request(
            method,
            f"{_ROOT}/{path}",
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        )
        return msgspec.json.decode(response.body, type=kind)

    async def _list(self, path: str, kind: type[Page[T]]) -> list[T]:
        found: list[T] = []
        after: str | None = ""
        while after is not None:
            query = {"size": str(MAX_PAGE_SIZE)} | ({"after": after} if after else {})
            response = await self._connection.request("GET", f"{_ROOT}/{path}", query=query)
            page = msgspec.json.decode(response.body, type=kind)
            found += page.items
            after = page.next
        return found


class DatabaseAccounts:
    """The accounts in a database, changed without a server."""

    def __init__(self, database: Any) -> None:
        """`database` is open."""
        from sentinel.drivers.identity.passwords import Argon2Passwords
        from sentinel.drivers.sql.identity.store import SqlIdentityStore
        from sentinel.runtime.clock import SystemClock
        from sentinel.web.accounts.tokens import Tokens
        from sentinel.web.accounts.users import Users
        from sentinel.web.audit import Auditor
        from sentinel.web.routing import Caller

        store, clock, auditor = SqlIdentityStore(database), SystemClock(), Auditor()
        self._users = Users(store=store, passwords=Argon2Passwords(), clock=clock, auditor=auditor)
        self._tokens = Tokens(store=store, clock=clock, auditor=auditor)
        self._caller = Caller(Identity(_local_user(), Role.ADMIN), "", "")

    async def add_user(self, name: str, role: Role, password: str) -> UserDocument:
        return UserDocument.of(await self._users.add(self._caller, name=name, role=role, password=password))

    async def users(self) -> Sequence[UserDocument]:
        found = await _read_all(self._users.find, key=lambda user: user.name)
        return [UserDocument.of(each) for each in found]

    async def change_user(
        self, name: str, *, role: Role | None = None, password: str | None = None
    ) -> UserDocument:
        return UserDocument.of(await self._users.change(self._caller, name, role=role, password=password))

    async def remove_user(self, name: str) -> None:
        await self._users.remove(self._caller, name)

    async def issue_token(
        self, *, name: str, role: Role, adapter: str, instance: str, lifetime: timedelta | None
    ) -> NewTokenDocument:
        issued, text = await self._tokens.issue(
            self._caller, name=name, role=role, adapter=adapter, instance=instance, lifetime=lifetime
        )
        return NewTokenDocument.issued(issued, text)

    async def tokens(self) -> Sequence[TokenDocument]:
        found = await _read_all(self._tokens.find, key=lambda token: token.id)
        return [TokenDocument.of(each) for each in found]

    async def revoke_token(self, token_id: str) -> None:
        await self._tokens.revoke(self._caller, token_id)


class _Find(Protocol[T_co]):
    async def __call__(self, *, after: str, limit: int) -> tuple[Sequence[T_co], int]: ...


async def _read_all(find: _Find[T], *, key: Callable[[T], str]) -> list[T]:
    found: list[T] = []
    while True:
        page, total = await find(after=key(found[-1]) if found else "", limit=MAX_PAGE_SIZE)
        found += page
        if not page or len(found) >= total:
            return found


@asynccontextmanager
async def open_database(database_url: str, *, who: str) -> AsyncIterator[DatabaseAccounts]:
    """Open the accounts of a database, which is migrated. Raises `Misconfigured`, `Unavailable`."""
    with extra("api", who=who):
        from sentinel.cli.wiring.server import build_database
        from sentinel.runtime.settings.server import DatabaseSettings

        database = build_database(DatabaseSettings(database_url=Secret(database_url)))
        accounts = DatabaseAccounts(database)
    await database.open()
    try:
        yield accounts
    finally:
        await database.close()


def _local_user() -> str:
    """Return the actor in the audit of changes without a server."""
    try:
        return f"local:{getpass.getuser()}"
    except (KeyError, OSError):  # a container whose user has no name
        return "local"
