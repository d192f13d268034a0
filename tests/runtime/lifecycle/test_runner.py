"""Begin in order, end in reverse, and never hang on the way. On virtual time, except where signals are real."""

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
from sentinel.runtime.lifecycle.part import Part, Shared, shared_resource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.process import ExitCode
from sentinel.testing import loop as simulated
from tests.runtime.lifecycle.journal import LOG, RESTART, SECOND, Journal, elapsed, fails, recorded, returns
from tests.runtime.lifecycle.service_process import ServiceProcess


def test_everything_begins_in_order_and_ends_in_reverse() -> None:
    journal = Journal()

    code = journal.run(
        journal.part("api"), journal.part("pulse"), shared=(journal.shared("http"), journal.shared("broker"))
    )

    assert code == ExitCode.SUCCESS
    assert journal.entries[:4] == ["open http", "open broker", "start api", "start pulse"]
    assert sorted(journal.entries[4:6]) == ["stopped api", "stopped pulse"]
    assert journal.entries[6:] == ["close pulse", "close api", "closed broker", "closed http"]


def test_a_part_may_take_its_time_to_be_built() -> None:
    journal = Journal()

    async def build() -> Part:
        await asyncio.sleep(5)
        return journal.part("slow")

    async def scenario() -> int:
        asyncio.get_running_loop().call_later(10, journal.stopping.request)
        return await runner.run(parts=[build], log=LOG, stopping=journal.stopping, signals=())

    assert simulated.run(scenario()) == ExitCode.SUCCESS
    assert journal.entries == ["start slow", "stopped slow", "close slow"]


def test_a_service_is_ready_once_started_and_no_longer_when_it_is_asked_to_stop() -> None:
    journal = Journal()
    seen: list[tuple[str, bool, bool]] = []

    def look(moment: str) -> None:
        seen.append((moment, journal.health.readiness().is_ok, journal.health.liveness().is_ok))

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


def test_readiness_says_what_startup_waits_for() -> None:
    journal = Journal()
    asked: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        asked.append(journal.health.readiness().checks["startup"].message)
        yield

    journal.run(journal.part("pulse"), shared=(Shared("broker", context),))

    assert asked == ["opening broker"]


def test_a_loop_that_fails_ends_the_run_and_the_others_may_finish() -> None:
    journal = Journal()

    with recorded() as records:
        code = journal.run(journal.part("bad", fails), journal.part("good"), stop_after=None)

    assert code == ExitCode.FAILURE
    assert journal.entries[2:] == ["stopped good", "close good", "close bad"]
    (failure,) = [record for record in records if record["event"] == "part.failed"]
    assert failure["name"] == "bad"
    assert failure["error"] == "LookupError: lost"
    assert "raise LookupError" in failure["traceback"]


def test_a_loop_that_returns_early_has_failed() -> None:
    journal = Journal()

    with recorded() as records:
        code = journal.run(journal.part("pulse", returns), stop_after=None)

    assert code == ExitCode.FAILURE
    assert "returns returned although it was not asked to stop" in str(records)


def test_a_loop_that_ends_in_a_cancellation_of_somebody_else_has_failed() -> None:
    async def leaks(stopping: Stopping) -> None:
        raise asyncio.CancelledError

    journal = Journal()

    with recorded() as records:
        code = journal.run(journal.part("pulse", leaks, journal.patient("other")), stop_after=None)

    assert code == ExitCode.FAILURE
    assert "was cancelled, but not by the lifecycle" in str(records)


def test_a_finite_part_may_return_and_the_run_is_over_with_the_last_of_them() -> None:
    journal = Journal()

    code = journal.run(
        journal.part("one", returns, is_finite=True), journal.part("two", returns, is_finite=True), stop_after=None
    )

    assert code == ExitCode.SUCCESS
    assert journal.entries[2:] == ["close two", "close one"]


def test_a_finite_part_that_is_over_does_not_end_the_others() -> None:
    journal = Journal()

    code = journal.run(journal.part("job", returns, is_finite=True), journal.part("pulse"), stop_after=50)

    assert code == ExitCode.SUCCESS
    assert journal.entries[2:] == ["stopped pulse", "close pulse", "close job"]


