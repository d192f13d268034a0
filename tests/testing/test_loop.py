"""Virtual time: exact, deterministic, and without I/O."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest

from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.loop import Deadlock, Livelock, SimulatedClock, SimulatedLoop, simulated
from tests.contract.clock import ClockContract, Scenario


class TestSimulatedClock(ClockContract):
    def run(self, scenario: Scenario) -> None:
        async def run_scenario() -> None:
            await scenario(SimulatedClock())

        loop.run(run_scenario())


@simulated
async def test_a_year_passes_exactly_to_the_microsecond() -> None:
    await asyncio.sleep(timedelta(days=365, microseconds=1).total_seconds())

    assert SimulatedClock().now() == START + timedelta(days=365, microseconds=1)


def test_the_start_can_be_chosen() -> None:
    async def now() -> datetime:
        return SimulatedClock().now()

    start = loop.run(now(), start=datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=1))))

    assert start == datetime(2024, 2, 29, tzinfo=UTC)
    assert start.tzinfo is UTC


def test_a_naive_start_is_rejected() -> None:
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
async def test_a_timeout_fires_exactly_at_its_deadline() -> None:
    clock = SimulatedClock()
    async with asyncio.timeout(10):
        await asyncio.sleep(9)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await asyncio.sleep(3600)

    assert clock.now() == START + timedelta(seconds=19)


def test_queues_and_task_groups_interleave_deterministically() -> None:
    @simulated
    async def interleave() -> list[tuple[float, str]]:
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

    first = interleave()

    assert len(first) == 10
    assert all(interleave() == first for _ in range(5))


@simulated
async def test_callbacks_run_at_their_times() -> None:
    running = asyncio.get_running_loop()
    called: list[float] = []
    for delay in (3, 1, 2):
        running.call_later(delay, lambda: called.append(running.time()))

    await asyncio.sleep(10)

    assert called == [1, 2, 3]


def test_a_deadlock_names_each_waiting_task_and_its_line() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    @simulated
    async def deadlock() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait_forever(), name="the-waiting-one")

    with pytest.raises(Deadlock, match=r"the-waiting-one at \S+test_loop\.py:\d+ in Event\.wait"):
        deadlock()


def test_spinning_without_advancing_time_is_a_livelock() -> None:
    async def spin_forever() -> None:
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
        runner.run(spin_forever())


def test_remaining_tasks_are_cancelled_and_may_clean_up() -> None:
    cleaned: list[datetime] = []

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            cleaned.append(SimulatedClock().now())

    @simulated
    async def leave_a_task_running() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(5)
        assert not task.done()

    leave_a_task_running()

    assert cleaned == [START + timedelta(seconds=6)]


@pytest.mark.parametrize(
    "operation",
    [
        lambda: asyncio.to_thread(len, "abc"),
        lambda: asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0),
        lambda: asyncio.open_connection("127.0.0.1", 1),
        lambda: asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 1)
        ),
    ],
    ids=["thread", "server", "connection", "datagram"],
)
@simulated
async def test_io_and_threads_are_rejected(operation: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(RuntimeError, match="no I/O and no threads"):
        await operation()


@simulated
async def test_a_call_from_another_thread_is_rejected() -> None:
    running = asyncio.get_running_loop()
    errors: list[str] = []

    def call() -> None:
        try:
            running.call_soon_threadsafe(len, "abc")
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(5)

    assert "another thread" in errors[0]


async def test_a_simulated_clock_needs_a_simulated_loop() -> None:
    with pytest.raises(RuntimeError, match=r"only inside sentinel\.testing\.loop\.run"):
        SimulatedClock().now()


def run_order(seed: int | None) -> list[int]:
    order = None if seed is None else Random(seed)  # noqa: S311  # repeatable randomness is the point

    async def run_steps() -> list[int]:
        done: list[int] = []

        async def step(number: int) -> None:
            await asyncio.sleep(0)
            done.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(step(number))
        return done

    return loop.run(run_steps(), order=order)


def test_ready_tasks_run_in_order_or_shuffled() -> None:
    in_order, shuffled = run_order(None), run_order(1)

    assert in_order == list(range(20))
    assert shuffled != in_order
    assert sorted(shuffled) == in_order


def test_a_seed_determines_the_order() -> None:
    assert run_order(1) == run_order(1) != run_order(2)
