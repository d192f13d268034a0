"""The adapter service: from events to reports."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import UNSET, Raw

from sentinel.adapter import Adapter, Context, Done, Finalized, InProgress, Outcome, PreconditionsNotMet, Resource
from sentinel.adapter.observer import SkipReason
from sentinel.adapter.service import DeliveriesEnded
from sentinel.core.fleet.documents import ConditionStatus, Report
from sentinel.ports.adapter_api import ReportOutcome
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.subscription import Message
from sentinel.testing.loop import simulated
from tests.adapter.steps import delete_and_settle, pulse_and_settle, put_and_settle, release_and_settle, start_task
from tests.support.adapter_harness import SECOND, AdapterHarness, ScriptedTask

TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


def statuses(report: Report) -> tuple[ConditionStatus | None, ...]:
    return tuple(report.status_of(name) for name in ("Applied", "Available", "Health"))


class TestReports:
    @simulated
    async def test_a_pulse_leads_to_a_report_on_the_evaluated_generation(self) -> None:
        task = ScriptedTask(Done("the zone exists", data={"zone": "c1.example"}))
        async with AdapterHarness(task.adapter) as harness:
            harness.api.put("c1", spec={"region": "us-east"})

            await pulse_and_settle(harness, "c1")

        [report] = harness.api.sent
        assert (report.adapter, report.observed_generation) == ("dns", 1)
        assert report.observed_time.tzinfo is not None
        assert [each.type for each in report.conditions] == ["Applied", "Available", "Health"]
        assert statuses(report) == (TRUE, TRUE, TRUE)
        assert bytes(report.data) == b'{"zone":"c1.example"}'  # type: ignore[arg-type]  # it is set
        assert task.resources[0].spec == {"region": "us-east"}

    @simulated
    async def test_unmet_preconditions_are_reported_with_their_time(self) -> None:
        task = ScriptedTask(PreconditionsNotMet("Waiting for validation to complete"))
        async with AdapterHarness(task.adapter) as harness:
            await harness.after(5 * SECOND)

            await put_and_settle(harness, "c1")

            [report] = harness.api.sent
            assert report.observed_time - (harness.clock.now() - 5 * SECOND) < 5 * SECOND
            assert statuses(report) == (FALSE, FALSE, TRUE)

    @simulated
    async def test_the_resource_is_read_again_whatever_the_event_says(self) -> None:
        task = ScriptedTask()
        async with AdapterHarness(task.adapter) as harness:
            harness.api.put("c1")
            harness.api.put("c1", spec={"replicas": 5})

            await pulse_and_settle(harness, "c1", data={"id": "c1", "generation": 1, "spec": {"replicas": 3}})

        assert task.resources[0].spec == {"replicas": 5}
        assert harness.api.sent[0].observed_generation == 2

    @simulated
    async def test_a_deleted_resource_goes_to_the_finalizer(self) -> None:
        task = ScriptedTask()
        finalized: list[str] = []

        @task.adapter.finalizer(kinds=["Cluster"])
        async def remove(cluster: Resource, context: Context) -> Outcome:
            finalized.append(cluster.id)
            return Finalized()

        async with AdapterHarness(task.adapter) as harness:
            await delete_and_settle(harness, "c1")

        assert (finalized, task.resources) == (["c1"], [])
        [report] = harness.api.sent
        assert report.observed_generation == 2
        assert report.status_of("Finalized") is TRUE
        assert statuses(report) == (FALSE, FALSE, TRUE)

    @simulated
    async def test_without_a_finalizer_a_deleted_resource_is_finalized(self) -> None:
        task = ScriptedTask()
        async with AdapterHarness(task.adapter) as harness:
            await delete_and_settle(harness, "c1")

        assert task.resources == []
        assert harness.api.sent[0].status_of("Finalized") is TRUE

    @simulated
    async def test_a_refused_report_is_replaced_by_one_about_the_refusal(self) -> None:
        async with AdapterHarness(ScriptedTask(Done(data={"a": 1})).adapter) as harness:
            harness.api.refuse(lambda report: "" if report.data is UNSET else "400: data.a is not allowed")

            await put_and_settle(harness, "c1")

            assert await harness.dead_letters() == []
        assert harness.seen.report_outcomes == [ReportOutcome.REFUSED, ReportOutcome.STORED]
        last = harness.api.sent[-1]
        assert last.status_of("Health") is FALSE
        assert "data.a is not allowed" in last.conditions[0].message

    @simulated
    async def test_a_refusal_of_any_length_is_reported(self) -> None:
        async with AdapterHarness(ScriptedTask(Done(data={"a": 1})).adapter) as harness:
            harness.api.refuse(lambda report: "" if report.data is UNSET else "no" * 10_000)

            await put_and_settle(harness, "c1")

        assert harness.seen.report_outcomes == [ReportOutcome.REFUSED, ReportOutcome.STORED]


class TestScheduling:
    @simulated
    async def test_events_during_an_evaluation_cause_one_more(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter) as harness:
            await start_task(harness, task)
            for _ in range(10):
                await harness.pulse("c1")
            await harness.after(SECOND)

            await release_and_settle(harness, task)

        assert len(harness.api.sent) == 2
        assert [evaluation.events for evaluation in harness.seen.evaluations] == [1, 10]

    @simulated
    async def test_one_resource_is_never_evaluated_twice_at_once(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter) as harness:
            harness.api.put("c1")
            for _ in range(5):
                await harness.pulse("c1")
                await harness.after(SECOND)
            assert len(task.resources) == 1

            await release_and_settle(harness, task)

        assert harness.seen.max_in_flight == 1

    @simulated
    async def test_evaluations_are_limited_by_concurrency(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter, concurrency=3) as harness:
            await harness.put_and_pulse(*(f"c{number}" for number in range(10)))
            await harness.after(SECOND)
            assert len(task.resources) == 3

            await release_and_settle(harness, task)

        assert harness.seen.max_in_flight == 3
        assert len(harness.api.sent) == 10

    @simulated
    async def test_a_fresh_report_saves_the_evaluation(self) -> None:
        async with AdapterHarness(ScriptedTask().adapter, report_max_age=60 * SECOND) as harness:
            await put_and_settle(harness, "c1")
            await harness.after(59 * SECOND)

            await pulse_and_settle(harness, "c1")

            assert len(harness.api.sent) == 1
            assert harness.seen.skips == [(SkipReason.FRESH, "c1", 1)]

            await harness.after(2 * SECOND)
            await pulse_and_settle(harness, "c1")

            assert len(harness.api.sent) == 2

    @simulated
    async def test_a_new_generation_is_evaluated_despite_a_fresh_report(self) -> None:
        async with AdapterHarness(ScriptedTask().adapter, report_max_age=60 * SECOND) as harness:
            for _ in range(2):
                await put_and_settle(harness, "c1")

        assert [report.observed_generation for report in harness.api.sent] == [1, 2]

    @simulated
    async def test_without_a_max_age_every_event_is_evaluated(self) -> None:
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            harness.api.put("c1")
            for _ in range(3):
                await pulse_and_settle(harness, "c1")

        assert len(harness.api.sent) == 3

    @simulated
    async def test_work_in_progress_is_the_previous_of_the_next_evaluation(self) -> None:
        adapter = Adapter("dns")
        started: list[int] = []

        @adapter.task(kinds=["Cluster"])
        async def follow_job(cluster: Resource, context: Context) -> Outcome:
            if context.previous is None:
                return PreconditionsNotMet("Waiting for validation to complete")
            if context.previous.read_data() is None:
                started.append(len(started))
                return InProgress("the job is started", data={"job": started[-1]})
            return InProgress("the job is running", data=context.previous.read_data())

        async with AdapterHarness(adapter) as harness:
            harness.api.put("c1")
            for _ in range(4):
                await pulse_and_settle(harness, "c1")

        assert started == [0]
        assert [each.data for each in harness.api.sent[1:]] == [Raw(b'{"job":0}')] * 3

    @simulated
    async def test_queue_age_is_that_of_the_oldest_event(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter, concurrency=1) as harness:
            await start_task(harness, task)
            await harness.put_and_pulse("c2")
            await harness.after(10 * SECOND)

            await release_and_settle(harness, task)

        assert 10 * SECOND <= harness.seen.queue_ages[1] < 11 * SECOND


class TestSettlement:
    @simulated
    async def test_a_deliberately_discarded_report_acks_its_event(self) -> None:
        async with AdapterHarness(ScriptedTask(InProgress()).adapter) as harness:
            harness.api.put("c1")
            for _ in range(2):
                await pulse_and_settle(harness, "c1")

        assert harness.seen.report_outcomes == [ReportOutcome.STORED, ReportOutcome.DISCARDED]

    @simulated
    async def test_an_event_is_kept_until_its_report_is_accepted(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter) as harness:
            await start_task(harness, task)
            assert harness.backlog == 1

            await release_and_settle(harness, task)

        assert len(harness.api.results) == 1

    @simulated
    async def test_a_resource_that_is_gone_is_acked_without_a_report(self) -> None:
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            await pulse_and_settle(harness, "c1")

            assert await harness.dead_letters() == []
        assert harness.api.sent == []
        assert harness.seen.skips == [(SkipReason.GONE, "c1", 1)]

    @simulated
    async def test_a_resource_removed_during_its_evaluation_is_acked(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter) as harness:
            await start_task(harness, task)

            harness.api.remove("c1")
            await release_and_settle(harness, task)

        assert harness.seen.report_outcomes == [ReportOutcome.GONE]

    @simulated
    async def test_a_report_that_is_never_accepted_becomes_one_dead_letter(self) -> None:
        task = ScriptedTask(is_blocked=True)
        async with AdapterHarness(task.adapter) as harness:
            harness.api.put("c1")
            harness.api.refuse("409: 32 adapters report on it already")
            for _ in range(3):
                await harness.pulse("c1")

            await release_and_settle(harness, task)

            assert harness.seen.report_outcomes[:2] == [ReportOutcome.REFUSED, ReportOutcome.REFUSED]
            letters = await harness.dead_letters()
            assert {letter.subject for letter in letters} == {"c1"}
            assert "32 adapters" in letters[0].reason

            harness.api.recover()
            await put_and_settle(harness, "c2")

            assert harness.seen.report_outcomes[-1] is ReportOutcome.STORED

    @pytest.mark.parametrize("fault", [RuntimeError("a bug"), asyncio.CancelledError("a bug")])
    @simulated
    async def test_a_bug_of_the_service_nacks_the_event_and_stops_nothing(self, fault: BaseException) -> None:
        faults = iter([fault])

        def fail(operation: str, resource_id: str) -> ApiUnavailable | None:
            if resource_id and (first := next(faults, None)) is not None:
                raise first
            return None

        async with AdapterHarness(ScriptedTask().adapter, concurrency=1) as harness:
            harness.api.fail(fail)

            await put_and_settle(harness, "c1")

        assert [str(crash) for crash in harness.seen.crashes] == ["a bug"]
        assert len(harness.api.sent) == 1


class BrokenAttributes(dict[str, str]):
    """Attributes that raise when they are read."""

    def __getitem__(self, name: str) -> str:
        raise RuntimeError("how odd")


class TestMessages:
    @simulated
    async def test_an_event_may_name_its_resource_only_in_its_data(self) -> None:
        task = ScriptedTask()
        async with AdapterHarness(task.adapter) as harness:
            for number, name in enumerate(("id", "resource_id", "resourceId")):
                harness.api.put(f"c{number}")
                await pulse_and_settle(harness, subject="", data={name: f"c{number}"})

        assert sorted(resource.id for resource in task.resources) == ["c0", "c1", "c2"]

    @pytest.mark.parametrize(
        "message",
        [
            Message(b"not json at all", "text/plain", {}),
            Message(b'{"id": "c1"}', "application/json", {}),
            Message(b'{"other": 1}', "application/json", {"id": "event", "type": "t"}),
            Message(b"{}", "application/json", {"id": "event", "type": "t", "subject": "../admin"}),
        ],
    )
    @simulated
    async def test_a_message_without_a_resource_is_dead_lettered(self, message: Message) -> None:
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            await harness.deliver(message)
            await put_and_settle(harness, "c1")

            [letter] = await harness.dead_letters()
            assert "expected" in letter.reason
        assert len(harness.api.sent) == 1

    @simulated
    async def test_a_message_that_cannot_be_read_is_logged_and_dead_lettered(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            await harness.deliver(Message(b"{}", "application/json", BrokenAttributes(id="event", type="t")))
            await put_and_settle(harness, "c1")

            [letter] = await harness.dead_letters()
            assert letter.reason == "the message cannot be read: RuntimeError: how odd"
        assert len(harness.api.sent) == 1
        [record] = [each for each in caplog.records if each.getMessage() == "message.unreadable"]
        assert record.exc_info is not None
        assert "how odd" in str(record.exc_info[1])

    @simulated
    async def test_events_of_other_kinds_are_acked_without_a_request(self) -> None:
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            await pulse_and_settle(harness, "n1", kind="NodePool")

        assert harness.api.reads == 0
        assert harness.seen.skips == [(SkipReason.OTHER_KIND, "n1", 1)]

    @simulated
    async def test_events_of_other_publishers_are_acked_without_a_request(self) -> None:
        attributes = {"id": "event", "type": "com.example.order.created"}
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            await harness.deliver(Message(b'{"id": "o1", "kind": "Order"}', "application/json", attributes))
            await harness.until_settled()

        assert harness.api.reads == 0
        assert harness.seen.skips == [(SkipReason.OTHER_KIND, "o1", 1)]

    @simulated
    async def test_a_resource_of_another_kind_than_its_event_is_skipped(self) -> None:
        async with AdapterHarness(ScriptedTask().adapter) as harness:
            harness.api.put("n1", kind="NodePool")
            await pulse_and_settle(harness, "n1", kind="Cluster")

        assert harness.api.sent == []
        assert harness.seen.skips == [(SkipReason.OTHER_KIND, "n1", 1)]

    @simulated
    async def test_a_subscription_that_ends_by_itself_is_an_error(self) -> None:
        harness = AdapterHarness(ScriptedTask().adapter)
        running = asyncio.create_task(harness.service.run(harness.stopping))
        await harness.after(SECOND)

        harness.broker.unsubscribe("dns")
        await asyncio.wait({running})

        error = running.exception()
        assert isinstance(error, ExceptionGroup)
        assert isinstance(error.exceptions[0], DeliveriesEnded)