def test_a_loop_that_does_not_stop_is_cancelled_when_draining_has_lasted_long_enough() -> None:
    journal = Journal()

    async def scenario() -> timedelta:
        asyncio.get_running_loop().call_later(10, journal.stopping.request)
        code = await runner.run(
            parts=[lambda: journal.part("pulse", journal.deaf("pulse"), journal.patient("pulse"))],
            log=LOG,
            drain_timeout=7 * SECOND,
            stopping=journal.stopping,
            signals=(),
        )
        assert code == ExitCode.SUCCESS
        return elapsed()

    with recorded() as records:
        assert simulated.run(scenario()) == 17 * SECOND

    assert journal.entries == ["start pulse", "stopped pulse", "cancelled pulse", "close pulse"]
    assert [record["parts"] for record in records if record["event"] == "drain.expired"] == [["pulse"]]


def test_a_loop_that_resists_its_cancellation_does_not_hold_up_the_rest() -> None:
    journal = Journal()
    release = asyncio.Event()

    async def scenario() -> int:
        asyncio.get_running_loop().call_later(10, journal.stopping.request)
        code = await runner.run(
            parts=[lambda: journal.part("pulse", journal.stubborn(release))],
            shared=[journal.shared("broker")],
            log=LOG,
            stopping=journal.stopping,
            signals=(),
        )
        release.set()
        return code

    assert simulated.run(scenario()) == ExitCode.SUCCESS
    assert journal.entries == ["open broker", "start pulse", "no", "close pulse", "closed broker"]


def test_a_failure_while_draining_is_a_failure() -> None:
    journal = Journal()

    async def fails_late(stopping: Stopping) -> None:
        await stopping.wait()
        raise LookupError("unconfirmed")

    assert journal.run(journal.part("pulse", fails_late)) == ExitCode.FAILURE


def test_a_failing_part_is_built_anew_after_waits_that_grow_and_disturbs_no_other() -> None:
    journal = Journal()
    attempts: list[float] = []

    def build() -> Part:
        attempts.append(asyncio.get_running_loop().time())
        return journal.part("flaky", fails if len(attempts) < 4 else journal.patient("flaky"))

    code = journal.run(build, journal.part("steady"), restart=RESTART)

    assert code == ExitCode.SUCCESS
    assert attempts == [0, 2, 5, 10]
    assert journal.entries.count("close flaky") == 4
    assert journal.entries.count("start steady") == 1


def test_a_part_that_ran_well_for_long_begins_with_short_waits_again() -> None:
    journal = Journal()
    attempts: list[float] = []

    async def fails_after_a_while(stopping: Stopping) -> None:
        await asyncio.sleep(20)
        raise LookupError("lost")

    def build() -> Part:
        attempts.append(asyncio.get_running_loop().time())
        return journal.part("flaky", fails_after_a_while)

    journal.run(build, restart=RESTART, stop_after=80)

    assert attempts == [0, 21, 42, 63]


def test_a_part_that_waits_to_be_built_anew_shows_in_readiness_and_its_checks_do_not() -> None:
    journal = Journal()
    asked: list[dict[str, str]] = []

    async def watch(stopping: Stopping) -> None:
        for delay in (0.5, 1):
            await asyncio.sleep(delay)
            checks = journal.health.readiness().checks
            asked.append({name: check.message for name, check in checks.items() if check.status == "error"})
        await stopping.wait()

    part = journal.part("flaky", fails)
    flaky = Part(name=part.name, loops=part.loops, checks={"poll": lambda: "not yet"})

    journal.run(flaky, journal.part("watch", watch), restart=RESTART)

    assert asked == [
        {"flaky.poll": "not yet"},
        {"flaky": "failure 1 in a row: LookupError: lost"},
    ]


def test_a_part_that_cannot_be_built_is_tried_again_and_holds_up_no_other() -> None:
    journal = Journal()
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


def test_waiting_to_be_built_anew_does_not_hold_up_stopping() -> None:
    journal = Journal()

    async def scenario() -> timedelta:
        asyncio.get_running_loop().call_later(3, journal.stopping.request)
        restart = Backoff(initial=timedelta(hours=1), maximum=timedelta(hours=1))
        await runner.run(
            parts=[lambda: journal.part("flaky", fails)],
            log=LOG,
            restart=restart,
            stopping=journal.stopping,
            signals=(),
        )
        return elapsed()

    assert simulated.run(scenario()) == 3 * SECOND


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured("the exchange has another type"), ExitCode.MISCONFIGURED),
        (OSError("cannot listen on :8080: address already in use"), ExitCode.FAILURE),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line_and_what_was_is_closed(error: Exception, code: int) -> None:
    journal = Journal()

    with recorded() as records:
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


