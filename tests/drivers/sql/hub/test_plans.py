"""Query plans of the hub's statements: no work grows with what it is not about."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from sentinel.core.hub.states import State
from sentinel.drivers.sql.engine.postgresql_session import connect
from sentinel.drivers.sql.engine.statements import Statement
from sentinel.drivers.sql.hub import statements
from sentinel.runtime.secrets import Secret
from tests.support.databases import backends, postgresql
from tests.support.databases.query_plans import explain_on_postgresql, explain_on_sqlite
from tests.support.fleet.store_records import MOMENT
from tests.support.hub.store_records import MINUTE, heartbeats, instance, sample, saving

Explain: TypeAlias = Callable[[Statement], Awaitable[str]]

ONE = frozenset([State.OFFLINE])
SEVERAL = frozenset([State.OFFLINE, State.DRAINING])
"""States of few instances. Where most are in a state, their ids are as good."""


async def create_hub(url: str) -> None:
    backend = backends.sql(url)
    await backend.database.open()
    states = [State.OFFLINE, State.DRAINING, *[State.ONLINE] * 28]
    many = [instance(f"edge-{number:03}", states[number % 30]) for number in range(300)]
    await backend.hub.transact(saving(*many))
    for seconds in range(0, 1200, 100):
        await backend.hub.flush([heartbeats(each, seconds, samples=[sample(seconds)]) for each in many])
    await backend.hub.thin_metrics(MOMENT + 15 * MINUTE, limit=10_000)
    await backend.database.close()


@pytest.fixture(scope="module")
def sqlite_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "hub.db"
    postgresql.run(create_hub(f"sqlite:///{file}"))
    return file


@pytest.fixture(scope="module")
def postgresql_hub(postgresql_url: str) -> Iterator[str]:
    with postgresql.database(postgresql_url) as url:
        postgresql.run(create_hub(url))
        postgresql.run(postgresql.execute(url, "ANALYZE"))
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def explain(request: pytest.FixtureRequest) -> AsyncIterator[Explain]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(request.getfixturevalue("sqlite_hub"))) as connection:

            async def on_sqlite(statement: Statement) -> str:
                return explain_on_sqlite(connection, statement)

            yield on_sqlite
        return
    connected = await connect(Secret(request.getfixturevalue("postgresql_hub")))
    await connected.execute("SET plan_cache_mode = force_generic_plan")
    yield lambda statement: explain_on_postgresql(connected, statement)
    await connected.close()


def key_of_sqlite(plan: str) -> str:
    """SQLite's name for the primary key of a table with rows."""
    return plan.replace("sqlite_autoindex_hub_instances_1", "hub_instances_id")


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (statements.LOCK_INSTANCE, "hub_instances_id"),
        (statements.HEAR, "hub_instances_id"),
        (statements.INSTANCES_BY_ID, "hub_instances_id"),
        (statements.page(frozenset()), "hub_instances_id"),
        (statements.page(ONE), "hub_instances_by_state"),
        (statements.labels(ONE), "hub_instances_by_state"),
        (statements.count(frozenset()), "hub_instances_by_state"),
        (statements.count(SEVERAL), "hub_instances_by_state"),
        (statements.COUNT_BY_STATE, "hub_instances_by_state"),
        (statements.SILENT, "hub_instances_by_state"),
        (statements.LEAVING, "hub_instances_by_state"),
        (statements.LOCK_REMOVED, "hub_instances_by_state"),
        (statements.OUT_OF_SYNC, "hub_instances_out_of_sync"),
        (statements.ASSIGNED_COUNTS, "hub_instances_by_config"),
        (statements.TO_THIN, "hub_metrics_not_thinned"),
    ],
)
async def test_instances_and_samples_are_found_by_an_index(
    explain: Explain, statement: Statement, index: str
) -> None:
    assert index in key_of_sqlite(await explain(statement))


@pytest.mark.parametrize("states", [frozenset[State](), ONE])
async def test_a_page_is_not_sorted(explain: Explain, states: frozenset[State]) -> None:
    plan = await explain(statements.page(states))

    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        (statements.INTERVALS, ("interval_number >= $1", "interval_number>?")),
        (statements.SAMPLES, ("interval_number = ANY", "interval_number=? AND instance_id=?")),
        (statements.INTERVAL, ("instance_id >=", "interval_number=? AND instance_id>?")),
        (statements.DELETE_SAMPLE, ("interval_number = $1", "interval_number=? AND instance_id=?")),
        (statements.EXPIRE_SAMPLES, ("interval_number <= $1", "interval_number<?")),
    ],
)
async def test_only_the_samples_of_an_interval_are_read(
    explain: Explain, statement: Statement, condition: tuple[str, str]
) -> None:
    plan = await explain(statement)

    assert any(each in plan for each in condition)
    assert "SCAN hub_metrics" not in plan
    assert "Seq Scan on hub_metrics" not in plan
