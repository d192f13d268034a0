"""How lists are answered: along an index, whatever the size of the fleet, and without sorting in the usual order.

PostgreSQL is asked for its generic plans, which are the ones it falls back to for a statement that comes often.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.core import labels
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.engine.postgresql_session import connect
from sentinel.drivers.sql.engine.statements import Row, Statement, Value
from sentinel.drivers.sql.fleet import lists
from sentinel.drivers.sql.history import HISTORY
from sentinel.ports.fleet_store import FleetTransaction, ListPosition, ListQuery, OrderBy, StoredResource
from sentinel.runtime.secrets import Secret
from tests.support.databases import postgresql
from tests.support.databases.backends import SqlFleet
from tests.support.fleet.store_records import MOMENT, SECOND, microseconds, stored

COUNT = 600
LIMIT = 20
PLACE = ListPosition(microseconds(MOMENT + 300 * SECOND), "cls-300")


class Recorder:
    """Hears which statements a list asks for. Its answers are made up: a full page and a total, so that all is
    asked that may be."""

    combines = True

    def __init__(self, *, is_embedded: bool) -> None:
        """Pretends to be SQLite, or PostgreSQL."""
        self.is_snapshot = self.joins = is_embedded
        self.asked: list[tuple[Statement, Mapping[str, Value]]] = []

    def rows(self, statement: Statement, **values: Value) -> Sequence[Row]:
        self.asked.append((statement, values))
        return [(LIMIT, LIMIT), (None, LIMIT)]

    def run(self, statement: Statement, **values: Value) -> int:
        raise AssertionError("a list writes nothing")

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, Value]]) -> None:
        raise AssertionError("a list writes nothing")


class Planner(ABC):
    """A database with a fleet in it, that can say how it would answer."""

    is_embedded: bool
    scan: str
    sort: str

    @abstractmethod
    async def explain(self, statement: Statement, values: Mapping[str, Value]) -> str: ...

    async def plan(self, query: ListQuery) -> str:
        recorder = Recorder(is_embedded=self.is_embedded)
        lists.find(recorder, query)
        return "\n".join([await self.explain(*asked) for asked in recorder.asked])


class SqlitePlanner(Planner):
    is_embedded = True
    scan = "SCAN fleet_"
    sort = "TEMP B-TREE"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def explain(self, statement: Statement, values: Mapping[str, Value]) -> str:
        compiled = statement.sqlite
        rows = self._connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", compiled.arrange(values))
        return "\n".join(row[3] for row in rows)


class PostgresqlPlanner(Planner):
    is_embedded = False
    scan = "Seq Scan"
    sort = "Sort  "

    def __init__(self, connection: postgresql.Connection) -> None:
        self._connection = connection

    async def explain(self, statement: Statement, values: Mapping[str, Value]) -> str:
        # By name, because EXPLAIN alone would plan for these very values.
        await self._connection.execute(f"PREPARE asked AS {statement.postgresql.text}")
        nulls = ", ".join("NULL" for _ in statement.postgresql.arrange(values))
        rows = await self._connection.fetch(f"EXPLAIN EXECUTE asked ({nulls})")
        await self._connection.execute("DEALLOCATE asked")
        return "\n".join(row[0] for row in rows)


def fill(fleet: FleetTransaction) -> None:
    for number in range(COUNT):
        fleet.insert(resource(number))


def resource(number: int) -> StoredResource:
    return stored(
        f"cls-{number:03}",
        created=MOMENT + number * SECOND,
        updated=MOMENT + number * timedelta(hours=1),
        labels={"region": "us" if number % 2 else "eu", "shard": str(number % 100)},
    )


async def filled(url: str) -> None:
    store = SqlFleet(engine.database(url, migrate=True, history=HISTORY))
    await store.open()
    await store.transact(fill)
    await store.close()


@pytest.fixture(scope="module")
def sqlite_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "fleet.db"
    postgresql.run(filled(f"sqlite:///{file}"))
    return file


@pytest.fixture(scope="module")
def postgresql_fleet(postgresql_url: str) -> Iterator[str]:
    with postgresql.database(postgresql_url) as url:
        postgresql.run(filled(url))
        postgresql.run(postgresql.execute(url, "ANALYZE"))
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def planner(
    request: pytest.FixtureRequest, sqlite_fleet: Path, postgresql_fleet: str
) -> AsyncIterator[Planner]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(sqlite_fleet)) as connection:
            yield SqlitePlanner(connection)
        return
    connected = await connect(Secret(postgresql_fleet))
    await connected.execute("SET plan_cache_mode = force_generic_plan")
    yield PostgresqlPlanner(connected)
    await connected.close()


def query(
    selector: str = "",
    *,
    order_by: OrderBy = OrderBy.CREATED,
    is_descending: bool = False,
    after: ListPosition | None = None,
    parent: str | None = None,
) -> ListQuery:
    return ListQuery(
        plural="clusters",
        parent=parent,
        requirements=labels.parse(selector).requirements,
        order_by=order_by,
        is_descending=is_descending,
        limit=LIMIT,
        after=after,
        wants_total=False,
        may_join=True,
    )


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("after", [None, PLACE], ids=["first", "later"])
async def test_the_usual_order_is_the_order_of_an_index(
    planner: Planner, is_descending: bool, after: ListPosition | None
) -> None:
    plan = await planner.plan(query(is_descending=is_descending, after=after))

    assert "fleet_resources_by_created" in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize(
    ("order_by", "place", "index"),
    [
        (OrderBy.UPDATED, PLACE, "fleet_resources_by_updated"),
        (OrderBy.NAME, ListPosition("name-of-cls-300", "cls-300"), "fleet_resources_by_name"),
        (OrderBy.ID, ListPosition("cls-300", "cls-300"), "fleet_resources_"),
    ],
)
async def test_every_order_has_an_index(
    planner: Planner, order_by: OrderBy, place: ListPosition, index: str
) -> None:
    plan = await planner.plan(query(order_by=order_by, after=place))

    assert index in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize("after", [None, PLACE], ids=["first", "later"])
async def test_a_selective_label_is_found_by_its_index(planner: Planner, after: ListPosition | None) -> None:
    plan = await planner.plan(query("shard=7", after=after))

    assert "fleet_labels_by_value" in plan
    assert planner.scan not in plan


@pytest.mark.parametrize("after", [None, PLACE], ids=["first", "later"])
async def test_a_common_label_is_walked_along_in_order(planner: Planner, after: ListPosition | None) -> None:
    plan = await planner.plan(query("region=us", after=after))

    assert "fleet_labels_by_value" in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize(
    "selector", ["region in (us,eu)", "region", "shard>50", "shard=7,region=us,!gpu", "region!=us", "!gpu"]
)
async def test_no_selector_makes_a_page_read_the_whole_table(planner: Planner, selector: str) -> None:
    plan = await planner.plan(query(selector, after=PLACE))

    assert planner.scan not in plan


@pytest.mark.parametrize("others", [0, 1, 31])
async def test_no_selector_makes_a_statement_that_takes_long_to_read(planner: Planner, others: int) -> None:
    asked = Recorder(is_embedded=planner.is_embedded)
    shards = ",".join(map(str, range(labels.MAX_VALUES)))
    selector = ",".join([f"shard in ({shards})", *(f"!gpu-{number}" for number in range(others))])

    lists.find(asked, query(selector, after=PLACE))
    plan = await planner.plan(query(selector, after=PLACE))

    assert max(len(statement.postgresql.text) for statement, _ in asked.asked) < 60_000
    assert planner.scan not in plan


async def test_children_are_found_by_their_parent(planner: Planner) -> None:
    plan = await planner.plan(query(parent="cls-1", after=PLACE))

    assert "fleet_resources_by_parent" in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


async def test_without_a_filter_the_total_counts_no_resources() -> None:
    asked = Recorder(is_embedded=True)

    lists.find(asked, ListQuery(plural="clusters", limit=LIMIT))

    statement, _ = asked.asked[0]
    assert "fleet_counts" in statement.sqlite.text
    assert "fleet_resources" not in statement.sqlite.text


async def test_postgresql_is_asked_once_for_everything_about_a_page() -> None:
    """Each question would be of a moment of its own."""
    asked = Recorder(is_embedded=False)

    lists.find(asked, ListQuery(plural="clusters", limit=LIMIT))

    assert len(asked.asked) == 1
