"""The contract of `ports.audit.AuditLog` and `AuditWriter`.

A driver's test class inherits `AuditContract` and defines a fixture `stores`, which is not bound to an event loop.
"""

from __future__ import annotations

import msgspec
import pytest

from sentinel.ports.audit import AuditLog, AuditQuery
from tests.support.databases.backends import Backend, SharedTransaction
from tests.support.fleet.store_records import SECOND, StoreSuite, entry, recording, together


class AuditContract(StoreSuite):
    """Entries are written with the rest of a transaction, read newest first, and expire."""

    async def test_an_entry_is_read_as_it_was_recorded(self, backend: Backend) -> None:
        plain = entry(1, actor="grün-粒-🙂", action="drain", resource_id="edge/1")
        bare = msgspec.structs.replace(
            plain, id="0195-2", time=plain.time + SECOND / 7, address="", request_id="", detail=""
        )

        await backend.transact(recording(plain, bare))

        assert list(await backend.audit.find(AuditQuery(limit=9))) == [bare, plain]

    async def test_entries_come_newest_first_and_in_pages(self, backend: Backend, audit: AuditLog) -> None:
        await backend.transact(recording(entry(2), entry(1)))
        await backend.transact(recording(entry(5), entry(4), entry(3)))

        first = list(await audit.find(AuditQuery(limit=2)))
        second = list(await audit.find(AuditQuery(limit=2, before=first[-1].id)))
        third = list(await audit.find(AuditQuery(limit=2, before=second[-1].id)))
        fourth = list(await audit.find(AuditQuery(limit=2, before=third[-1].id)))

        assert first + second + third == [entry(n) for n in (5, 4, 3, 2, 1)]
        assert fourth == []

    async def test_a_page_can_begin_before_an_entry_that_does_not_exist(
        self, backend: Backend, audit: AuditLog
    ) -> None:
        await backend.transact(recording(entry(1), entry(2), entry(4)))

        assert list(await audit.find(AuditQuery(limit=9, before=entry(3).id))) == [entry(2), entry(1)]

    async def test_entries_are_filtered_by_actor_action_and_resource(
        self, backend: Backend, audit: AuditLog
    ) -> None:
        entries = [
            entry(
                n,
                actor="ops" if n & 1 else "dns",
                action="patch" if n & 2 else "report",
                resource_id="cls-1" if n & 4 else "cls-2",
            )
            for n in range(16)
        ]
        await backend.transact(recording(*entries))

        async def select(**filters: str) -> list[int]:
            return [entries.index(each) for each in await audit.find(AuditQuery(limit=99, **filters))]

        assert await select(actor="ops") == [n for n in range(15, -1, -1) if n & 1]
        assert await select(action="report") == [n for n in range(15, -1, -1) if not n & 2]
        assert await select(resource_id="cls-1") == [n for n in range(15, -1, -1) if n & 4]
        assert await select(actor="ops", action="patch", resource_id="cls-1") == [15, 7]
        assert await select(actor="ops", action="patch", resource_id="cls-1", before=entry(15).id) == [7]
        assert await select(actor="absent") == []

    async def test_a_transaction_that_fails_leaves_no_entry(self, backend: Backend, audit: AuditLog) -> None:
        def work(transaction: SharedTransaction) -> None:
            transaction.record(entry(1))
            raise LookupError("the work failed")

        with pytest.raises(LookupError, match="the work failed"):
            await backend.transact(work)

        assert list(await audit.find(AuditQuery(limit=9))) == []

    async def test_entries_of_several_components_are_read_together(
        self, backend: Backend, audit: AuditLog
    ) -> None:
        await backend.transact(recording(entry(1)))
        await backend.fleet.transact(recording(entry(2)))

        assert list(await audit.find(AuditQuery(limit=9))) == [entry(2), entry(1)]

    async def test_concurrent_entries_are_all_kept(self, backend: Backend, audit: AuditLog) -> None:
        await together(*(backend.transact(recording(entry(n))) for n in range(20)))

        assert list(await audit.find(AuditQuery(limit=99))) == [entry(n) for n in range(19, -1, -1)]

    async def test_nothing_can_be_recorded_after_the_transaction(self, backend: Backend) -> None:
        leaked = await backend.transact(lambda transaction: transaction)

        with pytest.raises(RuntimeError, match="the transaction is over"):
            leaked.record(entry(1))

    async def test_old_entries_are_deleted_oldest_first(self, backend: Backend, audit: AuditLog) -> None:
        await backend.transact(recording(*map(entry, range(1, 8))))

        deleted = [await audit.expire(entry(6).time, limit=2) for _ in range(4)]

        assert deleted == [2, 2, 1, 0]
        assert list(await audit.find(AuditQuery(limit=9))) == [entry(7), entry(6)]
