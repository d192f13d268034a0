"""Virtual time: fast, exact, the same every time, and honest about what it cannot do."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest

from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.loop import Deadlock, Livelock, SimulatedClock, SimulatedLoop, simulated
from tests.contract.clock import ClockContract, Scenario


class TestSimulatedClock(ClockContract):
    def run(self, scenario: Scenario) -> None:
        async def on_the_clock() -> None:
            await scenario(SimulatedClock())

        loop.run(on_the_clock())


def test_a_year_passes_to_the_microsecond_and_the_result_comes_back() -> None:
    async def scenario() -> datetime:
        await asyncio.sleep(timedelta(days=365, microseconds=1).total_seconds())
        return SimulatedClock().now()

    assert loop.run(scenario()) == START + timedelta(days=365, microseconds=1)


def test_a_scenario_begins_when_it_is_told_to() -> None:
    async def scenario() -> datetime:
        return SimulatedClock().now()

    began = loop.run(scenario(), start=datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=1))))

    assert began == datetime(2024, 2, 29, tzinfo=UTC)
    assert began.tzinfo is UTC


def test_a_naive_start_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an aware datetime"):
        SimulatedLoop(datetime(2025, 6, 1))  # the mistake under test


@pytest.fixture
def hours() -> int:
    return 2


@simulated
async def test_a_decorated_test_gets_fixtures_and_virtual_time(hours: int) -> None:
    await asyncio.sleep(3600 * hours)

    assert SimulatedClock().now() == START + timedelta(hours=2)


def test_a_simulated_function_returns_its_result() -> None:
    @simulated
    async def double(number: int) -> int:
        await asyncio.sleep(3600)
        return 2 * number

    assert double(21) == 42


@simulated
async def test_a_timeout_fires_at_its_moment_and_not_when_the_work_is_faster() -> None:
    clock = SimulatedClock()
    async with asyncio.timeout(10):
        await asyncio.sleep(9)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await asyncio.sleep(3600)

    assert clock.now() == START + timedelta(seconds=19)


def test_queues_and_task_groups_interleave_the_same_way_every_time() -> None:
    async def scenario() -> list[tuple[float, str]]:
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=2)
        seen: list[tuple[float, str]] = []

        async def produce(name: str, period: float) -> None:
            for number in range(5):
                await asyncio.sleep(period)
                await queue.put(f"{name}{number}")

        async def consume() -> None:
            for _ in range(10):
                item = await queue.get()
                seen.append((asyncio.get_running_loop().time(), item))
                await asyncio.sleep(2)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce("a", 1))
            tasks.create_task(produce("b", 1.5))
            tasks.create_task(consume())
        return seen

    first = loop.run(scenario())

    assert len(first) == 10
    assert all(loop.run(scenario()) == first for _ in range(5))


def test_callbacks_run_at_their_times() -> None:
    async def scenario() -> list[float]:
        running = asyncio.get_running_loop()
        called: list[float] = []
        for delay in (3, 1, 2):
            running.call_later(delay, lambda: called.append(running.time()))
        await asyncio.sleep(10)
        return called

    assert loop.run(scenario()) == [1, 2, 3]


def test_a_deadlock_names_who_waits_where() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(waits_for_ever(), name="the-forgotten-one")

    with pytest.raises(Deadlock, match=r"the-forgotten-one at \S+test_loop\.py:\d+ in Event\.wait"):
        loop.run(scenario())


def test_spinning_without_time_moving_is_a_livelock() -> None:
    async def scenario() -> None:
        running = asyncio.get_running_loop()
        turns = iter(range(1_500))

        def spin() -> None:
            if next(turns, None) is not None:
                running.call_soon(spin)

        spin()
        await asyncio.sleep(1)

    with (
        pytest.raises(Livelock, match="1,000 turns of the loop without time moving"),
        asyncio.Runner(loop_factory=lambda: SimulatedLoop(max_turns=1_000)) as runner,
    ):
        runner.run(scenario())


def test_tasks_left_behind_are_cancelled_and_may_clean_up() -> None:
    cleaned: list[datetime] = []

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            cleaned.append(SimulatedClock().now())

    async def scenario() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(5)
        assert not task.done()

    loop.run(scenario())

    assert cleaned == [START + timedelta(seconds=6)]


@pytest.mark.parametrize("what", ["thread", "server", "connection", "datagram"])
def test_io_and_threads_are_refused_in_words(what: str) -> None:
    async def scenario() -> None:
        running = asyncio.get_running_loop()
        if what == "thread":
            await asyncio.to_thread(len, "abc")
        elif what == "server":
            await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        elif what == "connection":
            await asyncio.open_connection("127.0.0.1", 1)
        else:
            await running.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 1))

    with pytest.raises(RuntimeError, match="no I/O and no threads"):
        loop.run(scenario())


def test_a_call_from_another_thread_is_refused() -> None:
    refused: list[str] = []

    async def scenario() -> None:
        running = asyncio.get_running_loop()

        def intrude() -> None:
            try:
                running.call_soon_threadsafe(len, "abc")
            except RuntimeError as error:
                refused.append(str(error))

        intruder = threading.Thread(target=intrude)
        intruder.start()
        intruder.join(5)

    loop.run(scenario())

    assert "another thread" in refused[0]


async def test_a_simulated_clock_on_a_real_loop_says_where_it_belongs() -> None:
    with pytest.raises(RuntimeError, match=r"only inside sentinel\.testing\.loop\.run"):
        SimulatedClock().now()


def ran(seed: int | None) -> list[int]:
    order = None if seed is None else Random(seed)  # noqa: S311  # chance that repeats itself is the point

    async def scenario() -> list[int]:
        done: list[int] = []

        async def step(number: int) -> None:
            await asyncio.sleep(0)
            done.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(step(number))
        return done

    return loop.run(scenario(), order=order)


def test_who_is_ready_first_goes_first_unless_chance_decides() -> None:
    in_order, by_chance = ran(None), ran(1)

    assert in_order == list(range(20))
    assert by_chance != in_order
    assert sorted(by_chance) == in_order


def test_a_seed_is_the_same_order_every_time_and_another_seed_another() -> None:
    assert ran(1) == ran(1) != ran(2)
