"""A hub with mutual TLS: agents are recognized by certificates of `sentinel hub ca`, and need no token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from sentinel.runtime.certificate_authority import Subject
from tests.support.hub.agent_calls import Call, every_call
from tests.support.hub.authority import Authority
from tests.support.hub.in_process import SECOND, refused
from tests.support.hub.secure import SecureHub

PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[SecureHub]:
    async with SecureHub(tmp_path / "ca") as running:
        yield running


async def test_the_common_name_is_the_instance(secure: SecureHub) -> None:
    agent = secure.holder(secure.authority.issue("edge-1"))

    await agent.register()
    await agent.heartbeat()
    await agent.subscribe()

    assert (await secure.instance()).owner == "certificate:edge-1"


async def test_an_agent_cannot_register_another_id(secure: SecureHub) -> None:
    thief = secure.holder(secure.authority.issue("edge-2"), "edge-1")

    async with refused(PERMISSION_DENIED):
        await thief.register()


@every_call
async def test_a_stolen_session_token_needs_the_certificate_too(secure: SecureHub, call: Call) -> None:
    victim = secure.holder(secure.authority.issue("edge-1"))
    await victim.register()
    thief = secure.holder(secure.authority.issue("edge-2"), "edge-1")
    thief.token = victim.token

    async with refused(PERMISSION_DENIED):
        await call(thief)


@every_call
async def test_a_session_needs_the_certificate_of_an_agent(secure: SecureHub, call: Call) -> None:
    victim = secure.holder(secure.authority.issue("edge-1"))
    await victim.register()
    user = secure.holder(secure.authority.sign(Subject("edge-1", "Acme", "people")))
    user.token = victim.token

    async with refused(PERMISSION_DENIED):
        await call(user)


@every_call
async def test_a_session_without_its_token_is_unauthenticated(secure: SecureHub, call: Call) -> None:
    agent = secure.holder(secure.authority.issue("edge-1"))
    await agent.register()

    async with refused(UNAUTHENTICATED):
        await call(agent, token="")


@every_call
async def test_a_revoked_certificate_ends_every_call(secure: SecureHub, call: Call) -> None:
    agent = secure.holder(secure.authority.issue("edge-1"))
    await agent.register()

    secure.authority.revoke("edge-1")
    secure.read_files()

    async with refused(UNAUTHENTICATED):
        await call(agent)


async def test_a_certificate_of_another_unit_is_denied(secure: SecureHub) -> None:
    user = secure.holder(secure.authority.sign(Subject("edge-1", "Acme", "people")))

    async with refused(PERMISSION_DENIED):
        await user.register()


async def test_a_registration_token_does_not_replace_the_certificate(secure: SecureHub) -> None:
    thief = secure.holder(secure.authority.issue("edge-2"), "edge-1")

    async with refused(PERMISSION_DENIED):
        await thief.register(registration_token="fleet-token")


async def test_a_certificate_of_another_authority_cannot_connect(secure: SecureHub, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")

    async with refused(grpc.StatusCode.UNAVAILABLE):
        await secure.holder(foreign.issue("edge-1")).register()


async def test_a_revoked_certificate_ends_streams_and_registers_no_more(secure: SecureHub) -> None:
    agent = secure.holder(secure.authority.issue("edge-1"))
    other = secure.holder(secure.authority.issue("edge-2"), "edge-2")
    for each in (agent, other):
        await each.register()
    stream, kept = await agent.subscribe(), await other.subscribe()

    secure.authority.revoke("edge-1")
    secure.read_files()
    await secure.clock.advance(SECOND)

    assert await stream.ended() is UNAUTHENTICATED
    async with refused(UNAUTHENTICATED):
        await agent.register()
    await other.heartbeat()
    kept.cancel()


async def test_a_renewed_certificate_of_the_same_name_goes_on(secure: SecureHub) -> None:
    agent = secure.holder(secure.authority.issue("edge-1"))
    await agent.register()

    renewed = secure.holder(secure.authority.issue("edge-1"))
    renewed.token = agent.token

    await renewed.heartbeat()
