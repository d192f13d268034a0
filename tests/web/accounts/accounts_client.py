"""Calls an application that serves only accounts and the audit, with a clock that the test moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.stored_tokens import StoredTokens
from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.ports.passwords import PasswordHasher
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import ManualClock
from sentinel.testing.identities import MemoryIdentities
from sentinel.testing.passwords import MemoryPasswordHasher
from sentinel.web import audit
from sentinel.web.accounts.http import AccountHandlers
from sentinel.web.accounts.routes import account_component
from sentinel.web.accounts.sign_ins import SignIns
from sentinel.web.accounts.tokens import Tokens
from sentinel.web.accounts.users import Users
from sentinel.web.app import Component, build_app
from sentinel.web.audit import Auditor
from sentinel.web.identity import Guard
from tests.support.databases import backends
from tests.support.databases.backends import Backend
from tests.web.asgi_client import ReceivedResponse
from tests.web.rest_caller import ADMIN, RestCaller

PASSWORD = "correct horse"


class AccountsClient(RestCaller):
    """An application whose admin has the token `ADMIN`."""

    def __init__(self, *, backend: Backend | None = None, passwords: PasswordHasher | None = None) -> None:
        self.clock = ManualClock()
        self.backend = backend or backends.memory()
        self.passwords = MemoryPasswordHasher()
        store, hasher, auditor = self.backend.identities, passwords or self.passwords, Auditor()
        self.stored = StoredTokens(store, clock=self.clock, monotonic=self._seconds)
        forget = self.stored.forget
        handlers = AccountHandlers(
            sign_ins=SignIns(store=store, passwords=hasher, clock=self.clock, auditor=auditor, on_change=forget),
            users=Users(store=store, passwords=hasher, clock=self.clock, auditor=auditor, on_change=forget),
            tokens=Tokens(store=store, clock=self.clock, auditor=auditor, on_change=forget),
        )
        component = account_component(handlers)
        root = MemoryIdentities({ADMIN: Identity("root", Role.ADMIN)})
        log = Component(routes=audit.audit_routes(self.backend.audit), permissions=audit.PERMISSIONS)
        self.components = [component, log]
        self.app = build_app(
            components=self.components, guard=Guard(identities=[root, self.stored]), log=get_logger("test")
        )

    async def __aenter__(self) -> AccountsClient:
        await self.backend.database.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.database.close()

    def _seconds(self) -> float:
        return self.clock.now().timestamp()

    async def add_user(self, name: str, role: str = "viewer", password: str = PASSWORD) -> None:
        response = await self.call("POST", "users", {"name": name, "role": role, "password": password})
        assert response.status == 201, response

    async def log_in(self, name: str, password: str = PASSWORD, *, address: str = "127.0.0.1") -> ReceivedResponse:
        body = {"name": name, "password": password}
        return await self.call("POST", "auth/login", body, token="", address=address)

    async def signed_in(self, name: str, role: str = "viewer") -> str:
        """Add a user who signs in. Returns the token."""
        await self.add_user(name, role)
        return str((await self.log_in(name)).json["token"])

    async def issue(self, **fields: object) -> dict[str, Any]:
        response = await self.call("POST", "tokens", fields)
        assert response.status == 201, response
        issued: dict[str, Any] = response.json
        return issued

    async def me(self, token: str) -> int:
        return (await self.call("GET", "auth/me", token=token)).status

    async def audit(self, **filters: str) -> list[AuditEntry]:
        """The entries, newest first."""
        return list(await self.backend.audit.find(AuditQuery(limit=100, **filters)))

    async def later(self, seconds: float) -> None:
        await self.clock.advance(timedelta(seconds=seconds))


def described(entry: AuditEntry) -> tuple[str, str, str, str, str]:
    return entry.actor, entry.action, entry.kind, entry.resource_id, entry.detail
