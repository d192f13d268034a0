"""Builds what every server has for users, tokens and sign-ins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from sentinel.core import login_throttle
from sentinel.drivers.identity.passwords import Argon2Passwords
from sentinel.drivers.identity.stored_tokens import StoredTokens
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.identity.store import SqlIdentityStore
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured
from sentinel.ports.identity_store import IdentityStore
from sentinel.runtime.retention import RetentionRule
from sentinel.runtime.settings.server import NO_CREDENTIALS
from sentinel.web.accounts.http import AccountHandlers
from sentinel.web.accounts.routes import account_component
from sentinel.web.accounts.sign_ins import SignIns
from sentinel.web.accounts.tokens import Tokens
from sentinel.web.accounts.users import Users
from sentinel.web.app import Component
from sentinel.web.audit import Auditor


class BuiltAccounts(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts of a database, ready to be served."""

    store: IdentityStore
    identities: StoredTokens
    """Knows the tokens and sign-ins of the database."""
    web: Component
    retention_rules: Sequence[RetentionRule]

    async def require_any(self) -> None:
        """Raise `Misconfigured` if there is no user or token, so that nobody could use the server."""
        if not await self.store.has_credentials():
            raise Misconfigured(NO_CREDENTIALS)


def build_accounts(database: SqlDatabase, *, auditor: Auditor, clock: Clock) -> BuiltAccounts:
    """Build the accounts of this database, which the caller opens."""
    store = SqlIdentityStore(database)
    identities = StoredTokens(store, clock=clock)
    passwords = Argon2Passwords()
    forget = identities.forget
    handlers = AccountHandlers(
        sign_ins=SignIns(store=store, passwords=passwords, clock=clock, auditor=auditor, on_change=forget),
        users=Users(store=store, passwords=passwords, clock=clock, auditor=auditor, on_change=forget),
        tokens=Tokens(store=store, clock=clock, auditor=auditor, on_change=forget),
    )
    return BuiltAccounts(
        store=store,
        identities=identities,
        web=account_component(handlers),
        retention_rules=(
            RetentionRule("sign-ins", timedelta(0), store.expire_sign_ins),
            RetentionRule("failed sign-ins", login_throttle.WINDOW, store.expire_failed_sign_ins),
        ),
    )
