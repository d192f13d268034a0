"""Looking after a connection: what is the same for every broker."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.drivers.reconnect import ConnectionSupervisor
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity
from sentinel.testing import loop

SECOND = timedelta(seconds=1)


def make(observed: list[Connectivity] | None = None) -> ConnectionSupervisor:
    changes = [] if observed is None else observed
    return ConnectionSupervisor(name="test", broker="somewhere", patience=3 * SECOND, observe=changes.append)


def test_opening_waits_for_the_first_attempt_and_no_longer_than_its_patience() -> None:
    async def scenario() -> tuple[float, str | None]:
        keeper = make()

        async def hang() -> None:
            await asyncio.sleep(3600)

        await keeper.open(hang)
        waited, trouble = asyncio.get_running_loop().time(), keeper.trouble()
        await keeper.close()
        return waited, trouble

    assert loop.run(scenario()) == (3.0, "somewhere: still connecting")


def test_what_a_person_has_to_mend_is_raised_at_once_and_ends_the_keeping() -> None:
    async def scenario() -> ConnectionSupervisor:
        keeper = make()

        async def refuse() -> None:
            await asyncio.sleep(0)
            keeper.failed(Misconfigured("no such exchange"))
            keeper.ring()
            await asyncio.sleep(3600)

        with pytest.raises(Misconfigured, match="no such exchange"):
            await keeper.open(refuse)
        return keeper

    keeper = loop.run(scenario())

    assert not keeper.is_open
    assert keeper.trouble() == "the publisher is not open"


def test_changes_are_told_and_repetitions_are_not() -> None:
    observed: list[Connectivity] = []
    keeper = make(observed)

    keeper.connected()
    keeper.connected()
    keeper.disconnected("gone")
    keeper.disconnected("gone")

    assert [change.is_connected for change in observed] == [True, False]


def test_a_keeper_that_ended_by_a_fault_of_our_own_is_trouble() -> None:
    async def scenario() -> str | None:
        keeper = make()

        async def crash() -> None:
            keeper.connected()
            keeper.ring()

        await keeper.open(crash)
        trouble = keeper.trouble()
        await keeper.close()
        return trouble

    assert "a fault of our own" in (loop.run(scenario()) or "")
