"""The part of the contract of `ports.hub_store.HubStore` that is about deployments."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import RollbackState, Rollout, RolloutState
from sentinel.ports.hub_store import HubStore, HubTransaction
from sentinel.ports.rollout_store import DeploymentQuery, DeploymentRecord, Holding
from tests.support.fleet.store_records import MOMENT, SECOND
from tests.support.hub.rollout_records import deployment, deployment_event, rollout, row, rows_of, to
from tests.support.hub.store_records import HubSuite, adding, config


async def add(hub: HubStore, *rollouts: Rollout, selector: str | None = None) -> None:
    def work(transaction: HubTransaction) -> None:
        for each in rollouts:
            transaction.add_deployment(deployment(each, selector=selector), rows_of(each))

    await hub.transact(work)


async def save(hub: HubStore, whole: Rollout, *positions: int) -> DeploymentRecord:
    """Store the next revision, with these rows."""

    def work(transaction: HubTransaction) -> DeploymentRecord:
        before = transaction.deployment(whole.id)
        assert before is not None
        changed = deployment(whole, after=before)
        transaction.save_deployment(changed, [each for each in rows_of(whole) if each.position in positions])
        return changed

    return await hub.transact(work)


async def ids(hub: HubStore, **query: object) -> list[str]:
    found = await hub.deployments(msgspec.convert({"limit": 10, **query}, DeploymentQuery))
    return [each.id for each in found]


class RolloutContract(HubSuite):
    """Deployments are stored in parts, and found by what the hub asks for."""

    async def test_a_deployment_is_returned_as_it_was_stored(self, hub: HubStore) -> None:
        whole = rollout("d1", row("b", is_open=True, previous=to("api", 1)), row("a", RowState.FAILED))

        await add(hub, whole, selector="zone in (a,b),!tier")

        stored = deployment(whole, selector="zone in (a,b),!tier")
        read = await hub.rollout("d1")
        assert read is not None
        assert (read.deployment, list(read.rows)) == (stored, rows_of(whole))
        assert await hub.deployment("d1") == stored
        assert await hub.deployment("d2") is None
        assert await hub.rollout("d2") is None

    async def test_only_rows_that_changed_since_a_revision_are_read(self, hub: HubStore) -> None:
        whole = rollout("d1", row("a"), row("b"), row("c"))
        await add(hub, whole)
        whole = msgspec.structs.replace(whole, rows={**whole.rows, "b": row("b", RowState.COMPLETED)})

        changed = await save(hub, whole, 1)

        read = await hub.rollout("d1", after=1)
        assert read is not None
        assert (read.deployment, list(read.rows)) == (changed, rows_of(whole)[1:2])
        assert list((await hub.rollout("d1", after=2) or read).rows) == []

    async def test_a_deployment_is_saved_only_after_it_was_read(self, hub: HubStore) -> None:
        whole = rollout("d1", row("a"))
        await add(hub, whole)

        with pytest.raises(RuntimeError, match="not read"):
            await hub.transact(lambda transaction: transaction.save_deployment(deployment(whole), []))

    async def test_the_greatest_ids_are_listed_first(self, hub: HubStore) -> None:
        paused = rollout("d2", row("b"), state=RolloutState.PAUSED)
        await add(hub, rollout("d1", row("a")), paused, rollout("d3", row("c")))

        assert await ids(hub) == ["d3", "d2", "d1"]
        assert await ids(hub, limit=2) == ["d3", "d2"]
        assert await ids(hub, before="d3") == ["d2", "d1"]
        assert await ids(hub, states=["paused"]) == ["d2"]
        assert await hub.count_deployments() == 3
        assert await hub.count_deployments([RolloutState.RUNNING, RolloutState.PENDING]) == 2

    async def test_rows_are_listed_in_the_order_of_the_plan(self, hub: HubStore) -> None:
        await add(hub, rollout("d1", row("c"), row("a", RowState.FAILED), row("b")), rollout("d2", row("d")))

        assert [each.row.instance_id for each in await hub.deployment_rows("d1", limit=2)] == ["c", "a"]
        assert [each.row.instance_id for each in await hub.deployment_rows("d1", after=0, limit=9)] == ["a", "b"]
        failed = await hub.deployment_rows("d1", limit=9, states=[RowState.FAILED])
        assert [(each.position, each.row.instance_id) for each in failed] == [(1, "a")]

    async def test_all_targets_are_held_until_the_deployment_has_ended(self, hub: HubStore) -> None:
        await add(
            hub,
            rollout("d1", row("a", is_open=True), row("b")),
            rollout("d2", row("b"), row("c"), state=RolloutState.PENDING),
            rollout("d3", row("d", is_open=True), row("e"), state=RolloutState.ABORTED),
            rollout("d4", row("e"), state=RolloutState.FAILED, rollback=RollbackState.RUNNING),
            rollout("d5", row("a"), row("f"), state=RolloutState.COMPLETED),
        )

        found = await hub.transact(lambda transaction: transaction.holdings(list("abcdefg")))

        assert list(found) == [
            Holding("a", "d1", is_pending=False),
            Holding("b", "d1", is_pending=False),
            Holding("b", "d2", is_pending=True),
            Holding("c", "d2", is_pending=True),
            Holding("d", "d3", is_pending=False),
            Holding("e", "d4", is_pending=False),
        ]
        assert dict(await hub.active_deployments()) == {"d1": 1, "d2": 1, "d3": 1, "d4": 1}

    async def test_a_configuration_is_deployed_until_nothing_goes_back_to_it(self, hub: HubStore) -> None:
        whole = rollout("d1", row("a", previous=to("web", 1)))
        await add(hub, whole)

        async def deploying() -> list[bool]:
            return await hub.transact(lambda hub: [hub.is_deploying(each) for each in ("api", "web", "ap")])

        assert await deploying() == [True, True, False]

        await save(hub, msgspec.structs.replace(whole, state=RolloutState.COMPLETED))

        assert await deploying() == [False, False, False]

    async def test_each_selector_offers_its_newest_completed_deployment(self, hub: HubStore) -> None:
        done, undone = RolloutState.COMPLETED, RollbackState.COMPLETED
        for number, selector in enumerate(("zone=a", "zone=a", "zone=b", "zone=a"), 1):
            version, finished = to("api", number), MOMENT + number * SECOND
            rollback = undone if number == 4 else RollbackState.NONE
            whole = rollout(
                f"d{number}", row("a"), state=done, rollback=rollback, version=version, finished=finished
            )
            await add(hub, whole, selector=selector)
        await add(hub, rollout("d5", row("a"), state=done, finished=MOMENT + 9 * SECOND))
        await add(hub, rollout("d6", row("a"), state=RolloutState.FAILED, finished=MOMENT), selector="zone=c")

        offers = await hub.transact(lambda transaction: transaction.offers())

        assert [(each.deployment_id, str(each.selector), each.version) for each in offers] == [
            ("d3", "zone=b", to("api", 3)),
            ("d2", "zone=a", to("api", 2)),
        ]
        assert [each.finished for each in offers] == [MOMENT + 3 * SECOND, MOMENT + 2 * SECOND]

    async def test_events_stay_with_their_deployment(self, hub: HubStore) -> None:
        events = [deployment_event("d1", number, MOMENT + number * SECOND) for number in (1, 2, 3)]

        def work(transaction: HubTransaction) -> None:
            for event in (*events, deployment_event("d2", 1)):
                transaction.add_deployment_event(event)

        await hub.transact(work)

        assert list(await hub.deployment_events("d1", after=1, limit=10)) == events[1:]
        assert list(await hub.deployment_events("d1", after=0, limit=2)) == events[:2]

    async def test_what_fails_leaves_no_deployment(self, hub: HubStore) -> None:
        whole = rollout("d1", row("a"))

        def work(transaction: HubTransaction) -> None:
            transaction.lock_targets()
            transaction.add_deployment(deployment(whole), rows_of(whole))
            transaction.add_deployment_event(deployment_event("d1", 1))
            raise LookupError

        with pytest.raises(LookupError):
            await hub.transact(work)
        assert await hub.rollout("d1") is None
        assert list(await hub.deployment_rows("d1", limit=9)) == []
        assert list(await hub.deployment_events("d1", after=0, limit=9)) == []

    async def test_a_configuration_that_exists_can_be_kept(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api")))

        assert await hub.transact(lambda hub: (hub.keep_config("api"), hub.keep_config("web"))) == (True, False)
