"""How sessions begin: flow 1 of the protocol, who may register which id, and what ends a session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from sentinel.core.hub.states import State
from sentinel.core.hub.versions import content_hash
from sentinel.ports.audit import AuditQuery
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.in_process import InProcessHub, refused

INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
async def open_hub() -> AsyncIterator[InProcessHub]:
    """A hub without authentication."""
    async with InProcessHub(is_insecure=True) as running:
        yield running


async def test_an_agent_registers_subscribes_fetches_and_reports(hub: InProcessHub) -> None:
    earlier = await hub.registered("edge-1")
    await earlier.close()
    await hub.assign("api@2", "edge-1")
    agent = hub.agent("edge-1")

    registered = await agent.register()
    await agent.subscribe()
    fetched = await agent.fetch()
    response = await agent.heartbeat()

    assert registered.config_version == "api@2"
    assert registered.config_hash == content_hash('a "2"')
    assert registered.heartbeat_interval == 30
    assert registered.token_expires_at == int(hub.clock.now().timestamp()) + 3600
    assert (fetched.version, fetched.content, fetched.hash) == ("api@2", 'a "2"', registered.config_hash)
    assert not response.config_update_available
    assert response.latest_config_version == "api@2"
    assert not response.actions
    instance = await hub.instance("edge-1")
    assert instance.life.state is State.ONLINE
    assert instance.sync.is_in_sync


async def test_a_new_instance_has_nothing_assigned(hub: InProcessHub) -> None:
    agent = hub.agent()

    registered = await agent.register()
    response = await agent.heartbeat()

    assert (registered.config_version, registered.config_hash) == ("", "")
    assert not response.config_update_available
    assert response.latest_config_version == ""


async def test_saving_a_version_offers_it_to_nobody(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    await agent.fetch()

    await hub.save_versions("other", 'b "1"')
    response = await agent.heartbeat()

    assert not response.config_update_available
    assert response.latest_config_version == "api@1"


async def test_a_registration_is_stored_with_everything_it_says(hub: InProcessHub) -> None:
    agent = hub.agent(labels={"zone": "a"}, capabilities=("reload", "fly"), name="Edge One")

    await agent.register(hostname="edge.example", agent_version="1.2", sentinel_version="0.6.20")

    instance = await hub.instance()
    assert (instance.name, instance.hostname) == ("Edge One", "edge.example")
    assert (instance.agent_version, instance.sentinel_version) == ("1.2", "0.6.20")
    assert dict(instance.labels) == {"zone": "a"}
    assert tuple(instance.capabilities) == ("reload", "fly")
    assert instance.owner == "token:fleet"


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": ""},
        {"instance_id": "a/b"},
        {"instance_id": ".."},
        {"instance_id": "x" * 129},
        {"instance_name": ""},
        {"instance_name": " "},
        {"instance_name": "x" * 257},
        {"instance_name": "a\0b"},
        {"hostname": "a\nb"},
        {"agent_version": "x" * 257},
        {"sentinel_version": "\x7f"},
        {"labels": {"": "a"}},
        {"labels": {"zone": "not a value"}},
        {"labels": {f"l{number}": "x" for number in range(65)}},
        {"capabilities": ["x"] * 33},
        {"capabilities": ["x" * 65]},
    ],
)
async def test_an_invalid_registration_is_refused(hub: InProcessHub, fields: dict[str, object]) -> None:
    async with refused(INVALID_ARGUMENT):
        await hub.agent().register(**fields)


@pytest.mark.parametrize(
    ("token", "status"),
    [
        ("", UNAUTHENTICATED),
        ("unknown", UNAUTHENTICATED),
        ("x" * 10_000, UNAUTHENTICATED),
        ("operator-token", PERMISSION_DENIED),
        ("admin-token", PERMISSION_DENIED),
        ("edge-2-token", PERMISSION_DENIED),
    ],
)
async def test_a_wrong_registration_token_is_refused(
    hub: InProcessHub, token: str, status: grpc.StatusCode
) -> None:
    async with refused(status):
        await hub.agent("edge-1", token=token).register()

    assert await hub.store.instance("edge-1") is None


async def test_a_token_for_one_instance_registers_that_one(hub: InProcessHub) -> None:
    agent = hub.agent("edge-2", token="edge-2-token")

    registered = await agent.register()

    assert registered.token


async def test_the_registration_token_may_be_metadata(hub: InProcessHub) -> None:
    agent = hub.agent(token="")
    request = pb.RegisterRequest(instance_id="edge-1", instance_name="Edge 1")

    response = await agent.stub.Register(request, metadata=(("authorization", "Bearer fleet-token"),))

    assert response.token


async def test_an_id_belongs_to_the_token_that_registered_it_first(hub: InProcessHub) -> None:
    owner = await hub.registered("edge-1")

    async with refused(PERMISSION_DENIED):
        await hub.agent("edge-1", token="other-token").register()

    await owner.heartbeat()
    assert (await hub.instance("edge-1")).owner == "token:fleet"


async def test_display_names_may_repeat(hub: InProcessHub) -> None:
    await hub.registered("edge-1", name="Edge")

    registered = await hub.agent("edge-3", name="Edge").register()

    assert registered.token


async def test_a_second_register_ends_the_first_session(hub: InProcessHub) -> None:
    first = await hub.registered("edge-1")
    second = await hub.registered("edge-1")

    async with refused(UNAUTHENTICATED):
        await first.heartbeat()

    await second.heartbeat()


async def test_a_second_register_ends_the_stream_of_the_first(hub: InProcessHub) -> None:
    first = await hub.registered("edge-1")
    events = await first.subscribe()

    await hub.registered("edge-1")

    assert await events.ended() is UNAUTHENTICATED


async def test_a_second_register_keeps_assignment_and_state(hub: InProcessHub) -> None:
    first = await hub.registered("edge-1")
    await first.heartbeat(status=pb.InstanceStatus(state=pb.InstanceStatus.DEGRADED))
    await hub.assign("api@1")

    registered = await hub.agent("edge-1").register()

    assert registered.config_version == "api@1"
    assert await hub.state() is State.DEGRADED
    assert (await hub.instance()).life.incarnation == 1


async def test_without_authentication_anybody_may_register(open_hub: InProcessHub) -> None:
    await open_hub.registered("edge-1", token="")
    again = open_hub.agent("edge-1", token="")

    await again.register()

    assert (await open_hub.instance("edge-1")).owner == ""


async def test_an_id_that_nobody_owns_gets_the_next_owner(open_hub: InProcessHub) -> None:
    await open_hub.registered("edge-1", token="")

    await open_hub.registered("edge-1", token="other-token")

    assert (await open_hub.instance("edge-1")).owner == "token:other"
    async with refused(PERMISSION_DENIED):
        await open_hub.agent("edge-1").register()


async def test_an_anonymous_register_does_not_take_the_owner_away(open_hub: InProcessHub) -> None:
    await open_hub.registered("edge-1", token="other-token")

    await open_hub.registered("edge-1", token="")

    assert (await open_hub.instance("edge-1")).owner == "token:other"


async def test_a_wrong_token_is_refused_without_authentication_too(open_hub: InProcessHub) -> None:
    async with refused(UNAUTHENTICATED):
        await open_hub.agent(token="unknown").register()


async def test_only_a_new_instance_is_in_the_audit(hub: InProcessHub) -> None:
    await hub.registered("edge-1")
    await hub.registered("edge-1")

    entries = await hub.backend.audit.find(AuditQuery(limit=10))

    assert [(each.action, each.resource_id, each.actor, each.detail) for each in entries] == [
        ("register", "edge-1", "fleet", "token:fleet")
    ]
    assert entries[0].address == "127.0.0.1"
