"""An owner with a busy day, against a real API; only the pauses are left out."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from random import Random

import pytest

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up.demo import LABEL, Demo
from sentinel.cli.up.narration import Activity
from sentinel.core.fleet.documents import KindRules
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START
from tests.cli.client.serving import ServedFleet

KINDS = (
    KindRules("clusters", "Cluster", "", ("validation", "dns")),
    KindRules("nodepools", "NodePool", "clusters", ("validation",)),
)
ACTS = 60


class Hurry:
    """`ports.Clock` for somebody who does not wait; after so many pauses it is over."""

    def __init__(self, stopping: Stopping, pauses: int) -> None:
        self._stopping = stopping
        self._left = pauses

    def now(self) -> datetime:
        return START

    async def sleep(self, duration: timedelta) -> None:
        self._left -= 1
        if self._left == 0:
            self._stopping.request()


class Service:
    """Something that can be put out of service, and remembers for whom it was."""

    def __init__(self) -> None:
        self.history: list[Collection[str]] = [()]

    @property
    def out_of_service(self) -> Collection[str]:
        return self.history[-1]

    @out_of_service.setter
    def out_of_service(self, value: Collection[str]) -> None:
        self.history.append(value)


async def play(fleet: ServedFleet, *, acts: int = ACTS, seed: int = 1) -> tuple[list[Activity], Service]:
    told: list[Activity] = []
    stopping, dns = Stopping(), Service()
    demo = Demo(
        connect=lambda: ServerConnection(server=fleet.url),
        kinds=KINDS,
        dns=dns,
        tell=told.append,
        clock=Hurry(stopping, acts),
        random=Random(seed),  # noqa: S311 - repeatable on purpose
    )
    await demo.run(stopping)
    return told, dns


@pytest.fixture
async def owned(fleet: ServedFleet) -> ServedFleet:
    """A fleet in which there is something of somebody else's already."""
    await fleet.create("clusters", "not-ours", spec={"replicas": 7})
    return fleet


async def test_it_makes_a_fleet_changes_it_breaks_it_and_heals_it(owned: ServedFleet) -> None:
    told, dns = await play(owned)

    acts = "\n".join(each.text for each in told)
    assert acts.count("asks for a Cluster") >= 6
    assert acts.count("asks for a NodePool") == 6
    for word in ("replicas", "breaks it", "heals it", "deletes it", "out of service", "back in service"):
        assert word in acts, word
    assert "could not" not in acts
    assert max(map(len, dns.history)) >= 6
    assert not dns.out_of_service


async def test_nothing_is_touched_that_it_has_not_made(owned: ServedFleet) -> None:
    _, dns = await play(owned)

    [other] = [each for each in (await owned.get("clusters"))["items"] if LABEL not in each["labels"]]
    assert (other["name"], other["generation"], other["spec"]) == ("not-ours", 1, {"replicas": 7})
    assert not any(other["id"] in ids for ids in dns.history)


async def test_an_outage_of_the_dns_service_meets_who_needs_it(owned: ServedFleet) -> None:
    told, dns = await play(owned)

    clusters = {each["id"] for each in (await owned.get("clusters"))["items"]}
    pools = {each["id"] for each in (await owned.get("nodepools"))["items"]}
    after = [told[index + 1] for index, each in enumerate(told) if each.text.endswith("out of service")]
    assert after
    assert {each.resource_id for each in after} <= clusters
    assert pools.isdisjoint(set().union(*dns.history))


async def test_a_name_that_somebody_else_has_is_left_to_them(owned: ServedFleet) -> None:
    await owned.create("clusters", "amber", spec={"mine": True})

    told, _ = await play(owned)

    acts = "\n".join(each.text for each in told)
    assert acts.count("does without a Cluster amber") == 1
    assert "could not" not in acts
    for word in ("breaks it", "heals it", "deletes it"):
        assert word in acts, word
    amber = next(each for each in (await owned.get("clusters"))["items"] if each["name"] == "amber")
    assert (amber["spec"], amber["labels"]) == ({"mine": True}, {})


async def test_at_the_next_start_it_goes_on_with_what_it_made(owned: ServedFleet) -> None:
    await play(owned, acts=1)

    told, _ = await play(owned, acts=3, seed=2)

    assert not any("asks for a NodePool" in each.text for each in told)


async def test_what_an_earlier_start_left_broken_is_healed_first(owned: ServedFleet) -> None:
    await play(owned, acts=1)
    amber = next(each for each in (await owned.get("clusters"))["items"] if each["name"] == "amber")
    await owned.call("PATCH", f"clusters/{amber['id']}", {"spec": {"replicas": 0}})

    told, _ = await play(owned, acts=1)

    assert [(each.name, each.text) for each in told] == [("amber", "heals it: 3 replicas in us-east")]
    assert (await owned.get(f"clusters/{amber['id']}"))["spec"]["replicas"] == 3


async def test_an_api_that_refuses_is_told_of_and_asked_again() -> None:
    async with ServedFleet() as fleet:
        url = fleet.url
    told: list[Activity] = []
    stopping = Stopping()
    demo = Demo(
        connect=lambda: ServerConnection(server=url),
        kinds=KINDS,
        dns=Service(),
        tell=told.append,
        clock=Hurry(stopping, 3),
        random=Random(1),  # noqa: S311 - repeatable on purpose
    )

    await demo.run(stopping)

    assert len(told) == 3
    assert all(each.text.startswith("could not: ") for each in told)
