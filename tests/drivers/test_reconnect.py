"""The supervision of a connection that all broker drivers share."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.drivers.reconnect import ConnectionSupervisor
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity
from sentinel.testing.loop import simulated


@pytest.fixture
def observed() -> list[Connectivity]:
    return []


@pytest.fixture
def supervisor(observed: list[Connectivity]) -> ConnectionSupervisor:
    open_timeout = timedelta(seconds=3)
    return ConnectionSupervisor(
        name="test", broker="somewhere", open_timeout=open_timeout, observe=observed.append
    )


@simulated
async def test_start_waits_for_the_first_attempt_up_to_its_timeout(supervisor: ConnectionSupervisor) -> None:
    await supervisor.start(lambda: asyncio.sleep(3600))

    assert asyncio.get_running_loop().time() == 3.0
    assert supervisor.unavailable_reason() == "somewhere: still connecting"
    await supervisor.stop()


@simulated
async def test_a_misconfiguration_is_raised_and_stops_the_task(supervisor: ConnectionSupervisor) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        supervisor.attempt_failed(Misconfigured("no such exchange"))
        await asyncio.sleep(3600)

    with pytest.raises(Misconfigured, match="no such exchange"):
        await supervisor.start(fail)

    assert not supervisor.is_running
    assert supervisor.unavailable_reason() == "the publisher is not open"


def test_only_changes_are_observed(supervisor: ConnectionSupervisor, observed: list[Connectivity]) -> None:
    supervisor.connected()
    supervisor.connected()
    supervisor.disconnected("gone")
    supervisor.disconnected("gone")

    assert [change.is_connected for change in observed] == [True, False]


@simulated
async def test_a_task_that_ended_unexpectedly_is_unavailable(supervisor: ConnectionSupervisor) -> None:
    async def end() -> None:
        supervisor.attempt_succeeded()

    await supervisor.start(end)

    assert "this is a bug" in (supervisor.unavailable_reason() or "")
    await supervisor.stop()
