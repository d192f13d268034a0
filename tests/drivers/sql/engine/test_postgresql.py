"""PostgreSQL: retries after races and lost connections, recovery after a restart, and secret passwords."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.fleet_store import FleetTransaction, ListQuery, StoredResource
from sentinel.runtime.database_url import InvalidDatabaseUrl
from tests.support.databases import postgresql
from tests.support.databases.backends import SqlFleet
from tests.support.fleet.store_records import incrementing, inserting, stored
from tools.services.postgresql import PostgreSQLServer
from tools.services.server import LOOPBACK, free_port

TIMEOUT = 60.0
SECRET = "p4ssw0rd-that-must-not-leak"


@pytest.fixture
async def store(postgresql_database: str) -> AsyncIterator[SqlFleet]:
    async with SqlFleet.at(postgresql_database) as store:
        await postgresql.empty(postgresql_database)
        yield store


@pytest.fixture
def private_database(private_postgresql: PostgreSQLServer) -> Iterator[str]:
    with postgresql.database(private_postgresql.url) as url:
        yield url


async def count_connections(url: str) -> int:
    rows = await postgresql.fetch(
        url,
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = 'sentinel' AND datname = current_database()",
    )
    return int(rows[0][0])


async def terminate_connections(url: str) -> None:
    """Terminate every connection of the stores."""
    await postgresql.execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'sentinel' AND datname = current_database()",
    )


async def test_work_that_deadlocks_is_retried_until_both_succeed(store: SqlFleet) -> None:
    await store.transact(inserting(stored("cls-1", document=b"0"), stored("cls-2", document=b"0")))

    def one(fleet: FleetTransaction) -> None:
        incrementing("cls-1")(fleet)
        incrementing("cls-2")(fleet)

    def other(fleet: FleetTransaction) -> None:
        incrementing("cls-2")(fleet)
        incrementing("cls-1")(fleet)

    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*(store.transact(work) for work in (one, other)))

    both = [await store.get("cls-1"), await store.get("cls-2")]
    assert [each.document for each in both if each is not None] == [b"2", b"2"]


async def test_long_pages_are_complete_even_if_several_are_read_at_once(store: SqlFleet) -> None:
    fleet = [stored(f"cls-{number:03}", document=b"%d" % number * 600) for number in range(300)]
    await store.transact(inserting(*fleet))
    query = ListQuery(plural="clusters", limit=250)

    async with asyncio.timeout(TIMEOUT):
        pages = await asyncio.gather(*(store.find(query) for _ in range(5)))

    for page in pages:
        assert list(page.documents) == [each.document for each in fleet[:250]]
        assert page.last is not None
        rest = await store.find(ListQuery(plural="clusters", limit=250, after=page.last))
        assert list(rest.documents) == [each.document for each in fleet[250:]]


async def test_connections_are_bounded(postgresql_database: str) -> None:
    async with SqlFleet.at(postgresql_database, connections=2) as store:
        await asyncio.gather(*(store.get(f"cls-{number}") for number in range(50)))

        assert await count_connections(postgresql_database) == 2

    assert await count_connections(postgresql_database) == 0


async def test_reads_do_not_wait_for_a_queue_of_writes(postgresql_database: str) -> None:
    async with SqlFleet.at(postgresql_database, connections=5) as store:
        await postgresql.empty(postgresql_database)
        await store.transact(inserting(stored("cls-1")))
        holder = await postgresql.connect(postgresql_database)
        await holder.execute("BEGIN; SELECT 1 FROM fleet_resources WHERE id = 'cls-1' FOR UPDATE")

        def work(fleet: FleetTransaction) -> None:
            fleet.count_children("cls-1")  # needs a transaction
            fleet.lock("cls-1")

        async with asyncio.timeout(TIMEOUT):
            writes = [asyncio.create_task(store.transact(work)) for _ in range(20)]
            await postgresql.wait_for_blocked(postgresql_database, count=4)
            found = await store.get("cls-1")
            await holder.close()
            await asyncio.gather(*writes)

        assert found == stored("cls-1")


async def test_terminated_connections_are_replaced(store: SqlFleet, postgresql_database: str) -> None:
    await asyncio.gather(*(store.get(f"cls-{number}") for number in range(10)))

    await terminate_connections(postgresql_database)

    await store.transact(inserting(stored("cls-1")))
    assert await store.get("cls-1") == stored("cls-1")
    assert store.unavailable_reason() is None


async def test_work_that_lost_its_connection_is_rerun_and_takes_effect_once(
    store: SqlFleet, postgresql_database: str
) -> None:
    await store.transact(inserting(stored("cls-1", document=b"0")))
    runs = 0
    loop = asyncio.get_running_loop()
    blocker = loop.create_future()

    def work(fleet: FleetTransaction) -> None:
        nonlocal runs
        fleet.count_children("cls-1")  # needs a transaction
        runs += 1
        incrementing("cls-1")(fleet)
        if runs == 1:
            blocker.set_result(None)
            # Blocks on the server until its connection is terminated.
            fleet.lock("held")

    await store.transact(inserting(stored("held")))
    holder = await postgresql.connect(postgresql_database)
    await holder.execute("BEGIN; SELECT 1 FROM fleet_resources WHERE id = 'held' FOR UPDATE")
    async with asyncio.timeout(TIMEOUT):
        writing = asyncio.create_task(store.transact(work))
        await blocker
        await terminate_connections(postgresql_database)
        await writing
    await holder.close()

    after = await store.get("cls-1")
    assert runs == 2
    assert after is not None
    assert after.document == b"1"


async def wait_until_available(store: SqlFleet) -> None:
    while store.unavailable_reason() is not None:  # noqa: ASYNC110 - readiness polls it, too
        await asyncio.sleep(0.05)


async def test_the_store_recovers_from_a_restart_of_the_server(
    private_postgresql: PostgreSQLServer, private_database: str
) -> None:
    async with SqlFleet.at(private_database) as store:
        await store.transact(inserting(stored("cls-1")))

        await asyncio.to_thread(private_postgresql.stop)
        with pytest.raises(Unavailable):
            await store.get("cls-1")
        unavailable_reason = store.unavailable_reason()
        await asyncio.to_thread(private_postgresql.start)

        async with asyncio.timeout(TIMEOUT):
            await wait_until_available(store)
        assert await store.get("cls-1") == stored("cls-1")
        await store.transact(inserting(stored("cls-2")))
        assert unavailable_reason is not None
        assert private_postgresql.password not in unavailable_reason


async def test_kill_9_of_the_server_loses_no_confirmed_write(
    private_postgresql: PostgreSQLServer, private_database: str
) -> None:
    async with SqlFleet.at(private_database) as store:
        confirmed: list[str] = []
        is_enough = asyncio.Event()

        async def write(writer: int) -> None:
            for number in range(1_000):
                name = f"cls-{writer}-{number}"
                try:
                    await store.transact(inserting(stored(name)))
                except Unavailable:
                    return
                confirmed.append(name)
                if len(confirmed) == 40:
                    is_enough.set()

        async with asyncio.timeout(TIMEOUT):
            writers = [asyncio.create_task(write(writer)) for writer in range(4)]
            await is_enough.wait()
            await asyncio.to_thread(private_postgresql.kill)
            await asyncio.gather(*writers)
            await asyncio.to_thread(private_postgresql.start)
            await wait_until_available(store)

        assert [name for name in confirmed if await store.get(name) is None] == []
        found = await store.find(ListQuery(plural="clusters", limit=1))
        assert found.total == sum(each.count for each in await store.populations())


async def test_a_database_that_refuses_connections_is_unavailable_until_later(
    store: SqlFleet, postgresql_database: str
) -> None:
    parts = urlsplit(postgresql_database)
    server, name = parts._replace(path="/postgres").geturl(), parts.path.removeprefix("/")
    await terminate_connections(postgresql_database)
    await postgresql.execute(server, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
    try:
        with pytest.raises(Unavailable, match="not currently accepting connections"):
            await store.get("cls-1")
        unavailable_reason = store.unavailable_reason()
    finally:
        await postgresql.execute(server, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")

    assert "not currently accepting connections" in str(unavailable_reason)
    assert await store.get("cls-1") is None
    assert store.unavailable_reason() is None


async def test_before_it_is_open_readiness_says_what_the_server_said(
    private_postgresql: PostgreSQLServer, private_database: str
) -> None:
    name = urlsplit(private_database).path.removeprefix("/")
    store = SqlFleet.at(private_database)
    await postgresql.execute(private_postgresql.url, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")

    with pytest.raises(Unavailable) as caught:
        await store.open()
    unavailable_reason = str(store.unavailable_reason())
    with pytest.raises(Unavailable) as refused:
        await store.get("cls-1")
    await postgresql.execute(private_postgresql.url, f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
    await store.open()

    assert f'database "{name}" is not currently accepting connections' in unavailable_reason
    assert unavailable_reason == str(caught.value) == str(refused.value)
    assert private_postgresql.password not in unavailable_reason
    assert store.unavailable_reason() is None
    await store.close()


async def test_a_changed_password_is_named_in_readiness_and_not_shown(
    private_postgresql: PostgreSQLServer, private_database: str
) -> None:
    owner = f"owner_{uuid4().hex[:8]}"
    database = urlsplit(private_database).path.removeprefix("/")
    for statement in (
        f"CREATE ROLE {owner} LOGIN PASSWORD '{SECRET}'",
        f"ALTER DATABASE {database} OWNER TO {owner}",
    ):
        await postgresql.execute(private_postgresql.url, statement)
    url = f"postgresql://{owner}:{SECRET}@{LOOPBACK}:{private_postgresql.port}/{database}"

    async with SqlFleet.at(url) as store:
        await postgresql.execute(private_postgresql.url, f"ALTER ROLE {owner} PASSWORD 'another'")
        await terminate_connections(private_database)
        with pytest.raises(Unavailable):
            await store.get("cls-1")
        unavailable_reason = str(store.unavailable_reason())

    assert f'password authentication failed for user "{owner}"' in unavailable_reason
    assert SECRET not in unavailable_reason


async def test_the_error_of_an_unreachable_server_has_no_password() -> None:
    port = free_port()
    store = SqlFleet.at(f"postgresql://sentinel:{SECRET}@{LOOPBACK}:{port}/fleet?application_name={SECRET}")

    with pytest.raises(Unavailable) as caught:
        await store.open()

    shown = "".join(traceback.format_exception(caught.value)) + str(store.unavailable_reason()) + repr(store)
    assert f"postgresql://sentinel@{LOOPBACK}:{port}/fleet" in str(caught.value)
    assert SECRET not in shown
    assert store.unavailable_reason() == str(caught.value)


@pytest.mark.parametrize(
    ("user", "name", "complaint"),
    [
        (f"sentinel:{SECRET}", "postgres", "password authentication failed"),
        ("", "no_such_database", "does not exist"),
        ("", "postgres?connect_timeout=10", 'unrecognized configuration parameter "connect_timeout"'),
        ("", "postgres?work_mem=much", 'invalid value for parameter "work_mem"'),
        ("", "postgres?max_connections=5", 'parameter "max_connections" cannot be changed'),
        ("", "postgres?search_path=nowhere", "no schema has been selected to create in$"),
        ("", "postgres?search_path=pg_catalog", "permission denied to create"),
    ],
)
async def test_errors_that_a_retry_cannot_fix_are_misconfigured(
    private_postgresql: PostgreSQLServer, user: str, name: str, complaint: str
) -> None:
    user = user or f"{PostgreSQLServer.USER}:{private_postgresql.password}"
    store = SqlFleet.at(f"postgres://{user}@{LOOPBACK}:{private_postgresql.port}/{name}")

    with pytest.raises(Misconfigured, match=complaint) as caught:
        await store.open()

    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert private_postgresql.password not in shown


async def test_a_database_with_another_encoding_is_refused(private_postgresql: PostgreSQLServer) -> None:
    await postgresql.execute(
        private_postgresql.url, "CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    )
    store = SqlFleet.at(urlsplit(private_postgresql.url)._replace(path="/narrow").geturl())

    with pytest.raises(Misconfigured, match="expected a database with the encoding UTF8, got LATIN1"):
        await store.open()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://sentinel:{SECRET}@[::1/fleet",
        f"postgresql://sentinel:{SECRET}@host:port/fleet",
        f"mysql://sentinel:{SECRET}@host/fleet",
        f"sentinel:{SECRET}@host/fleet",
    ],
)
async def test_an_invalid_url_is_not_quoted(url: str) -> None:
    with pytest.raises((InvalidDatabaseUrl, Misconfigured)) as caught:
        await SqlFleet.at(url).open()

    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_string_that_postgresql_cannot_store_matches_nothing(store: SqlFleet) -> None:
    assert await store.get("cls-\0") is None

    def work(fleet: FleetTransaction) -> StoredResource | None:
        return fleet.lock("cls-\0")

    assert await store.transact(work) is None
