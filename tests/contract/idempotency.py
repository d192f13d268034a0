"""The contract of `ports.idempotency.IdempotencyStore` and `StoredResponses`.

A driver's test class inherits `IdempotencyContract` and defines a fixture `stores`, which is not bound to an event
loop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from sentinel.ports.audit import AuditQuery
from sentinel.ports.idempotency import KeyTaken, StoredResponse
from tests.support.databases.backends import Backend, SharedTransaction
from tests.support.fleet.store_records import MOMENT, SECOND, StoreSuite, entry, request_concurrently, response


def recalling(actor: str, key: str) -> Callable[[SharedTransaction], StoredResponse | None]:
    return lambda transaction: transaction.recall(actor, key)


def remembering(*responses: StoredResponse) -> Callable[[SharedTransaction], None]:
    def work(transaction: SharedTransaction) -> None:
        for each in responses:
            transaction.remember(each)

    return work


class IdempotencyContract(StoreSuite):
    """A response is stored with the rest of a transaction, once per actor and key, and expires."""

    async def test_a_response_is_recalled_by_its_actor_and_key(self, backend: Backend) -> None:
        kept = StoredResponse(
            actor="ops",
            key="schlüssel",
            fingerprint="f1",
            time=MOMENT + SECOND / 3,
            version=2**53,
            body=b'{"id":"cls-1"} \x00\xff',
        )
        await backend.transact(remembering(kept))

        assert await backend.transact(recalling("ops", "schlüssel")) == kept
        assert await backend.transact(recalling("dns", "schlüssel")) is None
        assert await backend.transact(recalling("ops", "Schlüssel")) is None

    async def test_a_megabyte_is_stored_unchanged(self, backend: Backend) -> None:
        large = response("key", body=b"x" * 1_000_000)

        await backend.transact(remembering(large))

        assert await backend.transact(recalling("ops", "key")) == large

    async def test_each_actor_has_its_own_keys(self, backend: Backend) -> None:
        await backend.transact(remembering(response("key")))

        with pytest.raises(KeyTaken):
            await backend.transact(remembering(response("key", body=b"another")))
        await backend.transact(remembering(response("key", actor="dns")))

        assert await backend.transact(recalling("ops", "key")) == response("key")

    async def test_a_transaction_sees_its_own_responses(self, backend: Backend) -> None:
        def work(transaction: SharedTransaction) -> list[StoredResponse | None]:
            before = transaction.recall("ops", "key")
            transaction.remember(response("key"))
            return [before, transaction.recall("ops", "key")]

        assert await backend.transact(work) == [None, response("key")]

    async def test_a_transaction_that_fails_stores_nothing(self, backend: Backend) -> None:
        def work(transaction: SharedTransaction) -> None:
            transaction.remember(response("key"))
            raise LookupError("the work failed")

        with pytest.raises(LookupError, match="the work failed"):
            await backend.transact(work)

        assert await backend.transact(recalling("ops", "key")) is None

    async def test_a_transaction_whose_key_is_taken_is_over(self, backend: Backend) -> None:
        await backend.transact(remembering(response("key")))

        def work(transaction: SharedTransaction) -> None:
            transaction.record(entry(1))
            with suppress(KeyTaken):
                transaction.remember(response("key"))

        with pytest.raises(KeyTaken):
            await backend.transact(work)

        assert list(await backend.audit.find(AuditQuery(limit=9))) == []

    async def test_a_key_of_one_component_is_taken_for_the_others(self, backend: Backend) -> None:
        await backend.fleet.transact(remembering(response("key")))

        with pytest.raises(KeyTaken):
            await backend.transact(remembering(response("key")))

    async def test_one_of_many_concurrent_requests_acts_and_others_recall_it(self, backend: Backend) -> None:
        results = await request_concurrently(
            backend.transact, lambda transaction, number: transaction.record(entry(number))
        )

        assert results == [results[0]] * 20
        assert len(await backend.audit.find(AuditQuery(limit=99))) == 1

    async def test_old_responses_expire_and_free_their_keys(self, backend: Backend) -> None:
        old, young = response("old"), response("young", time=MOMENT + SECOND)
        await backend.transact(remembering(old, young))

        assert await backend.idempotency.expire(MOMENT + SECOND, limit=9) == 1
        assert await backend.transact(recalling("ops", "old")) is None
        assert await backend.transact(recalling("ops", "young")) == young
        await backend.transact(remembering(old))

    async def test_the_oldest_expire_first_up_to_the_limit(self, backend: Backend) -> None:
        made = [response(f"key-{n}", time=MOMENT + n * SECOND) for n in range(5)]
        await backend.transact(remembering(*reversed(made)))

        deleted = [await backend.idempotency.expire(made[4].time, limit=3) for _ in range(3)]

        assert deleted == [3, 1, 0]
        assert await backend.transact(recalling("ops", "key-4")) == made[4]
