"""Use cases of users.

The last admin can be neither removed nor demoted, so nobody locks everybody out. A changed role, a changed
password and a removal end the user's sign-ins, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import msgspec

from sentinel.core.access import Role
from sentinel.core.identity_names import NAME_EXPECTED, is_user_name
from sentinel.ports.identity_store import IdentityTransaction, User, UserTaken
from sentinel.ports.passwords import PasswordHasher
from sentinel.web.accounts.use_cases import UseCaseOptions, UseCases
from sentinel.web.errors import Conflict, Invalid, NotFound
from sentinel.web.problem import FieldError, shown
from sentinel.web.routing import Caller

KIND = "user"
"""The kind of users in the audit."""
ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""The roles of people. The others are for machines, which have tokens."""
MIN_PASSWORD = 8
MAX_PASSWORD = 1024
"""In bytes, because hashing takes time for each of them."""


class Users(UseCases):
    """Adds, changes and removes users."""

    def __init__(self, *, passwords: PasswordHasher, **options: Unpack[UseCaseOptions]) -> None:
        super().__init__(**options)
        self._passwords = passwords

    async def find(self, *, after: str, limit: int) -> tuple[Sequence[User], int]:
        """Return users in the order of their names, and how many there are."""
        return await self._store.users(after=after, limit=limit), await self._store.count_users()

    async def get(self, name: str) -> User:
        """Raises `NotFound`."""
        user = await self._store.user(name)
        if user is None:
            raise _no_user(name)
        return user

    async def add(self, caller: Caller, *, name: str, role: Role, password: str) -> User:
        """Raises `Invalid`, and `Conflict` if the name is taken."""
        check(name=name, role=role, password=password)
        hashed = await self._passwords.hash(password)
        now = self._clock.now()
        user = User(
            name=name,
            role=role,
            password_hash=hashed,
            created_time=now,
            created_by=caller.identity.name,
            updated_time=now,
        )
        entry = self._auditor.entry(
            caller, action="create", kind=KIND, resource_id=name, now=now, detail=f"role {role}"
        )

        def work(transaction: IdentityTransaction) -> None:
            transaction.add_user(user)
            transaction.record(entry)

        try:
            await self._store.transact(work)
        except UserTaken:
            raise Conflict(f"a user with the name {shown(name)} exists") from None
        return user

    async def change(
        self, caller: Caller, name: str, *, role: Role | None = None, password: str | None = None
    ) -> User:
        """Change the role, the password, or both.

        Raises `Invalid`, `NotFound`, and `Conflict` for the last admin.
        """
        check(role=role, password=password)
        hashed = None if password is None else await self._passwords.hash(password)
        now = self._clock.now()

        def work(transaction: IdentityTransaction) -> User:
            user = _lock(transaction, name)
            new_role = user.role if role is None else role
            changes = [f"role {new_role}"] if new_role is not user.role else []
            if hashed is not None:
                changes.append("password")
            if not changes:
                return user
            if new_role is not Role.ADMIN:
                _require_other_admin(transaction, user, "demoted")
            changed = msgspec.structs.replace(
                user, role=new_role, password_hash=hashed or user.password_hash, updated_time=now
            )
            transaction.replace_user(changed)
            transaction.end_sign_ins(name)
            transaction.record(
                self._auditor.entry(
                    caller, action="patch", kind=KIND, resource_id=name, now=now, detail=", ".join(changes)
                )
            )
            return changed

        changed = await self._store.transact(work)
        self._on_change()
        return changed

    async def remove(self, caller: Caller, name: str) -> None:
        """Raises `NotFound`, and `Conflict` for the last admin."""
        now = self._clock.now()

        def work(transaction: IdentityTransaction) -> None:
            user = _lock(transaction, name)
            _require_other_admin(transaction, user, "removed")
            transaction.remove_user(name)
            transaction.end_sign_ins(name)
            transaction.record(self._auditor.entry(caller, action="delete", kind=KIND, resource_id=name, now=now))

        await self._store.transact(work)
        self._on_change()


def check(*, name: str | None = None, role: Role | None = None, password: str | None = None) -> None:
    """Raise `Invalid` if one of these cannot be a user's."""
    errors = [
        *(() if name is None else _name_errors(name)),
        *(() if role is None else _role_errors(role)),
        *(() if password is None else _password_errors(password)),
    ]
    if errors:
        raise Invalid(tuple(errors))


def _lock(transaction: IdentityTransaction, name: str) -> User:
    """Lock all accounts, and return one. Raises `NotFound`."""
    transaction.lock()
    user = transaction.user(name)
    if user is None:
        raise _no_user(name)
    return user


def _require_other_admin(transaction: IdentityTransaction, user: User, done: str) -> None:
    if user.role is Role.ADMIN and transaction.count_users(Role.ADMIN) < 2:
        raise Conflict(f"{user.name} is the last admin and cannot be {done}; add another admin first")


def _no_user(name: str) -> NotFound:
    return NotFound(f"there is no user {shown(name)}")


def _name_errors(name: str) -> Sequence[FieldError]:
    return () if is_user_name(name) else (FieldError("name", f"expected {_USER_NAME_EXPECTED}"),)


def _role_errors(role: Role) -> Sequence[FieldError]:
    if role in ROLES:
        return ()
    return (FieldError("role", f"expected one of {', '.join(ROLES)}, got {role}; machines have tokens"),)


def _password_errors(password: str) -> Sequence[FieldError]:
    """The errors in a password, which they never quote."""
    if len(password) < MIN_PASSWORD:
        return (FieldError("password", f"expected at least {MIN_PASSWORD} characters, got {len(password)}"),)
    if "\0" in password:
        return (FieldError("password", "expected text, got a NUL character"),)
    if len(password.encode()) > MAX_PASSWORD:
        return (FieldError("password", f"expected at most {MAX_PASSWORD} bytes, got more"),)
    return ()


_USER_NAME_EXPECTED = NAME_EXPECTED.replace(":/", "")
