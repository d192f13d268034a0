"""Query plans of lists: an index scan in a fleet of any size, and no sort in the default order.

For PostgreSQL these are generic plans, which it uses for statements that run often.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pytest

from sentinel.core import labels, search
from sentinel.drivers.sql.engine.postgresql_session import connect
from sentinel.drivers.sql.engine.statements import Row, SqlValue, Statement
from sentinel.drivers.sql.fleet import lists
from sentinel.ports.fleet_store import FleetTransaction, ListPosition, ListQuery, OrderBy, StoredResource
from sentinel.runtime.secrets import Secret
from tests.support.databases import postgresql
from tests.support.databases.backends import SqlFleet
from tests.support.databases.query_plans import explain_on_postgresql, explain_on_sqlite
from tests.support.fleet.store_records import MOMENT, SECOND, microseconds, stored

COUNT = 600
LIMIT = 20
POSITION = ListPosition(microseconds(MOMENT + 300 * SECOND), "cls-300")


class RecordingSession:
    """A session that records the statements of a list. Its rows are made up: a full page and a total, so that the
    list runs every statement that it may need."""

    can_write_two_tables = True

    def __init__(self, *, is_sqlite: bool) -> None:
        self.has_snapshot = self.joins_bytes = self.can_stop_reading = is_sqlite
        self.numbers_transactions = not is_sqlite
        self.statements: list[tuple[Statement, Mapping[str, SqlValue]]] = []

    def rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        self.statements.append((statement, values))
        return [(LIMIT, LIMIT, ""), (None, LIMIT, "")]

    def rows_of_short_values(self, statement: Statement, max_length: int, **values: SqlValue) -> Sequence[Row]:
        return self.rows(statement, **values)

    def rows_within(self, statement: Statement, max_bytes: int, /, **values: SqlValue) -> Sequence[Row]:
        return self.rows(statement, **values)

    def run(self, statement: Statement, **values: SqlValue) -> int:
        raise AssertionError("a list writes nothing")

    def run_many(self, statement: Statement, values: Sequence[Mapping[str, SqlValue]]) -> None:
        raise AssertionError("a list writes nothing")


class QueryPlanner(ABC):
    """A database with a fleet, that can explain its query plans."""

    is_sqlite: bool
    scan: str
    sort: str

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @abstractmethod
    async def explain(self, statement: Statement) -> str: ...

    async def plan(self, query: ListQuery) -> str:
        recorder = RecordingSession(is_sqlite=self.is_sqlite)
        lists.find(recorder, query)
        return "\n".join([await self.explain(statement) for statement, _ in recorder.statements])


class SqlitePlanner(QueryPlanner):
    is_sqlite = True
    scan = "SCAN fleet_"
    sort = "TEMP B-TREE"

    async def explain(self, statement: Statement) -> str:
        return explain_on_sqlite(self._connection, statement)


class PostgresqlPlanner(QueryPlanner):
    is_sqlite = False
    scan = "Seq Scan"
    sort = "Sort  "

    async def explain(self, statement: Statement) -> str:
        return await explain_on_postgresql(self._connection, statement)


def fill(fleet: FleetTransaction) -> None:
    for number in range(COUNT):
        fleet.insert(resource(number))


def resource(number: int) -> StoredResource:
    return stored(
        f"cls-{number:03}",
        created=MOMENT + number * SECOND,
        updated=MOMENT + number * timedelta(hours=1),
        labels={"region": "us" if number % 2 else "eu", "shard": str(number % 100)},
        attributes={"generation": "1", "status.conditions.Ready": "False" if number % 100 else "True"},
    )


async def create_fleet(url: str) -> None:
    async with SqlFleet.at(url) as store:
        await store.transact(fill)


@pytest.fixture(scope="module")
def sqlite_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "fleet.db"
    postgresql.run(create_fleet(f"sqlite:///{file}"))
    return file


@pytest.fixture(scope="module")
def postgresql_fleet(postgresql_url: str) -> Iterator[str]:
    with postgresql.database(postgresql_url) as url:
        postgresql.run(create_fleet(url))
        postgresql.run(postgresql.execute(url, "ANALYZE"))
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def planner(
    request: pytest.FixtureRequest, sqlite_fleet: Path, postgresql_fleet: str
) -> AsyncIterator[QueryPlanner]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(sqlite_fleet)) as connection:
            yield SqlitePlanner(connection)
        return
    connected = await connect(Secret(postgresql_fleet))
    await connected.execute("SET plan_cache_mode = force_generic_plan")
    yield PostgresqlPlanner(connected)
    await connected.close()


class ListOptions(TypedDict, total=False):
    order_by: OrderBy
    is_descending: bool
    after: ListPosition | None
    parent: str | None
    max_bytes: int | None


def query(selector: str = "", searched: str = "", **options: Unpack[ListOptions]) -> ListQuery:
    wanted = labels.parse(selector).requirements
    return ListQuery(
        plural="clusters",
        requirements=wanted,
        search=search.parse(searched),
        limit=LIMIT,
        wants_total=False,
        may_join=True,
        **options,
    )


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("after", [None, POSITION], ids=["first", "later"])
@pytest.mark.parametrize("max_bytes", [None, 2**20], ids=["whole", "bounded"])
async def test_the_default_order_is_the_order_of_an_index(
    planner: QueryPlanner, is_descending: bool, after: ListPosition | None, max_bytes: int | None
) -> None:
    plan = await planner.plan(query(is_descending=is_descending, after=after, max_bytes=max_bytes))

    assert "fleet_resources_by_created" in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize(
    ("order_by", "position", "index"),
    [
        (OrderBy.UPDATED, POSITION, "fleet_resources_by_updated"),
        (OrderBy.NAME, ListPosition("name-of-cls-300", "cls-300"), "fleet_resources_by_name"),
        (OrderBy.ID, ListPosition("cls-300", "cls-300"), "fleet_resources_"),
    ],
)
async def test_every_order_has_an_index(
    planner: QueryPlanner, order_by: OrderBy, position: ListPosition, index: str
) -> None:
    plan = await planner.plan(query(order_by=order_by, after=position))

    assert index in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize("after", [None, POSITION], ids=["first", "later"])
async def test_a_selective_label_is_found_by_its_index(planner: QueryPlanner, after: ListPosition | None) -> None:
    plan = await planner.plan(query("shard=7", after=after))

    assert "fleet_labels_by_value" in plan
    assert planner.scan not in plan


@pytest.mark.parametrize("after", [None, POSITION], ids=["first", "later"])
@pytest.mark.parametrize("max_bytes", [None, 2**20], ids=["whole", "bounded"])
async def test_a_common_label_is_scanned_in_order(
    planner: QueryPlanner, after: ListPosition | None, max_bytes: int | None
) -> None:
    plan = await planner.plan(query("region=us", after=after, max_bytes=max_bytes))

    assert "fleet_labels_by_value" in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize(
    "selector", ["region in (us,eu)", "region", "shard>50", "shard=7,region=us,!gpu", "region!=us", "!gpu"]
)
async def test_no_selector_makes_a_page_read_the_whole_table(planner: QueryPlanner, selector: str) -> None:
    plan = await planner.plan(query(selector, after=POSITION))

    assert planner.scan not in plan


@pytest.mark.parametrize("others", [0, 1, 31])
async def test_no_selector_makes_a_statement_too_long_to_parse(planner: QueryPlanner, others: int) -> None:
    recorder = RecordingSession(is_sqlite=planner.is_sqlite)
    shards = ",".join(map(str, range(labels.MAX_VALUES)))
    selector = ",".join([f"shard in ({shards})", *(f"!gpu-{number}" for number in range(others))])

    lists.find(recorder, query(selector, after=POSITION))
    plan = await planner.plan(query(selector, after=POSITION))

    assert max(len(statement.postgresql.text) for statement, _ in recorder.statements) < 60_000
    assert planner.scan not in plan


@pytest.mark.parametrize(
    ("selector", "searched"),
    [
        ("region=us", "labels.region='us'"),
        ("shard=7,region=us", "labels.shard='7' and labels.region='us'"),
        ("region in (eu,us),tier!=x", "labels.region in ('eu','us') and not labels.tier='x'"),
    ],
)
async def test_a_search_on_labels_has_the_plan_of_the_selector(
    planner: QueryPlanner, selector: str, searched: str
) -> None:
    assert await planner.plan(query(searched=searched, after=POSITION)) == await planner.plan(
        query(selector, after=POSITION)
    )


@pytest.mark.parametrize(
    ("searched", "index"),
    [
        ("status.conditions.Ready='True'", "fleet_attributes_by_value"),
        ("status.conditions.Ready='False' and (name!='x' or generation=1)", "fleet_attributes_by_value"),
        ("labels.region='us' and name!='x' and not generation in (1,2)", "fleet_labels_by_value"),
        ("labels.region='us' or labels.shard='7' or name='x'", "fleet_resources_by_created"),
        ("not (generation=1 and labels.region='us')", "fleet_resources_by_created"),
    ],
)
@pytest.mark.parametrize("is_descending", [False, True])
async def test_a_search_is_an_index_scan_in_order(
    planner: QueryPlanner, searched: str, index: str, is_descending: bool
) -> None:
    plan = await planner.plan(query(searched=searched, after=POSITION, is_descending=is_descending))

    assert index in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


@pytest.mark.parametrize(
    ("searched", "index"),
    [
        ("name='name-of-cls-007'", "fleet_resources_by_name"),
        ("labels.region='us' and name in ('name-of-cls-007','x')", "fleet_resources_by_name"),
        ("id in ('cls-007','x') and generation=1", "fleet_resources_"),
    ],
)
async def test_a_search_by_name_or_id_uses_their_index(planner: QueryPlanner, searched: str, index: str) -> None:
    plan = await planner.plan(query(searched=searched))

    assert index in plan
    assert "by_created" not in plan
    assert planner.scan not in plan


async def test_children_are_found_by_their_parent(planner: QueryPlanner) -> None:
    plan = await planner.plan(query(parent="cls-1", after=POSITION))

    assert "fleet_resources_by_parent" in plan
    assert planner.sort not in plan
    assert planner.scan not in plan


async def test_without_a_filter_the_total_counts_no_resources() -> None:
    recorder = RecordingSession(is_sqlite=True)

    lists.find(recorder, ListQuery(plural="clusters", limit=LIMIT))

    statement, _ = recorder.statements[0]
    assert "fleet_counts" in statement.sqlite.text
    assert "fleet_resources" not in statement.sqlite.text


async def test_a_page_in_postgresql_takes_one_statement() -> None:
    """Each statement would see its own snapshot."""
    recorder = RecordingSession(is_sqlite=False)

    lists.find(recorder, ListQuery(plural="clusters", limit=LIMIT))
    lists.find(recorder, ListQuery(plural="clusters", limit=LIMIT, after=POSITION, max_bytes=2**20))

    assert len(recorder.statements) == 2