def test_a_bug_while_opening_comes_with_its_traceback() -> None:
    journal = Journal()

    with recorded() as records:
        code = journal.run(journal.part("pulse"), shared=(journal.shared("broker", fails=LookupError("?")),))

    assert code == ExitCode.FAILURE
    assert any("traceback" in record for record in records)


def test_a_part_that_is_misconfigured_at_its_start_is_exit_code_two_and_is_closed() -> None:
    journal = Journal()

    code = journal.run(journal.part("pulse", start=Misconfigured("wrong type")), stop_after=None)

    assert code == ExitCode.MISCONFIGURED
    assert journal.entries == ["start pulse", "close pulse"]


def test_a_misconfiguration_found_while_running_is_a_failure_like_any_other() -> None:
    journal = Journal()

    async def loop(stopping: Stopping) -> None:
        raise Misconfigured("somebody replaced the exchange")

    assert journal.run(journal.part("pulse", loop), stop_after=None) == ExitCode.FAILURE


def test_later_parts_are_not_built_once_an_earlier_one_cannot_start() -> None:
    journal = Journal()

    code = journal.run(
        journal.part("first"),
        journal.part("second", start=OSError("no")),
        journal.part("third"),
        stop_after=None,
    )

    assert code == ExitCode.FAILURE
    assert "start third" not in journal.entries
    assert journal.entries[-2:] == ["close second", "close first"]


def test_stopping_while_something_is_opened_gives_it_up() -> None:
    journal = Journal()

    code = journal.run(
        journal.part("pulse"),
        shared=(journal.shared("http"), journal.shared("broker", opening=3600)),
        stop_after=5,
    )

    assert code == ExitCode.SUCCESS
    assert journal.entries == ["open http", "open broker", "closed http"]


def test_what_does_not_close_in_time_or_fails_to_close_does_not_keep_the_rest_open() -> None:
    journal = Journal()

    async def broken() -> None:
        raise LookupError("half closed")

    part = Part(name="pulse", loops=(journal.patient("pulse"),), close=broken)

    with recorded() as records:
        code = journal.run(part, shared=(journal.shared("http"), journal.shared("broker", closing=3600)))

    assert code == ExitCode.SUCCESS
    assert journal.entries == ["open http", "open broker", "stopped pulse", "closed http"]
    events = {record["event"]: record["name"] for record in records if "name" in record}
    assert events == {"close.failed": "pulse", "close.expired": "broker"}


def test_closing_has_an_end_however_many_steps_hang() -> None:
    journal = Journal()
    hanging = [journal.shared(f"broker {number}", closing=3600) for number in range(10)]
    part = journal.part("pulse")

    async def scenario() -> timedelta:
        asyncio.get_running_loop().call_later(100, journal.stopping.request)
        await runner.run(parts=[lambda: part], shared=hanging, log=LOG, stopping=journal.stopping, signals=())
        return elapsed()

    with recorded():
        ended = simulated.run(scenario())

    assert "stopped pulse" in journal.entries
    assert 103 * SECOND <= ended <= 110 * SECOND


def test_a_run_that_is_cancelled_cancels_its_loops_and_closes_everything() -> None:
    journal = Journal()

    async def scenario() -> None:
        running = asyncio.create_task(
            runner.run(
                parts=[lambda: journal.part("pulse", journal.deaf("pulse"))],
                shared=[journal.shared("broker")],
                log=LOG,
                signals=(),
            )
        )
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    simulated.run(scenario())

    assert journal.entries == ["open broker", "start pulse", "cancelled pulse", "close pulse", "closed broker"]


def test_the_metrics_of_a_part_are_shown_while_it_is_there() -> None:
    journal = Journal()
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
def test_checks_carry_the_name_of_their_part_only_where_there_are_several(others: int, name: str) -> None:
    journal = Journal()
    asked: list[str] = []

    async def loop(stopping: Stopping) -> None:
        await asyncio.sleep(1)
        asked.extend(journal.health.readiness().checks)
        await stopping.wait()

    part = Part(name="pulse", loops=(loop,), checks={"poll": lambda: None})
    journal.run(part, *(journal.part(f"other {number}") for number in range(others)))

    assert name in asked


