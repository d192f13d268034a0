"""A service starts in order, ends in reverse order, and never hangs. On virtual time, except for real signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, Counter

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import Part, SharedResource, shared_resource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.process import ExitCode
from sentinel.testing.loop import simulated
from tests.runtime.lifecycle.journal import LOG, RESTART, SECOND, Journal, captured_logs, fails, returns
from tests.runtime.lifecycle.python_program import PythonProgram


def test_everything_starts_in_order_and_ends_in_reverse_order(journal: Journal) -> None:
    code = journal.run(
        journal.part("api"), journal.part("pulse"), shared=(journal.shared("http"), journal.shared("broker"))
    )

    assert code == ExitCode.SUCCESS
    assert journal.entries[:4] == ["open http", "open broker", "start api", "start pulse"]
    assert sorted(journal.entries[4:6]) == ["stopped api", "stopped pulse"]
    assert journal.entries[6:] == ["close pulse", "close api", "closed broker", "closed http"]


def test_a_part_may_be_built_slowly(journal: Journal) -> None:
    async def build() -> Part:
        await asyncio.sleep(5)
        return journal.part("slow")

    assert journal.run(build) == ExitCode.SUCCESS
    assert journal.entries == ["start slow", "stopped slow", "close slow"]


def test_a_service_is_ready_from_its_start_until_it_is_asked_to_stop(journal: Journal) -> None:
    seen: list[tuple[str, bool, bool]] = []

    def look(phase: str) -> None:
        seen.append((phase, journal.health.readiness().is_ok, journal.health.liveness().is_ok))

    async def loop(stopping: Stopping) -> None:
        await asyncio.sleep(1)
        look("running")
        await stopping.wait()
        await asyncio.sleep(5)
        look("draining")

    async def start() -> None:
        look("starting")

    async def close() -> None:
        look("closing")

    def ended() -> str | None:
        return "ended" if journal.stopping.requested else None

    part = Part(name="pulse", loops=(loop,), start=start, close=close, liveness={"loop": ended})

    assert journal.run(part) == ExitCode.SUCCESS
    assert seen == [
        ("starting", False, True),
        ("running", True, True),
        ("draining", False, True),
        ("closing", False, True),
    ]


def test_readiness_shows_the_startup_step_in_progress(journal: Journal) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        seen.append(journal.health.readiness().checks["startup"].message)
        yield

    journal.run(journal.part("pulse"), shared=(SharedResource("broker", context),))

    assert seen == ["opening broker"]


def test_a_failing_loop_ends_the_run_and_the_others_may_finish(journal: Journal) -> None:
    with captured_logs() as records:
        code = journal.run(journal.part("bad", fails), journal.part("good"), stop_after=None)

    assert code == ExitCode.FAILURE
    assert journal.entries[2:] == ["stopped good", "close good", "close bad"]
    (failure,) = [record for record in records if record["event"] == "part.failed"]
    assert failure["name"] == "bad"
    assert failure["error"] == "LookupError: lost"
    assert "raise LookupError" in failure["traceback"]


def test_a_loop_that_returns_early_has_failed(journal: Journal) -> None:
    with captured_logs() as records:
        code = journal.run(journal.part("pulse", returns), stop_after=None)

    assert code == ExitCode.FAILURE
    assert "returns returned although it was not asked to stop" in str(records)


def test_a_loop_that_leaks_a_foreign_cancellation_has_failed(journal: Journal) -> None:
    async def leaks(stopping: Stopping) -> None:
        raise asyncio.CancelledError

    with captured_logs() as records:
        code = journal.run(journal.part("pulse", leaks, journal.waits_for_stop("other")), stop_after=None)

    assert code == ExitCode.FAILURE
    assert "was cancelled, but not by the lifecycle" in str(records)


def test_a_run_of_finite_parts_ends_with_the_last_of_them(journal: Journal) -> None:
    code = journal.run(
        journal.part("one", returns, is_finite=True), journal.part("two", returns, is_finite=True), stop_after=None
    )

    assert code == ExitCode.SUCCESS
    assert journal.entries[2:] == ["close two", "close one"]


def test_a_finite_part_that_returns_does_not_end_the_others(journal: Journal) -> None:
    code = journal.run(journal.part("job", returns, is_finite=True), journal.part("pulse"), stop_after=50)

    assert code == ExitCode.SUCCESS
    assert journal.entries[2:] == ["stopped pulse", "close pulse", "close job"]


def test_a_loop_that_ignores_stop_is_cancelled_after_the_drain_timeout(journal: Journal) -> None:
    part = journal.part("pulse", journal.ignores_stop("pulse"), journal.waits_for_stop("pulse"))

    with captured_logs() as records:
        code = journal.run(part, drain_timeout=7 * SECOND, stop_after=10)

    assert code == ExitCode.SUCCESS
    assert journal.elapsed == 17 * SECOND
    assert journal.entries == ["start pulse", "stopped pulse", "cancelled pulse", "close pulse"]
    assert [record["parts"] for record in records if record["event"] == "drain.expired"] == [["pulse"]]


@simulated
async def test_a_loop_that_ignores_cancellation_does_not_block_the_rest(journal: Journal) -> None:
    release = asyncio.Event()
    part = journal.part("pulse", journal.ignores_cancellation(release))

    async with journal.serving(part, shared=(journal.shared("broker"),)):
        pass
    release.set()

    assert journal.code == ExitCode.SUCCESS
    assert journal.entries == ["open broker", "start pulse", "no", "close pulse", "closed broker"]


def test_a_failure_while_draining_is_a_failure(journal: Journal) -> None:
    async def fails_late(stopping: Stopping) -> None:
        await stopping.wait()
        raise LookupError("unconfirmed")

    assert journal.run(journal.part("pulse", fails_late)) == ExitCode.FAILURE


def test_a_failing_part_alone_is_restarted_with_backoff(journal: Journal) -> None:
    attempts: list[float] = []

    def build() -> Part:
        attempts.append(asyncio.get_running_loop().time())
        return journal.part("flaky", fails if len(attempts) < 4 else journal.waits_for_stop("flaky"))

    code = journal.run(build, journal.part("steady"), restart=RESTART)

    assert code == ExitCode.SUCCESS
    assert attempts == [0, 2, 5, 10]
    assert journal.entries.count("close flaky") == 4
    assert journal.entries.count("start steady") == 1


def test_the_backoff_starts_over_after_a_long_uptime(journal: Journal) -> None:
    attempts: list[float] = []

    async def fails_after_a_while(stopping: Stopping) -> None:
        await asyncio.sleep(20)
        raise LookupError("lost")

    def build() -> Part:
        attempts.append(asyncio.get_running_loop().time())
        return journal.part("flaky", fails_after_a_while)

    journal.run(build, restart=RESTART, stop_after=80)

    assert attempts == [0, 21, 42, 63]


def test_readiness_shows_a_part_that_waits_for_its_restart(journal: Journal) -> None:
    seen: list[dict[str, str]] = []

    async def watch(stopping: Stopping) -> None:
        for delay in (0.5, 1):
            await asyncio.sleep(delay)
            checks = journal.health.readiness().checks
            seen.append({name: check.message for name, check in checks.items() if check.status == "error"})
        await stopping.wait()

    part = journal.part("flaky", fails)
    flaky = Part(name=part.name, loops=part.loops, checks={"poll": lambda: "not yet"})

    journal.run(flaky, journal.part("watch", watch), restart=RESTART)

    assert seen == [
        {"flaky.poll": "not yet"},
        {"flaky": "failure 1 in a row: LookupError: lost"},
    ]


def test_a_part_that_cannot_be_built_is_retried_and_blocks_no_other(journal: Journal) -> None:
    attempts: list[float] = []

    def build() -> Part:
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) < 3:
            raise Misconfigured("the exchange has another type")
        return journal.part("late")

    code = journal.run(build, journal.part("steady"), restart=RESTART)

    assert code == ExitCode.SUCCESS
    assert attempts == [0, 1, 3]
    assert journal.entries[:2] == ["start steady", "start late"]


def test_a_start_that_hangs_does_not_delay_stopping(journal: Journal) -> None:
    code = journal.run(journal.part("slow", start_seconds=3600), stop_after=3)

    assert (journal.elapsed, code) == (3 * SECOND, 0)
    assert journal.entries == ["start slow", "close slow"]


def test_waiting_for_a_restart_does_not_delay_stopping(journal: Journal) -> None:
    restart = Backoff(initial=timedelta(hours=1), maximum=timedelta(hours=1))

    journal.run(journal.part("flaky", fails), restart=restart, stop_after=3)

    assert journal.elapsed == 3 * SECOND


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured("the exchange has another type"), ExitCode.MISCONFIGURED),
        (OSError("cannot listen on :8080: address already in use"), ExitCode.FAILURE),
    ],
)
def test_a_failure_to_open_is_one_log_line_and_closes_what_was_opened(
    journal: Journal, error: Exception, code: int
) -> None:
    with captured_logs() as records:
        result = journal.run(
            journal.part("pulse"),
            shared=(journal.shared("http"), journal.shared("broker", fails=error), journal.shared("more")),
        )

    assert result == code
    assert journal.entries == ["open http", "open broker", "closed http"]
    (failure,) = [record for record in records if record["level"] == "error"]
    assert failure["event"] == "start.failed"
    assert failure["name"] == "broker"
    assert "traceback" not in failure


def test_a_bug_while_opening_is_logged_with_its_traceback(journal: Journal) -> None:
    with captured_logs() as records:
        code = journal.run(journal.part("pulse"), shared=(journal.shared("broker", fails=LookupError("?")),))

    assert code == ExitCode.FAILURE
    assert any("traceback" in record for record in records)


def test_a_misconfigured_part_is_closed_and_the_exit_code_is_two(journal: Journal) -> None:
    code = journal.run(journal.part("pulse", start=Misconfigured("wrong type")), stop_after=None)

    assert code == ExitCode.MISCONFIGURED
    assert journal.entries == ["start pulse", "close pulse"]


def test_a_misconfiguration_found_while_running_is_a_failure(journal: Journal) -> None:
    async def loop(stopping: Stopping) -> None:
        raise Misconfigured("the exchange was replaced")

    assert journal.run(journal.part("pulse", loop), stop_after=None) == ExitCode.FAILURE


def test_later_parts_are_not_built_if_an_earlier_one_cannot_start(journal: Journal) -> None:
    code = journal.run(
        journal.part("first"),
        journal.part("second", start=OSError("no")),
        journal.part("third"),
        stop_after=None,
    )

    assert code == ExitCode.FAILURE
    assert "start third" not in journal.entries
    assert journal.entries[-2:] == ["close second", "close first"]


def test_stopping_cancels_opening(journal: Journal) -> None:
    code = journal.run(
        journal.part("pulse"),
        shared=(journal.shared("http"), journal.shared("broker", opening=3600)),
        stop_after=5,
    )

    assert code == ExitCode.SUCCESS
    assert journal.entries == ["open http", "open broker", "closed http"]


def test_a_close_that_fails_or_times_out_does_not_keep_the_rest_open(journal: Journal) -> None:
    async def broken() -> None:
        raise LookupError("half closed")

    part = Part(name="pulse", loops=(journal.waits_for_stop("pulse"),), close=broken)

    with captured_logs() as records:
        code = journal.run(part, shared=(journal.shared("http"), journal.shared("broker", closing=3600)))

    assert code == ExitCode.SUCCESS
    assert journal.entries == ["open http", "open broker", "stopped pulse", "closed http"]
    events = {record["event"]: record["name"] for record in records if "name" in record}
    assert events == {"close.failed": "pulse", "close.expired": "broker"}


def test_closing_ends_even_if_many_steps_hang(journal: Journal) -> None:
    hanging = [journal.shared(f"broker {number}", closing=3600) for number in range(10)]

    with captured_logs():
        journal.run(journal.part("pulse"), shared=tuple(hanging))

    assert "stopped pulse" in journal.entries
    assert 103 * SECOND <= journal.elapsed <= 110 * SECOND


@simulated
async def test_a_cancelled_run_cancels_its_loops_and_closes_everything(journal: Journal) -> None:
    part = journal.part("pulse", journal.ignores_stop("pulse"))
    shared = [journal.shared("broker")]
    run = asyncio.create_task(runner.run(parts=[lambda: part], shared=shared, log=LOG, signals=()))
    await asyncio.sleep(10)

    run.cancel()
    await asyncio.wait({run})

    assert run.cancelled()
    assert journal.entries == ["open broker", "start pulse", "cancelled pulse", "close pulse", "closed broker"]


def test_the_metrics_of_a_part_are_shown_while_it_runs(journal: Journal) -> None:
    metrics = Metrics(component="pulse")
    registry = CollectorRegistry()
    Counter("events", "Events.", registry=registry)
    shown: list[bool] = []

    async def loop(stopping: Stopping) -> None:
        shown.append(b"events_total" in metrics.render()[0])
        await stopping.wait()

    journal.run(Part(name="pulse", loops=(loop,), registry=registry), metrics=metrics)
    shown.append(b"events_total" in metrics.render()[0])

    assert shown == [True, False]


@pytest.mark.parametrize(("others", "name"), [(0, "poll"), (1, "pulse.poll")])
def test_checks_are_prefixed_only_if_there_are_several_parts(journal: Journal, others: int, name: str) -> None:
    seen: list[str] = []

    async def loop(stopping: Stopping) -> None:
        await asyncio.sleep(1)
        seen.extend(journal.health.readiness().checks)
        await stopping.wait()

    part = Part(name="pulse", loops=(loop,), checks={"poll": lambda: None})
    journal.run(part, *(journal.part(f"other {number}") for number in range(others)))

    assert name in seen


def test_an_object_with_open_and_close_can_be_shared(journal: Journal) -> None:
    class Publisher:
        async def open(self) -> None:
            journal.note("open")

        async def close(self) -> None:
            journal.note("close")

    journal.run(journal.part("pulse"), shared=(shared_resource("broker", Publisher()),))

    assert journal.entries == ["open", "start pulse", "stopped pulse", "close pulse", "close"]


PROGRAM = """
import asyncio, signal, sys, time
from datetime import timedelta
from sentinel.runtime import process
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import Part

