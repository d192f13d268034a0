"""What users do with instances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from sentinel.core.hub.instance import DeploymentStarted, advance
from sentinel.core.hub.states import State
from sentinel.hub import instance_changes
from sentinel.hub.instance_documents import document
from sentinel.hub.instances import Instances
from sentinel.ports.audit import AuditQuery
from sentinel.ports.hub_store import HubEventType, HubTransaction
from sentinel.web.errors import Conflict, NotFound
from tests.support.hub.in_process import SECOND, USER, InProcessHub, named

Use: TypeAlias = Callable[[Instances], Awaitable[object]]

USES: dict[str, Use] = {
    "assign": lambda instances: instances.assign(USER, "edge-1", named("api@1")),
    "unassign": lambda instances: instances.unassign(USER, "edge-1"),
    "drain": lambda instances: instances.drain(USER, "edge-1", "rebuilt"),
    "remove": lambda instances: instances.remove(USER, "edge-1"),
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


async def deploying(hub: InProcessHub) -> None:
    """Let a deployment begin on edge-1."""
    now = hub.clock.now()

    def work(transaction: HubTransaction) -> None:
        before = transaction.instance("edge-1")
        assert before is not None
        life, commands = advance(before.life, DeploymentStarted("dep-1"), now, hub.settings.timeouts)
        instance_changes.save(transaction, instance_changes.with_life(before, life), commands, now)

    await hub.store.transact(work)


@every_use
async def test_an_unknown_instance_is_not_found(hub: InProcessHub, use: Use) -> None:
    with pytest.raises(NotFound, match="edge-1"):
        await use(hub.built.instances)


@every_use
async def test_a_removed_instance_is_a_conflict(hub: InProcessHub, use: Use) -> None:
    await hub.registered()
    await hub.built.instances.drain(USER, "edge-1", "")
    await hub.clock.advance(31 * SECOND)

    with pytest.raises(Conflict, match="removed"):
        await use(hub.built.instances)


@pytest.mark.parametrize("name", ["assign", "unassign"])
async def test_the_assignment_of_a_draining_instance_is_fixed(hub: InProcessHub, name: str) -> None:
    await hub.registered()
    await hub.built.instances.drain(USER, "edge-1", "")

    with pytest.raises(Conflict, match="draining"):
        await USES[name](hub.built.instances)


@pytest.mark.parametrize("name", ["assign", "unassign"])
async def test_the_assignment_during_a_deployment_is_fixed(hub: InProcessHub, name: str) -> None:
    await hub.registered()
    await deploying(hub)

    with pytest.raises(Conflict, match="dep-1"):
        await USES[name](hub.built.instances)


@pytest.mark.parametrize("version", ["api@99", "unknown@1"])
async def test_an_unknown_version_cannot_be_assigned(hub: InProcessHub, version: str) -> None:
    await hub.registered()

    with pytest.raises(NotFound, match=version):
        await hub.assign(version)

    assert (await hub.instance()).sync.assignment is None


async def test_a_second_drain_changes_nothing(hub: InProcessHub) -> None:
    await hub.registered()
    first = await hub.built.instances.drain(USER, "edge-1", "first")
    await hub.clock.advance(10 * SECOND)

    second = await hub.built.instances.drain(USER, "edge-1", "second")

    assert first.life.drain == second.life.drain


async def test_every_use_is_in_the_audit_with_who_and_what(hub: InProcessHub) -> None:
    await hub.registered()
    for use in USES.values():
        await hub.clock.advance(SECOND)
        if use is not USES["remove"]:
            await use(hub.built.instances)

    entries = await hub.backend.audit.find(AuditQuery(limit=3))

    assert [(each.action, each.kind, each.resource_id, each.detail) for each in entries] == [
        ("drain", "instance", "edge-1", "rebuilt"),
        ("unassign", "instance", "edge-1", ""),
        ("assign", "instance", "edge-1", "api@1"),
    ]
    assert {(each.actor, each.address, each.request_id) for each in entries} == {
        ("anonymous", "127.0.0.1", "request-1")
    }


async def test_a_refused_use_leaves_no_trace(hub: InProcessHub) -> None:
    await hub.registered()
    start = await hub.store.newest_event()

    with pytest.raises(NotFound):
        await hub.assign("api@99")

    assert await hub.store.newest_event() == start
    assert [each.action for each in await hub.backend.audit.find(AuditQuery(limit=9))] == ["register"]


async def test_an_assignment_tells_hubs_and_not_users(hub: InProcessHub) -> None:
    await hub.registered()
    start = await hub.store.newest_event()

    await hub.assign("api@1")

    (event,) = await hub.store.events(start, limit=9)
    assert (event.type, event.subject, event.data) == (HubEventType.INSTANCE_CHANGED, "edge-1", b"")


async def test_the_document_of_a_new_instance_has_no_guesses(hub: InProcessHub) -> None:
    await hub.registered()

    shown = document(await hub.instance())

    assert shown.state is State.ONLINE
    assert (shown.current, shown.assigned, shown.deployment_id, shown.metrics) == (None, None, None, None)
    assert shown.in_sync
    assert shown.registered_time == shown.last_seen_time == hub.clock.now()


async def test_the_document_shows_what_runs_and_what_is_assigned(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await hub.assign("api@1")
    await agent.fetch()
    await agent.heartbeat()
    await hub.assign("api@2")

    shown = document(await hub.instance())

    assert shown.current is not None
    assert (shown.current.version, shown.current.hash) == ("api@1", agent.running_hash)
    assert (shown.assigned, shown.in_sync) == ("api@2", False)