def test_things_with_open_and_close_are_shared_as_they_are() -> None:
    journal = Journal()

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

async def patient(stopping):
    print("ready", flush=True)
    await stopping.wait()

async def draining(stopping):
    print("ready", flush=True)
    await stopping.wait()
    print("draining", flush=True)
    await asyncio.sleep(60)

async def blocking(stopping):
    print("blocked", flush=True)
    while True:
        time.sleep(0.01)

async def stubborn(stopping):
    print("ready", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def threaded(stopping):
    print("ready", flush=True)
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    await stopping.wait()

async def broken(stopping):
    raise LookupError("lost")

async def leaving(stopping):
    asyncio.get_running_loop().create_task(leave())
    await stopping.wait()

async def leave():
    sys.exit(3)

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[3]))
part = Part(name="part", loops=(globals()[sys.argv[1]],))
limits = {"drain_timeout": timedelta(seconds=float(sys.argv[2])), "close_timeout": timedelta(milliseconds=50)}
service = runner.run(parts=[lambda: part], log=log, **limits)
sys.exit(process.main(service, log=log, exit_timeout=timedelta(milliseconds=50)))
"""


def running(loop: str, *, drain_timeout: float = 30, hangup: str = "SIG_DFL") -> ServiceProcess:
    """`hangup` is how the process handles SIGHUP when the service starts."""
    return ServiceProcess(PROGRAM, loop, str(drain_timeout), hangup)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_process_with_success(number: signal.Signals) -> None:
    with running("patient") as process:
        assert process.says() == "ready"

        process.receives(number)

        assert process.ends() == (0, ["service.started", "service.stopping", "service.stopped"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    with running("draining") as process:
        assert process.says() == "ready"
        process.receives(signal.SIGTERM)
        assert process.says() == "draining"

        process.receives(number)

        assert process.ends() == (128 + number, ["service.started", "service.stopping", "process.killed"])


def test_a_terminal_that_closes_may_say_so_twice() -> None:
    with running("draining", drain_timeout=0.05) as process:
        assert process.says() == "ready"
        process.receives(signal.SIGHUP)
        assert process.says() == "draining"

        process.receives(signal.SIGHUP)

        code, events = process.ends()
        assert (code, events[-1]) == (0, "service.stopped")


def test_who_is_told_to_ignore_a_terminal_that_closes_does_so() -> None:
    with running("patient", hangup="SIG_IGN") as process:
        assert process.says() == "ready"

        process.receives(signal.SIGHUP)
        process.receives(signal.SIGTERM)

        assert process.ends() == (0, ["service.started", "service.stopping", "service.stopped"])


def test_a_task_that_calls_exit_ends_the_process_and_that_is_said() -> None:
    with running("leaving") as process:
        code, events = process.ends()

        assert code == 3
        assert "process.exited" in events


def test_a_second_signal_ends_a_process_whose_loop_is_stuck() -> None:
    with running("blocking") as process:
        assert process.says() == "blocked"
        process.receives(signal.SIGTERM)

        process.receives(signal.SIGINT)

        code, events = process.ends()
        assert code in (130, 143)  # pending signals are delivered in the order of their numbers
        assert events[-1] == "process.killed"


def test_a_failure_is_the_exit_code_of_the_process() -> None:
    with running("broken") as process:
        code, events = process.ends()

        assert code == 1
        assert "part.failed" in events


def test_a_task_that_resists_its_cancellation_does_not_keep_the_process() -> None:
    with running("stubborn", drain_timeout=0.05) as process:
        assert process.says() == "ready"
        process.receives(signal.SIGTERM)

        code, events = process.ends()
        assert code == 0
        assert events[-1] == "process.abandoned"


def test_a_thread_that_is_stuck_does_not_keep_the_process() -> None:
    with running("threaded") as process:
        assert process.says() == "ready"
        process.receives(signal.SIGTERM)

        code, events = process.ends()
        assert code == 0
        assert events[-1] == "process.abandoned"
