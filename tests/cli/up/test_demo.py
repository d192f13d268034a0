"""The demo against a real API, without its pauses."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from random import Random

import pytest

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up.activity import Activity
from sentinel.cli.up.demo import LABEL, Demo
from sentinel.core.fleet.documents import KindRules
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.clock import START
from tests.cli.client.serving import ServedFleet

KINDS = (
    KindRules("clusters", "Cluster", "", ("validation", "dns")),
    KindRules("nodepools", "NodePool", "clusters", ("validation",)),
)
ACTIONS = 60


class StopsAfterSleeps:
    """A `ports.Clock` that does not sleep, and requests the stop at the given sleep."""

    def __init__(self, stopping: Stopping, sleeps: int) -> None:
        self._stopping = stopping
        self._left = sleeps

    def now(self) -> datetime:
        return START

    async def sleep(self, duration: timedelta) -> None:
        self._left -= 1
        if self._left == 0:
            self._stopping.request()


class RecordedOutage:
    """An `Outage` that records its history."""

    def __init__(self) -> None:
        self.history: list[Collection[str]] = [()]

    @property
    def out_of_service(self) -> Collection[str]:
        return self.history[-1]

    @out_of_service.setter
    def out_of_service(self, value: Collection[str]) -> None:
        self.history.append(value)


async def run_demo(url: str, *, actions: int = ACTIONS, seed: int = 1) -> tuple[list[Activity], RecordedOutage]:
    activities: list[Activity] = []
    stopping, dns = Stopping(), RecordedOutage()
    demo = Demo(
        connect=lambda: ServerConnection(server=url),
        kinds=KINDS,
        dns=dns,
        on_activity=activities.append,
        clock=StopsAfterSleeps(stopping, actions),
        random=Random(seed),  # noqa: S311 - repeatable on purpose
    )
    await demo.run(stopping)
    return activities, dns


@pytest.fixture
async def shared_fleet(fleet: ServedFleet) -> ServedFleet:
    """A fleet that has a cluster of another user."""
    await fleet.create("clusters", "of-another-user", spec={"replicas": 7})
    return fleet


async def test_the_demo_creates_changes_breaks_and_repairs_a_fleet(shared_fleet: ServedFleet) -> None:
    activities, dns = await run_demo(shared_fleet.url)

    texts = "\n".join(each.text for each in activities)
    assert texts.count("creates a Cluster") >= 6
    assert texts.count("creates a NodePool") == 6
    for word in ("replicas", "breaks it", "repairs it", "deletes it", "service down", "back up"):
        assert word in texts, word
    assert "failed: " not in texts
    assert max(map(len, dns.history)) >= 6
    assert not dns.out_of_service


async def test_resources_of_other_users_are_not_touched(shared_fleet: ServedFleet) -> None:
    _, dns = await run_demo(shared_fleet.url)

    [other] = [each for each in (await shared_fleet.get("clusters"))["items"] if LABEL not in each["labels"]]
    assert (other["name"], other["generation"], other["spec"]) == ("of-another-user", 1, {"replicas": 7})
    assert not any(other["id"] in ids for ids in dns.history)


async def test_a_dns_outage_affects_only_resources_that_need_dns(shared_fleet: ServedFleet) -> None:
    activities, dns = await run_demo(shared_fleet.url)

    clusters = {each["id"] for each in (await shared_fleet.get("clusters"))["items"]}
    pools = {each["id"] for each in (await shared_fleet.get("nodepools"))["items"]}
    after = [activities[index + 1] for index, each in enumerate(activities) if each.text.endswith("service down")]
    assert after
    assert {each.resource_id for each in after} <= clusters
    assert pools.isdisjoint(set().union(*dns.history))


async def test_a_taken_name_is_skipped(shared_fleet: ServedFleet) -> None:
    await shared_fleet.create("clusters", "amber", spec={"mine": True})

    activities, _ = await run_demo(shared_fleet.url)

    texts = "\n".join(each.text for each in activities)
    assert texts.count("skips Cluster amber") == 1
    assert "failed: " not in texts
    for word in ("breaks it", "repairs it", "deletes it"):
        assert word in texts, word
    amber = next(each for each in (await shared_fleet.get("clusters"))["items"] if each["name"] == "amber")
    assert (amber["spec"], amber["labels"]) == ({"mine": True}, {})


async def test_the_next_start_continues_with_the_same_fleet(shared_fleet: ServedFleet) -> None:
    await run_demo(shared_fleet.url, actions=1)

    activities, _ = await run_demo(shared_fleet.url, actions=3, seed=2)

    assert not any("creates a NodePool" in each.text for each in activities)


async def test_a_resource_left_broken_is_repaired_first(shared_fleet: ServedFleet) -> None:
    await run_demo(shared_fleet.url, actions=1)
    amber = next(each for each in (await shared_fleet.get("clusters"))["items"] if each["name"] == "amber")
    await shared_fleet.call("PATCH", f"clusters/{amber['id']}", {"spec": {"replicas": 0}})

    activities, _ = await run_demo(shared_fleet.url, actions=1)

    assert [(each.name, each.text) for each in activities] == [("amber", "repairs it: 3 replicas in us-east")]
    assert (await shared_fleet.get(f"clusters/{amber['id']}"))["spec"]["replicas"] == 3


async def test_errors_of_the_api_are_shown_and_retried() -> None:
    async with ServedFleet() as fleet:
        url = fleet.url

    activities, _ = await run_demo(url, actions=3)

    assert len(activities) == 3
    assert all(each.text.startswith("failed: ") for each in activities)
