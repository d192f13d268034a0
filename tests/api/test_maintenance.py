"""Background work: reaggregation after a change of the kinds, and retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
import pytest

from sentinel.api.kinds import Kinds
from sentinel.api.maintenance import BATCH, Maintenance, retention_rules
from sentinel.api.settings import FleetRetentionSettings
from sentinel.core.fleet.documents import KindRules
from sentinel.ports.fleet_store import FleetTransaction
from sentinel.runtime.lifecycle.part import Loop
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.retention import INTERVAL, Retention, RetentionRule
from sentinel.testing.database import Fault, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from tests.support.databases import backends
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import Body
from tests.support.fleet.mirrors import mirrors, report_failure_of_america

TIMEOUT = 60
"""In seconds; only a failing test waits this long."""
RETENTION = FleetRetentionSettings(
    audit=timedelta(hours=4), discarded=timedelta(hours=1), history=timedelta(hours=3), answers=timedelta(hours=2)
)


def requiring(*adapters: str) -> Kinds:
    return Kinds((KindRules("clusters", "Cluster", "", adapters), KindRules("nodepools", "NodePool", "clusters")))


def maintenance_of(fleet: ApiClient) -> Maintenance:
    return Maintenance(
        service=fleet.service,
        store=fleet.store,
        kinds=fleet.kinds,
        clock=fleet.clock,
        log=get_logger("test"),
    )


def retention_of(fleet: ApiClient) -> Retention:
    return Retention(
        [
            *retention_rules(fleet.store, fleet.backend.changes, RETENTION),
            RetentionRule("audit entries", RETENTION.audit, fleet.backend.audit.expire),
            RetentionRule("idempotency keys", RETENTION.answers, fleet.backend.idempotency.expire),
        ],
        clock=fleet.clock,
        log=get_logger("test"),
    )


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[Stopping]:
    """Run a loop, and check that it ends when it is stopped."""
    stopping = Stopping()
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
        tasks.create_task(loop(stopping))
        yield stopping
        stopping.request()


async def until_reaggregated(fleet: ApiClient, plural: str, adapters: str) -> None:
    """Wait until no resource is outdated."""
    async with asyncio.timeout(TIMEOUT):
        while await fleet.store.outdated(plural, adapters, limit=1):
            pass  # each call yields to the other tasks


async def reaggregate(fleet: ApiClient, plural: str, adapters: str) -> None:
    """Run the loop until no resource is outdated."""
    async with running(maintenance_of(fleet).reaggregate_outdated):
        await until_reaggregated(fleet, plural, adapters)


async def restarted(fleet: ApiClient, kinds: Kinds) -> ApiClient:
    """Return a server with other kinds on the same store, a minute later."""
    client = ApiClient(kinds=kinds, backend=fleet.backend)
    await client.clock.advance(fleet.clock.now() + timedelta(minutes=1) - client.clock.now())
    return client


def main_statuses(resource: Body) -> tuple[str, str]:
    """Return the statuses of `Available` and `Ready`."""
    found = {each["type"]: each["status"] for each in resource["status"]["conditions"]}
    return found["Available"], found["Ready"]


# --- Reaggregation -----------------------------------------------------------------------------------------------


async def test_a_resource_becomes_ready_without_a_former_adapter() -> None:
    async with ApiClient(kinds=requiring("dns", "slow")) as before:
        await before.create("clusters", "c", id="c")
        await before.later(5)
        await before.reports("clusters/c", "dns")
        after = await restarted(before, requiring("dns"))

        await reaggregate(after, "clusters", "dns")

        status = (await after.get("clusters/c"))["status"]
        assert (status["phase"], status["observed_generation"]) == ("Ready", 1)
        assert status["last_updated_time"] == "2025-01-01T00:00:05Z"


async def test_changed_expressions_reaggregate_existing_resources() -> None:
    async with ApiClient(kinds=mirrors("", "")) as before:
        await report_failure_of_america(before)
        assert main_statuses(await before.get("mirrors/m")) == ("False", "False")
        for kinds, expected in (
            (mirrors(), ("True", "True")),
            (mirrors(ready="false"), ("True", "False")),
            (mirrors("", ""), ("False", "False")),
        ):
            after = await restarted(before, kinds)
            [kind] = kinds

            await reaggregate(after, "mirrors", after.service.aggregation_key(kind))

            assert main_statuses(await after.get("mirrors/m")) == expected


async def test_a_resource_is_not_ready_without_a_new_adapter() -> None:
    async with ApiClient(kinds=requiring("dns")) as before:
        await before.create("clusters", "c", id="c")
        await before.reports("clusters/c", "dns")
        after = await restarted(before, requiring("dns", "more"))

        await reaggregate(after, "clusters", "dns,more")

        status = (await after.get("clusters/c"))["status"]
        assert (status["phase"], status["observed_generation"]) == ("NotReady", 0)
        assert "[more]" in status["conditions"][0]["message"]
        assert (await after.get("clusters/c"))["generation"] == 1


@pytest.mark.parametrize("mark", ["pause", "pulse"])
async def test_a_resource_is_reaggregated_after_a_pulse_or_pause(mark: str) -> None:
    async with ApiClient(kinds=requiring("dns")) as before:
        await before.create("clusters", "c", id="c")
        await before.reports("clusters/c", "dns")
        after = await restarted(before, requiring("dns", "more"))
        await after.call("POST", f"clusters/c/{mark}")

        await reaggregate(after, "clusters", "dns,more")

        assert (await after.get("clusters/c"))["status"]["phase"] == "NotReady"


async def test_a_deletion_completes_when_no_adapter_is_required() -> None:
    async with ApiClient(kinds=requiring("gone")) as before:
        await before.create("clusters", "c", id="c")
        await before.call("DELETE", "clusters/c")
        after = await restarted(before, requiring())

        await reaggregate(after, "clusters", "")

        (await after.call("GET", "clusters/c")).assert_problem(404)
        entry = (await after.get("/api/v1/audit"))["items"][0]
        assert (entry["action"], entry["actor"], entry["resource_id"]) == ("remove", "sentinel", "c")


async def test_more_than_one_batch_is_reaggregated() -> None:
    async with ApiClient(kinds=requiring("dns")) as before:
        for number in range(BATCH + 1):
            await before.create("clusters", f"c{number}")
        after = await restarted(before, requiring("other"))

        await reaggregate(after, "clusters", "other")

        page = await after.get("clusters", size=1000, fields="status.conditions")
        assert all("[other]" in each["status"]["conditions"][0]["message"] for each in page["items"])


async def test_an_up_to_date_resource_is_not_written() -> None:
    async with ApiClient(kinds=requiring("dns")) as before:
        await before.create("clusters", "c", id="c")
        etag = (await before.call("GET", "clusters/c")).etag
        after = await restarted(before, requiring("dns"))

        await reaggregate(after, "clusters", "dns")

        assert (await after.call("GET", "clusters/c")).etag == etag


async def test_reaggregation_is_retried_after_a_database_failure() -> None:
    faults = iter([Fault.BEFORE_COMMIT, Fault.BEFORE_COMMIT])
    backend = backends.memory(faults=lambda call: next(faults, None) if call == "outdated" else None)
    async with ApiClient(kinds=requiring("dns"), backend=backend) as before:
        await before.create("clusters", "c", id="c")
        after = await restarted(before, requiring("other"))

        async with running(maintenance_of(after).reaggregate_outdated):
            await after.clock.until_asleep()
            await after.later(60)  # enough for two failures and their backoff
            await until_reaggregated(after, "clusters", "other")


async def make_unreadable(fleet: ApiClient, *ids: str) -> None:
    """Overwrite the documents of these resources with invalid JSON."""

    def work(transaction: FleetTransaction) -> None:
        for resource_id in ids:
            stored = transaction.lock(resource_id)
            assert stored is not None
            transaction.update(msgspec.structs.replace(stored, document=b"{", version=stored.version + 1))

    await fleet.store.transact(work)


async def test_an_unreadable_resource_is_logged_once_and_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ApiClient(kinds=requiring("dns")) as before:
        for number in range(BATCH + 1):
            await before.create("clusters", f"c{number}", id=f"c{number:04}")
        await make_unreadable(before, "c0000")
        after = await restarted(before, requiring("other"))

        async with running(maintenance_of(after).reaggregate_outdated):
            async with asyncio.timeout(TIMEOUT):
                while len(await after.store.outdated("clusters", "other", limit=2)) > 1:
                    pass  # each call yields to the other tasks

        failures = [record for record in caplog.records if record.getMessage() == "maintenance.failed"]
        assert [record.__dict__["fields"]["resource_id"] for record in failures] == ["c0000"]


async def test_an_unreadable_batch_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ApiClient(kinds=requiring("dns")) as before:
        ids = [f"c{number:04}" for number in range(BATCH)]
        for resource_id in ids:
            await before.create("clusters", resource_id, id=resource_id)
        await make_unreadable(before, *ids)
        after = await restarted(before, requiring("other"))

        async with running(maintenance_of(after).reaggregate_outdated):
            async with asyncio.timeout(TIMEOUT):
                while "maintenance.aggregated" not in (record.getMessage() for record in caplog.records):
                    await after.store.populations()  # yields to the other tasks

        assert [record.getMessage() for record in caplog.records].count("maintenance.failed") == BATCH


async def test_the_loop_ends_when_it_is_stopped() -> None:
    async with (
        ApiClient(kinds=requiring("dns")) as fleet,
        running(maintenance_of(fleet).reaggregate_outdated) as stopping,
    ):
        await until_reaggregated(fleet, "clusters", "dns")

        assert not stopping.requested


@pytest.mark.parametrize("emits", [True, False])
async def test_public_names_follow_the_setting(emits: bool) -> None:
    async with ApiClient(emits_public_names=not emits) as before:
        made = await before.create()
        after = ApiClient(backend=before.backend, emits_public_names=emits)
        cluster = next(kind for kind in after.kinds if kind.plural == "clusters")

        await reaggregate(after, "clusters", after.service.aggregation_key(cluster))

        shown = await after.get(f"clusters/{made['id']}")

    assert ("Reconciled" in {each["type"] for each in shown["status"]["conditions"]}) is emits


# --- Retention ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def populated(fleet: ApiClient) -> ApiClient:
    """A fleet with audit entries, a discarded report, two generations and a stored response."""
    await fleet.call("POST", "clusters", {"name": "c", "id": "c"}, headers={"Idempotency-Key": "k"})
    await fleet.call("PATCH", "clusters/c", {"spec": {"a": 1}})
    await fleet.call("POST", "clusters/c/statuses", fleet.report("dns", generation=9))
    return fleet


async def count_rows(fleet: ApiClient) -> dict[str, int]:
    repeated = await fleet.call("POST", "clusters", {"name": "c", "id": "c"}, headers={"Idempotency-Key": "k"})
    return {
        "discarded": (await fleet.get("clusters/c/statuses/discarded"))["total"],
        "answers": int(repeated.status == 201),
        "history": (await fleet.get("clusters/c/history"))["total"],
        "audit": (await fleet.get("/api/v1/audit"))["size"],
    }


@pytest.mark.parametrize(
    ("hours", "kept"),
    [
        (1, {"discarded": 1, "answers": 1, "history": 2, "audit": 2}),
        (1.5, {"discarded": 0, "answers": 1, "history": 2, "audit": 2}),
        (2.5, {"discarded": 0, "answers": 0, "history": 2, "audit": 2}),
        (3.5, {"discarded": 0, "answers": 0, "history": 1, "audit": 2}),
        (4.5, {"discarded": 0, "answers": 0, "history": 1, "audit": 0}),
    ],
)
async def test_rows_older_than_their_retention_are_deleted(
    populated: ApiClient, hours: float, kept: dict[str, int]
) -> None:
    async with running(retention_of(populated).run):
        await populated.clock.until_asleep()
        await populated.clock.advance(timedelta(hours=hours) - populated.clock.now().resolution)
        await populated.clock.until_asleep()

    assert await count_rows(populated) == kept


async def test_the_newest_generation_is_kept_with_its_resource(populated: ApiClient) -> None:
    await populated.later(86400 * 365)
    await retention_of(populated).expire()

    assert [each["generation"] for each in (await populated.get("clusters/c/history"))["items"]] == [2]


async def test_the_history_of_a_removed_resource_expires(fleet: ApiClient) -> None:
    await fleet.create("manifests", "m", id="m")
    await fleet.call("DELETE", "manifests/m")
    await fleet.later(3600 * 3 + 1)
    await retention_of(fleet).expire()

    (await fleet.call("GET", "manifests/m/history")).assert_problem(404)


async def test_retention_runs_every_minute(populated: ApiClient) -> None:
    async with running(retention_of(populated).run):
        await populated.clock.until_asleep()

        assert populated.clock.wake_times == [populated.clock.now() + INTERVAL]


async def test_more_than_one_batch_expires_at_a_time(fleet: ApiClient) -> None:
    for number in range(BATCH + 1):
        await fleet.create("manifests", f"m{number}")
    await fleet.later(3600 * 5)

    async with running(retention_of(fleet).run):
        await fleet.clock.until_asleep()

    assert (await fleet.get("/api/v1/audit"))["size"] == 0


class FailsOnce(MemoryFleetStore):
    """A store with a bug that shows once."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.bugs = [ArithmeticError("a bug")]

    async def expire_history(self, before: datetime, *, limit: int) -> int:
        if self.bugs:
            raise self.bugs.pop()
        return await super().expire_history(before, limit=limit)

    async def outdated(self, plural: str, adapters: str, *, limit: int) -> Sequence[str]:
        if self.bugs:
            raise self.bugs.pop()
        return await super().outdated(plural, adapters, limit=limit)


