"""SIGHUP reloads a service that supports it. On virtual time, except for real signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import process
from sentinel.runtime.lifecycle.runner import Reloader
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.loop import simulated
from tests.runtime.lifecycle.journal import LOG, SECOND, Journal, captured_logs, elapsed
from tests.runtime.lifecycle.python_program import PythonProgram


class Reloads:
    """Reloads of ten seconds each, with their start and end times."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    async def __call__(self) -> None:
        self.entries.append(f"start {elapsed().total_seconds():g}")
        await asyncio.sleep(10)
        self.entries.append(f"end {elapsed().total_seconds():g}")


@pytest.fixture
def reloads() -> Reloads:
    return Reloads()


@pytest.fixture
def reloader(reloads: Reloads) -> Reloader:
    return Reloader(reloads, log=LOG)


async def run_for(seconds: int, reloader: Reloader) -> None:
    stopping = Stopping()
    asyncio.get_running_loop().call_later(seconds, stopping.request)
    await reloader.run(stopping)


@simulated
async def test_requests_during_a_reload_cause_one_more_after_it(reloads: Reloads, reloader: Reloader) -> None:
    for time in (1, 3, 4, 5):
        asyncio.get_running_loop().call_later(time, reloader.request)

    await run_for(100, reloader)

    assert reloads.entries == ["start 1", "end 11", "start 11", "end 21"]


@simulated
async def test_a_request_before_the_service_has_started_is_not_lost(reloads: Reloads, reloader: Reloader) -> None:
    reloader.request()
    reloader.request()

    await run_for(100, reloader)

    assert reloads.entries == ["start 0", "end 10"]


@simulated
async def test_stopping_cancels_a_reload_in_progress(reloads: Reloads, reloader: Reloader) -> None:
    reloader.request()

    await run_for(3, reloader)

    assert elapsed() == 3 * SECOND
    assert reloads.entries == ["start 0"]


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [(Misconfigured("poll_interval: expected a duration"), False), (LookupError(), True)],
)
@simulated
async def test_a_failed_reload_is_logged_and_the_next_one_runs(error: Exception, has_traceback: bool) -> None:
    reloads, stopping = Reloads(), Stopping()

    async def step() -> None:
        if elapsed() < 2 * SECOND:
            raise error
        await reloads()

    reloader = Reloader(step, log=LOG)
    for time in (1, 3):
        asyncio.get_running_loop().call_later(time, reloader.request)
    asyncio.get_running_loop().call_later(100, stopping.request)

    with captured_logs() as records:
        await reloader.run(stopping)

    assert reloads.entries == ["start 3", "end 13"]
    assert [record["event"] for record in records] == [
        "service.reloading", "reload.failed", "service.reloading", "service.reloaded"
    ]  # fmt: skip
    assert ("traceback" in records[1]) is has_traceback


@simulated
async def test_a_reload_that_ignores_cancellation_does_not_block_the_end(journal: Journal) -> None:
    release = asyncio.Event()

    async def raises_sighup(stopping: Stopping) -> None:
        signal.raise_signal(signal.SIGHUP)
        await stopping.wait()

    async with journal.serving(
        journal.part("part", raises_sighup),
        on_reload=journal.ignores_cancellation(release),
        signals=[signal.SIGHUP],
        shared=(journal.shared("broker"),),
    ):
        pass

    assert "no" in journal.entries
    assert journal.entries[-2:] == ["close part", "closed broker"]
    release.set()


PROGRAM = """
import asyncio, sys, time
from sentinel.runtime import process
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import Part

configure_logging("info", "json")
log = get_logger("test")

async def reload():
    print("reloaded", flush=True)

async def fails():
    print("failed", flush=True)
    raise LookupError("lost")

async def waits_for_stop(stopping):
    print("ready", flush=True)
    await stopping.wait()

async def blocks_loop(stopping):
    print("ready", flush=True)
    while True:
        time.sleep(0.01)

part = Part(name="part", loops=(globals()[sys.argv[1]],))
service = runner.run(parts=[lambda: part], log=log, on_reload=globals()[sys.argv[2]])
sys.exit(process.main(service, log=log))
"""


def running(loop: str, reload: str = "reload") -> PythonProgram:
    return PythonProgram(PROGRAM, loop, reload)


@pytest.mark.parametrize(
    ("reload", "line", "outcome", "stop"),
    [
        ("reload", "reloaded", "service.reloaded", signal.SIGTERM),
        ("fails", "failed", "reload.failed", signal.SIGINT),
    ],
)
def test_every_sighup_reloads_and_others_stop(reload: str, line: str, outcome: str, stop: signal.Signals) -> None:
    with running("waits_for_stop", reload) as service:
        assert service.read_line() == "ready"
        for _ in range(3):
            service.send_signal(signal.SIGHUP)
            assert service.read_line() == line

        service.send_signal(stop)

        code, events = service.wait()
        assert code == 0
        assert events == [
            "service.started",
            *["service.reloading", outcome] * 3,
            "service.stopping",
            "service.stopped",
        ]


@pytest.fixture
def ignored_sighup() -> Iterator[None]:
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("ignored_sighup")
async def test_a_sighup_that_is_ignored_at_startup_stays_ignored() -> None:
    with process.handle_signals(process.SIGNALS, lambda number: None, log=LOG):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.usefixtures("ignored_sighup")
async def test_a_sighup_that_is_ignored_at_startup_reloads_a_service_that_can() -> None:
    """Otherwise an agent would report a version as applied that a proxy under `nohup` has never read."""
    reloaded = asyncio.Event()

    with process.handle_signals(process.SIGNALS, lambda number: None, on_hangup=reloaded.set, log=LOG):
        signal.raise_signal(signal.SIGHUP)

        async with asyncio.timeout(10):
            await reloaded.wait()


def test_sighup_does_not_count_as_a_signal_to_a_stuck_process() -> None:
    with running("blocks_loop") as service:
        assert service.read_line() == "ready"
        service.send_signal(signal.SIGHUP)
        service.send_signal(signal.SIGHUP)
        service.send_signal(signal.SIGTERM)
        service.send_signal(signal.SIGINT)

        code, events = service.wait()
        assert code in (130, 143)  # pending signals are delivered in the order of their numbers
        assert events == ["service.started", "process.killed"]
