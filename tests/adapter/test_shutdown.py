"""The adapter service when it stops, and tasks that ignore their cancellation."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.adapter import Adapter, Context, Done, Outcome, Resource
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.fleet.documents import ConditionStatus
from sentinel.ports.adapter_api import ReportOutcome
from sentinel.ports.errors import ApiUnavailable
from sentinel.testing.loop import simulated
from tests.adapter.steps import put_and_settle, recover_and_settle, start_outage, start_task
from tests.support.adapter_harness import HOUR, SECOND, AdapterHarness, ScriptedTask

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


@simulated
async def test_an_evaluation_that_ends_during_shutdown_is_reported() -> None:
    task = ScriptedTask(is_blocked=True)
    async with AdapterHarness(task.adapter) as harness:
        await start_task(harness, task)

        stopping = asyncio.create_task(harness.stop())
        await harness.after(SECOND)
        task.release()
        await stopping

    assert len(harness.api.sent) == 1
    assert harness.backlog == 0


@simulated
async def test_an_interrupted_evaluation_is_reported_and_requeued() -> None:
    task = ScriptedTask(is_blocked=True)
    async with AdapterHarness(task.adapter) as harness:
        await start_task(harness, task)

    [report] = harness.api.sent
    assert report.status_of("Applied") is TRUE
    assert report.status_of("Available") is UNKNOWN
    assert report.status_of("Health") is TRUE
    assert {each.reason for each in report.conditions} == {"Interrupted", "NoErrors"}
    assert harness.backlog == 1
    assert harness.seen.in_flight == 0
    assert task.contexts[0].cancelled


@simulated
async def test_interrupted_work_resumes_despite_its_fresh_report() -> None:
    task = ScriptedTask(is_blocked=True)
    async with AdapterHarness(task.adapter) as first:
        await start_task(first, task)
    task.release()

    async with AdapterHarness(task.adapter, peer=first, report_max_age=HOUR) as second:
        await second.until_settled()

    assert len(task.resources) == 2
    assert second.seen.report_outcomes == [ReportOutcome.STORED]
    assert first.api.sent[-1].status_of("Available") is TRUE


@simulated
async def test_an_interruption_does_not_replace_an_earlier_report() -> None:
    task = ScriptedTask()
    async with AdapterHarness(task.adapter) as harness:
        await put_and_settle(harness, "c1")
        task.block()
        await harness.pulse("c1")
        await harness.until(lambda: len(task.resources) == 2)

    assert harness.seen.report_outcomes == [ReportOutcome.STORED, ReportOutcome.DISCARDED]
    status = harness.api.status("c1", "dns")
    assert status is not None
    assert status.status_of("Available") is TRUE


@simulated
async def test_a_drain_too_short_for_a_report_requeues_the_event() -> None:
    task = ScriptedTask(is_blocked=True)
    async with AdapterHarness(task.adapter, drain=5 * SECOND) as harness:
        await start_task(harness, task)

    assert harness.api.sent == []
    assert harness.backlog == 1
    assert harness.seen.in_flight == 0


@simulated
async def test_queued_events_are_requeued_when_the_service_stops() -> None:
    task = ScriptedTask(is_blocked=True)
    async with AdapterHarness(task.adapter, concurrency=1, drain=5 * SECOND) as harness:
        await harness.put_and_pulse("c0", "c1", "c2")
        await harness.until(lambda: len(task.resources) == 1)

    assert harness.backlog == 3


@simulated
async def test_shutdown_does_not_wait_for_an_api_that_is_down() -> None:
    async with AdapterHarness(ScriptedTask().adapter) as harness:
        await start_outage(harness, "c1")

        started = harness.clock.now()
        await harness.stop()

    assert harness.clock.now() - started < SECOND
    assert harness.backlog == 1


@simulated
async def test_a_killed_process_leaves_its_work_to_the_next_one() -> None:
    task = ScriptedTask(is_blocked=True)
    first = AdapterHarness(task.adapter)
    await first.__aenter__()
    await start_task(first, task)

    await first.kill()
    task.release()
    async with AdapterHarness(task.adapter, peer=first) as second:
        await second.until_settled()

    assert len(task.resources) == 2
    assert len(first.api.sent) == 1


class IgnoresCancellation:
    """A task that ignores its cancellation until it is released."""

    def __init__(self) -> None:
        self.adapter = Adapter("dns")
        self.adapter.task(kinds=["Cluster"])(self._run)
        self.released = asyncio.Event()
        self.running = self.max_running = 0

    async def _run(self, cluster: Resource, context: Context) -> Outcome:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue
        self.running -= 1
        return Done()


@simulated
async def test_a_task_that_ignores_cancellation_is_reported_and_blocks_its_key() -> None:
    task = IgnoresCancellation()
    async with AdapterHarness(task.adapter, task_timeout=5 * SECOND) as harness:
        await put_and_settle(harness, "c1")
        [report] = harness.api.sent
        assert report.status_of("Health") is FALSE
        assert harness.seen.evaluations[0].is_lingering
        await harness.pulse("c1")
        await harness.after(timedelta(minutes=1))
        assert len(harness.api.sent) == 1

        task.released.set()
        await harness.until_settled()

    assert task.max_running == 1
    assert len(harness.api.sent) == 2
    assert harness.seen.evaluations[-1].outcome is OutcomeKind.DONE


@simulated
async def test_a_task_that_ignores_cancellation_runs_once_while_reports_fail() -> None:
    task = IgnoresCancellation()
    async with AdapterHarness(task.adapter, task_timeout=5 * SECOND) as harness:
        harness.api.fail(lambda operation, resource_id: ApiUnavailable("down") if operation == "report" else None)
        await harness.put_and_pulse("c1")
        await harness.after(timedelta(minutes=30))
        assert task.running == task.max_running == 1

        task.released.set()
        await recover_and_settle(harness)

    assert task.max_running == 1
