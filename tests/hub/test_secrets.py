"""Secrets on their way to agents: who gets which, and how a changed value reaches those that have the old one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from sentinel.core.hub.versions import VersionName
from sentinel.hub import secret_offers
from sentinel.ports.errors import Unavailable
from sentinel.testing.database import Fault
from sentinel.testing.hub_agent import HubAgent
from sentinel.testing.secret_store import MemorySecretStore
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.databases import backends
from tests.support.hub.in_process import SECOND, USER, InProcessHub, refused
from tests.support.hub.store_records import instance, saving

NEEDED = ("secret:api-cert", "secret:api-key", "env:CA_PATH", "vault:kv/data/x#y")
TLS = 'a "tls"'


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    """A hub with a configuration that names two secrets, and one that names another."""
    async with InProcessHub() as running:
        await running.save_versions("edge", TLS, secrets=NEEDED)
        await running.save_versions("other", 'b "1"', secrets=("secret:other",))
        for name in ("api-cert", "api-key", "other"):
            await running.built.secrets.put(USER, name, f"value of {name}")
        await running.built.offers.offer()
        yield running


async def synced(hub: InProcessHub, instance_id: str = "edge-1") -> HubAgent:
    """An agent that runs what is assigned to it, and was told nothing else."""
    agent = await hub.registered(instance_id)
    await hub.assign("edge@1", instance_id)
    fetched = await agent.get_config()
    await agent.heartbeat(current_config_version="edge@1", current_config_hash=fetched.hash)
    return agent


async def actions(agent: HubAgent, hub: InProcessHub) -> list[pb.PendingAction]:
    """What a heartbeat of an agent that is in sync is told."""
    found = await hub.instance(agent.instance_id)
    assignment = found.sync.assignment
    assert assignment is not None
    answer = await agent.heartbeat(current_config_version="edge@1", current_config_hash=assignment.hash)
    assert answer.config_update_available is bool(answer.actions)
    return list(answer.actions)


async def test_an_agent_gets_the_secrets_that_its_version_names(hub: InProcessHub) -> None:
    agent = await synced(hub)

    expected = {"api-cert": b"value of api-cert", "api-key": b"value of api-key"}

    assert dict((await agent.get_config()).secrets) == expected
    assert dict((await agent.get_config("edge@1")).secrets) == expected
    assert dict((await agent.get_config_version("edge", 1)).secrets) == expected


async def test_an_agent_whose_version_names_none_gets_none(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.save_versions("plain", 'c "1"')
    await hub.assign("plain@1")

    assert not (await agent.get_config()).secrets


async def test_an_earlier_version_brings_no_secret_that_is_not_needed_now(hub: InProcessHub) -> None:
    agent = await synced(hub)
    await hub.assign("other@1")

    earlier = await agent.get_config_version("edge", 1)
    await hub.built.instances.unassign(USER, "edge-1")
    unassigned = await agent.get_config("edge@1")

    assert (earlier.content, dict(earlier.secrets)) == (TLS, {})
    assert (unassigned.content, dict(unassigned.secrets)) == (TLS, {})


async def test_a_secret_that_does_not_exist_is_left_out(hub: InProcessHub) -> None:
    agent = await synced(hub)
    await hub.built.secrets.remove(USER, "api-key")

    assert list((await agent.get_config()).secrets) == ["api-cert"]


async def test_a_changed_secret_is_fetched_once_more(hub: InProcessHub) -> None:
    agent = await synced(hub)
    bystander = await hub.registered("edge-2")
    await hub.assign("other@1", "edge-2")
    await bystander.heartbeat(current_config_hash=(await bystander.get_config()).hash)
    assert await actions(agent, hub) == []

    await hub.built.secrets.put(USER, "api-key", "new")
    await hub.clock.advance(SECOND)
    await hub.built.offers.offer()
    await hub.built.feed.read()
    told = await actions(agent, hub)
    repeated = await actions(agent, hub)
    fetched = await agent.get_config()

    assert [each.type for each in told] == [pb.PendingAction.FETCH_CONFIG]
    assert repeated == told
    assert fetched.secrets["api-key"] == b"new"
    assert await actions(agent, hub) == []
    assert await actions(bystander, hub) == []
    assert (await hub.instance()).sync.is_in_sync


async def test_a_stream_tells_of_a_changed_secret_at_once(hub: InProcessHub) -> None:
    agent = await synced(hub)
    stream = await agent.subscribe()

    await hub.built.secrets.put(USER, "api-cert", "new")
    await hub.clock.advance(SECOND)
    await hub.built.offers.offer()
    first = await stream.next()
    await hub.built.secrets.put(USER, "api-cert", "newer")
    await hub.clock.advance(SECOND)
    await hub.built.offers.offer()
    second = await stream.next()

    assert first.config_update.config_version == second.config_update.config_version == "edge@1"
    assert first.event_id != second.event_id


async def test_a_secret_that_is_stored_later_is_offered_too(hub: InProcessHub) -> None:
    await hub.built.secrets.remove(USER, "api-key")
    agent = await synced(hub)

    await hub.built.secrets.put(USER, "api-key", "at last")
    await hub.built.offers.offer()
    await hub.built.feed.read()

    assert len(await actions(agent, hub)) == 1
    assert (await agent.get_config()).secrets["api-key"] == b"at last"


async def test_the_loop_offers_within_a_second(hub: InProcessHub) -> None:
    await synced(hub)

    await hub.built.secrets.put(USER, "api-cert", "new")
    async with hub.store.wakeups() as woken:
        await hub.clock.advance(secret_offers.INTERVAL)
        await woken.wait()

    assert await hub.backend.secrets.unfinished_offers(limit=1) == []


async def test_an_offer_that_was_cut_short_goes_on_where_it_ended() -> None:
    faults: list[Fault] = []
    backend = backends.memory(faults=lambda call: faults.pop() if call == "transact" and faults else None)
    async with InProcessHub(backend=backend) as hub:
        await hub.save_versions("edge", "content of edge@1", secrets=NEEDED)
        ids = [f"edge-{number:03}" for number in range(2 * secret_offers.BATCH + 5)]
        await hub.store.transact(saving(*(instance(each, assigned=VersionName("edge", 1)) for each in ids)))
        await hub.built.secrets.put(USER, "api-cert", "new")
        before = len(await hub.store.events(0, limit=10_000))
        faults += [Fault.AFTER_COMMIT, Fault.BEFORE_COMMIT]

        for _ in range(2):
            with pytest.raises(Unavailable, match="injected fault"):
                await hub.built.offers.offer()
        await hub.built.offers.offer()

        told = [event.subject for event in (await hub.store.events(0, limit=10_000))[before:]]
        assert told == ids
        assert await backend.secrets.unfinished_offers(limit=1) == []


async def test_a_value_that_cannot_be_read_makes_the_hub_unavailable(hub: InProcessHub) -> None:
    agent = await synced(hub)

    assert isinstance(hub.backend.secrets, MemorySecretStore)
    hub.backend.secrets.lost.add("api-cert")

    async with refused(grpc.StatusCode.UNAVAILABLE):
        await agent.get_config()
