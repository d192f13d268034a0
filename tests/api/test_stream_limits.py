"""Streams over time: comments, slow clients, and a database that fails. On virtual time."""

from __future__ import annotations

import asyncio

from sentinel.testing.database import Fault
from sentinel.testing.loop import simulated
from tests.support.databases import backends
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
    faults = BrokenReads("changes.newest")
    async with ApiClient(backend=backends.memory(faults=faults)) as fleet:
        async with watching(fleet.app, "manifests") as stream:
            last = (await stream.until_synced())[-1].id
        await asyncio.sleep(5)
        faults.is_broken = True
        async with watching(fleet.app, "manifests", after=last) as resumed:
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
