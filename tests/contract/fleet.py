"""The contract of every `ports.fleet.FleetReader`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from sentinel.core.labels import Selector, equality
from sentinel.ports.fleet import FetchError, FleetPage, FleetReader

MINUTE = timedelta(minutes=1)
UPDATED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
EVERYTHING = Selector()
US_EAST = {"region": "us-east"}


class Cluster(msgspec.Struct, frozen=True):
    """A resource of the fleet under test. Without `last_updated_time` no adapter has reported on it."""

    resource_id: str
    generation: int = 1
    observed_generation: int = 0
    is_ready: bool = False
    last_updated_time: datetime | None = None
    labels: Mapping[str, str] = {}


class FleetHarness(ABC):
    """The server behind a fleet. `fleet` is called first and once; then resources are added."""

    @abstractmethod
    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> FleetReader:
        """The reader under test; the harness closes it."""

    @abstractmethod
    def put(self, cluster: Cluster) -> None:
        """Append a cluster, or replace it in place."""

    @abstractmethod
    def remove(self, resource_id: str) -> None:
        """Remove a cluster."""

    @abstractmethod
    def put_malformed(self, resource_id: str | None) -> None:
        """Append an item that is JSON but not a resource: with this id, or without any."""

    @abstractmethod
    def fail(self, *, after_pages: int = 0, retry_after: timedelta = timedelta(0)) -> None:
        """Make every walk fail after `after_pages` pages, even when it retries. With `retry_after`, the server
        asks to wait that long."""

    @abstractmethod
    def heal(self) -> None:
        """Make walks succeed again."""

    def put_many(self, count: int) -> list[str]:
        """Add `count` clusters and return their ids in order."""
        resource_ids = [f"cls-{number}" for number in range(count)]
        for resource_id in resource_ids:
            self.put(Cluster(resource_id))
        return resource_ids


def malformed(resource_id: str | None) -> dict[str, object]:
    """A document that is not a resource, because its generation is a text."""
    document: dict[str, object] = {"kind": "Cluster", "generation": "two"}
    return document if resource_id is None else {**document, "id": resource_id}


async def walk(fleet: FleetReader, into: list[FleetPage] | None = None) -> list[FleetPage]:
    """The pages of a walk; `into` keeps them if it raises."""
    pages = [] if into is None else into
    async for page in fleet.walk():
        pages.append(page)
    return pages


def ids(pages: list[FleetPage]) -> list[str]:
    return [resource.observation.id for page in pages for resource in page.resources]


class FleetContract:
    """For every driver and for the fake."""

    async def test_a_walk_yields_every_resource_once(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=3)
        expected = harness.put_many(10)

        pages = await walk(fleet)

        assert ids(pages) == expected

    async def test_no_page_is_larger_than_the_page_size(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=3)
        harness.put_many(10)

        pages = await walk(fleet)

        assert [len(page.resources) for page in pages] == [3, 3, 3, 1]

    async def test_a_full_last_page_loses_nothing(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=3)
        expected = harness.put_many(6)

        assert ids(await walk(fleet)) == expected

    async def test_an_empty_fleet_is_walked_to_its_end(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()

        assert ids(await walk(fleet)) == []

    async def test_an_observation_has_the_values_of_the_status(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(
            Cluster("cls-1", 4, observed_generation=3, is_ready=True, last_updated_time=UPDATED, labels=US_EAST)
        )

        [page] = await walk(fleet)

        [resource] = page.resources
        seen = resource.observation
        assert (seen.id, seen.kind) == ("cls-1", "Cluster")
        assert (seen.generation, seen.observed_generation) == (4, 3)
        assert seen.is_ready
        assert seen.last_updated_time == UPDATED
        assert seen.labels == US_EAST

    async def test_a_resource_without_reports_has_no_time(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1"))

        [page] = await walk(fleet)

        [resource] = page.resources
        assert resource.observation.last_updated_time is None
        assert not resource.observation.is_ready

    async def test_a_resource_has_its_whole_document(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1", generation=2, labels=US_EAST))

        [page] = await walk(fleet)

        document = page.resources[0].decode()
        assert isinstance(document, dict)
        assert document["id"] == "cls-1"
        assert document["generation"] == 2
        assert "spec" in document

    async def test_only_selected_resources_are_yielded(self, harness: FleetHarness) -> None:
        both = Selector((equality("region", "us-east"), equality("tier", "gold")))
        fleet = harness.fleet(page_size=2, selector=both)
        harness.put(Cluster("neither"))
        harness.put(Cluster("one", labels=US_EAST))
        harness.put(Cluster("both", labels={"region": "us-east", "tier": "gold"}))
        harness.put(Cluster("another", labels={"region": "us-west", "tier": "gold"}))
        harness.put(Cluster("both-too", labels={"region": "us-east", "tier": "gold", "more": "x"}))

        assert ids(await walk(fleet)) == ["both", "both-too"]

    async def test_the_next_walk_sees_changes(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1", generation=1))
        harness.put(Cluster("cls-2", generation=1))
        await walk(fleet)

        harness.put(Cluster("cls-1", generation=2))
        harness.remove("cls-2")
        harness.put(Cluster("cls-3"))
        pages = await walk(fleet)

        assert ids(pages) == ["cls-1", "cls-3"]
        assert pages[0].resources[0].observation.generation == 2

    async def test_a_page_keeps_its_version_until_it_changes(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=2)
        harness.put_many(6)

        first = [page.version for page in await walk(fleet)]
        unchanged = [page.version for page in await walk(fleet)]
        harness.put(Cluster("cls-2", generation=2))
        changed = await walk(fleet)

        assert None not in first
        assert unchanged == first
        assert [page.version == before for page, before in zip(changed, first, strict=True)] == [True, False, True]
        assert changed[1].resources[0].observation.generation == 2

    async def test_a_page_with_a_malformed_item_has_no_version(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1"))
        harness.put_malformed("cls-2")

        versions = [[page.version for page in await walk(fleet)] for _ in range(2)]

        assert versions == [[None], [None]]

    async def test_adding_a_resource_during_a_walk_loses_no_other(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=2)
        expected = harness.put_many(6)
        pages = []

        async for page in fleet.walk():
            pages.append(page)
            if len(pages) == 1:
                harness.put(Cluster("late"))

        assert [resource_id for resource_id in ids(pages) if resource_id != "late"] == expected

    @pytest.mark.parametrize("named", ["cls-x", None])
    async def test_a_malformed_item_is_named_and_loses_no_other(
        self, harness: FleetHarness, named: str | None
    ) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1"))
        harness.put_malformed(named)
        harness.put(Cluster("cls-2"))

        pages = await walk(fleet)

        assert ids(pages) == ["cls-1", "cls-2"]
        [item] = [item for page in pages for item in page.malformed]
        assert item.id == named
        assert item.message
        assert item.position

    async def test_an_unresponsive_fleet_raises_a_fetch_error(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1"))
        harness.fail()

        with pytest.raises(FetchError, match=r"\S"):
            await walk(fleet)

    async def test_a_failed_walk_never_ends_normally(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=2)
        expected = harness.put_many(6)
        harness.fail(after_pages=2)
        pages: list[FleetPage] = []

        with pytest.raises(FetchError):
            await walk(fleet, into=pages)

        seen = ids(pages)
        assert seen == expected[: len(seen)]
        assert len(seen) < 6

    async def test_after_a_failure_the_next_walk_can_succeed(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        expected = harness.put_many(3)
        harness.fail()
        with pytest.raises(FetchError):
            await walk(fleet)

        harness.heal()

        assert ids(await walk(fleet)) == expected

    @pytest.mark.parametrize("after_pages", [0, 2])
    async def test_a_server_that_asks_to_wait_gets_no_request_until_then(
        self, harness: FleetHarness, after_pages: int
    ) -> None:
        fleet = harness.fleet(page_size=2)
        harness.put_many(6)
        harness.fail(after_pages=after_pages, retry_after=MINUTE)
        pages: list[FleetPage] = []

        with pytest.raises(FetchError) as first:
            await walk(fleet)
        harness.heal()
        with pytest.raises(FetchError) as second:
            await walk(fleet, into=pages)

        assert pages == []
        assert timedelta(0) < second.value.retry_after <= first.value.retry_after <= MINUTE

    async def test_other_failures_ask_for_no_wait(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.fail()

        with pytest.raises(FetchError) as caught:
            await walk(fleet)

        assert caught.value.retry_after == timedelta(0)

    async def test_closing_a_walk_early_does_not_affect_the_next(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=2)
        expected = harness.put_many(6)

        async with aclosing(fleet.walk()) as pages:
            await anext(pages)

        assert ids(await walk(fleet)) == expected

    async def test_closing_twice_is_harmless(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(Cluster("cls-1"))
        await walk(fleet)

        await fleet.close()
        await fleet.close()

    async def test_closing_without_a_walk_is_harmless(self, harness: FleetHarness) -> None:
        await harness.fleet().close()
