"""Streams over time: comments, slow clients, and a database that fails. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import pytest

from sentinel.core.access import Identity, Role
from sentinel.core.fleet.change_position import Position
from sentinel.ports.change_log import ChangePage, CurrentResource
from sentinel.testing.change_log import MemoryChangeLog
from sentinel.testing.database import Fault
from sentinel.testing.loop import simulated
from tests.support.databases import backends
from tests.support.databases.backends import Backend
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.event_stream import Mirror, watching


class BrokenReads:
    """Lets some reads of the log fail while it is broken."""

    def __init__(self, calls: str = "changes.") -> None:
        self._calls = calls
        self.is_broken = False
        self.failures = 0

    def __call__(self, call: str) -> Fault | None:
        if not (self.is_broken and call.startswith(self._calls)):
            return None
        self.failures += 1
        return Fault.BEFORE_COMMIT


@asynccontextmanager
async def feed_that_cannot_begin() -> AsyncIterator[tuple[ApiClient, BrokenReads, str]]:
    """Yield an API whose feed has ended and cannot begin, why, and the last event of an earlier stream."""
    faults = BrokenReads("changes.newest")
    async with ApiClient(backend=backends.memory(faults=faults)) as fleet:
        async with watching(fleet.app, "manifests") as stream:
            last = (await stream.until_synced())[-1].id
        await asyncio.sleep(5)
        faults.is_broken = True
        yield fleet, faults, last


class SlowChangeLog(MemoryChangeLog):
    """Each call takes some seconds, and a page of the log is small."""

    def __init__(self, backend: backends.MemoryBackend) -> None:
        super().__init__(backend.memory)
        self.seconds: dict[str, float] = {}
        """By the name of the method."""

    async def newest(self) -> Position:
        await self._wait("newest")
        return await super().newest()

    async def read(self, after: Position, *, limit: int) -> ChangePage:
        await self._wait("read")
        return await super().read(after, limit=min(limit, 5))

    async def current(self, resource_ids: Collection[str]) -> Mapping[str, CurrentResource]:
        await self._wait("current")
        return await super().current(resource_ids)

    async def _wait(self, call: str) -> None:
        await asyncio.sleep(self.seconds.get(call, 0))


def with_slow_log() -> tuple[Backend, SlowChangeLog]:
    backend = backends.memory()
    log = backend.changes = SlowChangeLog(backend)
    return backend, log


@simulated
async def test_an_idle_stream_has_a_comment_at_least_every_15_seconds() -> None:
    async with ApiClient() as fleet, watching(fleet.app) as stream:
        await stream.until_synced()

        await asyncio.sleep(150)

        await stream.read_waiting()
        assert stream.comments >= 10


@simulated
async def test_a_client_that_selects_little_still_gets_new_ids() -> None:
    async with ApiClient() as fleet, watching(fleet.app, "manifests", labels="tier=gold") as stream:
        first = (await stream.until_synced())[-1].id
        for number in range(10):
            await fleet.create("manifests", f"m-{number}")
        await asyncio.sleep(3600)

        await stream.read_waiting()
        last = stream.last_id
        await fleet.backend.changes.expire(await fleet.later(7200), limit=100)

        async with watching(fleet.app, "manifests", after=first) as lost:
            assert lost.status == 410
        async with watching(fleet.app, "manifests", after=last) as resumed:
            assert resumed.status == 200


@simulated
async def test_a_client_that_reads_nothing_for_30_seconds_is_cut_off() -> None:
    async with ApiClient() as fleet, watching(fleet.app) as stream:
        await stream.until_synced()
        stream.stop_reading()
        await fleet.create()

        await asyncio.sleep(29)
        before = stream.has_ended
        await asyncio.sleep(5)

        assert (before, stream.has_ended) == (False, True)
        cut_off = fleet.registry.get_sample_value("hyperfleet_api_streams_cut_off_total", {"kind": "Cluster"})
        assert cut_off == 1


@simulated
async def test_a_slow_client_misses_nothing_that_is_no_longer_in_memory() -> None:
    async with ApiClient() as fleet, watching(fleet.app, "manifests", fields="name") as stream:
        await stream.until_synced()
        stream.stop_reading()
        names = [f"m-{number}" for number in range(60)]
        for name in names:
            await fleet.create("manifests", name, spec={"padding": "x" * 100_000})
            await asyncio.sleep(0.02)  # lets the feed read it

        stream.read_on()
        mirror = Mirror()
        while len(mirror.resources) < len(names):
            mirror.apply(await stream.next())

        assert sorted(each["name"] for each in mirror.resources.values()) == sorted(names)
        last = await fleet.create("manifests", "last")
        assert await stream.take(1) == [("changed", last["id"])]


@simulated
async def test_many_changes_of_others_do_not_delay_a_stream() -> None:
    async with ApiClient() as fleet, watching(fleet.app, "manifests", labels="tier=gold") as stream:
        await stream.until_synced()
        stream.stop_reading()
        for number in range(2):
            await fleet.create("manifests", f"gold-{number}", labels={"tier": "gold"})
        for number in range(200):
            await fleet.create("manifests", f"other-{number}")
        last = await fleet.create("manifests", "last", labels={"tier": "gold"})
        await asyncio.sleep(1)
        resumed = asyncio.get_running_loop().time()

        stream.read_on()
        while (await stream.next()).resource_id != last["id"]:
            pass

        assert asyncio.get_running_loop().time() - resumed < 0.1


@simulated
async def test_a_stream_misses_nothing_while_the_feed_cannot_begin() -> None:
    async with (
        feed_that_cannot_begin() as (fleet, faults, last),
        watching(fleet.app, "manifests", after=last) as resumed,
    ):
        await asyncio.sleep(5)
        created = await fleet.create("manifests", "one")
        faults.is_broken = False

        assert await resumed.take(1) == [("changed", created["id"])]


@simulated
async def test_a_stream_goes_on_when_the_database_recovers() -> None:
    faults = BrokenReads()
    async with ApiClient(backend=backends.memory(faults=faults)) as fleet, watching(fleet.app) as stream:
        await stream.until_synced()
        await asyncio.sleep(1)
        faults.is_broken = True
        cluster = await fleet.create()
        await asyncio.sleep(30)
        assert faults.failures > 1

        faults.is_broken = False

        assert await stream.take(1) == [("changed", cluster["id"])]


@simulated
async def test_a_stream_that_may_have_missed_something_ends() -> None:
    faults = BrokenReads()
    async with ApiClient(backend=backends.memory(faults=faults)) as fleet:
        async with watching(fleet.app) as stream:
            last = (await stream.until_synced())[-1].id
            await asyncio.sleep(1)
            faults.is_broken = True
            for number in range(3):
                await fleet.create(name=f"c-{number}")
            faults.is_broken = False
            await fleet.backend.changes.expire(await fleet.later(3600), limit=100)

            await stream.wait_for_end()

        async with watching(fleet.app, after=last) as resumed:
            (await resumed.reply()).assert_problem(410)
        async with watching(fleet.app) as again:
            assert len(await again.until_synced()) == 4


@simulated
async def test_a_database_that_is_down_is_503_before_anything_is_sent() -> None:
    faults = BrokenReads()
    async with ApiClient(backend=backends.memory(faults=faults)) as fleet:
        faults.is_broken = True
        async with watching(fleet.app) as stream:
            (await stream.reply()).assert_problem(503)


@simulated
async def test_the_log_is_not_read_without_streams() -> None:
    async with ApiClient() as fleet:
        async with watching(fleet.app) as stream:
            await stream.until_synced()
            await asyncio.sleep(3)
            during = fleet.feed.position

        await asyncio.sleep(3)

        assert during is not None
        assert fleet.feed.position is None


@pytest.mark.parametrize("call", ["newest", "read"])
@simulated
async def test_a_database_that_does_not_respond_is_503_in_time(call: str) -> None:
    backend, log = with_slow_log()
    async with ApiClient(backend=backend) as fleet:
        async with watching(fleet.app) as stream:
            last = (await stream.until_synced())[-1].id
        log.seconds[call] = 3600
        began = asyncio.get_running_loop().time()

        async with watching(fleet.app, after=last if call == "read" else "") as stream:
            (await stream.reply()).assert_problem(503)

        assert asyncio.get_running_loop().time() - began < 15


@simulated
async def test_a_stream_that_cannot_follow_ends_and_others_are_503() -> None:
    async with feed_that_cannot_begin() as (fleet, faults, last):
        async with watching(fleet.app, "manifests", after=last) as waiting:
            await waiting.wait_for_end()
        created = await fleet.create("manifests", "one")

        async with watching(fleet.app, "manifests", after=last) as refused:
            (await refused.reply()).assert_problem(503)
        faults.is_broken = False
        await asyncio.sleep(10)

        async with watching(fleet.app, "manifests", after=last) as resumed:
            assert await resumed.take(1) == [("changed", created["id"])]


@simulated
async def test_a_stream_whose_resources_cannot_be_read_ends() -> None:
    backend, log = with_slow_log()
    async with ApiClient(backend=backend) as fleet:
        async with watching(fleet.app) as stream:
            last = (await stream.until_synced())[-1].id
        await fleet.create()
        log.seconds["current"] = 3600

        async with watching(fleet.app, after=last) as resumed:
            await resumed.wait_for_end()


@simulated
async def test_a_long_way_through_changes_of_others_has_comments() -> None:
    backend, log = with_slow_log()
    async with ApiClient(backend=backend) as fleet:
        async with watching(fleet.app) as stream:
            last = (await stream.until_synced())[-1].id
        for number in range(20):
            await fleet.create("manifests", f"m-{number}")
        wanted = await fleet.create()
        log.seconds["read"] = 4

        async with watching(fleet.app, after=last) as resumed:
            await asyncio.sleep(15)
            await resumed.read_waiting()
            early = resumed.comments
            found = await resumed.next()

        assert early >= 1
        assert found.resource_id == wanted["id"]


@simulated
async def test_one_failure_delays_changes_little_however_many_there_were() -> None:
    faults = BrokenReads("changes.read")
    async with ApiClient(backend=backends.memory(faults=faults)) as fleet, watching(fleet.app) as stream:
        await stream.until_synced()
        await asyncio.sleep(1)
        faults.is_broken = True
        await asyncio.sleep(120)
        faults.is_broken = False
        await asyncio.sleep(10)
        faults.is_broken = True
        await asyncio.sleep(1.05)
        assert faults.failures > 20
        faults.is_broken = False

        cluster = await fleet.create()
        began = asyncio.get_running_loop().time()

        assert await stream.take(1) == [("changed", cluster["id"])]
        assert asyncio.get_running_loop().time() - began < 0.5


@simulated
async def test_a_source_of_tokens_that_hangs_does_not_delay_the_end_of_others() -> None:
    identities = [Identity("me", Role.VIEWER), Identity("you", Role.VIEWER)]
    async with (
        ApiClient(identities=identities) as fleet,
        watching(fleet.app, token="me") as staying,
        watching(fleet.app, token="you") as ending,
    ):
        await staying.until_synced()
        await ending.until_synced()

        fleet.identities.hanging.add("me")
        await asyncio.sleep(3)
        del fleet.known["you"]
        await asyncio.sleep(7)

        assert (staying.has_ended, ending.has_ended) == (False, True)
