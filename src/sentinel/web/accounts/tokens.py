"""Use cases of tokens in the database. A token is shown once, when it is issued; the store has its hash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Unpack

from sentinel.core.access import Role
from sentinel.core.fleet.reports import is_adapter_name
from sentinel.core.identity_names import NAME_EXPECTED, is_identity_name, is_instance_id
from sentinel.core.ids import uuid7
from sentinel.ports.identity_store import IdentityTransaction, IssuedToken
from sentinel.runtime.bearer_tokens import digest_of, new_token
from sentinel.web.accounts.use_cases import UseCaseOptions, UseCases
from sentinel.web.errors import Invalid, NotFound
from sentinel.web.problem import FieldError, shown
from sentinel.web.routing import Caller

KIND = "token"
"""The kind of tokens in the audit."""
MAX_LIFETIME = timedelta(days=36_500)


class Tokens(UseCases):
    """Issues and revokes tokens."""

    def __init__(
        self, *, randomness: Callable[[int], bytes] = os.urandom, **options: Unpack[UseCaseOptions]
    ) -> None:
        super().__init__(**options)
        self._randomness = randomness

    async def find(self, *, after: str, limit: int) -> tuple[Sequence[IssuedToken], int]:
        """Return tokens in the order they were issued, and how many there are."""
        return await self._store.tokens(after=after, limit=limit), await self._store.count_tokens()

    async def get(self, token_id: str) -> IssuedToken:
        """Raises `NotFound`."""
        token = await self._store.token(token_id)
        if token is None:
            raise _no_token(token_id)
        return token

    async def issue(
        self,
        caller: Caller,
        *,
        name: str,
        role: Role,
        adapter: str = "",
        instance: str = "",
        lifetime: timedelta | None = None,
    ) -> tuple[IssuedToken, str]:
        """Issue a token and return it with its text. Raises `Invalid`."""
        errors = tuple(_errors(name, role, adapter, instance, lifetime))
        if errors:
            raise Invalid(errors)
        now = self._clock.now()
        text = new_token()
        token = IssuedToken(
            id=uuid7(now, self._randomness(10)),
            name=name,
            role=role,
            adapter=adapter,
            instance=instance,
            digest=digest_of(text),
            created_time=now,
            created_by=caller.identity.name,
            expires_time=None if lifetime is None else now + lifetime,
        )
        entry = self._auditor.entry(
            caller, action="create", kind=KIND, resource_id=token.id, now=now, detail=_described(token)
        )

        def work(transaction: IdentityTransaction) -> None:
            transaction.add_token(token)
            transaction.record(entry)

        await self._store.transact(work)
        return token, text

    async def revoke(self, caller: Caller, token_id: str) -> None:
        """Raises `NotFound`."""
        now = self._clock.now()

        def work(transaction: IdentityTransaction) -> None:
            transaction.lock()
            token = transaction.token(token_id)
            if token is None:
                raise _no_token(token_id)
            transaction.remove_token(token_id)
            transaction.record(
                self._auditor.entry(
                    caller, action="delete", kind=KIND, resource_id=token_id, now=now, detail=_described(token)
                )
            )

        await self._store.transact(work)
        self._on_change()


def _described(token: IssuedToken) -> str:
    return f"{token.name}, role {token.role}"


def _no_token(token_id: str) -> NotFound:
    return NotFound(f"there is no token {shown(token_id)}")


def _errors(
    name: str, role: Role, adapter: str, instance: str, lifetime: timedelta | None
) -> Iterator[FieldError]:
    if not is_identity_name(name):
        yield FieldError("name", f"expected {NAME_EXPECTED}")
    if role is Role.ADAPTER and not is_adapter_name(adapter):
        yield FieldError("adapter", "expected the name of an adapter such as dns with the role adapter")
    if role is not Role.ADAPTER and adapter:
        yield FieldError("adapter", f"expected it with the role adapter only, got the role {role}")
    if role is Role.AGENT and instance and not is_instance_id(instance):
        yield FieldError("instance", "expected the id of an instance such as edge-1")
    if role is not Role.AGENT and instance:
        yield FieldError("instance", f"expected it with the role agent only, got the role {role}")
    if lifetime is not None and not timedelta(0) < lifetime <= MAX_LIFETIME:
        yield FieldError("expires_in", "expected a duration such as 720h, more than 0 and at most 100 years")
