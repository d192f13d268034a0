"""The contract of `ports.identity_store.IdentityStore`.

A driver's test class inherits `IdentityStoreContract` and defines a fixture `stores`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias, TypeVar

import msgspec
import pytest

from sentinel.core.access import Identity, Role
from sentinel.ports.audit import AuditQuery
from sentinel.ports.identity_store import (
    Failures,
    IdentityStore,
    IdentityTransaction,
    IssuedToken,
    SignIn,
    TokenOwner,
    User,
    UserTaken,
)
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import HOUR, MOMENT, SECOND, StoreSuite, entry, together

T = TypeVar("T")
Change: TypeAlias = Callable[[IdentityTransaction], T]

NAME, ADDRESS, OTHER_KEY = b"n" * 32, b"a" * 32, b"\0" * 32


def user(name: str, role: Role = Role.VIEWER) -> User:
    return User(
        name=name,
        role=role,
        password_hash=f"$hash$of-{name}",
        created_time=MOMENT,
        created_by="root",
        updated_time=MOMENT + SECOND / 7,
    )


def token(number: int, role: Role = Role.OPERATOR, **more: str) -> IssuedToken:
    return IssuedToken(
        id=f"0195-{number:04}",
        name=f"token-{number}",
        role=role,
        digest=bytes([number]) * 32,
        created_time=MOMENT,
        created_by="root",
        expires_time=MOMENT + HOUR if number % 2 else None,
        **more,
    )


def sign_in(number: int, name: str) -> SignIn:
    return SignIn(
        digest=bytes([200 + number]) * 32, user=name, created_time=MOMENT, expires_time=MOMENT + number * HOUR
    )


async def add(store: IdentityStore, *rows: User | IssuedToken | SignIn) -> None:
    def work(transaction: IdentityTransaction) -> None:
        for row in rows:
            match row:
                case User():
                    transaction.add_user(row)
                case IssuedToken():
                    transaction.add_token(row)
                case SignIn():
                    assert transaction.user(row.user) is not None
                    transaction.add_sign_in(row)

    await store.transact(work)


async def fail(store: IdentityStore, failures: Failures) -> None:
    def work(transaction: IdentityTransaction) -> None:
        transaction.lock_failed_sign_ins(failures)
        for key, times in failures.items():
            transaction.replace_failed_sign_ins(key, times)

    await store.transact(work)


def as_tuples(failures: Failures) -> dict[bytes, tuple[datetime, ...]]:
    return {key: tuple(times) for key, times in failures.items()}


class IdentityStoreContract(StoreSuite):
    """Users, tokens, sign-ins and failed ones are kept, found by a hash, and removed."""

    @pytest.fixture
    def identities(self, backend: Backend) -> IdentityStore:
        return backend.identities

    async def test_users_are_read_as_they_were_added(self, identities: IdentityStore) -> None:
        ann, ben = user("ann", Role.ADMIN), user("ben@example.com")

        await add(identities, ben, ann)

        assert await identities.user("ann") == ann
        assert await identities.user("Ann") is None
        assert await identities.user("an\0n") is None
        assert list(await identities.users(after="", limit=9)) == [ann, ben]
        assert list(await identities.users(after="ann", limit=9)) == [ben]
        assert list(await identities.users(after="", limit=1)) == [ann]
        assert await identities.count_users() == 2

    async def test_a_name_is_taken_once(self, backend: Backend, identities: IdentityStore) -> None:
        await add(identities, user("ann"))

        def work(transaction: IdentityTransaction) -> None:
            transaction.record(entry(1))
            transaction.add_user(user("ann", Role.ADMIN))

        with pytest.raises(UserTaken):
            await identities.transact(work)
        assert await identities.user("ann") == user("ann")
        assert list(await backend.audit.find(AuditQuery(limit=9))) == []

    async def test_tokens_are_read_as_they_were_added(self, identities: IdentityStore) -> None:
        dns, edge, plain = token(1, Role.ADAPTER, adapter="dns"), token(2, Role.AGENT, instance="e"), token(3)

        await add(identities, plain, dns, edge)

        assert await identities.token(dns.id) == dns
        assert await identities.token("absent") is None
        assert list(await identities.tokens(after="", limit=9)) == [dns, edge, plain]
        assert list(await identities.tokens(after=dns.id, limit=1)) == [edge]
        assert await identities.count_tokens() == 3

    async def test_a_token_is_found_by_its_hash(self, identities: IdentityStore) -> None:
        dns, edge = token(1, Role.ADAPTER, adapter="dns"), token(2, Role.AGENT, instance="edge-1")
        await add(identities, dns, edge)

        assert await identities.owner(dns.digest) == TokenOwner(
            Identity("token-1", Role.ADAPTER, adapter="dns"), MOMENT + HOUR
        )
        assert await identities.owner(edge.digest) == TokenOwner(
            Identity("token-2", Role.AGENT, instance="edge-1"), None
        )
        assert await identities.owner(b"\0" * 32) is None
        assert await identities.owner(b"") is None

    async def test_a_sign_in_stands_for_its_user(self, identities: IdentityStore) -> None:
        await add(identities, user("ann", Role.OPERATOR), sign_in(1, "ann"))

        found = await identities.owner(sign_in(1, "ann").digest)

        assert found == TokenOwner(Identity("ann", Role.OPERATOR), MOMENT + HOUR)

    async def test_there_are_credentials_once_there_is_a_user_or_token(self, backend: Backend) -> None:
        before = await backend.identities.has_credentials()
        await add(backend.identities, token(1))
        with_token = await backend.identities.has_credentials()
        await self._change(backend.identities, lambda transaction: transaction.remove_token(token(1).id))
        without = await backend.identities.has_credentials()
        await add(backend.identities, user("ann"))

        assert (before, with_token, without) == (False, True, False)
        assert await backend.identities.has_credentials()

    async def test_a_user_is_replaced_and_removed(self, identities: IdentityStore) -> None:
        ann = user("ann")
        await add(identities, ann, user("ben"))
        changed = msgspec.structs.replace(ann, role=Role.ADMIN, password_hash="$other", updated_time=MOMENT + HOUR)

        await self._change(identities, lambda transaction: transaction.replace_user(changed))
        found = await identities.user("ann")
        await self._change(identities, lambda transaction: transaction.remove_user("ann"))

        assert found == changed
        assert [each.name for each in await identities.users(after="", limit=9)] == ["ben"]

    async def test_sign_ins_end_one_by_one_or_all_of_a_user(self, identities: IdentityStore) -> None:
        one, two, three = sign_in(1, "ann"), sign_in(2, "ann"), sign_in(3, "ben")
        await add(identities, user("ann"), user("ben"), one, two, three, sign_in(4, "ann"))

        ended = await self._change(
            identities, lambda transaction: (transaction.end_sign_in(one.digest), transaction.end_sign_in(b"x"))
        )
        count = await self._change(identities, lambda transaction: transaction.end_sign_ins("ann"))

        assert (ended, count) == ((True, False), 2)
        assert await identities.owner(one.digest) is None
        assert await identities.owner(two.digest) is None
        assert await identities.owner(three.digest) is not None

    async def test_a_sign_in_of_a_removed_user_stands_for_nobody(self, identities: IdentityStore) -> None:
        await add(identities, user("ann"), sign_in(1, "ann"))

        await self._change(identities, lambda transaction: transaction.remove_user("ann"))

        assert await identities.owner(sign_in(1, "ann").digest) is None

    async def test_only_changes_and_removals_raise_the_revision(self, identities: IdentityStore) -> None:
        first = await identities.revision()
        await add(identities, user("ann"), token(1), sign_in(1, "ann"))
        added = await identities.revision()
        await self._change(identities, lambda transaction: transaction.remove_token(token(1).id))

        assert first == added
        assert await identities.revision() > added

    async def test_a_failed_transaction_changes_nothing(self, backend: Backend) -> None:
        identities = backend.identities
        await add(identities, user("ann"), token(1), sign_in(1, "ann"))
        before = await identities.revision()

        def work(transaction: IdentityTransaction) -> None:
            transaction.lock()
            transaction.remove_user("ann")
            transaction.remove_token(token(1).id)
            transaction.end_sign_ins("ann")
            transaction.add_user(user("eve"))
            transaction.record(entry(1))
            raise LookupError("the work failed")

        with pytest.raises(LookupError):
            await identities.transact(work)
        assert await identities.revision() == before
        assert await identities.owner(sign_in(1, "ann").digest) is not None
        assert await identities.token(token(1).id) == token(1)
        assert await identities.user("eve") is None
        assert list(await backend.audit.find(AuditQuery(limit=9))) == []

    async def test_an_audit_entry_is_written_with_the_change(self, backend: Backend) -> None:
        def work(transaction: IdentityTransaction) -> None:
            transaction.add_user(user("ann"))
            transaction.record(entry(1))

        await backend.identities.transact(work)

        assert list(await backend.audit.find(AuditQuery(limit=9))) == [entry(1)]

    async def test_concurrent_removals_leave_the_last_admin(self, identities: IdentityStore) -> None:
        names = [f"admin-{number}" for number in range(8)]
        await add(identities, *(user(name, Role.ADMIN) for name in names), user("ann"))

        async def remove(name: str) -> bool:
            def work(transaction: IdentityTransaction) -> bool:
                transaction.lock()
                if transaction.count_users(Role.ADMIN) < 2:
                    return False
                transaction.remove_user(name)
                return True

            return await identities.transact(work)

        removed = await together(*(remove(name) for name in names))

        assert removed.count(True) == 7
        assert [each.role for each in await identities.users(after="", limit=9)].count(Role.ADMIN) == 1

    async def test_a_sign_in_never_survives_a_concurrent_change(self, identities: IdentityStore) -> None:
        await add(identities, user("ann"))
        changed = msgspec.structs.replace(user("ann"), password_hash="$other")

        async def log_in(number: int) -> None:
            def work(transaction: IdentityTransaction) -> None:
                found = transaction.user("ann")
                if found is not None and found.password_hash == user("ann").password_hash:
                    transaction.add_sign_in(sign_in(number, "ann"))

            await identities.transact(work)

        def change(transaction: IdentityTransaction) -> None:
            transaction.lock()
            transaction.user("ann")
            transaction.replace_user(changed)
            transaction.end_sign_ins("ann")

        before, after = [log_in(number) for number in range(5)], [log_in(number) for number in range(5, 10)]
        await together(*before, identities.transact(change), *after)

        owners = [await identities.owner(sign_in(number, "ann").digest) for number in range(10)]
        assert owners == [None] * 10

    async def test_ended_sign_ins_expire_oldest_first(self, identities: IdentityStore) -> None:
        await add(identities, user("ann"), *(sign_in(number, "ann") for number in range(5)))

        deleted = [await identities.expire_sign_ins(MOMENT + 3 * HOUR, limit=2) for _ in range(3)]

        assert deleted == [2, 1, 0]
        assert await identities.owner(sign_in(2, "ann").digest) is None
        assert await identities.owner(sign_in(3, "ann").digest) is not None

    async def test_failed_sign_ins_are_read_as_they_were_set(self, identities: IdentityStore) -> None:
        one, two = (MOMENT,), (MOMENT - SECOND / 7, MOMENT + SECOND / 3)

        await fail(identities, {NAME: one, ADDRESS: (MOMENT - HOUR,)})
        await fail(identities, {NAME: two})

        found = await identities.failed_sign_ins([NAME, OTHER_KEY, ADDRESS])
        within = await identities.transact(lambda transaction: transaction.failed_sign_ins([NAME, OTHER_KEY]))
        assert as_tuples(found) == {NAME: two, ADDRESS: (MOMENT - HOUR,)}
        assert as_tuples(within) == {NAME: two}

    async def test_locking_failed_sign_ins_returns_every_key(self, identities: IdentityStore) -> None:
        await fail(identities, {NAME: (MOMENT,)})

        locked = await identities.transact(lambda transaction: transaction.lock_failed_sign_ins([NAME, ADDRESS]))

        assert as_tuples(locked) == {NAME: (MOMENT,), ADDRESS: ()}
        assert as_tuples(await identities.failed_sign_ins([NAME, ADDRESS])) == {NAME: (MOMENT,)}

    async def test_a_failed_transaction_counts_no_failed_sign_in(self, identities: IdentityStore) -> None:
        await fail(identities, {NAME: (MOMENT,)})

        def work(transaction: IdentityTransaction) -> None:
            for key in transaction.lock_failed_sign_ins([NAME, ADDRESS]):
                transaction.replace_failed_sign_ins(key, [MOMENT + SECOND])
            raise LookupError("the work failed")

        with pytest.raises(LookupError):
            await identities.transact(work)
        assert as_tuples(await identities.failed_sign_ins([NAME, ADDRESS])) == {NAME: (MOMENT,)}

    async def test_concurrent_failures_are_all_counted(self, identities: IdentityStore) -> None:
        async def one(number: int, *keys: bytes) -> None:
            def work(transaction: IdentityTransaction) -> None:
                for key, times in transaction.lock_failed_sign_ins(keys).items():
                    transaction.replace_failed_sign_ins(key, [*times, MOMENT + number * SECOND])

            await identities.transact(work)

        # In both orders, so that two of them could wait for each other.
        await together(
            *(one(number, *((NAME, ADDRESS) if number % 2 else (ADDRESS, NAME))) for number in range(20))
        )

        found = await identities.failed_sign_ins([NAME, ADDRESS])
        assert {key: len(set(times)) for key, times in found.items()} == {NAME: 20, ADDRESS: 20}

    async def test_old_failed_sign_ins_expire_oldest_first(self, identities: IdentityStore) -> None:
        keys = [bytes([number]) * 32 for number in range(5)]
        for number, key in enumerate(keys):
            await fail(identities, {key: (MOMENT, MOMENT + number * SECOND)})

        deleted = [await identities.expire_failed_sign_ins(MOMENT + 3 * SECOND, limit=2) for _ in range(3)]

        assert deleted == [2, 1, 0]
        assert (await identities.failed_sign_ins(keys)).keys() == set(keys[3:])

    async def test_keys_that_were_only_locked_expire(self, identities: IdentityStore) -> None:
        await identities.transact(lambda transaction: transaction.lock_failed_sign_ins([NAME]))

        await identities.expire_failed_sign_ins(MOMENT, limit=9)

        assert await identities.expire_failed_sign_ins(MOMENT, limit=9) == 0

    async def test_a_failure_during_the_expiry_is_not_lost(self, identities: IdentityStore) -> None:
        keys = [bytes([number]) * 32 for number in range(20)]
        await fail(identities, dict.fromkeys(keys, (MOMENT - HOUR,)))

        expiry = [identities.expire_failed_sign_ins(MOMENT, limit=5) for _ in range(4)]
        await together(*(fail(identities, {key: (MOMENT,)}) for key in keys), *expiry)

        assert (await identities.failed_sign_ins(keys)).keys() == set(keys)

    async def _change(self, store: IdentityStore, change: Change[T]) -> T:
        def work(transaction: IdentityTransaction) -> T:
            transaction.lock()
            return change(transaction)

        return await store.transact(work)
