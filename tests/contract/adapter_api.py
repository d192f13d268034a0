"""The contract of `ports.adapter_api.AdapterApi`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta

import pytest

from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.event_target import ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Broken, CheckedOutcome, Done, InProgress, PreconditionsNotMet
from sentinel.core.fleet.documents import ConditionStatus, DiscardReason, Report
from sentinel.core.json import Json
from sentinel.ports.adapter_api import AdapterApi, ReportOutcome, ReportResult
from sentinel.ports.errors import ApiUnavailable

MINUTE = timedelta(minutes=1)


class AdapterApiHarness(ABC):
    """An API with clusters that require the adapters validation and dns."""

    api: AdapterApi

    @abstractmethod
    def now(self) -> datetime:
        """The time of the API's clock."""

    @abstractmethod
    async def put(self, resource_id: str, spec: Json = None) -> None:
        """Create a cluster, or change it and increment its generation."""

    @abstractmethod
    async def delete(self, resource_id: str) -> None:
        """Request its deletion; adapters have to finalize it."""

    @abstractmethod
    async def remove(self, resource_id: str) -> None:
        """Remove a cluster that is being deleted."""

    @abstractmethod
    async def take_down(self) -> None:
        """Make the API stop responding."""


class AdapterApiContract:
    @pytest.fixture
    async def resource(self, harness: AdapterApiHarness) -> Resource:
        """The new cluster c1, as an adapter reads it."""
        await harness.put("c1")
        return await get(harness, "c1")

    async def test_the_current_resource_is_returned(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1", {"region": "us-east"})
        await harness.put("c1", {"region": "us-west"})

        resource = await get(harness, "c1")

        assert (resource.id, resource.kind, resource.generation) == ("c1", "Cluster", 2)
        assert resource.spec == {"region": "us-west"}
        assert resource.href == "/api/hyperfleet/v1/clusters/c1"
        assert not resource.is_deleting

    async def test_an_unknown_resource_is_none(self, harness: AdapterApiHarness) -> None:
        assert await harness.api.get(ResourceRef("nobody")) is None

    async def test_a_removed_resource_is_none(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        await harness.delete("c1")
        await harness.remove("c1")

        assert await harness.api.get(ResourceRef("c1", "/api/hyperfleet/v1/clusters/c1", "Cluster")) is None

    @pytest.mark.parametrize(
        "href",
        [
            "/api/hyperfleet/v1/clusters/c1",
            "/api/hyperfleet/v1/nodepools/c1",
            "/api/hyperfleet/v1/clusters/other",
            "/api/hyperfleet/v1/../../admin/c1",
            "https://elsewhere.example/api/hyperfleet/v1/nothing/c1",
            "https://elsewhere.example/c1",
            "//c1",
        ],
    )
    async def test_a_wrong_path_in_the_reference_does_no_harm(self, harness: AdapterApiHarness, href: str) -> None:
        await harness.put("c1")

        assert (await get(harness, "c1", href)).id == "c1"

    async def test_a_deletion_is_visible(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        await harness.delete("c1")

        resource = await get(harness, "c1")

        assert resource.is_deleting
        assert resource.generation == 2

    async def test_a_report_is_stored_and_read_back(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        done = tasks.check_outcome(Done("ready", data={"zone": "z1"}), is_deleting=False)

        result = await harness.api.report(await get(harness, "c1"), report_of(harness, done, adapter="validation"))

        resource = await get(harness, "c1")
        assert result == ReportResult(ReportOutcome.STORED)
        assert resource.is_available("validation")
        assert not resource.is_available("dns")
        known = resource.report_of("validation")
        assert known is not None
        assert known.observed_generation == 1
        assert known.last_report_time == harness.now()
        assert known.read_data() == {"zone": "z1"}
        assert [(each.type, each.message) for each in known.conditions] == [
            ("Applied", "ready"),
            ("Available", "ready"),
            ("Health", "Adapter is healthy"),
        ]

    async def test_availability_is_about_the_current_generation(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        await harness.api.report(await get(harness, "c1"), report_of(harness, adapter="validation"))
        await harness.put("c1", {"changed": True})

        resource = await get(harness, "c1")

        assert not resource.is_available("validation")
        assert resource.status_of("validation") is None
        known = resource.report_of("validation")
        assert known is not None
        assert known.status_of("Available") is ConditionStatus.TRUE

    async def test_a_report_on_an_older_generation_is_discarded(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        await harness.put("c1", {"changed": True})
        resource = await get(harness, "c1")
        await harness.api.report(resource, report_of(harness, generation=2))

        result = await harness.api.report(resource, report_of(harness, generation=1))

        assert result == ReportResult(ReportOutcome.DISCARDED, DiscardReason.STALE_GENERATION)

    async def test_a_second_unknown_is_discarded(self, harness: AdapterApiHarness, resource: Resource) -> None:
        unknown = CheckedOutcome(InProgress())
        first = await harness.api.report(resource, report_of(harness, unknown))

        second = await harness.api.report(resource, report_of(harness, unknown))

        assert first == ReportResult(ReportOutcome.STORED)
        assert second == ReportResult(ReportOutcome.DISCARDED, DiscardReason.UNKNOWN)

    async def test_work_in_progress_is_read_back_beside_the_report(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        resource = await get(harness, "c1")
        waiting = tasks.check_outcome(PreconditionsNotMet("not yet", data={"seen": 1}), is_deleting=False)
        working = tasks.check_outcome(InProgress("job 7 runs", data={"job": 7}), is_deleting=False)
        await harness.api.report(resource, report_of(harness, waiting))

        result = await harness.api.report(resource, report_of(harness, working))

        read = await get(harness, "c1")
        known, newest = read.report_of("dns"), read.newest_of("dns")
        assert result == ReportResult(ReportOutcome.DISCARDED, DiscardReason.UNKNOWN)
        assert known is not None
        assert known.read_data() == {"seen": 1}
        assert newest is not None
        assert (newest.observed_generation, newest.last_report_time) == (1, harness.now())
        assert newest.status_of("Available") is ConditionStatus.UNKNOWN
        assert newest.read_data() == {"job": 7}

    async def test_a_result_ends_the_work_in_progress(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        resource = await get(harness, "c1")
        for outcome in (CheckedOutcome(PreconditionsNotMet()), CheckedOutcome(InProgress()), None):
            await harness.api.report(resource, report_of(harness, outcome))

        newest = (await get(harness, "c1")).newest_of("dns")

        assert newest is not None
        assert newest.status_of("Available") is ConditionStatus.TRUE

    async def test_a_report_on_a_removed_resource_is_gone(
        self, harness: AdapterApiHarness, resource: Resource
    ) -> None:
        await harness.delete("c1")
        await harness.remove("c1")

        assert await harness.api.report(resource, report_of(harness)) == ReportResult(ReportOutcome.GONE)

    async def test_an_invalid_report_is_refused(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        nameless = report_of(harness, adapter="-")

        result = await harness.api.report(await get(harness, "c1"), nameless)

        assert result.outcome is ReportOutcome.REFUSED
        assert "adapter" in str(result.reason)

    @pytest.mark.parametrize("skew", [-31 * MINUTE, 6 * MINUTE])
    async def test_a_wrong_clock_needs_an_operator(
        self, harness: AdapterApiHarness, skew: timedelta, resource: Resource
    ) -> None:
        with pytest.raises(ApiUnavailable, match="clock") as caught:
            await harness.api.report(resource, report_of(harness, skew=skew))

        assert caught.value.needs_operator

    async def test_messages_and_reasons_may_contain_any_characters(self, harness: AdapterApiHarness) -> None:
        await harness.put("c1")
        hostile = CheckedOutcome(Broken("\0 \ud800 \u202e" + "x" * 10_000, reason="r" * 1_000))

        result = await harness.api.report(await get(harness, "c1"), report_of(harness, hostile))

        assert result == ReportResult(ReportOutcome.STORED)

    async def test_reports_of_many_adapters_are_returned_together(
        self, harness: AdapterApiHarness, resource: Resource
    ) -> None:
        names = [f"adapter-{number}" for number in range(20)]
        for name in names:
            await harness.api.report(resource, report_of(harness, adapter=name))

        assert sorted(each.adapter for each in (await get(harness, "c1")).reports) == sorted(names)

    async def test_a_probe_of_an_api_that_responds_returns(self, harness: AdapterApiHarness) -> None:
        await harness.api.probe("Cluster")

    async def test_an_api_that_does_not_respond_is_unavailable(
        self, harness: AdapterApiHarness, resource: Resource
    ) -> None:
        await harness.take_down()

        for call in (
            lambda: harness.api.probe("Cluster"),
            lambda: harness.api.get(ResourceRef("c1")),
            lambda: harness.api.report(resource, report_of(harness)),
        ):
            with pytest.raises(ApiUnavailable) as caught:
                await call()
            assert not caught.value.needs_operator

    async def test_close_is_idempotent(self, harness: AdapterApiHarness) -> None:
        await harness.api.close()
        await harness.api.close()


async def get(harness: AdapterApiHarness, resource_id: str, href: str = "") -> Resource:
    resource = await harness.api.get(ResourceRef(resource_id, href))
    assert resource is not None
    return resource


def report_of(
    harness: AdapterApiHarness,
    checked: CheckedOutcome | None = None,
    *,
    adapter: str = "dns",
    generation: int = 1,
    skew: timedelta = timedelta(0),
) -> Report:
    return tasks.report(
        tasks.truncated(checked or CheckedOutcome(Done())),
        adapter=adapter,
        generation=generation,
        is_deleting=False,
        at=harness.now() + skew,
    )
