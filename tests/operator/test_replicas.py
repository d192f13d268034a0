"""Two operators with leader election: one publishes, and the other continues where it ends."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from sentinel.ports.kube import KubeKind
from tests.operator.harness import ALL, NAMESPACE, OperatorHarness

EVENT = KubeKind(group="", version="v1", kind="Event", plural="events")
LEASE = KubeKind("coordination.k8s.io", "v1", "Lease", "leases")


def holder(harness: OperatorHarness, name: str) -> str:
    """The holder of the lease of a SentinelConfig; empty if there is none."""
    for lease in harness.server.objects(LEASE, namespace=NAMESPACE):
        metadata, spec = lease["metadata"], lease["spec"]
        assert isinstance(metadata, dict)
        assert isinstance(spec, dict)
        if metadata["name"] == f"sentinel-{name}":
            return str(spec.get("holderIdentity") or "")
    return ""


async def start_two(harness: OperatorHarness, name: str) -> None:
    """Start the operator `one`, which leads, and `two`, which follows and has seen a renewal."""
    harness.start("one", elects_leaders=True)
    await harness.until(lambda: holder(harness, name) == "one")
    harness.server.clear_requests()
    harness.start("two", elects_leaders=True)
    await harness.cycles(2, "two", **ALL)
    # A leader renews at least as often as a follower looks, and does not look itself.
    await harness.until(lambda: looks_at_leases(harness) >= 4)


async def start_sending(harness: OperatorHarness, *, delay: float) -> None:
    """Start an operator that leads, and wait until it sends an event, which takes `delay` seconds."""
    harness.put("cls-1")
    harness.publish_delay = delay
    harness.create("all-clusters")
    harness.start("one", elects_leaders=True)
    await harness.until(lambda: harness.publishers and harness.publishers[-1].has_started)


def looks_at_leases(harness: OperatorHarness) -> int:
    """How often a follower has read a Lease."""
    return len([each for each in harness.server.requests if each.verb == "get" and "/leases/" in each.path])


def shortest_gap(harness: OperatorHarness) -> float:
    """The shortest time between two events of one resource."""
    gaps = [100.0]
    for resource_id in set(harness.ids()):
        times = [event.at for event in harness.published if event.resource_id == resource_id]
        gaps += [later - earlier for earlier, later in itertools.pairwise(sorted(times))]
    return min(gaps)


async def test_only_the_leader_publishes(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters", backoffNotReady="300ms")

    await start_two(harness, "all-clusters")
    await harness.cycles(10, "two", **ALL)

    assert {event.operator for event in harness.published} == {"one"}
    assert harness.metric("events_published_total", "two", **ALL) == 0


async def test_a_killed_leader_is_replaced_without_repeating_an_event(harness: OperatorHarness) -> None:
    for number in range(20):
        harness.put(f"cls-{number}")
    harness.create("all-clusters", backoffNotReady="3s")
    await start_two(harness, "all-clusters")
    await harness.until(lambda: len(harness.published) >= 20)

    await harness.kill("one")
    await harness.until(lambda: holder(harness, "all-clusters") == "two")
    await harness.until(lambda: len([event for event in harness.published if event.operator == "two"]) >= 40)

    assert shortest_gap(harness) >= 3 - 0.5


async def test_what_nobody_published_is_published_by_the_new_leader(harness: OperatorHarness) -> None:
    harness.create("all-clusters", backoffNotReady="1h")
    await start_two(harness, "all-clusters")

    await harness.kill("one")
    harness.server.clear_requests()
    await harness.until(lambda: looks_at_leases(harness) >= 2)  # the follower has seen the last renewal
    await harness.cycles(6, "two", **ALL)  # longer than the leader may have lived after it
    harness.put("cls-1")
    harness.edit("all-clusters", pageSize=50)  # the fleet of a pulse is made when it starts
    await harness.until(lambda: harness.ids() == ["cls-1"])

    assert holder(harness, "all-clusters") == "two"


@pytest.mark.parametrize("is_stopped_cleanly", [True, False])
async def test_what_fell_due_while_nobody_ran_is_published_at_once(
    harness: OperatorHarness, is_stopped_cleanly: bool
) -> None:
    harness.create("all-clusters", backoffNotReady="1h", backoffReady="1h")
    harness.start("one", elects_leaders=True)
    await harness.cycles(2, "one", **ALL)
    await (harness.stop("one") if is_stopped_cleanly else harness.kill("one"))
    harness.put("new")
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    harness.put("expired", observed_generation=1, is_ready=True, last_updated_time=long_ago)

    harness.start("two", elects_leaders=True)

    await harness.until(lambda: set(harness.ids()) == {"new", "expired"})


async def test_a_stopped_leader_hands_over_at_once(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters", backoffNotReady="300ms")
    await start_two(harness, "all-clusters")

    await harness.stop("one")
    released = len(harness.published)
    await harness.until(lambda: len(harness.published) > released)

    assert harness.published[-1].operator == "two"
    assert shortest_gap(harness) >= 0.2


async def test_a_leader_that_lost_its_lease_abandons_what_it_sends(harness: OperatorHarness) -> None:
    await start_sending(harness, delay=3600)

    harness.disconnect()
    await harness.until(lambda: harness.publishers[-1].abandoned)
    harness.publish_delay = harness.publishers[-1].delay = 0
    await harness.server.accept_connections()

    await harness.until(lambda: harness.ids() == ["cls-1"])
    assert harness.metric("events_published_total", "one", **ALL) == 1


async def test_a_stopped_leader_waits_for_what_it_sends(harness: OperatorHarness) -> None:
    await start_sending(harness, delay=0.5)

    await harness.stop("one")

    assert harness.ids() == ["cls-1"]


async def test_only_the_leader_writes_the_status(harness: OperatorHarness) -> None:
    harness.create("all-clusters", pollInterval="soon")

    harness.start("one", elects_leaders=True)
    harness.start("two", elects_leaders=True)
    await harness.until(lambda: harness.reasons("all-clusters").get("Accepted") == "False/Invalid")
    await harness.until(lambda: holder(harness, "all-clusters"))

    patches = [request for request in harness.server.requests if request.verb == "patch"]
    assert len(patches) == 1


async def test_a_new_leader_counts_no_invalid_config_again(harness: OperatorHarness) -> None:
    harness.create("all-clusters", pollInterval="often")

    harness.start("one", elects_leaders=True, retry=timedelta(hours=1))
    # Only a leader records Events, so this is its second look.
    await harness.until(lambda: harness.server.objects(EVENT, namespace=NAMESPACE))

    unknown = {"shard": "unknown", "resource_type": "unknown"}
    assert harness.metric("api_errors_total", operation="config_load", **unknown) == 1


async def test_each_config_has_its_own_lease(harness: OperatorHarness) -> None:
    harness.create("one")
    harness.create("two", resourceType="nodepools")

    harness.start("one", elects_leaders=True)

    await harness.until(lambda: holder(harness, "one") and holder(harness, "two"))


async def test_what_a_leader_could_not_publish_is_not_lost(harness: OperatorHarness) -> None:
    harness.put("cls-0")
    harness.failing_operator = "one"
    harness.create("all-clusters", backoffNotReady="1h")
    await start_two(harness, "all-clusters")
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "True/PublishFailed")
    await harness.cycles(5, "two", **ALL)
    harness.put("cls-1")
    harness.edit("all-clusters", pageSize=50)  # the fleet of a pulse is made when it starts
    await harness.until(lambda: harness.metric("config_reloads_total", "two", **ALL) == 1)
    await harness.cycles(2, "two", **ALL)
    harness.server.clear_requests()
    # At least one renewal since then says that nothing was published.
    await harness.until(lambda: looks_at_leases(harness) >= 4)

    await harness.kill("one")

    await harness.until(lambda: "cls-1" in harness.ids())
    assert {event.operator for event in harness.published} == {"two"}
