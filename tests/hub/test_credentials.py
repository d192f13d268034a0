"""Every call of a session, with every kind of bad credential."""

from __future__ import annotations

from datetime import timedelta

import grpc
import pytest

from sentinel.core.hub.session_token import SessionClaims
from sentinel.drivers.identity.session_tokens import JwtSessionTokens
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.signing_keys import MemorySigningKeys
from sentinel.wire.hub.v1 import fleet_pb2 as pb
from tests.support.hub.agent_calls import CALLS, Call, every_call
from tests.support.hub.in_process import USER, InProcessHub, refused

NOT_FOUND = grpc.StatusCode.NOT_FOUND
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT


def test_every_rpc_but_register_is_called_here() -> None:
    methods = pb.DESCRIPTOR.services_by_name["FleetService"].methods_by_name

    assert {*CALLS, "Register"} == set(methods)


@every_call
@pytest.mark.parametrize("token", ["", "nonsense", "a.b.c", "x" * 5000])
async def test_a_missing_or_wrong_token_is_unauthenticated(hub: InProcessHub, call: Call, token: str) -> None:
    agent = await hub.registered()

    async with refused(UNAUTHENTICATED):
        await call(agent, token=token)


@every_call
async def test_a_registration_token_is_no_session_token(hub: InProcessHub, call: Call) -> None:
    agent = await hub.registered()

    async with refused(UNAUTHENTICATED):
        await call(agent, token="fleet-token")


@every_call
async def test_a_token_that_another_key_has_signed_is_unauthenticated(hub: InProcessHub, call: Call) -> None:
    agent = await hub.registered()
    database = MemoryDatabase()
    await database.open()
    foreign = JwtSessionTokens(MemorySigningKeys(database, secret=b"x" * 32), clock=hub.clock)
    now = hub.clock.now()
    claims = SessionClaims(
        instance_id="edge-1", incarnation=1, session=1, issued=now, expires=now + timedelta(hours=1)
    )

    async with refused(UNAUTHENTICATED):
        await call(agent, token=await foreign.issue(claims))


@every_call
async def test_an_expired_token_is_unauthenticated(brief_hub: InProcessHub, call: Call) -> None:
    agent = await brief_hub.registered()
    await brief_hub.clock.advance(timedelta(seconds=10))

    async with refused(UNAUTHENTICATED):
        await call(agent)


@every_call
async def test_the_token_of_an_ended_session_is_unauthenticated(hub: InProcessHub, call: Call) -> None:
    stolen = await hub.registered()
    await hub.registered()

    async with refused(UNAUTHENTICATED):
        await call(stolen)


@every_call
@pytest.mark.parametrize("other", ["edge-2", "edge-that-does-not-exist"])
async def test_another_id_is_denied_whether_or_not_it_exists(hub: InProcessHub, call: Call, other: str) -> None:
    await hub.registered("edge-2")
    agent = await hub.registered("edge-1")

    async with refused(PERMISSION_DENIED):
        await call(agent, instance_id=other)


@every_call
async def test_an_empty_id_is_an_invalid_argument(hub: InProcessHub, call: Call) -> None:
    agent = await hub.registered()

    async with refused(INVALID_ARGUMENT):
        await call(agent, instance_id="")


@every_call
async def test_a_removed_instance_fails_as_long_as_its_token_lives(brief_hub: InProcessHub, call: Call) -> None:
    agent = await brief_hub.registered()
    await brief_hub.built.instances.drain(USER, "edge-1", "")
    await agent.deregister()

    async with refused(FAILED_PRECONDITION):
        await call(agent)

    await brief_hub.clock.advance(timedelta(seconds=10))
    async with refused(UNAUTHENTICATED):
        await call(agent)


@every_call
async def test_the_token_of_an_earlier_incarnation_is_unauthenticated(hub: InProcessHub, call: Call) -> None:
    agent = await hub.registered()
    await hub.built.instances.drain(USER, "edge-1", "")
    await agent.deregister()
    await hub.registered(token="other-token")

    async with refused(UNAUTHENTICATED):
        await call(agent)


@pytest.mark.parametrize("key", ["authorization", "Authorization".lower()])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_session_token_may_be_metadata(hub: InProcessHub, key: str, scheme: str) -> None:
    agent = await hub.registered()
    request = pb.HeartbeatRequest(instance_id="edge-1")

    response = await agent.stub.Heartbeat(request, metadata=((key, f"{scheme} {agent.token}"),))

    assert response.latest_config_version == ""


async def test_the_token_in_the_message_counts_first(hub: InProcessHub) -> None:
    agent = await hub.registered()
    request = pb.HeartbeatRequest(instance_id="edge-1", token="nonsense")

    async with refused(UNAUTHENTICATED):
        await agent.stub.Heartbeat(request, metadata=(("authorization", f"Bearer {agent.token}"),))


@pytest.mark.parametrize("name", ["AckDeployment", "ReportDeploymentStatus"])
async def test_an_unknown_deployment_is_not_found(hub: InProcessHub, name: str) -> None:
    agent = await hub.registered()

    async with refused(NOT_FOUND):
        await CALLS[name](agent)


async def test_a_registration_token_that_was_revoked_registers_no_more(hub: InProcessHub) -> None:
    agent = await hub.registered()
    del hub.identities.known["fleet-token"]

    async with refused(UNAUTHENTICATED):
        await agent.register()

    await agent.heartbeat()


async def test_tokens_of_a_hub_are_good_at_another_on_the_same_database(hub: InProcessHub) -> None:
    agent = await hub.registered()

    async with InProcessHub(backend=hub.backend, clock=hub.clock) as other:
        moved = other.agent()
        moved.token = agent.token
        await moved.heartbeat()


async def test_refusals_tell_nothing_about_the_token(hub: InProcessHub, caplog: pytest.LogCaptureFixture) -> None:
    agent = await hub.registered()

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await agent.heartbeat(token="secret-that-must-not-be-logged")

    shown = [str(raised.value.details()), *(str(vars(record)) for record in caplog.records)]
    assert not any("secret-that-must-not-be-logged" in text for text in shown)
