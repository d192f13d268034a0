"""The contract of fleet stores for searches."""

from __future__ import annotations

import asyncio
from itertools import product

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from sentinel.core import labels
from sentinel.core.search import MAX_COMPARISONS, parse
from sentinel.ports.fleet_store import FleetStore, ListQuery, OrderBy, StoredResource
from tests.support.examples import examples
from tests.support.fleet.searches import Tree, holds, trees
from tests.support.fleet.store_records import (
    MOMENT,
    SECOND,
    Stores,
    StoreSuite,
    ids,
    inserting,
    node_pool,
    removing,
    stored,
    updating,
    walk,
)

READY = "status.conditions.Ready"
NAMES = ("first", "it's", "Ü", "x and y")
SEARCHED = {
    "labels.region": ("us", "eu", "", "US", "it's"),
    "labels.example.com/tier": ("gold", "silver"),
    "labels.absent": ("x",),
    "name": (*NAMES, "FIRST"),
    "id": ("cls-00", "cls-07", "absent"),
    "generation": ("1", "2", "-3"),
    READY: ("True", "False", "Unknown"),
    "status.conditions.Other": ("True",),
}
FIRST_LAST = (OrderBy.CREATED, OrderBy.NAME)


def fleet() -> list[StoredResource]:
    """Resources with every combination of some labels and attributes, several of each name."""
    combined = product(
        ({}, {"region": "us"}, {"region": "eu"}, {"region": ""}),
        ({}, {"example.com/tier": "gold"}),
        ({"generation": "1"}, {"generation": "2", READY: "True"}, {"generation": "1", READY: "False"}),
    )
    return [
        stored(
            f"cls-{n:02}",
            plural="clusters",
            parent=None,
            name=NAMES[n] if n < len(NAMES) else f"n{n}",
            created=MOMENT + (n // 2) * SECOND,
            labels=region | tier,
            attributes=attributes,
        )
        for n, (region, tier, attributes) in enumerate(combined)
    ]


class SearchContract(StoreSuite):
    """Searches select the same in every store."""

    @pytest.mark.hypothesis
    def test_a_search_selects_what_a_plain_evaluator_selects(self, stores: Stores) -> None:
        resources = fleet()
        with asyncio.Runner() as runner:
            backend = runner.run(stores.empty())
            runner.run(backend.fleet.transact(inserting(*resources)))

            @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
            @given(trees(SEARCHED))
            def compare(tree: Tree) -> None:
                query = ListQuery(plural="clusters", search=parse(str(tree)), limit=5)
                expected = [each.id for each in resources if holds(tree, each)]

                assert runner.run(walk(backend.fleet, query)) == expected
                for order in FIRST_LAST:
                    some = msgspec.structs.replace(query, order_by=order, is_descending=True, limit=100)
                    found = runner.run(backend.fleet.find(some))
                    assert sorted(ids(found)) == expected
                    assert found.total == len(expected)

            try:
                compare()
            finally:
                runner.run(backend.database.close())

    @pytest.fixture
    async def searched(self, store: FleetStore) -> FleetStore:
        await store.transact(inserting(*fleet(), stored("man-1", plural="manifests", labels={"region": "us"})))
        return store

    @staticmethod
    async def select(store: FleetStore, search: str, selector: str = "", **values: str) -> list[str]:
        requirements = labels.parse(selector).requirements
        query = ListQuery(plural="clusters", search=parse(search), requirements=requirements, limit=100)
        return ids(await store.find(msgspec.structs.replace(query, **values)))

    async def test_a_search_and_a_selector_must_both_hold(self, searched: FleetStore) -> None:
        expected = [
            each.id for each in fleet() if each.labels.get("region") == "us" and READY not in each.attributes
        ]

        assert (
            await self.select(searched, "not status.conditions.Ready in ('True','False')", "region=us") == expected
        )
        assert await self.select(searched, "labels.region='us'", "region=eu") == []
        assert (
            await self.select(searched, f"labels.region='us' and {READY}!='True' and {READY}!='False'") == expected
        )

    async def test_a_search_is_limited_to_the_children_of_a_parent(self, store: FleetStore) -> None:
        parents = [stored("cls-1"), stored("cls-2")]
        pools = [
            node_pool(f"np-{n}", parents[n % 2], name=f"n{n // 4}{n}", labels={"a": str(n // 4)}) for n in range(8)
        ]
        await store.transact(inserting(*parents, *pools))

        for search in ("labels.a='1'", "name in ('n14','n15','n16')", "id in ('np-4','np-6','np-7')"):
            query = ListQuery(plural="nodepools", parent="cls-1", search=parse(search), limit=1)
            assert await walk(store, query) == ["np-4", "np-6"]
            assert (await store.find(query)).total == 2

    async def test_a_search_finds_changed_attributes(self, searched: FleetStore) -> None:
        before = await searched.get("cls-00")
        assert before is not None
        assert before.attributes == {"generation": "1"}

        await searched.transact(
            updating(msgspec.structs.replace(before, attributes={"generation": "7", READY: "True"}))
        )

        assert await self.select(searched, "generation=7") == ["cls-00"]
        assert "cls-00" not in await self.select(searched, "generation=1")
        assert "cls-00" in await self.select(searched, f"{READY}='True'")
        await searched.transact(removing("cls-00"))
        assert await self.select(searched, "generation=7") == []

    async def test_the_longest_search_is_evaluated(self, searched: FleetStore) -> None:
        comparisons = [f"labels.key-{number}!='x'" for number in range(MAX_COMPARISONS - 1)]

        for joined in (" and ".join(comparisons), f"({' or '.join(comparisons)})"):
            assert await self.select(searched, f"{joined} and name='first'") == ["cls-00"]
