"""Probes respond from a thread, and liveness notices an event loop that stands still."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import pytest

from sentinel.runtime.listening import Address, ListenError
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.listener import Listener
from sentinel.runtime.probes.loop_watch import LoopWatch
from sentinel.runtime.probes.pages import probe_pages
from sentinel.runtime.probes.probe_thread import ProbeThread
from tests.support.clocks import MonotonicSeconds

LOOPBACK = Address("127.0.0.1", 0)
LOG = get_logger("test")
SECOND = timedelta(seconds=1)
TIMEOUT = 60


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configured = configure_logging("info", "json", stream=stream, environ={})
    yield stream
    configured.restore()


def get(address: Address, path: str) -> tuple[int, dict[str, dict[str, dict[str, str]]]]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def run_other_callbacks() -> None:
    """Let the loop run callbacks that were added before."""
    await asyncio.sleep(0)


async def test_a_loop_that_answers_is_no_problem() -> None:
    time = MonotonicSeconds()
    watch = LoopWatch(log=LOG, now=time)

    for _ in range(3):
        watch.check()
        await run_other_callbacks()
        time.now += 60

    assert watch.problem() is None


async def test_a_loop_is_a_problem_after_exactly_ten_seconds() -> None:
    time = MonotonicSeconds()
    watch = LoopWatch(log=LOG, now=time)
    watch.check()

    time.now += 9.999
    before = watch.problem()
    time.now += 0.001
    at_limit = watch.problem()
    time.now += 2.5
    later = watch.problem()
    await run_other_callbacks()
    resumed = watch.problem()

    assert (before, resumed) == (None, None)
    assert at_limit is not None
    assert at_limit.startswith("the event loop has stood still for 10s: ")
    assert later is not None
    assert "for 12s" in later


async def test_a_stall_is_logged_once_with_the_place_and_its_end(log_text: io.StringIO) -> None:
    time = MonotonicSeconds()
    watch = LoopWatch(log=LOG, now=time)

    def check_from_a_thread() -> None:
        for _ in range(3):
            watch.check()
            time.now += 10
        watch.check()

    thread = threading.Thread(target=check_from_a_thread)
    thread.start()
    thread.join(TIMEOUT)  # blocks the loop
    await run_other_callbacks()
    watch.check()
    await run_other_callbacks()

    blocked, resumed = (json.loads(line) for line in log_text.getvalue().splitlines())
    assert (blocked["event"], blocked["seconds"]) == ("event_loop.blocked", 10)
    assert any("test_a_stall_is_logged_once_with_the_place_and_its_end" in frame for frame in blocked["stack"])
    assert (resumed["event"], resumed["seconds"]) == ("event_loop.resumed", 30)


async def test_a_probe_responds_while_the_loop_is_blocked() -> None:
    health = Health()
    health.add(readiness={"broker": lambda: "unreachable"})
    listener = Listener(LOOPBACK, probe_pages(health), log=LOG)

    async with ProbeThread([listener], health=health, log=LOG):
        responses: list[tuple[int, object]] = []
        client = threading.Thread(
            target=lambda: responses.extend(get(listener.address, path) for path in ("/healthz", "/readyz"))
        )
        client.start()
        client.join(TIMEOUT)  # blocks the loop

    assert responses == [
        (200, {"status": "ok", "checks": {"event_loop": {"status": "ok", "message": ""}}}),
        (
            503,
            {
                "status": "error",
                "checks": {
                    "broker": {"status": "error", "message": "unreachable"},
                    "event_loop": {"status": "ok", "message": ""},
                },
            },
        ),
    ]


async def test_closing_ends_the_thread_and_removes_the_check() -> None:
    health = Health()
    before = threading.active_count()

    async with ProbeThread([Listener(LOOPBACK, {}, log=LOG)], health=health, log=LOG):
        assert health.has("event_loop")

    assert not health.has("event_loop")
    for thread in threading.enumerate():
        if thread.name == "sentinel-probes":
            await asyncio.to_thread(thread.join, TIMEOUT)
    assert threading.active_count() <= before + 1  # the executor's


async def test_an_address_in_use_is_raised_where_it_is_entered() -> None:
    async with Listener(LOOPBACK, {}, log=LOG) as first:
        second = ProbeThread([Listener(first.address, {}, log=LOG)], health=Health(), log=LOG)
        with pytest.raises(ListenError, match="address already in use"):
            await second.__aenter__()
