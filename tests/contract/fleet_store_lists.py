"""The contract of fleet stores for lists and label selectors."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from sentinel.core.labels import Operator, Requirement
from sentinel.ports.fleet_store import FleetStore, ListPosition, ListQuery, ListResult, OrderBy, StoredResource
from tests.support.fleet.store_records import (
    HOUR,
    MAX_PAGES,
    MOMENT,
    SECOND,
    StoreSuite,
    find,
    ids,
    inserting,
    labeled,
    microseconds,
    node_pool,
    removing,
    select,
    shown,
    stored,
    updating,
    walk,
)


class ListContract(StoreSuite):
    """Filters, order, pages and totals of lists."""

    @staticmethod
    def fleet() -> list[StoredResource]:
        """Resources with equal times, and with names ordered differently from ids and times."""
        return [
            stored(
                f"cls-{n:02}",
                name=f"n{(n * 7) % 13:02}",
                created=MOMENT + (n // 3) * SECOND,
                updated=MOMENT + ((n * 5) % 4) * HOUR,
                labels={"parity": "even" if n % 2 == 0 else "odd"},
            )
            for n in range(13)
        ]

    @staticmethod
    def in_order(resources: Iterable[StoredResource], order: OrderBy) -> list[str]:
        match order:
            case OrderBy.CREATED:
                return [each.id for each in sorted(resources, key=lambda each: (each.created_time, each.id))]
            case OrderBy.UPDATED:
                return [each.id for each in sorted(resources, key=lambda each: (each.updated_time, each.id))]
            case OrderBy.NAME:
                return [each.id for each in sorted(resources, key=lambda each: (each.name, each.id))]
            case OrderBy.ID:
                return sorted(each.id for each in resources)

    async def test_an_unknown_kind_is_an_empty_list(self, store: FleetStore) -> None:
        await store.transact(inserting(stored("cls-1")))

        assert await find(store, ListQuery(plural="manifests", limit=9)) == ListResult([], 0, 0, None)

    @pytest.mark.parametrize("order", OrderBy)
    async def test_a_list_has_the_requested_order_with_ties_by_id(self, store: FleetStore, order: OrderBy) -> None:
        resources = self.fleet()
        await store.transact(inserting(*resources))

        ascending = await store.find(ListQuery(plural="clusters", order_by=order, limit=99))
        descending = await store.find(ListQuery(plural="clusters", order_by=order, is_descending=True, limit=99))

        assert ids(ascending) == self.in_order(resources, order)
        assert ids(descending) == self.in_order(resources, order)[::-1]

    @pytest.mark.parametrize("order", [OrderBy.NAME, OrderBy.ID])
    async def test_names_and_ids_are_ordered_by_code_point(self, store: FleetStore, order: OrderBy) -> None:
        texts = sorted(["a", "B", "_", "Z", "é", "e", "10", "9", "a-b", "aB", "ab", "\ue000", "🙂", "\uffff"])
        await store.transact(inserting(*(stored(text, name=text) for text in texts)))

        found = await store.find(ListQuery(plural="clusters", order_by=order, limit=99))

        assert ids(found) == texts
        assert await walk(store, ListQuery(plural="clusters", order_by=order, limit=1)) == texts

    @pytest.fixture(params=[False, True], ids=["ascending", "descending"])
    def is_descending(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture(params=OrderBy)
    def ordered(self, request: pytest.FixtureRequest, is_descending: bool) -> ListQuery:
        """A query of all clusters in one of the orders."""
        return ListQuery(plural="clusters", order_by=request.param, is_descending=is_descending, limit=2)

    async def insert_fleet(self, store: FleetStore, query: ListQuery) -> list[str]:
        """Insert the fleet and return the ids in the order of the query."""
        resources = self.fleet()
        await store.transact(inserting(*resources))
        return self.in_order(resources, query.order_by)[:: -1 if query.is_descending else 1]

    async def test_consecutive_pages_have_every_resource_once_and_in_order(
        self, store: FleetStore, ordered: ListQuery
    ) -> None:
        expected = await self.insert_fleet(store, ordered)

        for limit in (1, 2, 3, 12, 13, 14):
            assert await walk(store, msgspec.structs.replace(ordered, limit=limit)) == expected

    async def test_pages_are_stable_while_resources_are_inserted_and_removed(
        self, store: FleetStore, ordered: ListQuery
    ) -> None:
        query = ordered
        expected = await self.insert_fleet(store, query)
        # One before the position, the one at the position, and one after it.
        removed = [expected[0], expected[3], expected[8]]
        inserted = [stored(f"cls-0{n}x", name=f"n0{n}x", created=MOMENT + n * SECOND) for n in range(5)]
        seen: list[str] = []

        for turn in range(MAX_PAGES):
            found = await store.find(query)
            seen += ids(found)
            if found.last is None:
                break
            query = msgspec.structs.replace(query, after=found.last)
            if turn == 1:
                await store.transact(removing(*removed))
                await store.transact(inserting(*inserted))

        remaining = [resource_id for resource_id in expected if resource_id not in removed[2:]]
        assert [resource_id for resource_id in seen if not resource_id.endswith("x")] == remaining
        assert len(set(seen)) == len(seen)

    async def test_the_position_is_that_of_the_last_document(self, store: FleetStore) -> None:
        resources = [stored(f"cls-{n}", created=MOMENT + n * SECOND, updated=MOMENT + HOUR) for n in range(3)]
        await store.transact(inserting(*resources))

        positions = {
            order: (await store.find(ListQuery(plural="clusters", order_by=order, limit=2))).last
            for order in OrderBy
        }

        assert positions == {
            OrderBy.CREATED: ListPosition(microseconds(MOMENT + SECOND), "cls-1"),
            OrderBy.UPDATED: ListPosition(microseconds(MOMENT + HOUR), "cls-1"),
            OrderBy.NAME: ListPosition("name-of-cls-1", "cls-1"),
            OrderBy.ID: ListPosition("cls-1", "cls-1"),
        }

    async def test_the_last_page_has_no_position(self, store: FleetStore) -> None:
        await store.transact(inserting(*(stored(f"cls-{n}") for n in range(4))))

        exact = await store.find(ListQuery(plural="clusters", limit=4))
        half = await store.find(ListQuery(plural="clusters", limit=2))
        rest = await store.find(ListQuery(plural="clusters", limit=2, after=half.last))

        assert exact.last is None
        assert half.last is not None
        assert rest.last is None
        assert ids(half) + ids(rest) == ids(exact)

    async def test_offset_skips_resources(self, store: FleetStore) -> None:
        resources = self.fleet()
        await store.transact(inserting(*resources))
        expected = self.in_order(resources, OrderBy.NAME)

        for offset in (0, 1, 5, 12, 13, 99):
            found = await store.find(ListQuery(plural="clusters", order_by=OrderBy.NAME, limit=4, offset=offset))

            assert ids(found) == expected[offset : offset + 4]
            assert found.total == 13
            assert (found.last is None) == (offset + 4 >= 13)

    async def test_a_page_by_offset_has_a_position_to_continue_from(self, store: FleetStore) -> None:
        resources = self.fleet()
        await store.transact(inserting(*resources))

        first = await store.find(ListQuery(plural="clusters", limit=2, offset=5))
        rest = await walk(store, ListQuery(plural="clusters", limit=2, after=first.last))

        assert ids(first) + rest == self.in_order(resources, OrderBy.CREATED)[5:]

    async def test_the_total_counts_all_selected_resources_on_every_page(self, store: FleetStore) -> None:
        resources = self.fleet()
        await store.transact(inserting(*resources, stored("man-1", plural="manifests")))
        even = (labeled("parity", Operator.IN, "even"),)
        everything = ListQuery(plural="clusters", limit=2)
        selected = msgspec.structs.replace(everything, requirements=even)

        for query, total in ((everything, 13), (selected, 7)):
            first = await store.find(query)
            second = await store.find(msgspec.structs.replace(query, after=first.last))

            assert (first.total, second.total) == (total, total)

    async def test_the_total_is_omitted_if_not_wanted(self, store: FleetStore) -> None:
        await store.transact(inserting(*self.fleet()))

        found = await store.find(ListQuery(plural="clusters", limit=2, wants_total=False))

        assert (len(found.documents), found.total) == (2, None)
        assert found.last is not None

    @pytest.mark.parametrize("order", OrderBy)
    @pytest.mark.parametrize("limit", [1, 3, 100])
    async def test_joined_documents_are_the_same_documents(
        self, store: FleetStore, order: OrderBy, limit: int
    ) -> None:
        fleet = self.fleet()
        fleet.append(stored("odd", document='{"id":"odd","name":"ß \\u0000 🌍, \\"},{\\""}'.encode()))
        await store.transact(inserting(*fleet))
        query: ListQuery | None = ListQuery(plural="clusters", order_by=order, limit=limit)
        seen = 0

        while query is not None and seen <= len(fleet):
            separate = await store.find(query)
            joined = await store.find(msgspec.structs.replace(query, may_join=True))

            assert b",".join(joined.documents) == b",".join(separate.documents)
            assert joined.count == separate.count == len(separate.documents)
            assert (joined.total, joined.last) == (separate.total, separate.last)
            seen += joined.count
            query = None if separate.last is None else msgspec.structs.replace(query, after=separate.last)

        assert seen == len(fleet)

    async def test_an_empty_list_has_no_joined_documents(self, store: FleetStore) -> None:
        found = await find(store, ListQuery(plural="clusters", limit=9, may_join=True))

        assert found == ListResult([], 0, 0, None)

    @pytest.fixture(params=[False, True], ids=["separate", "joined"])
    def may_join(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.mark.parametrize(
        "filters",
        [
            {},
            {"requirements": (labeled("parity", Operator.IN, "even", "odd"),)},
            {"requirements": (labeled("parity", Operator.IN, "even"),)},
            {"requirements": (labeled("absent", Operator.NOT_EXISTS),)},
            {"order_by": OrderBy.NAME, "is_descending": True},
        ],
        ids=["everything", "merged", "driven", "tested", "by-name"],
    )
    async def test_a_page_ends_before_it_exceeds_its_bytes(
        self, store: FleetStore, may_join: bool, filters: dict[str, Any]
    ) -> None:
        sizes = [100, 100, 100, 500, 1, 1, 300, 250, 50, 200, 100, 101, 99]
        fleet = [
            msgspec.structs.replace(each, document=b'{"id":"%s%s"}' % (each.id.encode(), b"x" * size))
            for each, size in zip(self.fleet(), sizes, strict=True)
        ]
        await store.transact(inserting(*fleet))
        whole = ListQuery(plural="clusters", limit=12, **filters)
        documents = b",".join((await store.find(msgspec.structs.replace(whole, limit=99))).documents)
        query, seen = msgspec.structs.replace(whole, max_bytes=400, may_join=may_join), []

        while True:
            found = await store.find(query)
            seen.append((found.count, b",".join(found.documents)))
            if found.last is None:
                break
            query = msgspec.structs.replace(query, after=found.last)

        assert b",".join(page for _, page in seen) == documents
        separate = [page.count(b'"id"') for _, page in seen]
        assert [count for count, _ in seen] == separate
        contents = [len(page) - (count - 1) for count, page in seen]
        assert all(size <= 400 or count == 1 for (count, _), size in zip(seen, contents, strict=True))
        following = [len(page.split(b"},")[0]) for _, page in seen[1:]]
        assert all(size + more > 390 for size, more in zip(contents, following, strict=False))

    @pytest.mark.parametrize("requirements", [(), (labeled("large", Operator.IN, "yes"),)], ids=["all", "some"])
    async def test_large_documents_are_not_all_read_for_a_page(
        self, store: FleetStore, may_join: bool, requirements: tuple[Requirement, ...]
    ) -> None:
        first, *others = [
            stored(f"cls-{n:03}", document=b"x" * 2**19, labels={"large": "yes"}) for n in range(100)
        ]
        await store.transact(inserting(first, *others))
        after = ListPosition(microseconds(first.created_time), first.id)
        query = ListQuery(
            plural="clusters", requirements=requirements, limit=1000, after=after, max_bytes=8 * 2**20
        )

        tracemalloc.start()
        try:
            found = await store.find(msgspec.structs.replace(query, may_join=may_join, wants_total=False))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert (found.count, found.last) == (16, ListPosition(microseconds(first.created_time), "cls-016"))
        assert peak < 20 * 2**20

    async def test_numbered_pages_are_whole(self, store: FleetStore, may_join: bool) -> None:
        fleet = [stored(f"cls-{n}", document=b'{"id":"%d%s"}' % (n, b"x" * 2**20)) for n in range(10)]
        await store.transact(inserting(*fleet))

        found = await store.find(ListQuery(plural="clusters", limit=9, may_join=may_join))

        assert (found.count, found.last is None) == (9, False)
        assert sum(map(len, found.documents)) > 9 * 2**20

    @pytest.mark.parametrize("order", OrderBy)
    async def test_a_parent_selects_only_its_children(self, store: FleetStore, order: OrderBy) -> None:
        parents = [stored("cls-1"), stored("cls-2")]
        children = [
            node_pool(
                f"np-{n}",
                parents[n % 2],
                name=f"n{9 - n}",
                created=MOMENT + (n // 4) * SECOND,
                labels={"half": "first" if n < 4 else "second"},
            )
            for n in range(8)
        ]
        other = stored("machine", plural="machines", parent=parents[0])
        await store.transact(inserting(*parents, *children, other))
        query = ListQuery(plural="nodepools", parent="cls-1", order_by=order, limit=3)

        found = await store.find(query)
        selected = await store.find(
            msgspec.structs.replace(query, requirements=(labeled("half", Operator.IN, "second"),))
        )

        assert found.total == 4
        assert await walk(store, query) == self.in_order(children[::2], order)
        assert (ids(selected), selected.total) == (self.in_order(children[4::2], order), 2)
        assert await find(store, ListQuery(plural="nodepools", parent="np-1", limit=9)) == ListResult(
            [], 0, 0, None
        )
        assert len(await select(store, plural="nodepools")) == 8

    async def test_an_update_moves_a_resource_within_lists(self, store: FleetStore) -> None:
        resources = [stored(f"cls-{n}", updated=MOMENT + n * SECOND) for n in range(4)]
        await store.transact(inserting(*resources))

        await store.transact(updating(msgspec.structs.replace(resources[1], updated_time=MOMENT + HOUR)))

        by_update = ListQuery(plural="clusters", order_by=OrderBy.UPDATED, limit=2)
        assert await walk(store, by_update) == ["cls-0", "cls-2", "cls-3", "cls-1"]
        assert await walk(store, ListQuery(plural="clusters", limit=2)) == ["cls-0", "cls-1", "cls-2", "cls-3"]

    async def test_a_removed_resource_is_in_no_list(self, store: FleetStore) -> None:
        parent = stored("cls-1")
        pools = [node_pool(f"np-{n}", parent, labels={"a": "b"}) for n in range(3)]
        await store.transact(inserting(parent, *pools))

        await store.transact(removing("np-1"))

        assert await select(store, plural="nodepools") == ["np-0", "np-2"]
        assert await select(store, labeled("a", Operator.IN, "b"), plural="nodepools") == ["np-0", "np-2"]
        assert await walk(store, ListQuery(plural="nodepools", parent="cls-1", limit=1)) == ["np-0", "np-2"]


class LabelContract(StoreSuite):
    """Label selectors have the semantics of Kubernetes."""

    @pytest.fixture
    async def labeled_fleet(self, store: FleetStore) -> FleetStore:
        labels: dict[str, dict[str, str]] = {
            "bare": {},
            "east": {"region": "us-east"},
            "empty": {"region": ""},
            "gold-east": {"region": "us-east", "tier": "gold"},
            "gold-west": {"region": "us-west", "tier": "gold"},
            "silver": {"tier": "silver", "example.com/tier": "gold"},
        }
        await store.transact(
            inserting(
                *(stored(each, labels=of_each) for each, of_each in labels.items()),
                stored("man-1", plural="manifests", labels={"region": "us-east"}),
            )
        )
        return store

    @pytest.mark.parametrize(
        ("requirement", "expected"),
        [
            (labeled("region", Operator.IN, "us-east"), ["east", "gold-east"]),
            (labeled("region", Operator.IN, ""), ["empty"]),
            (labeled("region", Operator.IN, "US-EAST"), []),
            (labeled("region", Operator.IN, "us-west", "us-east"), ["east", "gold-east", "gold-west"]),
            (labeled("region", Operator.IN, "mars", ""), ["empty"]),
            (labeled("region", Operator.NOT_IN, "us-east"), ["bare", "empty", "gold-west", "silver"]),
            (labeled("region", Operator.NOT_IN, "us-east", "us-west"), ["bare", "empty", "silver"]),
            (labeled("region", Operator.NOT_IN, ""), ["bare", "east", "gold-east", "gold-west", "silver"]),
            (labeled("region", Operator.EXISTS), ["east", "empty", "gold-east", "gold-west"]),
            (labeled("region", Operator.NOT_EXISTS), ["bare", "silver"]),
            (labeled("Region", Operator.EXISTS), []),
            (labeled("example.com/tier", Operator.IN, "gold"), ["silver"]),
            (labeled("absent", Operator.IN, "x"), []),
            (
                labeled("absent", Operator.NOT_IN, "x"),
                ["bare", "east", "empty", "gold-east", "gold-west", "silver"],
            ),
        ],
        ids=shown,
    )
    async def test_a_requirement_selects_matching_resources(
        self, labeled_fleet: FleetStore, requirement: Requirement, expected: list[str]
    ) -> None:
        assert await select(labeled_fleet, requirement) == expected

    @pytest.mark.parametrize(
        ("requirements", "expected"),
        [
            ([labeled("region", Operator.IN, "us-east"), labeled("tier", Operator.IN, "gold")], ["gold-east"]),
            ([labeled("region", Operator.IN, "us-east"), labeled("tier", Operator.NOT_EXISTS)], ["east"]),
            ([labeled("region", Operator.EXISTS), labeled("tier", Operator.NOT_IN, "gold")], ["east", "empty"]),
            ([labeled("region", Operator.NOT_EXISTS), labeled("tier", Operator.NOT_EXISTS)], ["bare"]),
            (
                [
                    labeled("region", Operator.IN, "us-east", "us-west"),
                    labeled("region", Operator.NOT_IN, "us-east"),
                    labeled("tier", Operator.EXISTS),
                ],
                ["gold-west"],
            ),
            ([labeled("region", Operator.IN, "us-east"), labeled("region", Operator.IN, "us-west")], []),
            ([labeled("region", Operator.IN, "us-east")] * 2, ["east", "gold-east"]),
        ],
        ids=shown,
    )
    async def test_several_requirements_must_all_hold(
        self, labeled_fleet: FleetStore, requirements: list[Requirement], expected: list[str]
    ) -> None:
        assert await select(labeled_fleet, *requirements) == expected

    @pytest.mark.parametrize(
        ("requirement", "expected"),
        [
            (labeled("size", Operator.GREATER, "9"), ["0042", "10", "largest"]),
            (labeled("size", Operator.GREATER, "0"), ["0042", "10", "9", "largest"]),
            (labeled("size", Operator.LESS, "10"), ["0", "9"]),
            (labeled("size", Operator.LESS, "0"), []),
            (labeled("size", Operator.GREATER, str(2**63 - 2)), ["largest"]),
            (labeled("size", Operator.GREATER, str(2**63 - 1)), []),
            (labeled("size", Operator.LESS, str(2**63 - 1)), ["0", "0042", "10", "9"]),
            (labeled("absent", Operator.LESS, "1"), []),
            (labeled("absent", Operator.GREATER, "1"), []),
        ],
        ids=shown,
    )
    async def test_only_integers_are_compared_numerically(
        self, store: FleetStore, requirement: Requirement, expected: list[str]
    ) -> None:
        sizes = ["0", "9", "10", "1_000", "1.5", "1e3", "0x7", "5a", "a5", "", str(2**63), "9" * 63]
        by_id = {size or "empty": size for size in sizes}
        by_id |= {"largest": str(2**63 - 1), "0042": "0" * 40 + "42"}
        await store.transact(
            inserting(
                stored("bare", labels={"other": "9"}),
                *(stored(resource_id, labels={"size": size}) for resource_id, size in by_id.items()),
            )
        )

        assert await select(store, requirement) == expected

    async def test_two_requirements_select_a_range(self, store: FleetStore) -> None:
        await store.transact(inserting(*(stored(f"cls-{n}", labels={"size": str(n)}) for n in range(8, 13))))

        limits = (labeled("size", Operator.GREATER, "8"), labeled("size", Operator.LESS, "11"))

        assert await select(store, *limits) == ["cls-10", "cls-9"]

    async def test_a_changed_label_is_compared_by_its_new_value(self, store: FleetStore) -> None:
        resource = stored("cls-1", labels={"size": "9"})
        await store.transact(inserting(resource))

        await store.transact(updating(msgspec.structs.replace(resource, labels={"size": "11"})))

        assert await select(store, labeled("size", Operator.GREATER, "10")) == ["cls-1"]
        assert await select(store, labeled("size", Operator.LESS, "10")) == []

    async def test_a_selector_with_many_requirements_is_evaluated(self, store: FleetStore) -> None:
        labels = {f"key-{n}": str(n) for n in range(32)}
        almost = labels | {"key-31": "other"}
        await store.transact(inserting(stored("all", labels=labels), stored("almost", labels=almost)))

        everything = [labeled(key, Operator.IN, value, "or-this", "or-that") for key, value in labels.items()]

        assert await select(store, *everything) == ["all"]

    async def test_a_selector_finds_changed_labels(self, labeled_fleet: FleetStore) -> None:
        before = await labeled_fleet.get("gold-east")
        assert before is not None

        changed = msgspec.structs.replace(before, labels={"region": "us-west", "zone": "a"})
        await labeled_fleet.transact(updating(changed))

        assert await select(labeled_fleet, labeled("region", Operator.IN, "us-east")) == ["east"]
        assert await select(labeled_fleet, labeled("region", Operator.IN, "us-west")) == [
            "gold-east",
            "gold-west",
        ]
        assert await select(labeled_fleet, labeled("tier", Operator.EXISTS)) == ["gold-west", "silver"]
        assert await select(labeled_fleet, labeled("zone", Operator.EXISTS)) == ["gold-east"]
