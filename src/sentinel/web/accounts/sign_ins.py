"""Signing in with a password, and out again.

Failures are counted per name and per address (`core.login_throttle`), in the database, so that all servers on it
share the limit. They are read before the password is checked, and again in the transaction that ends the attempt.
A client learns whether the password was right only after its commit, so parallel guesses at many servers gain
nothing. Within a process, attempts with the same name or address are made one after the other: most parallel
guesses then cost no hashing. An unknown name takes as long as a wrong password.

Every sign-in and every refused one is in the audit, except those that were refused for being too many: an attacker
must not be able to fill the database with them. The entry of a refused one names the user only if there is one,
because people sometimes type their password in the wrong field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, Unpack

from sentinel.core import login_throttle
from sentinel.core.access import Identity
from sentinel.core.problem_codes import Code
from sentinel.ports.errors import Unavailable
from sentinel.ports.identity_store import Failures, IdentityTransaction, SignIn, User
from sentinel.ports.passwords import PasswordHasher
from sentinel.runtime.bearer_tokens import digest_of, new_token
from sentinel.runtime.key_locks import KeyLocks
from sentinel.web import problem
from sentinel.web.accounts.use_cases import UseCaseOptions, UseCases
from sentinel.web.accounts.users import KIND, MAX_PASSWORD
from sentinel.web.problem import Problem
from sentinel.web.routing import Caller

LIFETIME: Final = timedelta(hours=12)
"""How long a sign-in lasts."""
_TURN_TIMEOUT = timedelta(seconds=20)


class SignIns(UseCases):
    """Begins and ends sign-ins."""

    def __init__(self, *, passwords: PasswordHasher, **options: Unpack[UseCaseOptions]) -> None:
        super().__init__(**options)
        self._passwords = passwords
        self._turns = KeyLocks(timeout=_TURN_TIMEOUT)

    async def begin(self, caller: Caller, *, name: str, password: str) -> tuple[SignIn, str]:
        """Sign a user in, and return the sign-in with the text of its token.

        Raises a `Problem`: 401 for a wrong name or password, 429 after too many of them.
        """
        keys = [digest_of(f"name {name}"), digest_of(f"address {caller.address}")]
        with ExitStack() as turns:
            for key in keys:
                turns.callback(await self._take_turn(key.hex()))
            _require_few(await self._store.failed_sign_ins(keys), self._clock.now())
            begun = await self._attempt(caller, keys, name, password)
        if begun is None:
            raise _refused()
        return begun

    async def end(self, caller: Caller, digest: bytes) -> None:
        """End the sign-in with this token. Does nothing if it is not the token of a sign-in."""
        now = self._clock.now()

        def work(transaction: IdentityTransaction) -> None:
            transaction.lock()
            if transaction.end_sign_in(digest):
                name = caller.identity.name
                transaction.record(
                    self._auditor.entry(caller, action="logout", kind=KIND, resource_id=name, now=now)
                )

        if digest:
            await self._store.transact(work)
            self._on_change()

    async def _take_turn(self, key: str) -> Callable[[], None]:
        """Wait for other attempts with this key. Returns a function that lets the next one begin."""
        try:
            return (await self._turns.acquire(key)).release
        except Unavailable:
            raise problem.unavailable(
                "too many sign-ins with this name or from this address are in progress", code=Code.OVERLOADED
            ) from None

    async def _attempt(
        self, caller: Caller, keys: Sequence[bytes], name: str, password: str
    ) -> tuple[SignIn, str] | None:
        """Return the sign-in, or None if the name or password is wrong."""
        user = await self._store.user(name)
        is_right = await self._is_right(user, password)
        begun = await self._record(caller, keys, user) if user is not None and is_right else None
        if begun is None:
            await self._record_refused(caller, keys, user)
        return begun

    async def _is_right(self, user: User | None, password: str) -> bool:
        if len(password.encode()) > MAX_PASSWORD:
            password = ""  # never one that was set, and hashing takes time for each byte
        return await self._passwords.verify(password, None if user is None else user.password_hash)

    async def _record(self, caller: Caller, keys: Sequence[bytes], user: User) -> tuple[SignIn, str] | None:
        """Write the sign-in, unless the user was changed since the password was read."""
        now = self._clock.now()
        text = new_token()
        begun = SignIn(digest=digest_of(text), user=user.name, created_time=now, expires_time=now + LIFETIME)
        as_user = Caller(Identity(user.name, user.role), caller.address, caller.request_id)
        entry = self._auditor.entry(as_user, action="login", kind=KIND, resource_id=user.name, now=now)

        def work(transaction: IdentityTransaction) -> bool:
            _require_few(transaction.failed_sign_ins(keys), now)
            if transaction.user(user.name) != user:
                return False
            transaction.add_sign_in(begun)
            transaction.record(entry)
            return True

        return (begun, text) if await self._store.transact(work) else None

    async def _record_refused(self, caller: Caller, keys: Sequence[bytes], user: User | None) -> None:
        """Count the failure."""
        now = self._clock.now()
        entry = self._auditor.entry(
            caller,
            action="login-refused",
            kind=KIND,
            resource_id="" if user is None else user.name,
            now=now,
            detail="unknown name" if user is None else "wrong password",
        )

        def work(transaction: IdentityTransaction) -> None:
            failures = transaction.lock_failed_sign_ins(keys)
            _require_few(failures, now)
            for key, times in failures.items():
                transaction.replace_failed_sign_ins(key, login_throttle.with_failure(times, now))
            transaction.record(entry)

        await self._store.transact(work)


def _refused() -> Problem:
    return Problem(
        HTTPStatus.UNAUTHORIZED,
        Code.WRONG_CREDENTIALS,
        "expected the name and password of a user",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _require_few(failures: Failures, now: datetime) -> None:
    """Raise a 429 `Problem` if a key has failed too often."""
    wait = max((login_throttle.wait(times, now) for times in failures.values()), default=timedelta(0))
    if wait > timedelta(0):
        raise _too_many(wait)


def _too_many(wait: timedelta) -> Problem:
    seconds = math.ceil(wait.total_seconds())
    return problem.too_many_requests(
        f"too many failed sign-ins with this name or from this address; try again in {seconds} s",
        retry_after=timedelta(seconds=seconds),
    )
