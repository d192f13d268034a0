"""What every `ports.Fleet` promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from sentinel.core.labels import Selector, equality
from sentinel.ports.fleet import FetchError, FleetPage, FleetReader

MOMENT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
EVERYTHING = Selector()


class FleetHarness(ABC):
    """The other side of a fleet. `fleet` is called first, once; then resources are put into it."""

    @abstractmethod
    def fleet(self, *, page_size: int = 100, selector: Selector = EVERYTHING) -> FleetReader:
        """What is under test; the harness closes it in the end."""

    @abstractmethod
    def put(
        self,
        resource_id: str,
        *,
        generation: int = 1,
        observed_generation: int = 0,
        is_ready: bool = False,
        last_updated_time: datetime | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a cluster, after all others, or replaces it where it stands."""

    @abstractmethod
    def remove(self, resource_id: str) -> None:
        """Takes one away."""

    @abstractmethod
    def put_malformed(self) -> None:
        """Adds an item that is JSON and not a resource."""

    @abstractmethod
    def fail(self, *, after_pages: int = 0) -> None:
        """Every walk from now on gets so many pages and then no answer, however often it asks."""

    @abstractmethod
    def heal(self) -> None:
        """Walks get answers again."""

    def put_many(self, count: int) -> list[str]:
        """So many resources; their ids, in order."""
        resource_ids = [f"cls-{number}" for number in range(count)]
        for resource_id in resource_ids:
            self.put(resource_id)
        return resource_ids


async def walk(fleet: FleetReader, into: list[FleetPage] | None = None) -> list[FleetPage]:
    """The pages of a walk; `into` is for those of one that breaks off."""
    pages = [] if into is None else into
    async for page in fleet.walk():
        pages.append(page)
    return pages


def ids(pages: list[FleetPage]) -> list[str]:
    return [resource.observation.id for page in pages for resource in page.resources]


class FleetContract:
    """For every driver, and for the fake."""

    async def test_a_walk_yields_every_resource_once(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=3)
        expected = harness.put_many(10)

        pages = await walk(fleet)

        assert ids(pages) == expected

    async def test_no_page_is_larger_than_asked_for(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=3)
        harness.put_many(10)

        pages = await walk(fleet)

        assert [len(page.resources) for page in pages] == [3, 3, 3, 1]

    async def test_pages_that_end_evenly_lose_nothing(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=3)
        expected = harness.put_many(6)

        assert ids(await walk(fleet)) == expected

    async def test_an_empty_fleet_is_walked_to_its_end(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()

        assert ids(await walk(fleet)) == []

    async def test_an_observation_is_what_the_status_says(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put(
            "cls-1",
            generation=4,
            observed_generation=3,
            is_ready=True,
            last_updated_time=MOMENT,
            labels={"region": "us-east"},
        )

        [page] = await walk(fleet)

        [resource] = page.resources
        seen = resource.observation
        assert (seen.id, seen.kind) == ("cls-1", "Cluster")
        assert (seen.generation, seen.observed_generation) == (4, 3)
        assert seen.is_ready
        assert seen.last_updated_time == MOMENT
        assert seen.labels == {"region": "us-east"}

    async def test_a_resource_nobody_reported_on_has_no_time(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put("cls-1")

        [page] = await walk(fleet)

        [resource] = page.resources
        assert resource.observation.last_updated_time is None
        assert not resource.observation.is_ready

    async def test_the_whole_document_comes_along(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put("cls-1", generation=2, labels={"region": "us-east"})

        [page] = await walk(fleet)

        document = page.resources[0].decode()
        assert isinstance(document, dict)
        assert document["id"] == "cls-1"
        assert document["generation"] == 2
        assert "spec" in document

    async def test_only_what_is_selected_is_yielded(self, harness: FleetHarness) -> None:
        both = Selector((equality("region", "us-east"), equality("tier", "gold")))
        fleet = harness.fleet(page_size=2, selector=both)
        harness.put("neither")
        harness.put("one", labels={"region": "us-east"})
        harness.put("both", labels={"region": "us-east", "tier": "gold"})
        harness.put("another", labels={"region": "us-west", "tier": "gold"})
        harness.put("both-too", labels={"region": "us-east", "tier": "gold", "more": "x"})

        assert ids(await walk(fleet)) == ["both", "both-too"]

    async def test_the_next_walk_sees_what_has_changed(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put("cls-1", generation=1)
        harness.put("cls-2", generation=1)
        await walk(fleet)

        harness.put("cls-1", generation=2)
        harness.remove("cls-2")
        harness.put("cls-3")
        pages = await walk(fleet)

        assert ids(pages) == ["cls-1", "cls-3"]
        assert pages[0].resources[0].observation.generation == 2

    async def test_a_resource_added_in_mid_walk_costs_no_other(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=2)
        expected = harness.put_many(6)
        pages = []

        async for page in fleet.walk():
            pages.append(page)
            if len(pages) == 1:
                harness.put("late")

        assert [resource_id for resource_id in ids(pages) if resource_id != "late"] == expected

    async def test_a_malformed_item_is_told_and_costs_no_other(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put("cls-1")
        harness.put_malformed()
        harness.put("cls-2")

        pages = await walk(fleet)

        assert ids(pages) == ["cls-1", "cls-2"]
        [problem] = [problem for page in pages for problem in page.malformed]
        assert problem

    async def test_a_fleet_that_does_not_answer_is_a_fetch_error(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put("cls-1")
        harness.fail()

        with pytest.raises(FetchError, match=r"\S"):
            await walk(fleet)

    async def test_a_walk_that_breaks_off_never_ends_normally(self, harness: FleetHarness) -> None:
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

    async def test_a_walk_that_is_given_up_leaves_the_next_one_whole(self, harness: FleetHarness) -> None:
        fleet = harness.fleet(page_size=2)
        expected = harness.put_many(6)

        async with aclosing(fleet.walk()) as pages:
            await anext(pages)

        assert ids(await walk(fleet)) == expected

    async def test_closing_twice_is_harmless(self, harness: FleetHarness) -> None:
        fleet = harness.fleet()
        harness.put("cls-1")
        await walk(fleet)

        await fleet.close()
        await fleet.close()

    async def test_closing_what_was_never_walked_is_harmless(self, harness: FleetHarness) -> None:
        await harness.fleet().close()