@pytest.mark.parametrize(
    ("loop_of", "event"),
    [
        (lambda fleet: retention_of(fleet).run, "retention.failed"),
        (lambda fleet: maintenance_of(fleet).reaggregate_outdated, "maintenance.failed"),
    ],
)
async def test_a_loop_survives_an_unexpected_error(
    loop_of: Callable[[ApiClient], Loop], event: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend = backends.memory(fleet=FailsOnce)
    async with ApiClient(backend=backend) as fleet, running(loop_of(fleet)) as stopping:
        await fleet.clock.until_asleep()
        await fleet.clock.advance(INTERVAL)

        assert not stopping.requested

    assert isinstance(backend.fleet, FailsOnce)
    assert not backend.fleet.bugs
    assert event in [record.getMessage() for record in caplog.records]


async def test_retention_survives_a_database_failure() -> None:
    faults = iter([Fault.BEFORE_COMMIT])
    backend = backends.memory(faults=lambda call: next(faults, None) if call == "expire_audit" else None)
    async with ApiClient(backend=backend) as fleet:
        await fleet.create("manifests", "m")
        await fleet.later(3600 * 5)

        async with running(retention_of(fleet).run):
            await fleet.clock.until_asleep()
            assert (await fleet.get("/api/v1/audit"))["size"] == 1
            await fleet.clock.advance(INTERVAL)
            await fleet.clock.until_asleep()

        assert (await fleet.get("/api/v1/audit"))["size"] == 0
