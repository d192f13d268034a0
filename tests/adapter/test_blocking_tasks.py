"""Tasks that block: a plain `def` function runs in a thread, which cannot be cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from contextvars import ContextVar
from datetime import timedelta

from sentinel.adapter import Adapter, Context, Done, Finalized, Outcome, Resource
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.fleet.documents import ConditionStatus
from sentinel.runtime.clock import SystemClock
from sentinel.testing.adapter import START, FakeHttp, evaluate, make_resource, report_on
from tests.support.adapter_harness import HOUR, AdapterHarness
from tests.support.loop_time import LoopTime
from tests.support.thread_gate import ThreadGate

FALSE, TRUE = ConditionStatus.FALSE, ConditionStatus.TRUE
SHORT = timedelta(milliseconds=20)
REAL_TIMEOUT = timedelta(seconds=60)
TIMEOUT = REAL_TIMEOUT.total_seconds()

REQUEST: ContextVar[str] = ContextVar("request", default="")


class BlockingTask:
    """A plain `def` task that blocks its thread until its gate is open."""

    def __init__(self) -> None:
        self.adapter = Adapter("dns")
        self.adapter.task(kinds=["Cluster"])(self._run)
        self.gate = ThreadGate()
        self.threads: list[str] = []

    def _run(self, cluster: Resource, context: Context) -> Outcome:
        self.threads.append(threading.current_thread().name)
        self.gate.wait()
        return Done()


def adapter_of(task: object) -> Adapter:
    adapter = Adapter("dns")
    adapter.task(kinds=["Cluster"])(task)  # type: ignore[type-var]  # of either kind
    return adapter


def test_a_plain_task_and_finalizer_are_evaluated() -> None:
    dns = Adapter("dns")
    dns.task(kinds=["Cluster"])(lambda cluster, context: Done("zone exists"))
    dns.finalizer(kinds=["Cluster"])(lambda cluster, context: Finalized("zone is gone"))

    done = report_on(dns, make_resource("Cluster"))
    finalized = report_on(dns, make_resource("Cluster", deleted_time=START))

    assert (done.status_of("Available"), done.conditions[0].message) == (TRUE, "zone exists")
    assert finalized.status_of("Finalized") is TRUE


async def test_a_blocking_task_leaves_the_event_loop_free() -> None:
    task = BlockingTask()

    evaluation = asyncio.create_task(evaluate(task.adapter, make_resource("Cluster", id="c1")))
    await task.gate.until_arrived()
    task.gate.open()
    report = await evaluation

    assert report.status_of("Available") is TRUE
    assert task.threads == ["sentinel-blocking evaluate c1"]


def test_an_exception_in_a_thread_is_reported() -> None:
    class Odd(BaseException):
        pass

    def fail(cluster: Resource, context: Context) -> Outcome:
        raise {"c1": StopIteration("no zone"), "c2": SystemExit("no zone"), "c3": Odd("no zone")}[cluster.id]

    for cluster in ("c1", "c2", "c3"):
        report = report_on(adapter_of(fail), make_resource("Cluster", id=cluster))

        assert [condition.status for condition in report.conditions] == [FALSE, FALSE, FALSE]
        assert "no zone" in report.conditions[0].message


def test_a_plain_task_that_returns_a_coroutine_is_reported() -> None:
    async def work() -> Outcome:
        return Done()

    report = report_on(adapter_of(lambda cluster, context: work()), make_resource("Cluster"))

    assert "declare it with `async def`" in report.conditions[0].message


def test_an_object_with_an_async_call_is_a_task_on_the_loop() -> None:
    class Zones:
        async def __call__(self, cluster: Resource, context: Context) -> Outcome:
            return Done(threading.current_thread().name)

    report = report_on(adapter_of(Zones()), make_resource("Cluster"))

    assert report.conditions[0].message == threading.current_thread().name


async def test_a_thread_sees_the_context_variables_of_its_evaluation() -> None:
    REQUEST.set("r1")

    report = await evaluate(adapter_of(lambda cluster, context: Done(REQUEST.get())), make_resource("Cluster"))

    assert report.conditions[0].message == "r1"


class TestRun:
    def test_a_plain_task_uses_the_http_client_through_run(self) -> None:
        http = FakeHttp()
        http.answer("PUT", "http://dns.internal/zones/c1", status=202)

        def ensure(cluster: Resource, context: Context) -> Outcome:
            zone = context.run(context.http.put(f"http://dns.internal/zones/{cluster.id}"))
            return Done(str(zone.status))

        report = report_on(adapter_of(ensure), make_resource("Cluster", id="c1"), http=http)

        assert report.conditions[0].message == "202"

    def test_run_in_an_async_task_says_to_use_await(self) -> None:
        async def ensure(cluster: Resource, context: Context) -> Outcome:
            return Done(str(context.run(context.http.get("http://dns.internal"))))

        report = report_on(adapter_of(ensure), make_resource("Cluster"))

        assert "an `async def` task uses await" in report.conditions[0].message

    async def test_what_a_cancelled_task_waits_for_is_cancelled(self) -> None:
        started = asyncio.Event()
        ended: list[str] = []

        async def wait_for_ever() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("coroutine")

        def ensure(cluster: Resource, context: Context) -> Outcome:
            for _ in range(2):
                try:
                    context.run(wait_for_ever())
                except concurrent.futures.CancelledError:
                    ended.append(f"cancelled {context.cancelled}")
            return Done()

        evaluation = asyncio.create_task(evaluate(adapter_of(ensure), make_resource("Cluster")))
        await started.wait()
        evaluation.cancel()
        await asyncio.wait({evaluation}, timeout=TIMEOUT)

        assert evaluation.cancelled()
        assert sorted(ended) == ["cancelled True", "cancelled True", "coroutine"]


async def test_a_thread_that_outlives_its_timeout_keeps_its_worker() -> None:
    task, loop_time = BlockingTask(), LoopTime()
    async with AdapterHarness(
        task.adapter, clock=SystemClock(), concurrency=1, task_timeout=HOUR, drain=REAL_TIMEOUT
    ) as harness:
        assert harness.service.checks["tasks"]() is None
        await harness.put_and_pulse("c1", "c2")
        await task.gate.until_arrived()
        loop_time.advance(HOUR)
        await harness.until(lambda: len(harness.api.sent) == 1, timeout=REAL_TIMEOUT)
        [report] = harness.api.sent
        assert report.status_of("Health") is FALSE
        assert report.conditions[0].message == "the task did not end within 1h, and its thread still runs"
        assert harness.seen.evaluations[0].is_lingering
        await harness.until(lambda: harness.service.checks["tasks"]() is not None, timeout=REAL_TIMEOUT)
        problem = harness.service.checks["tasks"]()
        assert problem == "all 1 workers wait for tasks that did not end after their timeout"
        await harness.pulse("c1")
        assert len(task.threads) == 1

        task.gate.open()
        await harness.until(lambda: len(harness.api.sent) == 3, timeout=REAL_TIMEOUT)

    assert task.gate.most_running == 1
    assert harness.service.checks["tasks"]() is None
    assert [each.outcome for each in harness.seen.evaluations[1:]] == [OutcomeKind.DONE, OutcomeKind.DONE]


async def test_stopping_does_not_wait_for_a_thread_beyond_the_grace_period() -> None:
    task = BlockingTask()
    harness = AdapterHarness(task.adapter, clock=SystemClock(), grace_period=SHORT, drain=HOUR)
    async with harness:
        await harness.put_and_pulse("c1")
        await harness.until(lambda: task.gate.running == 1, timeout=REAL_TIMEOUT)

    [report] = harness.api.sent
    assert report.conditions[0].reason == "Interrupted"
    assert harness.backlog == 1
    assert task.gate.running == 1
    task.gate.open()
