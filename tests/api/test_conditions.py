"""`Available`, `Ready` and the flat fields, as clients see them after each report.

The tests of `core` prove the rules. Here each is checked once through the API, with its timestamps.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from sentinel.testing.database import Fault
from tests.support.databases import backends
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import Body

START = datetime.fromisoformat("2025-01-01T00:00:00Z")


class Cluster:
    """A cluster that requires dns and validation."""

    def __init__(self, fleet: ApiClient) -> None:
        self.fleet = fleet

    async def advance_to(self, second: int) -> None:
        await self.fleet.clock.advance(START + timedelta(seconds=second) - self.fleet.clock.now())

    async def report(
        self, adapter: str, available: str, *, generation: int, second: int, status: int = 201
    ) -> None:
        """Report at this second."""
        await self.advance_to(second)
        body = self.fleet.report(adapter, available=available, generation=generation)
        reply = await self.fleet.call("POST", "clusters/one/statuses", body)
        assert reply.status == status, reply

    async def make_ready(self, *, generation: int = 1, second: int = 10) -> None:
        """Report as both adapters, a second apart."""
        await self.report("dns", "True", generation=generation, second=second)
        await self.report("validation", "True", generation=generation, second=second + 1)

    async def change_spec(self, *, second: int) -> None:
        await self.advance_to(second)
        reply = await self.fleet.call("PATCH", "clusters/one", {"spec": {"at": second}})
        assert reply.status == 200

    async def status(self) -> Body:
        status: Body = (await self.fleet.get("clusters/one"))["status"]
        return status

    async def condition(self, kind: str) -> Body:
        """Return a condition with its times in seconds."""
        found = {each["type"]: each for each in (await self.status())["conditions"]}[kind]
        return {key: seconds(value) if key.endswith("_time") else value for key, value in found.items()}

    async def assert_condition(
        self, kind: str, status: str, *, generation: int, updated: int, transition: int
    ) -> None:
        found = await self.condition(kind)
        assert (
            found["status"],
            found["observed_generation"],
            found["last_updated_time"],
            found["last_transition_time"],
        ) == (status, generation, updated, transition), found


def seconds(time: str) -> int:
    return round((datetime.fromisoformat(time) - START).total_seconds())


@pytest.fixture
async def cluster(fleet: ApiClient) -> Cluster:
    await fleet.create("clusters", "one", id="one")
    return Cluster(fleet)


@pytest.fixture
async def _changed(cluster: Cluster) -> None:
    """Make the cluster ready, and change its spec at second 40."""
    await cluster.make_ready()
    await cluster.change_spec(second=40)


# --- Ready -------------------------------------------------------------------------------------------------------


async def test_conditions_are_false_before_the_first_report(cluster: Cluster) -> None:
    await cluster.assert_condition("Ready", "False", generation=1, updated=0, transition=0)
    await cluster.assert_condition("Available", "False", generation=1, updated=0, transition=0)
    assert (await cluster.condition("Available"))["reason"] == "AdaptersMissingReports"


async def test_ready_needs_every_required_adapter_at_the_generation(cluster: Cluster) -> None:
    await cluster.report("dns", "True", generation=1, second=10)
    await cluster.assert_condition("Ready", "False", generation=1, updated=10, transition=0)
    await cluster.report("validation", "True", generation=1, second=20)

    # The time of the oldest report, and of the last one that was missing.
    await cluster.assert_condition("Ready", "True", generation=1, updated=10, transition=20)
    await cluster.assert_condition("Available", "True", generation=1, updated=10, transition=20)


async def test_the_transition_time_is_that_of_the_last_adapter(cluster: Cluster) -> None:
    assert "last_progress_time" not in await cluster.status()

    await cluster.report("validation", "True", generation=1, second=10)
    await cluster.report("dns", "False", generation=1, second=11)
    await cluster.report("validation", "True", generation=1, second=20)
    halfway = await cluster.status()
    await cluster.report("dns", "True", generation=1, second=30)
    done = await cluster.status()

    assert (seconds(halfway["last_progress_time"]), halfway["progress_count"]) == (10, 1)
    assert (seconds(done["last_progress_time"]), done["progress_count"]) == (30, 2)


async def test_the_message_names_the_adapters_that_are_waited_for(cluster: Cluster) -> None:
    await cluster.report("dns", "True", generation=1, second=10)

    ready, available = await cluster.condition("Ready"), await cluster.condition("Available")

    assert ready["reason"] == "ReconciledMissingAdapters"
    assert ready["message"] == (
        "Required adapters not reporting Available=True: [validation]. Currently reporting: [dns]"
    )
    assert (available["reason"], "[validation]" in available["message"]) == ("AdaptersMissingReports", True)


@pytest.mark.parametrize(
    ("condition", "second", "reason"),
    [("Ready", 11, "ReconciledMissingAdapters"), ("Available", 30, "AdapterReportedNotAvailable")],
)
async def test_conditions_become_false_when_an_adapter_fails(
    cluster: Cluster, condition: str, second: int, reason: str
) -> None:
    await cluster.make_ready()
    await cluster.report("dns", "False", generation=1, second=30)

    await cluster.assert_condition(condition, "False", generation=1, updated=second, transition=30)
    assert (await cluster.condition(condition))["reason"] == reason


@pytest.mark.usefixtures("_changed")
async def test_ready_becomes_false_at_the_time_of_a_spec_change(cluster: Cluster) -> None:
    await cluster.assert_condition("Ready", "False", generation=2, updated=40, transition=40)


@pytest.mark.usefixtures("_changed")
async def test_ready_becomes_true_at_the_new_generation(cluster: Cluster) -> None:
    await cluster.make_ready(generation=2, second=50)

    await cluster.assert_condition("Ready", "True", generation=2, updated=50, transition=51)
    await cluster.assert_condition("Available", "True", generation=2, updated=50, transition=11)
    assert (await cluster.condition("Ready"))["created_time"] == 0


async def test_a_repeated_report_moves_only_the_update_time(cluster: Cluster) -> None:
    await cluster.make_ready()
    await cluster.make_ready(second=100)

    await cluster.assert_condition("Ready", "True", generation=1, updated=100, transition=11)


# --- Available: the five rules -----------------------------------------------------------------------------------


async def test_an_adapter_cannot_report_an_older_generation(cluster: Cluster) -> None:
    await cluster.change_spec(second=1)
    await cluster.report("dns", "True", generation=2, second=10)

    await cluster.report("dns", "False", generation=1, second=20, status=204)


async def test_unknown_changes_nothing(cluster: Cluster) -> None:
    await cluster.make_ready()
    before = await cluster.status()

    await cluster.report("dns", "Unknown", generation=1, second=60, status=204)

    assert await cluster.status() == before


async def test_available_becomes_true_at_an_older_common_generation(cluster: Cluster) -> None:
    await cluster.change_spec(second=5)
    await cluster.make_ready(generation=1)

    await cluster.assert_condition("Available", "True", generation=1, updated=10, transition=11)
    await cluster.assert_condition("Ready", "False", generation=2, updated=5, transition=0)


async def test_available_does_not_become_true_at_mixed_generations(cluster: Cluster) -> None:
    await cluster.change_spec(second=5)
    await cluster.report("dns", "True", generation=1, second=10)
    await cluster.report("validation", "True", generation=2, second=20)

    available = await cluster.condition("Available")

    assert (available["status"], available["reason"]) == ("False", "AdaptersNotAtSameGeneration")
    assert "dns=1" in available["message"]
    assert "validation=2" in available["message"]


@pytest.mark.usefixtures("_changed")
async def test_available_stays_true_when_another_generation_breaks(cluster: Cluster) -> None:
    await cluster.report("dns", "False", generation=2, second=50)

    await cluster.assert_condition("Available", "True", generation=1, updated=10, transition=11)
    await cluster.assert_condition("Ready", "False", generation=2, updated=50, transition=40)


# --- The three edge cases ----------------------------------------------------------------------------------------


async def test_work_in_progress_on_a_ready_cluster_leaves_it_ready(cluster: Cluster) -> None:
    await cluster.make_ready()
    await cluster.report("validation", "Unknown", generation=1, second=1810, status=204)

    assert (await cluster.status())["phase"] == "Ready"
    await cluster.report("validation", "True", generation=1, second=1820)
    await cluster.assert_condition("Ready", "True", generation=1, updated=10, transition=11)


@pytest.mark.usefixtures("_changed")
@pytest.mark.parametrize("said", ["True", "False"])
async def test_some_adapters_at_the_new_generation_leave_the_old_one_available(
    cluster: Cluster, said: str
) -> None:
    await cluster.report("dns", said, generation=2, second=50)

    assert (await cluster.status())["phase"] == "NotReady"
    await cluster.assert_condition("Available", "True", generation=1, updated=10, transition=11)


async def test_one_adapter_does_not_make_a_broken_cluster_available(
    cluster: Cluster,
) -> None:
    await cluster.make_ready()
    await cluster.report("dns", "False", generation=1, second=30)
    await cluster.change_spec(second=40)
    await cluster.report("dns", "True", generation=2, second=50)

    available = await cluster.condition("Available")
    assert (available["status"], available["observed_generation"]) == ("False", 2)
    assert (await cluster.status())["phase"] == "NotReady"


# --- Transition times --------------------------------------------------------------------------------------------


async def test_a_late_failure_is_a_transition_at_its_own_time(cluster: Cluster) -> None:
    await cluster.make_ready()
    await cluster.make_ready(second=900)
    await cluster.report("dns", "False", generation=1, second=1800)

    status = await cluster.status()

    assert seconds(status["last_transition_time"]) == 1800
    await cluster.assert_condition("Ready", "False", generation=1, updated=901, transition=1800)
    await cluster.assert_condition("Available", "False", generation=1, updated=1800, transition=1800)
    waiting = await cluster.fleet.get("clusters/one/waiting")
    assert [(each["adapter"], seconds(each["since"])) for each in waiting["waiting_for"]] == [("dns", 1800)]


# --- Flat fields and others --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_changed")
async def test_the_flat_fields_follow_ready(cluster: Cluster) -> None:
    await cluster.report("dns", "True", generation=2, second=50)

    status, ready = await cluster.status(), await cluster.condition("Ready")

    assert status["phase"] == "NotReady"
    assert seconds(status["last_updated_time"]) == ready["last_updated_time"] == 50
    assert seconds(status["last_transition_time"]) == ready["last_transition_time"] == 40


async def test_the_observed_generation_is_the_lowest_that_all_have_reported(cluster: Cluster) -> None:
    seen = [(await cluster.status())["observed_generation"]]
    await cluster.report("dns", "False", generation=1, second=10)
    seen.append((await cluster.status())["observed_generation"])
    await cluster.report("validation", "True", generation=1, second=11)
    seen.append((await cluster.status())["observed_generation"])
    await cluster.change_spec(second=20)
    await cluster.report("dns", "True", generation=2, second=21)
    seen.append((await cluster.status())["observed_generation"])
    await cluster.report("validation", "False", generation=2, second=22)
    seen.append((await cluster.status())["observed_generation"])

    assert seen == [0, 0, 1, 1, 2]


async def test_each_reporting_required_adapter_has_a_condition(cluster: Cluster) -> None:
    await cluster.report("dns", "False", generation=1, second=10)
    await cluster.report("extra", "True", generation=1, second=11)

    kinds = [condition["type"] for condition in (await cluster.status())["conditions"]]

    assert kinds == ["Ready", "Available", "DnsSuccessful"]
    await cluster.assert_condition("DnsSuccessful", "False", generation=1, updated=10, transition=10)
    mirrored = await cluster.condition("DnsSuccessful")
    assert (mirrored["reason"], mirrored["message"]) == ("Said", "as it is")


async def test_an_adapter_that_is_not_required_changes_no_condition(cluster: Cluster) -> None:
    await cluster.make_ready()
    before = await cluster.status()

    await cluster.report("extra", "False", generation=1, second=30)

    assert await cluster.status() == before


async def test_a_kind_without_required_adapters_is_never_ready(fleet: ApiClient) -> None:
    created = await fleet.create("manifests", "m", id="m")
    await fleet.reports("manifests/m", "dns")

    status: dict[str, Any] = (await fleet.get("manifests/m"))["status"]
    assert status == created["status"]
    assert (status["phase"], status["observed_generation"]) == ("NotReady", 0)
    ready = status["conditions"][0]
    assert (ready["status"], ready["observed_generation"], ready["reason"]) == ("False", 1, "NoRequiredAdapters")


async def test_a_parent_can_be_ready_without_its_children(cluster: Cluster) -> None:
    await cluster.fleet.create("clusters/one/nodepools", "pool")
    await cluster.make_ready()

    assert (await cluster.status())["phase"] == "Ready"


async def test_public_names_are_off_by_default(cluster: Cluster) -> None:
    kinds = {condition["type"] for condition in (await cluster.status())["conditions"]}

    assert kinds == {"Ready", "Available"}


async def test_public_names_mirror_the_conditions_if_enabled() -> None:
    async with ApiClient(emits_public_names=True) as fleet:
        await fleet.create("clusters", "one", id="one")
        cluster = Cluster(fleet)
        await cluster.make_ready()
        await cluster.change_spec(second=40)
        await cluster.report("dns", "True", generation=2, second=50)

        for ours, theirs in (("Ready", "Reconciled"), ("Available", "LastKnownReconciled")):
            assert {**await cluster.condition(theirs), "type": ours} == await cluster.condition(ours)


async def test_gauges_show_readiness_and_the_longest_wait(cluster: Cluster) -> None:
    fleet = cluster.fleet
    await fleet.create("clusters", "two", id="two")
    await cluster.make_ready()
    await cluster.advance_to(60)

    await fleet.telemetry.refresh_if_stale()

    def sample(name: str, **labels: str) -> float | None:
        return fleet.registry.get_sample_value(f"hyperfleet_api_{name}", labels)

    assert sample("resources", kind="Cluster", ready="true") == 1
    assert sample("resources", kind="Cluster", ready="false") == 1
    assert sample("resources", kind="Manifest", ready="false") == 0
    assert sample("longest_not_ready_seconds", kind="Cluster", adapter="dns") == 60
    assert sample("longest_not_ready_seconds", kind="NodePool", adapter="validation") == 0


async def test_gauges_are_refreshed_at_most_once_a_second(fleet: ApiClient) -> None:
    def resources() -> float | None:
        labels = {"kind": "Manifest", "ready": "false"}
        return fleet.registry.get_sample_value("hyperfleet_api_resources", labels)

    await fleet.telemetry.refresh_if_stale()
    await fleet.create("manifests", "m")

    await fleet.telemetry.refresh_if_stale()
    at_once = resources()
    await fleet.later(1)
    await fleet.telemetry.refresh_if_stale()

    assert (at_once, resources()) == (0, 1)


async def test_gauges_keep_their_values_while_the_database_is_down() -> None:
    faults: list[Fault] = []
    backend = backends.memory(faults=lambda _: faults[0] if faults else None)
    async with ApiClient(backend=backend) as fleet:
        await fleet.create("manifests", "m")
        await fleet.telemetry.refresh_if_stale()
        faults.append(Fault.BEFORE_COMMIT)
        await fleet.later(60)

        await fleet.telemetry.refresh_if_stale()

        labels = {"kind": "Manifest", "ready": "false"}
        assert fleet.registry.get_sample_value("hyperfleet_api_resources", labels) == 1
