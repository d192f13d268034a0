"""The contract of `ports.webhook_store.WebhookStore`.

A driver's test class inherits `WebhookStoreContract` and defines a fixture `stores`.
"""

from __future__ import annotations

import msgspec
import pytest

from sentinel.ports.hub_store import HubEvent, HubEventType
from sentinel.ports.webhook_store import Delivery, WebhookStore, WebhookTransaction
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import HOUR, MOMENT, SECOND, Stores, StoreSuite, together

HOOK, OTHER = "hooks.example-1", "hooks.example-2"
LEASE = 60 * SECOND


def delivery(number: int, *, webhook: str = HOOK, seconds: float = 0) -> Delivery:
    """An event that is tried so long after `MOMENT`."""
    event = HubEvent(
        number=number,
        time=MOMENT + SECOND / 7,
        type=HubEventType.CONFIG_VERSION,
        subject=f"edge@{number}",
        data='{"a":"☃"}'.encode(),
    )
    return Delivery(webhook=webhook, event=event, next_time=MOMENT + seconds * SECOND)


async def take(store: WebhookStore, holder: str, seconds: float = 0, *, webhook: str = HOOK) -> int | None:
    now = MOMENT + seconds * SECOND
    return await store.acquire(webhook, holder, now=now, until=now + LEASE, newest=7)


async def copied(store: WebhookStore, *deliveries: Delivery) -> list[Delivery]:
    """Copy these, and return them with their ids."""
    position = await take(store, "a")
    assert position is not None
    assert await store.copy(HOOK, deliveries, after=position, position=position + len(deliveries))
    return list(await store.due(HOOK, MOMENT + HOUR, limit=100))


def dead(found: Delivery, seconds: float = 0) -> Delivery:
    return msgspec.structs.replace(found, attempts=12, error="500", failed_time=MOMENT + seconds * SECOND)


class WebhookStoreContract(StoreSuite):
    """What was copied is delivered or becomes a dead letter, and one holder at a time does that."""

    @pytest.fixture
    def store(self, backend: Backend) -> WebhookStore:
        return backend.webhooks

    async def test_a_new_webhook_begins_after_the_newest_event(self, store: WebhookStore) -> None:
        assert await take(store, "a") == 7
        assert await store.acquire(HOOK, "a", now=MOMENT, until=MOMENT, newest=99) == 7

    async def test_one_holder_has_the_lease_until_it_ends(self, store: WebhookStore) -> None:
        assert await take(store, "a") == 7
        assert await take(store, "b", 59) is None
        assert await take(store, "a", 59) == 7
        assert await take(store, "b", 61) is None
        assert await take(store, "b", webhook=OTHER) == 7
        assert await take(store, "b", 119) == 7
        assert await take(store, "a", 120) is None

    async def test_a_released_lease_is_free_at_once(self, store: WebhookStore) -> None:
        await take(store, "a")
        await store.release(HOOK, "b")
        assert await take(store, "b") is None

        await store.release(HOOK, "a")

        assert await take(store, "b") == 7

    async def test_of_several_that_begin_at_once_one_has_the_lease(self, store: WebhookStore) -> None:
        taken = await together(*(take(store, f"hub-{number}") for number in range(8)))

        assert sorted(taken, key=str) == [7, *[None] * 7]

    async def test_copies_outlive_a_restart(self, stores: Stores) -> None:
        backend = await stores.empty()
        await copied(backend.webhooks, delivery(8), delivery(9))
        backend = await stores.reopened(backend)

        found = await backend.webhooks.due(HOOK, MOMENT, limit=10)
        position = await take(backend.webhooks, "a")

        await backend.database.close()
        assert [msgspec.structs.replace(each, id=0) for each in found] == [delivery(8), delivery(9)]
        assert found[0].id < found[1].id
        assert position == 9

    async def test_events_are_copied_once(self, store: WebhookStore) -> None:
        await take(store, "a")

        first = await store.copy(HOOK, [delivery(8)], after=7, position=8)
        again = await store.copy(HOOK, [delivery(8)], after=7, position=8)

        assert (first, again) == (True, False)
        assert await store.count_pending(HOOK) == 1
        assert await store.count_pending(OTHER) == 0

    async def test_what_is_due_comes_in_the_order_of_events(self, store: WebhookStore) -> None:
        await copied(store, delivery(8, seconds=5), delivery(9), delivery(10, seconds=6))

        assert [each.event.number for each in await store.due(HOOK, MOMENT, limit=10)] == [9]
        later = await store.due(HOOK, MOMENT + 5 * SECOND, limit=10)
        assert [each.event.number for each in later] == [8, 9]
        assert len(await store.due(HOOK, MOMENT + HOUR, limit=2)) == 2

    async def test_a_failed_attempt_is_stored(self, store: WebhookStore) -> None:
        [found] = await copied(store, delivery(8))
        failed = msgspec.structs.replace(found, attempts=3, error="500", next_time=MOMENT + HOUR)

        await store.save(failed)

        assert await store.due(HOOK, MOMENT, limit=10) == []
        assert await store.due(HOOK, MOMENT + HOUR, limit=10) == [failed]

    async def test_what_was_delivered_is_gone(self, store: WebhookStore) -> None:
        [first, second] = await copied(store, delivery(8), delivery(9))

        await store.remove(first.id)
        await store.remove(first.id)

        assert await store.due(HOOK, MOMENT, limit=10) == [second]

    async def test_dead_letters_are_listed_and_not_due(self, store: WebhookStore) -> None:
        found = await copied(store, *(delivery(number) for number in range(8, 12)))
        for each in found[:3]:
            await store.save(dead(each))

        first = await store.dead_letters(after=0, limit=2)
        rest = await store.dead_letters(after=first[-1].id, limit=2)

        assert [*first, *rest] == [dead(each) for each in found[:3]]
        assert await store.count_dead_letters() == 3
        assert await store.count_pending(HOOK) == 1
        assert await store.due(HOOK, MOMENT + HOUR, limit=10) == [found[3]]

    async def test_old_dead_letters_expire(self, store: WebhookStore) -> None:
        found = await copied(store, *(delivery(number) for number in range(8, 12)))
        for each, seconds in zip(found, (0, 1, 2), strict=False):
            await store.save(dead(each, seconds))

        assert await store.expire_dead_letters(MOMENT + 2 * SECOND, limit=1) == 1
        assert await store.expire_dead_letters(MOMENT + 2 * SECOND, limit=10) == 1
        assert await store.count_dead_letters() == 1
        assert await store.count_pending(HOOK) == 1

    async def test_a_dead_letter_is_changed_in_a_transaction(self, store: WebhookStore) -> None:
        [first, second, alive] = await copied(store, delivery(8), delivery(9), delivery(10))
        for each in (first, second):
            await store.save(dead(each))

        def work(transaction: WebhookTransaction) -> bool:
            assert transaction.dead_letter(first.id) == dead(first)
            transaction.save_delivery(first)
            transaction.remove_delivery(second.id)
            return transaction.dead_letter(alive.id) is None and transaction.dead_letter(0) is None

        assert await store.transact(work)
        assert await store.count_dead_letters() == 0
        assert await store.due(HOOK, MOMENT, limit=10) == [first, alive]
