"""The adapter service while the API, or one of its operations, fails."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from sentinel.ports.adapter_api import ReportOutcome
from sentinel.ports.errors import ApiUnavailable
from sentinel.testing.adapter_api import Failure
from sentinel.testing.loop import simulated
from tests.adapter.steps import recover_and_settle, start_outage, until_api_fails
from tests.support.adapter_harness import HOUR, SECOND, AdapterHarness, ScriptedTask

MINUTE = timedelta(minutes=1)
CLUSTERS = tuple(f"c{number}" for number in range(20))


def fails(text: str, *, operation: str = "", prefix: str = "", needs_operator: bool = False) -> Failure:
    """Fail this operation, or both, on resources whose id has the prefix."""

    def failure(called: str, resource_id: str) -> ApiUnavailable | None:
        if called != (operation or called) or not resource_id.startswith(prefix):
            return None
        return ApiUnavailable(text, needs_operator=needs_operator)

    return failure


@simulated
async def test_readiness_recovers_without_an_event() -> None:
    harness = AdapterHarness(ScriptedTask().adapter)
    assert harness.service.checks["hyperfleet_api"]() == "the API has not responded yet"

    async with harness:
        await harness.after(SECOND)

        assert harness.service.checks["hyperfleet_api"]() is None
        assert harness.service.checks["broker"]() is None


@simulated
async def test_while_the_api_is_down_events_are_kept_and_no_more_taken() -> None:
    async with AdapterHarness(ScriptedTask().adapter) as harness:
        harness.api.put("c0")
        await start_outage(harness, "c0")
        reads_before = harness.api.reads
        await harness.put_and_pulse(*CLUSTERS[1:])
        await harness.after(2 * HOUR)

        assert (harness.backlog, await harness.dead_letters()) == (20, [])
        assert harness.service.checks["hyperfleet_api"]() == "connection refused"
        assert harness.api.reads - reads_before < 600  # two hours, one attempt per 30 seconds and delivery

        await recover_and_settle(harness)

        assert len({report.adapter for report in harness.api.sent}) == 1
        assert len(harness.api.sent) == 20
        assert harness.service.checks["hyperfleet_api"]() is None


@simulated
async def test_no_deliveries_are_accepted_while_reads_fail() -> None:
    async with AdapterHarness(ScriptedTask().adapter, max_in_flight=40) as harness:
        harness.api.fail(ApiUnavailable("connection refused"))
        await until_api_fails(harness)
        for resource_id in CLUSTERS:
            await harness.pulse(resource_id)
        await harness.after(HOUR)

        assert len(harness.seen.queue_ages) <= 1  # the one that was awaited when the outage started


@simulated
async def test_while_reports_fail_single_deliveries_probe_and_none_is_lost() -> None:
    task = ScriptedTask()
    async with AdapterHarness(task.adapter) as harness:
        harness.api.fail(fails("503", operation="report"))
        await harness.put_and_pulse(*CLUSTERS)
        await harness.after(HOUR)

        assert len(task.resources) <= 140  # one per 30 seconds, and the 20 before the first report failed
        assert (harness.backlog, await harness.dead_letters()) == (20, [])

        await recover_and_settle(harness)

        assert {resource.id for resource in task.resources} == set(CLUSTERS)


@simulated
async def test_after_a_long_outage_the_resource_is_evaluated_again() -> None:
    task = ScriptedTask()
    async with AdapterHarness(task.adapter) as harness:
        harness.api.fail(fails("down", operation="report"))
        await harness.put_and_pulse("c1")
        await harness.after(40 * MINUTE)

        harness.api.put("c1", spec={"changed": True})
        await recover_and_settle(harness)

    assert len(task.resources) > 1
    assert harness.seen.report_outcomes[-1] is ReportOutcome.STORED


@simulated
async def test_a_token_without_permission_to_report_loses_nothing() -> None:
    async with AdapterHarness(ScriptedTask().adapter) as harness:
        harness.api.fail(fails("403 Forbidden", operation="report", needs_operator=True))
        await harness.put_and_pulse("c1")
        await harness.after(3 * HOUR)

        assert (harness.backlog, await harness.dead_letters()) == (1, [])
        assert harness.service.checks["hyperfleet_api"]() == "403 Forbidden"

        await recover_and_settle(harness)

        assert harness.seen.report_outcomes == [ReportOutcome.STORED]


@simulated
async def test_resources_without_a_route_do_not_block_others() -> None:
    async with AdapterHarness(ScriptedTask().adapter, concurrency=2) as harness:
        harness.api.fail(fails("no route; is endpoint right?", prefix="foreign", needs_operator=True))
        for number in range(4):
            await harness.pulse(f"foreign-{number}")
        await harness.after(SECOND)

        await harness.put_and_pulse("c1")
        await harness.until(lambda: len(harness.api.sent) == 1, timeout=2 * MINUTE)

        assert (harness.backlog, await harness.dead_letters()) == (4, [])


@simulated
async def test_as_many_failing_reports_as_workers_do_not_block_others() -> None:
    async with AdapterHarness(ScriptedTask().adapter, concurrency=2) as harness:
        harness.api.fail(fails("500 for this one", operation="report", prefix="bad"))
        await harness.put_and_pulse("bad-0", "bad-1")
        await harness.after(10 * SECOND)

        await harness.put_and_pulse(*CLUSTERS)
        await harness.until(lambda: len(harness.api.sent) == 20, timeout=10 * MINUTE)

        assert await harness.dead_letters() == []

        await recover_and_settle(harness)

        assert len(harness.api.sent) == 22


@simulated
async def test_one_resource_whose_report_fails_does_not_block_others() -> None:
    async with AdapterHarness(ScriptedTask().adapter, concurrency=2) as harness:
        harness.api.fail(fails("500 for this one", operation="report", prefix="bad"))
        await harness.put_and_pulse("bad")
        await until_api_fails(harness)

        await harness.put_and_pulse(*CLUSTERS[:10])
        await harness.until(lambda: len(harness.api.sent) == 10)

        assert (harness.backlog, await harness.dead_letters()) == (1, [])

        await recover_and_settle(harness)

        assert len(harness.api.sent) == 11


@simulated
async def test_one_unreadable_resource_is_nacked_and_does_not_block_others() -> None:
    async with AdapterHarness(ScriptedTask().adapter, concurrency=2) as harness:
        harness.api.fail(fails("500 for this one", prefix="bad"))
        await harness.put_and_pulse("bad")
        for resource_id in CLUSTERS:
            await harness.put_and_pulse(resource_id)
            await harness.after(10 * SECOND)

        assert len(harness.api.sent) == 20
        assert harness.seen.nack_reasons
        assert harness.backlog == 1

        await recover_and_settle(harness)

        assert len(harness.api.sent) == 21


class RateLimit:
    """An API that responds once with Retry-After to an operation, and records the time of every call."""

    def __init__(self, harness: AdapterHarness, operation: str, *, retry_after: timedelta) -> None:
        self.times: list[datetime] = []
        self.started: datetime | None = None
        self._harness = harness
        self._operation = operation
        self._retry_after = retry_after
        harness.api.fail(self._fail)

    def _fail(self, operation: str, resource_id: str) -> ApiUnavailable | None:
        now = self._harness.clock.now()
        self.times.append(now)
        if operation != self._operation or self.started is not None:
            return None
        self.started = now
        return ApiUnavailable("429 Too Many Requests", retry_after=self._retry_after)

    def pause(self) -> timedelta:
        """The time until the next call of any kind."""
        assert self.started is not None
        return min(time for time in self.times if time > self.started) - self.started


@pytest.mark.parametrize("operation", ["read", "report"])
@pytest.mark.parametrize(
    ("retry_after", "pause"), [(2 * MINUTE, 2 * MINUTE), (5 * MINUTE, 5 * MINUTE), (24 * HOUR, 5 * MINUTE)]
)
@simulated
async def test_no_call_is_made_before_retry_after(
    operation: str, retry_after: timedelta, pause: timedelta
) -> None:
    async with AdapterHarness(ScriptedTask().adapter, concurrency=2) as harness:
        await harness.after(SECOND)
        limit = RateLimit(harness, operation, retry_after=retry_after)
        for resource_id in CLUSTERS[:4]:
            await harness.put_and_pulse(resource_id)
            await harness.after(10 * SECOND)
        await harness.until_settled()

        assert limit.pause() == pause
        assert len(harness.api.sent) == 4


@simulated
async def test_stopping_does_not_wait_for_retry_after() -> None:
    async with AdapterHarness(ScriptedTask().adapter) as harness:
        limit = RateLimit(harness, "read", retry_after=5 * MINUTE)
        await harness.put_and_pulse("c1")
        await harness.until(lambda: limit.started is not None)
        before = harness.clock.now()
        await harness.stop()

        assert harness.clock.now() - before < SECOND
        assert harness.backlog == 1
