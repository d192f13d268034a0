"""The part of the contract of `ports.hub_store.HubStore` that is about a database that is not there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sentinel.core.hub.versions import VersionName
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import HubStore, InstanceQuery
from sentinel.ports.rollout_store import DeploymentQuery, RolloutStore
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import MOMENT
from tests.support.hub.store_records import HubSuite, appending, heartbeats, instance

API_1 = VersionName("api", 1)
CALLS: dict[str, Callable[[HubStore], Awaitable[object]]] = {
    "transact": lambda hub: hub.transact(appending("edge-1")),
    "instance": lambda hub: hub.instance("edge-1"),
    "instances": lambda hub: hub.instances(InstanceQuery(limit=1)),
    "selected instances": lambda hub: hub.instances(InstanceQuery(limit=1, matches=lambda labels: True)),
    "instances_by_id": lambda hub: hub.instances_by_id(["edge-1"]),
    "silent": lambda hub: hub.silent(MOMENT, limit=1),
    "leaving": lambda hub: hub.leaving(offline_before=MOMENT, drain_before=MOMENT, limit=1),
    "count_by_state": lambda hub: hub.count_by_state(),
    "out_of_sync": lambda hub: hub.out_of_sync(limit=1),
    "expire_removed": lambda hub: hub.expire_removed(MOMENT, limit=1),
    "flush": lambda hub: hub.flush([heartbeats(instance("edge-1"))]),
    "metrics": lambda hub: hub.metrics("edge-1", since=MOMENT, limit=1),
    "thin_metrics": lambda hub: hub.thin_metrics(MOMENT, limit=1),
    "expire_metrics": lambda hub: hub.expire_metrics(MOMENT, limit=1),
    "config": lambda hub: hub.config("api"),
    "configs": lambda hub: hub.configs(after="", limit=1),
    "count_configs": lambda hub: hub.count_configs(),
    "assigned_counts": lambda hub: hub.assigned_counts(["api"]),
    "version": lambda hub: hub.version(API_1),
    "versions": lambda hub: hub.versions("api", before=None, limit=1),
    "was_assigned": lambda hub: hub.was_assigned("edge-1", 1, API_1),
    "deployment": lambda hub: hub.deployment("d"),
    "deployments": lambda hub: hub.deployments(DeploymentQuery(limit=1)),
    "count_deployments": lambda hub: hub.count_deployments(),
    "rollout": lambda hub: hub.rollout("d"),
    "deployment_rows": lambda hub: hub.deployment_rows("d", limit=1),
    "active_deployments": lambda hub: hub.active_deployments(),
    "deployment_events": lambda hub: hub.deployment_events("d", after=0, limit=1),
    "newest_event": lambda hub: hub.newest_event(),
    "oldest_event": lambda hub: hub.oldest_event(),
    "events": lambda hub: hub.events(0, limit=1),
    "expire_events": lambda hub: hub.expire_events(MOMENT, limit=1),
}


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except Unavailable as error:
        return type(error)


class UnavailableContract(HubSuite):
    """Every call says that the database is unavailable."""

    async def test_every_call_raises_while_the_database_is_closed(self, backend: Backend) -> None:
        await backend.database.close()

        results = {name: await outcome(call(backend.hub)) for name, call in CALLS.items()}

        assert results == dict.fromkeys(CALLS, Unavailable)

    async def test_every_call_of_the_port_is_tried(self) -> None:
        methods = {name for port in (HubStore, RolloutStore) for name in vars(port) if not name.startswith("_")}

        assert methods - CALLS.keys() == {"wakeups"}

    async def test_waiting_for_events_outlives_the_database(self, backend: Backend) -> None:
        async with backend.hub.wakeups() as event:
            await backend.database.close()
            await backend.database.open()
            event.clear()
            await backend.hub.transact(appending("edge-1"))

            assert event.is_set()
