"""Parts that are added and removed while the service runs. On virtual time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter as Tally
from contextlib import suppress
from datetime import timedelta
from random import Random

import prometheus_client
import pytest

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts, PartExists
from sentinel.runtime.lifecycle.part import Loop, Part, PartFactory
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log_format import describe
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.process import ExitCode
from sentinel.testing.loop import simulated
from tests.runtime.lifecycle.journal import (
    LOG,
    RESTART,
    SECOND,
    Journal,
    captured_logs,
    elapsed,
    fails,
    returns,
    shuffled,
)


def stops_after(seconds: float) -> Loop:
    async def loop(stopping: Stopping) -> None:
        await stopping.wait()
        await asyncio.sleep(seconds)

    return loop


async def start(parts: DynamicParts, name: str, build: PartFactory, *, restart: Backoff | None = None) -> None:
    """Add a part and wait until it runs."""
    parts.add(name, build, restart=restart)
    await asyncio.sleep(1)


async def start_removal(parts: DynamicParts) -> asyncio.Task[bool]:
    """Start to remove the part `pulse`, and wait a second."""
    removal = asyncio.create_task(parts.remove("pulse"))
    await asyncio.sleep(1)
    return removal


async def fails_when_stopped(stopping: Stopping) -> None:
    await stopping.wait()
    raise LookupError("unconfirmed")


@simulated
async def test_an_added_part_runs_until_it_alone_is_removed(journal: Journal) -> None:
    async with journal.serving(journal.part("operator")) as parts:
        assert parts.add("pulse a", lambda: journal.part("a"))
        assert parts.add("pulse b", lambda: journal.part("b"))
        await asyncio.sleep(1)

        assert await parts.remove("pulse a")

        assert journal.entries == ["start operator", "start a", "start b", "stopped a", "close a"]
        assert parts.names == ("pulse b",)

    assert journal.code == ExitCode.SUCCESS


@simulated
async def test_added_parts_drain_with_the_rest_and_close_in_reverse_order(journal: Journal) -> None:
    async with journal.serving(journal.part("operator"), shared=(journal.shared("broker"),)) as parts:
        await start(parts, "a", lambda: journal.part("a"))
        await start(parts, "b", lambda: journal.part("b"))
        await parts.replace("a", lambda: journal.part("a2"))
        await asyncio.sleep(1)
        journal.entries.clear()

    assert journal.code == ExitCode.SUCCESS
    assert sorted(journal.entries[:3]) == ["stopped a2", "stopped b", "stopped operator"]
    assert journal.entries[3:] == ["close a2", "close b", "close operator", "closed broker"]


@simulated
async def test_a_taken_name_is_rejected(journal: Journal) -> None:
    async with journal.serving(journal.part("operator")) as parts:
        await start(parts, "pulse", lambda: journal.part("pulse", stops_after(5)))

        with pytest.raises(PartExists, match="expected a part name that is not taken, got 'pulse'"):
            parts.add("pulse", lambda: journal.part("other"))
        with pytest.raises(PartExists, match="operator"):
            parts.add("operator", lambda: journal.part("other"))

        removal = await start_removal(parts)
        with pytest.raises(PartExists, match="pulse"):
            parts.add("pulse", lambda: journal.part("other"))
        await removal
        assert parts.add("pulse", lambda: journal.part("other"))
        await asyncio.sleep(1)

    assert "start other" in journal.entries


@simulated
async def test_a_part_is_removed_at_once_while_it_starts(journal: Journal) -> None:
    async with journal.serving() as parts:
        await start(parts, "pulse", lambda: journal.part("pulse", start_seconds=3600))
        before = elapsed()

        assert await parts.remove("pulse")

        assert elapsed() == before
        assert journal.entries == ["start pulse", "close pulse"]


@simulated
async def test_an_added_part_says_when_it_starts_and_fails(journal: Journal) -> None:
    seen: list[str] = []
    loops: list[Loop] = [fails, journal.waits_for_stop("pulse")]

    async with journal.serving() as parts:
        parts.add(
            "pulse",
            lambda: journal.part("pulse", loops.pop(0)),
            restart=RESTART,
            observe=lambda failure: seen.append("started" if failure is None else describe(failure)),
        )
        await asyncio.sleep(3)

    assert seen == ["started", "LookupError: lost", "started"]


@simulated
async def test_removing_an_unknown_part_changes_nothing(journal: Journal) -> None:
    async with journal.serving() as parts:
        assert not await parts.remove("pulse")

    assert journal.code == ExitCode.SUCCESS


@simulated
async def test_a_removed_part_that_ignores_stop_is_cancelled_after_a_timeout(journal: Journal) -> None:
    with captured_logs() as records:
        async with journal.serving(drain_timeout=7 * SECOND) as parts:
            await start(parts, "pulse", lambda: journal.part("pulse", journal.ignores_stop("pulse")))
            started = elapsed()

            await parts.remove("pulse")

            assert elapsed() - started == 7 * SECOND

    assert journal.entries == ["start pulse", "cancelled pulse", "close pulse"]
    assert [record["parts"] for record in records if record["event"] == "drain.expired"] == [["pulse"]]


@simulated
async def test_a_removed_part_that_ignores_cancellation_is_still_closed(journal: Journal) -> None:
    release = asyncio.Event()

    async with journal.serving() as parts:
        await start(parts, "pulse", lambda: journal.part("pulse", journal.ignores_cancellation(release)))

        assert await parts.remove("pulse")

        assert journal.entries == ["start pulse", "no", "close pulse"]
        assert parts.names == ()
        release.set()


@simulated
async def test_checks_of_added_parts_are_prefixed_and_others_are_not(journal: Journal) -> None:
    operator = Part(name="operator", loops=(Stopping.wait,), checks={"watch": lambda: None})
    pulse = Part(
        name="pulse", loops=(Stopping.wait,), checks={"poll": lambda: None}, liveness={"loop": lambda: None}
    )

    async with journal.serving(operator) as parts:
        parts.add("prod/clusters", lambda: pulse)
        assert "prod/clusters" in journal.health.readiness().checks
        await asyncio.sleep(1)

        assert set(journal.health.readiness().checks) == {
            "startup", "operator", "watch", "prod/clusters", "prod/clusters.poll"
        }  # fmt: skip
        assert set(journal.health.liveness().checks) == {"prod/clusters.loop"}

        await parts.remove("prod/clusters")

        assert set(journal.health.readiness().checks) == {"startup", "operator", "watch"}
        assert journal.health.liveness().checks == {}


@simulated
async def test_a_part_that_is_being_removed_fails_no_probe(journal: Journal) -> None:
    stopped = Stopping()

    async def loop(stopping: Stopping) -> None:
        await stopping.wait()
        stopped.request()
        await asyncio.sleep(5)

    def ended() -> str | None:
        return "ended" if stopped.requested else None

    async with journal.serving() as parts:
        await start(
            parts, "pulse", lambda: Part(name="p", loops=(loop,), checks={"poll": ended}, liveness={"loop": ended})
        )
        removal = await start_removal(parts)

        assert stopped.requested
        assert not removal.done()
        assert journal.health.readiness().is_ok
        assert journal.health.liveness().is_ok
        await removal


@simulated
async def test_a_part_removed_while_it_is_built_never_shows_its_checks(journal: Journal) -> None:
    async def build() -> Part:
        await asyncio.sleep(5)
        return Part(name="slow", loops=(stops_after(5),), checks={"poll": lambda: "not yet"})

    async with journal.serving() as parts:
        await start(parts, "slow", build)
        assert journal.problems() == {"slow": "starting"}

        removal = asyncio.create_task(parts.remove("slow"))
        await asyncio.sleep(5)

        assert not removal.done()
        assert journal.problems() == {}
        assert await removal


@simulated
async def test_the_metrics_of_an_added_part_are_shown_until_it_is_closed(journal: Journal) -> None:
    metrics = Metrics(component="operator")
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("events", "Events.", registry=registry)

    def are_shown() -> bool:
        return b"events_total" in metrics.render()[0]

    async with journal.serving(metrics=metrics) as parts:
        await start(parts, "pulse", lambda: Part(name="pulse", loops=(stops_after(5),), registry=registry))
        removal = await start_removal(parts)
        assert are_shown()

        await removal

        assert not are_shown()


@simulated
async def test_an_added_part_is_built_again_with_its_own_backoff(journal: Journal) -> None:
    attempts: list[timedelta] = []

    def build() -> Part:
        attempts.append(elapsed())
        return journal.part("flaky", fails)

    async with journal.serving(journal.part("operator")) as parts:
        parts.add("flaky", build, restart=RESTART)
        await asyncio.sleep(1.5)
        assert journal.problems() == {"flaky": "failure 1 in a row: LookupError: lost"}
        await asyncio.sleep(5.5)

    assert journal.code == ExitCode.SUCCESS
    assert attempts == [1 * SECOND, 3 * SECOND, 6 * SECOND]
    assert journal.entries.count("start operator") == 1


@simulated
async def test_an_added_part_that_is_misconfigured_is_tried_again_with_a_backoff(journal: Journal) -> None:
    async with journal.serving() as parts:
        parts.add("pulse", lambda: journal.part("pulse", start=Misconfigured("another type")), restart=RESTART)
        await asyncio.sleep(2)

    assert journal.code == ExitCode.SUCCESS
    assert journal.entries == ["start pulse", "close pulse"] * 2


@simulated
async def test_a_part_without_its_own_backoff_restarts_with_the_services(journal: Journal) -> None:
    async with journal.serving(restart=RESTART) as parts:
        parts.add("flaky", lambda: journal.part("flaky", fails))
        await asyncio.sleep(3.5)

    assert journal.code == ExitCode.SUCCESS
    assert journal.entries.count("start flaky") == 2


@simulated
async def test_without_any_backoff_the_failure_of_an_added_part_ends_the_service(journal: Journal) -> None:
    async with journal.serving(journal.part("operator")) as parts:
        parts.add("flaky", lambda: journal.part("flaky", fails))
        await journal.stopping.wait()

    assert journal.code == ExitCode.FAILURE
    assert journal.entries[2:] == ["stopped operator", "close flaky", "close operator"]


@simulated
async def test_a_part_that_fails_while_it_is_removed_does_not_end_the_service(journal: Journal) -> None:
    with captured_logs() as records:
        async with journal.serving() as parts:
            await start(parts, "pulse", lambda: journal.part("pulse", fails_when_stopped))

            assert await parts.remove("pulse")

            assert not journal.stopping.requested

    assert journal.code == ExitCode.SUCCESS
    assert [record["name"] for record in records if record["event"] == "part.failed"] == ["pulse"]


@simulated
async def test_a_part_that_waits_for_its_restart_is_removed_immediately(journal: Journal) -> None:
    async with journal.serving() as parts:
        parts.add("flaky", lambda: journal.part("flaky", fails), restart=Backoff(3600 * SECOND, 3600 * SECOND))
        await asyncio.sleep(5)
        started = elapsed()

        await parts.remove("flaky")

        assert elapsed() == started


@simulated
async def test_a_name_stays_known_while_its_part_is_replaced(journal: Journal) -> None:
    seen: list[tuple[bool, str]] = []

    def look() -> None:
        check = journal.health.readiness().checks.get("pulse")
        seen.append(("pulse" in parts.names, "unknown" if check is None else check.message))

    def build() -> Part:
        look()
        return journal.part("new")

    async def close() -> None:
        look()
        journal.note("close old")

    async with journal.serving() as parts:
        old = Part(name="old", loops=(stops_after(5),), checks={"poll": lambda: "no"}, close=close)
        await start(parts, "pulse", lambda: old)
        replacement = asyncio.create_task(parts.replace("pulse", build))
        await asyncio.sleep(1)
        look()
        assert await replacement
        await asyncio.sleep(1)
        look()

    assert seen == [(True, "being replaced"), (True, "being replaced"), (True, "starting"), (True, "")]
    assert journal.entries == ["close old", "start new", "stopped new", "close new"]


@simulated
async def test_replacing_an_unknown_part_adds_it(journal: Journal) -> None:
    async with journal.serving() as parts:
        assert await parts.replace("pulse", lambda: journal.part("pulse"))
        await asyncio.sleep(1)

        assert journal.entries == ["start pulse"]


@simulated
async def test_a_removal_during_a_replacement_removes_the_new_part(journal: Journal) -> None:
    async with journal.serving() as parts:
        await start(parts, "pulse", lambda: journal.part("old", stops_after(5)))
        replacement = asyncio.create_task(parts.replace("pulse", lambda: journal.part("new")))
        await asyncio.sleep(1)

        removals = await asyncio.gather(parts.remove("pulse"), parts.remove("pulse"))

        assert await replacement
        assert sorted(removals) == [False, True]
        assert parts.names == ()
        assert journal.entries[-1] in ("close old", "close new")

    assert Tally(journal.entries)["close old"] == 1


@simulated
async def test_a_replacement_during_a_removal_adds_the_new_part(journal: Journal) -> None:
    async with journal.serving() as parts:
        await start(parts, "pulse", lambda: journal.part("old", stops_after(5)))
        removal = await start_removal(parts)

        assert await parts.replace("pulse", lambda: journal.part("new"))
        assert removal.done()

        await asyncio.sleep(1)
        assert journal.entries == ["start old", "close old", "start new"]


@simulated
async def test_a_removal_continues_if_its_caller_is_cancelled(journal: Journal) -> None:
    async with journal.serving() as parts:
        await start(parts, "pulse", lambda: journal.part("pulse", stops_after(5)))
        caller = await start_removal(parts)
        caller.cancel()
        await asyncio.sleep(5)

        assert caller.cancelled()
        assert parts.names == ()
        assert journal.entries == ["start pulse", "close pulse"]


@simulated
async def test_a_part_that_removes_itself_is_cancelled_and_closed(journal: Journal) -> None:
    async def removes_itself(stopping: Stopping) -> None:
        await parts.remove("pulse")

    async with journal.serving(drain_timeout=7 * SECOND) as parts:
        parts.add("pulse", lambda: journal.part("pulse", removes_itself))
        await asyncio.sleep(8)

        assert parts.names == ()
        assert journal.entries == ["start pulse", "close pulse"]

    assert journal.code == ExitCode.SUCCESS


@simulated
async def test_a_stopping_service_waits_for_a_part_that_is_being_removed(journal: Journal) -> None:
    async def close() -> None:
        journal.note("closing pulse")
        await asyncio.sleep(2)
        journal.note("closed pulse")

    operator = journal.part("operator", Stopping.wait)
    async with journal.serving(operator, shared=(journal.shared("broker"),)) as parts:
        await start(parts, "pulse", lambda: Part(name="pulse", loops=(Stopping.wait,), close=close))
        removal = await start_removal(parts)

    assert removal.done()
    assert journal.entries[2:] == ["closing pulse", "closed pulse", "close operator", "closed broker"]


@simulated
async def test_a_removed_part_leaves_nothing_behind(journal: Journal) -> None:
    kept: list[weakref.ref[Stopping]] = []

    async def loop(stopping: Stopping) -> None:
        kept.append(weakref.ref(stopping))
        await stopping.wait()

    async with journal.serving() as parts:
        await start(parts, "pulse", lambda: journal.part("pulse", loop))

        await parts.remove("pulse")

        gc.collect()
        assert kept[0]() is None


@simulated
async def test_nothing_is_started_once_the_service_is_stopping(journal: Journal) -> None:
    results: list[bool] = []

    async def adds_late(stopping: Stopping) -> None:
        await stopping.wait()
        results.append(parts.add("late", lambda: journal.part("late")))
        results.append(await parts.replace("pulse", lambda: journal.part("late")))
        await asyncio.sleep(1)

    async with journal.serving(journal.part("operator", adds_late)) as parts:
        await start(parts, "pulse", lambda: journal.part("pulse"))

    results += [parts.add("late", lambda: journal.part("late")), await parts.remove("pulse")]
    assert results == [False, False, False, False]
    assert "start late" not in journal.entries
    assert Tally(journal.entries)["close pulse"] == 1


@simulated
async def test_an_added_finite_part_that_returns_is_closed_and_its_name_is_free(journal: Journal) -> None:
    async with journal.serving() as parts:
        parts.add("job", lambda: journal.part("job", returns, is_finite=True))
        await asyncio.sleep(2)

        assert journal.entries == ["start job", "close job"]
        assert parts.names == ()
        assert parts.add("job", lambda: journal.part("job", returns, is_finite=True))
        await asyncio.sleep(2)

    assert journal.code == ExitCode.SUCCESS


@pytest.mark.parametrize("seed", range(40))
@shuffled
async def test_a_finite_part_replaced_as_it_returns_leaves_the_new_one_alone(
    journal: Journal, random: Random
) -> None:
    async with journal.serving() as parts:
        await start(parts, "job", lambda: journal.part("old", returns, is_finite=True))
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)

        assert await parts.replace("job", lambda: journal.part("new"))

        await asyncio.sleep(1)
        assert parts.names == ("job",)
        assert journal.entries == ["start old", "close old", "start new"]


@simulated
async def test_a_run_of_finite_parts_is_not_over_while_an_added_part_runs(journal: Journal) -> None:
    async def adds(stopping: Stopping) -> None:
        await asyncio.sleep(2)
        parts.add("job", lambda: journal.part("job", returns, is_finite=True))

    async with journal.serving(journal.part("planner", adds, is_finite=True)) as parts:
        await journal.stopping.wait()
        assert elapsed() == 3 * SECOND

    assert journal.code == ExitCode.SUCCESS
    assert journal.entries[:2] == ["start planner", "start job"]


@simulated
async def test_a_cancelled_run_closes_added_parts_and_those_being_removed(journal: Journal) -> None:
    dynamic = DynamicParts()
    run = asyncio.create_task(
        runner.run(parts=[lambda: journal.part("operator")], dynamic=dynamic, log=LOG, signals=())
    )
    await asyncio.sleep(1)
    dynamic.add("a", lambda: journal.part("a", journal.ignores_stop("a")))
    dynamic.add("b", lambda: journal.part("b", journal.ignores_stop("b")))
    await asyncio.sleep(1)
    removal = asyncio.create_task(dynamic.remove("a"))
    await asyncio.sleep(1)
    journal.entries.clear()

    run.cancel()
    await asyncio.wait({run, removal})

    assert run.cancelled()
    assert sorted(journal.entries[:3]) == ["cancelled a", "cancelled b", "stopped operator"]
    assert sorted(journal.entries[3:]) == ["close a", "close b", "close operator"]


@simulated
async def test_parts_can_be_added_only_to_one_started_service(journal: Journal) -> None:
    with pytest.raises(RuntimeError, match="has not started"):
        DynamicParts().add("pulse", lambda: journal.part("pulse"))

    async with journal.serving() as parts:
        with pytest.raises(RuntimeError, match="not in use"):
            await runner.run(parts=[], dynamic=parts, log=LOG, signals=())


@pytest.mark.parametrize("seed", range(25))
@shuffled
async def test_every_part_is_closed_once_in_any_order_of_changes(journal: Journal, random: Random) -> None:
    opened, closed, concurrent = Tally[int](), Tally[int](), Tally[str]()
    max_concurrent = 0

    def factory(name: str) -> PartFactory:
        def build() -> Part:
            nonlocal max_concurrent
            number = opened.total()
            opened[number] += 1
            concurrent[name] += 1
            max_concurrent = max(max_concurrent, concurrent[name])

            async def close() -> None:
                await asyncio.sleep(random.random())
                closed[number] += 1
                concurrent[name] -= 1

            async def loop(stopping: Stopping) -> None:
                if not await stopping.interrupts(asyncio.sleep(random.choice([1, 3600]))):
                    raise LookupError("lost")
                await asyncio.sleep(random.choice([0, 1, 10]))

            return Part(name="pulse", loops=(loop,), checks={"poll": lambda: None}, close=close)

        return build

    async def change(parts: DynamicParts) -> None:
        for _ in range(10):
            await asyncio.sleep(random.random())
            name = random.choice("abc")
            match random.randrange(3):
                case 0 if name not in parts.names:
                    parts.add(name, factory(name))
                case 1:
                    await parts.replace(name, factory(name))
                case _:
                    await parts.remove(name)

    with suppress(TimeoutError):  # the service stops in the middle of changes
        async with journal.serving(restart=RESTART, drain_timeout=5 * SECOND) as parts:
            async with asyncio.timeout(random.choice([10, 3600])), asyncio.TaskGroup() as changes:
                for _ in range(4):
                    changes.create_task(change(parts))
            known = {name.split(".")[0] for name in journal.health.readiness().checks}
            assert known == {"startup", "idle", *parts.names}

    assert opened == closed
    assert max_concurrent == 1
    assert journal.code == ExitCode.SUCCESS