configure_logging("info", "json")
log = get_logger("test")

async def waits_for_stop(stopping):
    print("ready", flush=True)
    await stopping.wait()

async def drains_slowly(stopping):
    print("ready", flush=True)
    await stopping.wait()
    print("draining", flush=True)
    await asyncio.sleep(60)

async def blocks_loop(stopping):
    print("blocked", flush=True)
    while True:
        time.sleep(0.01)

async def ignores_cancellation(stopping):
    print("ready", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def blocks_thread(stopping):
    print("ready", flush=True)
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    await stopping.wait()

async def fails(stopping):
    raise LookupError("lost")

async def calls_exit(stopping):
    asyncio.get_running_loop().create_task(exit_in_task())
    await stopping.wait()

async def exit_in_task():
    sys.exit(3)

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[3]))
part = Part(name="part", loops=(globals()[sys.argv[1]],))
limits = {"drain_timeout": timedelta(seconds=float(sys.argv[2])), "close_timeout": timedelta(milliseconds=50)}
service = runner.run(parts=[lambda: part], log=log, **limits)
sys.exit(process.main(service, log=log, exit_timeout=timedelta(milliseconds=50)))
"""


def running(loop: str, *, drain_timeout: float = 30, hangup: str = "SIG_DFL") -> PythonProgram:
    """`hangup` is how the process handles SIGHUP when the service starts."""
    return PythonProgram(PROGRAM, loop, str(drain_timeout), hangup)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_process_with_success(number: signal.Signals) -> None:
    with running("waits_for_stop") as process:
        assert process.read_line() == "ready"

        process.send_signal(number)

        assert process.wait() == (0, ["service.started", "service.stopping", "service.stopped"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_exits_immediately(number: signal.Signals) -> None:
    with running("drains_slowly") as process:
        assert process.read_line() == "ready"
        process.send_signal(signal.SIGTERM)
        assert process.read_line() == "draining"

        process.send_signal(number)

        assert process.wait() == (128 + number, ["service.started", "service.stopping", "process.killed"])


def test_a_second_sighup_is_ignored() -> None:
    with running("drains_slowly", drain_timeout=0.05) as process:
        assert process.read_line() == "ready"
        process.send_signal(signal.SIGHUP)
        assert process.read_line() == "draining"

        process.send_signal(signal.SIGHUP)

        code, events = process.wait()
        assert (code, events[-1]) == (0, "service.stopped")


def test_an_ignored_sighup_stays_ignored() -> None:
    with running("waits_for_stop", hangup="SIG_IGN") as process:
        assert process.read_line() == "ready"

        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)

        assert process.wait() == (0, ["service.started", "service.stopping", "service.stopped"])


def test_a_task_that_calls_exit_ends_the_process_and_is_logged() -> None:
    with running("calls_exit") as process:
        code, events = process.wait()

        assert code == 3
        assert "process.exited" in events


def test_a_second_signal_ends_a_process_with_a_blocked_loop() -> None:
    with running("blocks_loop") as process:
        assert process.read_line() == "blocked"
        process.send_signal(signal.SIGTERM)

        process.send_signal(signal.SIGINT)

        code, events = process.wait()
        assert code in (130, 143)  # pending signals are delivered in the order of their numbers
        assert events[-1] == "process.killed"


def test_a_failure_is_the_exit_code_of_the_process() -> None:
    with running("fails") as process:
        code, events = process.wait()

        assert code == 1
        assert "part.failed" in events


@pytest.mark.parametrize(("loop", "drain_timeout"), [("ignores_cancellation", 0.05), ("blocks_thread", 30)])
def test_work_that_does_not_end_does_not_block_the_exit(loop: str, drain_timeout: float) -> None:
    with running(loop, drain_timeout=drain_timeout) as process:
        assert process.read_line() == "ready"
        process.send_signal(signal.SIGTERM)

        code, events = process.wait()
        assert code == 0
        assert events[-1] == "process.abandoned"
