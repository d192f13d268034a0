"""Two operators with leader election: one publishes, and the other continues where it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sentinel.ports.kube import KubeKind
from tests.operator.harness import ALL, NAMESPACE, TIMINGS, OperatorHarness

EVENT = KubeKind(group="", version="v1", kind="Event", plural="events")
DAY = timedelta(days=1)
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
    harness.start("two", elects_leaders=True)
    await harness.cycles(2, "two", **ALL)
    await until_renewal_seen(harness)


async def start_sending(harness: OperatorHarness, *, delay: float) -> None:
    """Start an operator that leads, and wait until it sends an event, which takes `delay` seconds."""
    harness.put("cls-1")
    harness.publish_delay = delay
    harness.create("all-clusters")
    harness.start("one", elects_leaders=True)
    await harness.until(lambda: harness.publishers and harness.publishers[-1].has_started)


async def until_renewal_seen(harness: OperatorHarness) -> None:
    """Wait until the follower knows of a renewal that the leader begins from now on."""
    harness.server.clear_requests()
    # The first may have begun before, and the third begins after the second has ended. A leader does not look.
    await until_requested(harness, "update", "update", "update", "get", "get")


async def until_looked(harness: OperatorHarness) -> None:
    """Wait until the follower knows the Lease as it is now."""
    harness.server.clear_requests()
    # It looks again only after it has read the response.
    await until_requested(harness, "get", "get")


async def until_requested(harness: OperatorHarness, *verbs: str) -> None:
    """Wait for requests about Leases with these verbs in this order, whatever there is between them."""

    def all_found() -> bool:
        # Each search goes on after the request that the one before has found.
        requested = iter([each.verb for each in harness.server.requests if "/leases/" in each.path])
        return all(verb in requested for verb in verbs)

    await harness.until(all_found)


async def kill_leader(harness: OperatorHarness) -> None:
    """End the operator `one` without releasing its lease; `two` has seen its last renewal."""
    await harness.kill("one")
    await until_looked(harness)


async def let_lease_expire(harness: OperatorHarness) -> None:
    """Let the time of the lease pass. The operator `two` takes it."""
    harness.loop_time.advance(TIMINGS.lease_duration)
    await harness.until(lambda: holder(harness, "all-clusters") == "two")


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
    harness.create("all-clusters", backoffNotReady="24h")
    await start_two(harness, "all-clusters")
    await harness.until(lambda: len(harness.published) >= 20)

    await kill_leader(harness)
    await let_lease_expire(harness)
    await harness.cycles(5, "two", **ALL)
    before = list(harness.published)
    harness.clock.ahead += DAY
    await harness.until(lambda: len(harness.published) >= 40)
    await harness.cycles(2, "two", **ALL)

    assert [event.operator for event in before] == ["one"] * 20
    assert [event.operator for event in harness.published[20:]] == ["two"] * 20
    assert len(set(harness.ids()[20:])) == 20


async def test_what_nobody_published_is_published_by_the_new_leader(harness: OperatorHarness) -> None:
    harness.create("all-clusters", backoffNotReady="24h")
    await start_two(harness, "all-clusters")

    await kill_leader(harness)
    harness.loop_time.advance(2 * TIMINGS.retry_period)  # longer than the leader may have lived after its renewal
    harness.put("cls-1")
    harness.edit("all-clusters", pageSize=50)  # the fleet of a pulse is made when it starts
    await harness.until(lambda: harness.metric("config_reloads_total", "two", **ALL) == 1)
    await harness.cycles(2, "two", **ALL)
    await let_lease_expire(harness)

    await harness.until(lambda: harness.ids() == ["cls-1"])


@pytest.mark.parametrize("is_stopped_cleanly", [True, False])
async def test_what_fell_due_while_nobody_ran_is_published_at_once(
    harness: OperatorHarness, is_stopped_cleanly: bool
) -> None:
    harness.create("all-clusters", backoffNotReady="24h", backoffReady="24h")
    harness.start("one", elects_leaders=True)
    await harness.cycles(2, "one", **ALL)
    await (harness.stop("one") if is_stopped_cleanly else harness.kill("one"))
    harness.put("new")
    long_ago = datetime.now(UTC) - 2 * DAY
    harness.put("expired", observed_generation=1, is_ready=True, last_updated_time=long_ago)

    harness.start("two", elects_leaders=True)
    if not is_stopped_cleanly:
        await until_looked(harness)
        await let_lease_expire(harness)

    await harness.until(lambda: set(harness.ids()) == {"new", "expired"})


async def test_a_stopped_leader_hands_over_at_once(harness: OperatorHarness) -> None:
    harness.put("cls-1")
    harness.create("all-clusters", backoffNotReady="24h")
    await start_two(harness, "all-clusters")
    await harness.until(lambda: harness.published)

    await harness.stop("one")
    await harness.until(lambda: holder(harness, "all-clusters") == "two")
    await harness.cycles(5, "two", **ALL)
    before = list(harness.published)
    harness.clock.ahead += DAY
    await harness.until(lambda: len(harness.published) > 1)

    assert [event.operator for event in before] == ["one"]
    assert [event.operator for event in harness.published] == ["one", "two"]


async def test_a_leader_that_lost_its_lease_abandons_what_it_sends(harness: OperatorHarness) -> None:
    await start_sending(harness, delay=3600)

    harness.disconnect()
    harness.loop_time.advance(TIMINGS.renew_deadline)
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
    harness.create("all-clusters", backoffNotReady="24h")
    await start_two(harness, "all-clusters")
    await harness.until(lambda: harness.reasons("all-clusters").get("Degraded") == "True/PublishFailed")
    await harness.cycles(5, "two", **ALL)
    harness.put("cls-1")
    harness.edit("all-clusters", pageSize=50)  # the fleet of a pulse is made when it starts
    await harness.until(lambda: harness.metric("config_reloads_total", "two", **ALL) == 1)
    await harness.cycles(2, "two", **ALL)
    await until_renewal_seen(harness)  # it says that nothing was published

    await kill_leader(harness)
    await let_lease_expire(harness)

    await harness.until(lambda: "cls-1" in harness.ids())
    assert {event.operator for event in harness.published} == {"two"}
