"""What agents may fetch: the version that is assigned to them, those that were, and nothing else."""

from __future__ import annotations

import grpc
import pytest

from sentinel.core.hub.versions import VersionName, content_hash
from sentinel.ports.hub_store import HubTransaction
from sentinel.testing.database import Fault
from tests.support.databases import backends
from tests.support.hub.in_process import USER, InProcessHub, refused

NOT_FOUND = grpc.StatusCode.NOT_FOUND
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED


async def test_without_a_version_the_assigned_one_is_fetched(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@2")

    response = await agent.get_config()

    assert (response.version, response.config_id) == ("api@2", "api")
    assert (response.content, response.hash) == ('a "2"', content_hash('a "2"'))
    assert response.created_at == int(hub.clock.now().timestamp())
    assert not response.secrets


async def test_where_nothing_is_assigned_nothing_is_found(hub: InProcessHub) -> None:
    agent = await hub.registered()

    async with refused(NOT_FOUND):
        await agent.get_config()


async def test_earlier_versions_of_this_instance_can_be_fetched(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    await hub.assign("api@2")
    await hub.built.instances.unassign(USER, "edge-1")

    by_name = await agent.get_config("api@1")
    by_number = await agent.get_config_version("api", 2)

    assert by_name.content == 'a "1"'
    assert (by_number.config_id, by_number.version_number) == ("api", 2)
    assert (by_number.content, by_number.hash) == ('a "2"', content_hash('a "2"'))
    assert by_number.change_summary == "change 2"
    assert by_number.created_at == int(hub.clock.now().timestamp())
    assert not by_number.secrets


@pytest.mark.parametrize(
    "version", ["api@3", "api@99", "unknown@1", "api", "api@0", "api@-1", "@", "a b@1", "x" * 9999]
)
async def test_what_was_never_assigned_is_denied_whether_it_exists(hub: InProcessHub, version: str) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")

    async with refused(PERMISSION_DENIED):
        await agent.get_config(version)


@pytest.mark.parametrize(("config_id", "number"), [("api", 3), ("api", 99), ("other", 1), ("", 0), ("api", -1)])
async def test_by_number_too_what_was_never_assigned_is_denied(
    hub: InProcessHub, config_id: str, number: int
) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")

    async with refused(PERMISSION_DENIED):
        await agent.get_config_version(config_id, number)


async def test_what_is_assigned_to_another_instance_is_denied(hub: InProcessHub) -> None:
    await hub.registered("edge-2")
    agent = await hub.registered("edge-1")
    await hub.assign("api@1", "edge-2")

    async with refused(PERMISSION_DENIED):
        await agent.get_config("api@1")


async def test_a_version_that_was_deleted_is_not_found(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")

    def delete(transaction: HubTransaction) -> None:
        transaction.config("api")
        transaction.remove_config("api")

    await hub.store.transact(delete)

    async with refused(NOT_FOUND):
        await agent.get_config()


async def test_another_configuration_of_the_same_name_is_not_confused(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    assert (await agent.get_config()).content == 'a "1"'

    def delete(transaction: HubTransaction) -> None:
        transaction.config("api")
        transaction.remove_config("api")

    await hub.built.instances.unassign(USER, "edge-1")
    await hub.store.transact(delete)
    await hub.save_versions("api", 'b "1"')
    await hub.assign("api@1")

    assert (await agent.get_config()).content == 'b "1"'


async def test_a_version_that_many_fetch_is_read_once() -> None:
    reads: list[str] = []

    def faults(call: str) -> Fault | None:
        reads.append(call)
        return None

    async with InProcessHub(backend=backends.memory(faults=faults)) as hub:
        await hub.save_versions("api", 'a "1"')
        agents = [await hub.registered(f"edge-{number}") for number in range(5)]
        for agent in agents:
            await hub.assign("api@1", agent.instance_id)

        for agent in agents:
            await agent.get_config()

    assert reads.count("version") == 1


async def test_the_store_remembers_each_assignment(hub: InProcessHub) -> None:
    await hub.registered()

    await hub.assign("api@1")

    assert await hub.store.was_assigned("edge-1", 1, VersionName("api", 1))
