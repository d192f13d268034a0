"""SIGHUP asks a service that can reload to do so. On virtual time, except where signals are real."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import process
from sentinel.runtime.lifecycle.runner import Reloader
from sentinel.runtime.lifecycle.stopping import Stopping
from tests.runtime.lifecycle.journal import LOG, SECOND, Journal, elapsed, on_virtual_time, recorded
from tests.runtime.lifecycle.service_process import ServiceProcess


class Reloads:
    """Reloads that last ten seconds each, and when they began and ended."""

    def __init__(self) -> None:
        self.journal: list[str] = []

    async def __call__(self) -> None:
        self.journal.append(f"begin {elapsed().total_seconds():g}")
        await asyncio.sleep(10)
        self.journal.append(f"end {elapsed().total_seconds():g}")


@on_virtual_time
async def test_requests_during_a_reload_are_answered_by_one_more_after_it() -> None:
    reloads, stopping = Reloads(), Stopping()
    reload = Reloader(reloads, log=LOG)
    asyncio.get_running_loop().call_later(100, stopping.request)
    for moment in (1, 3, 4, 5):
        asyncio.get_running_loop().call_later(moment, reload.request)

    await reload.run(stopping)

    assert reloads.journal == ["begin 1", "end 11", "begin 11", "end 21"]


@on_virtual_time
async def test_a_request_made_before_the_service_has_started_is_not_lost() -> None:
    reloads, stopping = Reloads(), Stopping()
    reload = Reloader(reloads, log=LOG)
    asyncio.get_running_loop().call_later(100, stopping.request)
    reload.request()
    reload.request()

    await reload.run(stopping)

    assert reloads.journal == ["begin 0", "end 10"]


@on_virtual_time
async def test_stopping_gives_up_a_reload_that_is_under_way() -> None:
    reloads, stopping = Reloads(), Stopping()
    reload = Reloader(reloads, log=LOG)
    asyncio.get_running_loop().call_later(3, stopping.request)
    reload.request()

    await reload.run(stopping)

    assert elapsed() == 3 * SECOND
    assert reloads.journal == ["begin 0"]


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [(Misconfigured("poll_interval: expected a duration"), False), (LookupError(), True)],
)
def test_a_reload_that_fails_is_logged_and_the_next_one_is_tried(error: Exception, has_traceback: bool) -> None:
    reloads, stopping = Reloads(), Stopping()

    async def step() -> None:
        if elapsed() < 2 * SECOND:
            raise error
        await reloads()

    @on_virtual_time
    async def scenario() -> None:
        reload = Reloader(step, log=LOG)
        for moment in (1, 3):
            asyncio.get_running_loop().call_later(moment, reload.request)
        asyncio.get_running_loop().call_later(100, stopping.request)
        await reload.run(stopping)

    with recorded() as records:
        scenario()

    assert reloads.journal == ["begin 3", "end 13"]
    assert [record["event"] for record in records] == [
        "service.reloading", "reload.failed", "service.reloading", "service.reloaded"
    ]  # fmt: skip
    assert ("traceback" in records[1]) is has_traceback


@on_virtual_time
async def test_a_reload_that_resists_cancellation_does_not_hold_up_the_end() -> None:
    journal = Journal()
    release = asyncio.Event()

    async def hangs_up(stopping: Stopping) -> None:
        signal.raise_signal(signal.SIGHUP)
        await stopping.wait()

    async with journal.serving(
        journal.part("part", hangs_up),
        on_reload=journal.stubborn(release),
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
    print("tried", flush=True)
    raise LookupError("lost")

async def patient(stopping):
    print("ready", flush=True)
    await stopping.wait()

async def stuck(stopping):
    print("ready", flush=True)
    while True:
        time.sleep(0.01)

part = Part(name="part", loops=(globals()[sys.argv[1]],))
service = runner.run(parts=[lambda: part], log=log, on_reload=globals()[sys.argv[2]])
sys.exit(process.main(service, log=log))
"""


def running(loop: str, reload: str = "reload") -> ServiceProcess:
    """A service that can reload."""
    return ServiceProcess(PROGRAM, loop, reload)


def test_a_hangup_reloads_every_time_and_a_termination_stops() -> None:
    with running("patient") as service:
        assert service.says() == "ready"
        for _ in range(3):
            service.receives(signal.SIGHUP)
            assert service.says() == "reloaded"

        service.receives(signal.SIGTERM)

        code, events = service.ends()
        assert code == 0
        assert events == [
            "service.started",
            *["service.reloading", "service.reloaded"] * 3,
            "service.stopping",
            "service.stopped",
        ]


def test_a_reload_that_fails_does_not_end_the_service() -> None:
    with running("patient", "fails") as service:
        assert service.says() == "ready"
        for _ in range(2):
            service.receives(signal.SIGHUP)
            assert service.says() == "tried"

        service.receives(signal.SIGINT)

        code, events = service.ends()
        assert (code, events.count("reload.failed")) == (0, 2)


@pytest.fixture
def ignores_hangups() -> Iterator[None]:
    """As `nohup` starts a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("ignores_hangups")
async def test_a_hangup_that_is_ignored_at_the_start_stays_ignored() -> None:
    stopped, reloaded = asyncio.Event(), asyncio.Event()

    with process.handle_signals(process.SIGNALS, lambda number: stopped.set(), on_hangup=reloaded.set, log=LOG):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_hangups_do_not_count_as_signals_that_kill_a_stuck_process() -> None:
    with running("stuck") as service:
        assert service.says() == "ready"
        service.receives(signal.SIGHUP)
        service.receives(signal.SIGHUP)
        service.receives(signal.SIGTERM)
        service.receives(signal.SIGINT)

        code, events = service.ends()
        assert code in (130, 143)  # pending signals are delivered in the order of their numbers
        assert events == ["service.started", "process.killed"]
