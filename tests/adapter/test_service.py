"""An adapter at work: what becomes of events, and of reports."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec import UNSET

from sentinel.adapter import Adapter, Context, Done, Finalized, InProgress, Outcome, PreconditionsNotMet, Resource
from sentinel.adapter.observer import ReportDisposition, SkipReason
from sentinel.adapter.service import DeliveriesEnded
from sentinel.core.adapter.task import Ending
from sentinel.core.fleet.documents import ConditionStatus
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.subscription import Message
from tests.support.adapter_harness import Workplace, run

SECOND = timedelta(seconds=1)
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


class Script:
    """A task that a test directs: it notes what it was given, waits for a gate, and returns what it was told."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.adapter = Adapter("dns")
        self.outcome: object = outcome or Done()
        self.seen: list[Resource] = []
        self.contexts: list[Context] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.adapter.task(kinds=["Cluster"])(self.task)

    async def task(self, resource: Resource, context: Context) -> Outcome:
        self.seen.append(resource)
        self.contexts.append(context)
        await self.gate.wait()
        assert isinstance(self.outcome, Done | InProgress | PreconditionsNotMet | Finalized)
        return self.outcome


def test_a_pulse_becomes_a_report_on_the_generation_that_was_looked_at() -> None:
    async def scenario() -> None:
        script = Script(Done("the zone is there", data={"zone": "c1.example"}))
        async with Workplace(script.adapter) as work:
            work.api.put("c1", spec={"region": "us-east"})
            await work.pulse("c1")
            await work.until_settled()

            [report] = work.api.sent
            assert report.adapter == "dns"
            assert report.observed_generation == 1
            assert report.observed_time.tzinfo is not None
            assert [(each.type, each.status) for each in report.conditions] == [
                ("Applied", TRUE),
                ("Available", TRUE),
                ("Health", TRUE),
            ]
            assert bytes(report.data) == b'{"zone":"c1.example"}'  # type: ignore[arg-type]  # it is there
            assert script.seen[0].spec == {"region": "us-east"}

    run(scenario())


def test_preconditions_that_are_not_met_are_reported_with_the_time_of_the_look() -> None:
    async def scenario() -> None:
        script = Script(PreconditionsNotMet("Waiting for validation to complete"))
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.after(5 * SECOND)
            await work.pulse("c1")
            await work.until_settled()

            [report] = work.api.sent
            assert report.observed_time - (work.clock.now() - 5 * SECOND) < 5 * SECOND
            assert report.status_of("Applied") is FALSE
            assert report.status_of("Available") is FALSE
            assert report.status_of("Health") is TRUE

    run(scenario())


def test_an_event_that_has_nothing_but_an_id_in_its_data_will_do() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            for number, name in enumerate(("id", "resource_id", "resourceId")):
                work.api.put(f"c{number}")
                await work.pulse(subject="", data={name: f"c{number}"})
            await work.until_settled()

            assert sorted(resource.id for resource in script.seen) == ["c0", "c1", "c2"]

    run(scenario())


def test_the_resource_is_read_again_however_old_the_event_is() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.put("c1", spec={"replicas": 5})
            await work.pulse("c1", data={"id": "c1", "generation": 1, "spec": {"replicas": 3}})
            await work.until_settled()

            assert script.seen[0].spec == {"replicas": 5}
            assert work.api.sent[0].observed_generation == 2

    run(scenario())


def test_events_that_arrive_during_an_evaluation_cause_one_more() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)
            for _ in range(10):
                await work.pulse("c1")
            await work.after(SECOND)

            script.gate.set()
            await work.until_settled()

            assert len(work.api.sent) == 2
            assert [evaluation.events for evaluation in work.seen.evaluations] == [1, 10]

    run(scenario())


def test_a_resource_is_never_evaluated_twice_at_the_same_time() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            for _ in range(5):
                await work.pulse("c1")
                await work.after(SECOND)

            assert len(script.seen) == 1
            script.gate.set()
            await work.until_settled()

            assert work.seen.most_in_flight == 1

    run(scenario())


def test_no_more_evaluations_run_at_once_than_are_asked_for() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter, concurrency=3) as work:
            for number in range(10):
                work.api.put(f"c{number}")
                await work.pulse(f"c{number}")
            await work.after(SECOND)
            assert len(script.seen) == 3

            script.gate.set()
            await work.until_settled()

            assert work.seen.most_in_flight == 3
            assert len(work.api.sent) == 10

    run(scenario())


def test_an_event_is_kept_until_its_report_is_accepted() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)

            assert work.backlog == 1
            script.gate.set()
            await work.until_settled()

            assert len(work.api.answers) == 1

    run(scenario())


def test_a_report_that_is_deliberately_discarded_settles_its_event() -> None:
    async def scenario() -> None:
        script = Script(InProgress())
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until_settled()
            await work.pulse("c1")
            await work.until_settled()

            assert work.seen.answers == [ReportDisposition.STORED, ReportDisposition.DISCARDED]

    run(scenario())


def test_a_resource_that_is_gone_is_acknowledged_without_a_report() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            await work.pulse("c1")
            await work.until_settled()

            assert work.api.sent == []
            assert work.seen.skips == [(SkipReason.GONE, "c1", 1)]
            assert await work.dead_letters() == []

    run(scenario())


def test_a_resource_that_goes_during_its_evaluation_settles_its_event() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)
            work.api.remove("c1")
            script.gate.set()
            await work.until_settled()

            assert work.seen.answers == [ReportDisposition.GONE]

    run(scenario())


def test_events_of_other_kinds_are_acknowledged_without_asking_the_api() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            await work.pulse("n1", kind="NodePool")
            await work.until_settled()

            assert work.api.reads == 0
            assert work.seen.skips == [(SkipReason.OTHER_KIND, "n1", 1)]

    run(scenario())


def test_a_resource_that_turns_out_to_be_of_another_kind_is_ignored() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("n1", kind="NodePool")
            await work.pulse("n1", kind="Cluster")
            await work.until_settled()

            assert work.api.sent == []
            assert work.seen.skips == [(SkipReason.OTHER_KIND, "n1", 1)]

    run(scenario())


def test_a_fresh_report_on_the_same_generation_saves_the_evaluation() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, report_max_age=60 * SECOND) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until_settled()
            await work.after(59 * SECOND)
            await work.pulse("c1")
            await work.until_settled()
            assert len(work.api.sent) == 1
            assert work.seen.skips == [(SkipReason.FRESH, "c1", 1)]

            await work.after(2 * SECOND)
            await work.pulse("c1")
            await work.until_settled()

            assert len(work.api.sent) == 2

    run(scenario())


def test_a_new_generation_is_evaluated_however_fresh_the_last_report_is() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, report_max_age=60 * SECOND) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until_settled()
            work.api.put("c1", spec={"changed": True})
            await work.pulse("c1")
            await work.until_settled()

            assert [report.observed_generation for report in work.api.sent] == [1, 2]

    run(scenario())


def test_without_a_max_age_every_event_is_an_evaluation() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            for _ in range(3):
                await work.pulse("c1")
                await work.until_settled()

            assert len(work.api.sent) == 3

    run(scenario())


def test_a_deleted_resource_goes_to_the_finalizer() -> None:
    async def scenario() -> None:
        script = Script()
        finalized: list[str] = []

        @script.adapter.finalizer(kinds=["Cluster"])
        async def remove(cluster: Resource, context: Context) -> Outcome:
            finalized.append(cluster.id)
            return Finalized()

        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.delete("c1")
            await work.pulse("c1")
            await work.until_settled()

            assert finalized == ["c1"]
            assert script.seen == []
            [report] = work.api.sent
            assert report.observed_generation == 2
            assert report.status_of("Finalized") is TRUE
            assert report.status_of("Applied") is FALSE
            assert report.status_of("Available") is FALSE
            assert report.status_of("Health") is TRUE

    run(scenario())


def test_without_a_finalizer_a_deleted_resource_is_reported_as_finalised() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.delete("c1")
            await work.pulse("c1")
            await work.until_settled()

            assert script.seen == []
            assert work.api.sent[0].status_of("Finalized") is TRUE

    run(scenario())


@pytest.mark.parametrize(
    "message",
    [
        Message(b"not json at all", "text/plain", {}),
        Message(b'{"id": "c1"}', "application/json", {}),
        Message(b'{"other": 1}', "application/json", {"id": "event", "type": "t"}),
        Message(b"{}", "application/json", {"id": "event", "type": "t", "subject": "../admin"}),
    ],
)
def test_a_message_that_leads_to_no_resource_becomes_a_dead_letter_and_blocks_nobody(message: Message) -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.deliver(message)
            await work.pulse("c1")
            await work.until_settled()

            [letter] = await work.dead_letters()
            assert "expected" in letter.reason
            assert len(work.api.sent) == 1

    run(scenario())


class Odd(dict[str, str]):
    """Attributes that our own reading fails on."""

    def __getitem__(self, name: str) -> str:
        raise RuntimeError("how odd")


def test_a_message_that_our_own_reading_fails_on_is_told_becomes_a_dead_letter_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.deliver(Message(b"{}", "application/json", Odd(id="event", type="t")))
            await work.pulse("c1")
            await work.until_settled()

            [letter] = await work.dead_letters()
            assert letter.reason == "the message cannot be read: RuntimeError: how odd"
            assert len(work.api.sent) == 1
            [told] = [each for each in caplog.records if each.getMessage() == "message.unreadable"]
            assert told.exc_info is not None
            assert "how odd" in str(told.exc_info[1])

    run(scenario())


def test_events_about_things_that_are_no_resources_of_ours_are_acknowledged_without_asking() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            await work.deliver(
                Message(
                    b'{"id": "o1", "kind": "Order"}',
                    "application/json",
                    {"id": "event", "type": "com.example.order.created"},
                )
            )
            await work.until_settled()

            assert work.api.reads == 0
            assert work.seen.skips == [(SkipReason.OTHER_KIND, "o1", 1)]

    run(scenario())


def test_resources_that_the_api_knows_no_way_to_block_nobody() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, concurrency=2) as work:
            work.api.fail(
                lambda operation, resource_id: (
                    ApiUnavailable("no route; is endpoint right?", needs_operator=True)
                    if resource_id.startswith("foreign")
                    else None
                )
            )
            for number in range(4):
                await work.pulse(f"foreign-{number}")
            await work.after(SECOND)
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(work.api.sent) == 1, within=timedelta(minutes=2))

            assert await work.dead_letters() == []
            assert work.backlog == 4

    run(scenario())


def test_as_many_failing_reports_as_there_are_workers_block_nobody() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, concurrency=2) as work:
            work.api.fail(
                lambda operation, resource_id: (
                    ApiUnavailable("500 for this one")
                    if operation == "report" and resource_id.startswith("bad")
                    else None
                )
            )
            for number in range(2):
                work.api.put(f"bad-{number}")
                await work.pulse(f"bad-{number}")
            await work.after(10 * SECOND)
            for number in range(20):
                work.api.put(f"c{number}")
                await work.pulse(f"c{number}")
            await work.until(lambda: len(work.api.sent) == 20, within=timedelta(minutes=10))

            assert await work.dead_letters() == []
            work.api.heal()
            await work.until_settled()

            assert len(work.api.sent) == 22

    run(scenario())


def test_while_no_report_is_taken_one_resource_is_let_in_now_and_then_and_nothing_is_lost() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.fail(lambda operation, resource_id: ApiUnavailable("503") if operation == "report" else None)
            for number in range(20):
                work.api.put(f"c{number}")
                await work.pulse(f"c{number}")
            await work.after(timedelta(hours=1))

            assert len(script.seen) <= 140  # one in 30 seconds, and the 20 that were there before the first report
            assert work.backlog == 20
            assert await work.dead_letters() == []
            work.api.heal()
            await work.until_settled()

            assert {resource.id for resource in script.seen} == {f"c{number}" for number in range(20)}

    run(scenario())


def test_while_the_api_is_down_events_are_kept_and_no_more_are_taken() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            for number in range(20):
                work.api.put(f"c{number}")
            work.api.fail(ApiUnavailable("connection refused"))
            await work.pulse("c0")
            await work.until(lambda: bool(work.seen.troubles))
            reads_before = work.api.reads
            for number in range(1, 20):
                await work.pulse(f"c{number}")
            await work.after(timedelta(hours=2))

            assert work.backlog == 20
            assert await work.dead_letters() == []
            assert work.service.checks["hyperfleet_api"]() == "connection refused"
            assert work.api.reads - reads_before < 600  # two hours at one try in 30 seconds for each that is held

            work.api.heal()
            await work.until_settled()

            assert len({report.adapter for report in work.api.sent}) == 1
            assert len(work.api.sent) == 20
            assert work.service.checks["hyperfleet_api"]() is None

    run(scenario())


def test_intake_stops_while_resources_cannot_be_read() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, max_in_flight=40) as work:
            work.api.fail(ApiUnavailable("connection refused"))
            await work.until(lambda: bool(work.seen.troubles))
            for number in range(20):
                await work.pulse(f"c{number}")
            await work.after(timedelta(hours=1))

            assert len(work.seen.ages) <= 1  # the one that was being waited for when the trouble began

    run(scenario())


def test_a_report_that_waits_for_too_long_is_made_anew() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.fail(lambda operation, resource_id: ApiUnavailable("down") if operation == "report" else None)
            await work.pulse("c1")
            await work.after(timedelta(minutes=40))
            work.api.put("c1", spec={"changed": True})
            work.api.heal()
            await work.until_settled()

            assert len(script.seen) > 1
            assert work.seen.answers[-1] is ReportDisposition.STORED

    run(scenario())


def test_one_resource_whose_report_always_fails_blocks_nobody() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, concurrency=2) as work:
            work.api.fail(
                lambda operation, resource_id: (
                    ApiUnavailable("500 for this one") if (operation, resource_id) == ("report", "bad") else None
                )
            )
            work.api.put("bad")
            await work.pulse("bad")
            await work.until(lambda: bool(work.seen.troubles))
            for number in range(10):
                work.api.put(f"c{number}")
                await work.pulse(f"c{number}")
            await work.until(lambda: len(work.api.sent) == 10)
            assert work.backlog == 1
            assert await work.dead_letters() == []

            work.api.heal()
            await work.until_settled()

            assert len(work.api.sent) == 11

    run(scenario())


def test_one_resource_that_cannot_be_read_is_given_back_and_blocks_nobody() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter, concurrency=2) as work:
            work.api.fail(
                lambda operation, resource_id: ApiUnavailable("500 for this one") if resource_id == "bad" else None
            )
            work.api.put("bad")
            await work.pulse("bad")
            for number in range(20):
                work.api.put(f"c{number}")
                await work.pulse(f"c{number}")
                await work.after(10 * SECOND)
            assert len(work.api.sent) == 20
            assert work.seen.returns
            assert work.backlog == 1

            work.api.heal()
            await work.until_settled()

            assert len(work.api.sent) == 21

    run(scenario())


def test_a_refused_report_is_replaced_by_one_that_says_so() -> None:
    async def scenario() -> None:
        script = Script(Done(data={"a": 1}))
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.refuse(lambda report: "" if report.data is UNSET else "400: data.a is not allowed")
            await work.pulse("c1")
            await work.until_settled()

            assert work.seen.answers == [ReportDisposition.REFUSED, ReportDisposition.STORED]
            final = work.api.sent[-1]
            assert final.status_of("Health") is FALSE
            assert "data.a is not allowed" in final.conditions[0].message
            assert await work.dead_letters() == []

    run(scenario())


def test_a_refusal_of_any_length_is_reported() -> None:
    async def scenario() -> None:
        script = Script(Done(data={"a": 1}))
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.refuse(lambda report: "" if report.data is UNSET else "no" * 10_000)
            await work.pulse("c1")
            await work.until_settled()

            assert work.seen.answers == [ReportDisposition.REFUSED, ReportDisposition.STORED]

    run(scenario())


def test_what_the_api_will_never_take_becomes_one_dead_letter_with_its_reason() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.put("c2")
            work.api.refuse("409: 32 adapters report on it already")
            await work.pulse("c1")
            await work.pulse("c1")
            await work.pulse("c1")
            script.gate.set()
            await work.until_settled()

            assert work.seen.answers[:2] == [ReportDisposition.REFUSED, ReportDisposition.REFUSED]
            letters = await work.dead_letters()
            assert {letter.subject for letter in letters} == {"c1"}
            assert "32 adapters" in letters[0].reason
            work.api.heal()
            await work.pulse("c2")
            await work.until_settled()

            assert work.seen.answers[-1] is ReportDisposition.STORED

    run(scenario())


def test_a_token_that_is_not_allowed_to_report_loses_nothing() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            work.api.fail(
                lambda operation, resource_id: (
                    ApiUnavailable("403 Forbidden", needs_operator=True) if operation == "report" else None
                )
            )
            await work.pulse("c1")
            await work.after(timedelta(hours=3))

            assert work.backlog == 1
            assert await work.dead_letters() == []
            assert work.service.checks["hyperfleet_api"]() == "403 Forbidden"
            work.api.heal()
            await work.until_settled()

            assert work.seen.answers == [ReportDisposition.STORED]

    run(scenario())


def test_readiness_begins_as_trouble_and_clears_without_an_event() -> None:
    async def scenario() -> None:
        script = Script()
        work = Workplace(script.adapter)
        assert work.service.checks["hyperfleet_api"]() == "the API has not answered yet"

        async with work:
            await work.after(SECOND)

            assert work.service.checks["hyperfleet_api"]() is None
            assert work.service.checks["broker"]() is None

    run(scenario())


def test_an_evaluation_that_ends_during_shutdown_is_reported() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        work = Workplace(script.adapter)
        async with work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)
            stopping = asyncio.create_task(work.stop())
            await work.after(SECOND)
            script.gate.set()
            await stopping

        assert len(work.api.sent) == 1
        assert work.backlog == 0

    run(scenario())


def test_an_evaluation_that_does_not_end_during_shutdown_is_reported_and_left_to_the_broker() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        work = Workplace(script.adapter)
        async with work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)

        [report] = work.api.sent
        assert report.status_of("Applied") is TRUE
        assert report.status_of("Available") is UNKNOWN
        assert report.status_of("Health") is TRUE
        assert {each.reason for each in report.conditions} == {"Interrupted", "NoErrors"}
        assert work.backlog == 1
        assert work.seen.in_flight == 0
        assert script.contexts[0].cancelled

    run(scenario())


def test_work_that_was_interrupted_is_taken_up_at_once_however_fresh_its_report_is() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter) as first:
            first.api.put("c1")
            await first.pulse("c1")
            await first.until(lambda: len(script.seen) == 1)
        script.gate.set()

        async with Workplace(script.adapter, succeeds=first, report_max_age=timedelta(hours=1)) as second:
            await second.until_settled()

        assert len(script.seen) == 2
        assert second.seen.answers == [ReportDisposition.STORED]
        assert first.api.sent[-1].status_of("Available") is TRUE

    run(scenario())


def test_an_interruption_changes_nothing_that_was_reported_before() -> None:
    async def scenario() -> None:
        script = Script()
        async with Workplace(script.adapter) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until_settled()
            script.gate.clear()
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 2)

        assert work.seen.answers == [ReportDisposition.STORED, ReportDisposition.DISCARDED]
        status = work.api.status("c1", "dns")
        assert status is not None
        assert status.status_of("Available") is TRUE

    run(scenario())


def test_where_there_is_no_time_even_to_say_so_the_event_is_left_to_the_broker() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        work = Workplace(script.adapter, drain=5 * SECOND)
        async with work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)

        assert work.api.sent == []
        assert work.backlog == 1
        assert work.seen.in_flight == 0

    run(scenario())


def test_what_was_not_begun_when_the_service_stops_is_left_to_the_broker() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        work = Workplace(script.adapter, concurrency=1, drain=5 * SECOND)
        async with work:
            for number in range(3):
                work.api.put(f"c{number}")
                await work.pulse(f"c{number}")
            await work.until(lambda: len(script.seen) == 1)

        assert work.backlog == 3

    run(scenario())


def test_shutdown_does_not_wait_for_an_api_that_is_down() -> None:
    async def scenario() -> None:
        script = Script()
        work = Workplace(script.adapter)
        async with work:
            work.api.fail(ApiUnavailable("down"))
            await work.pulse("c1")
            await work.until(lambda: bool(work.seen.troubles))
            begun = work.clock.now()
            await work.stop()

        assert work.clock.now() - begun < SECOND
        assert work.backlog == 1

    run(scenario())


class Stubborn:
    """A task that ignores its cancellation until it is released."""

    def __init__(self) -> None:
        self.adapter = Adapter("dns")
        self.adapter.task(kinds=["Cluster"])(self.task)
        self.release = asyncio.Event()
        self.running = self.most = 0

    async def task(self, cluster: Resource, context: Context) -> Outcome:
        self.running += 1
        self.most = max(self.most, self.running)
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        self.running -= 1
        return Done()


def test_a_task_that_ignores_its_cancellation_is_reported_and_keeps_its_place() -> None:
    async def scenario() -> None:
        stubborn = Stubborn()
        async with Workplace(stubborn.adapter, task_timeout=5 * SECOND) as work:
            work.api.put("c1")
            await work.pulse("c1")
            await work.until_settled()
            [report] = work.api.sent
            assert report.status_of("Health") is FALSE
            assert work.seen.evaluations[0].is_lingering
            await work.pulse("c1")
            await work.after(timedelta(minutes=1))
            assert len(work.api.sent) == 1

            stubborn.release.set()
            await work.until_settled()

            assert stubborn.most == 1
            assert len(work.api.sent) == 2
            assert work.seen.evaluations[-1].ending is Ending.DONE

    run(scenario())


def test_a_task_that_ignores_its_cancellation_is_not_run_again_while_its_report_waits() -> None:
    async def scenario() -> None:
        stubborn = Stubborn()
        async with Workplace(stubborn.adapter, task_timeout=5 * SECOND) as work:
            work.api.put("c1")
            work.api.fail(lambda operation, resource_id: ApiUnavailable("down") if operation == "report" else None)
            await work.pulse("c1")
            await work.after(timedelta(minutes=30))
            assert stubborn.running == stubborn.most == 1

            stubborn.release.set()
            work.api.heal()
            await work.until_settled()

            assert stubborn.most == 1

    run(scenario())


def test_a_subscription_that_ends_by_itself_is_a_failure() -> None:
    async def scenario() -> None:
        work = Workplace(Script().adapter)
        running = asyncio.create_task(work.service.run(work.stopping))
        await work.after(SECOND)

        work.broker.unsubscribe("dns")
        await asyncio.wait({running})

        error = running.exception()
        assert isinstance(error, ExceptionGroup)
        assert isinstance(error.exceptions[0], DeliveriesEnded)

    run(scenario())


def test_queue_age_is_that_of_the_oldest_event() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        async with Workplace(script.adapter, concurrency=1) as work:
            work.api.put("c1")
            work.api.put("c2")
            await work.pulse("c1")
            await work.until(lambda: len(script.seen) == 1)
            await work.pulse("c2")
            await work.after(10 * SECOND)
            script.gate.set()
            await work.until_settled()

            assert 10 * SECOND <= work.seen.ages[1] < 11 * SECOND

    run(scenario())


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), asyncio.CancelledError("a bug")])
def test_a_fault_of_ours_gives_the_event_back_and_ends_nothing(fault: BaseException) -> None:
    async def scenario() -> None:
        script = Script()
        faults = iter([fault])

        def fail(operation: str, resource_id: str) -> ApiUnavailable | None:
            if resource_id and (first := next(faults, None)) is not None:
                raise first
            return None

        async with Workplace(script.adapter, concurrency=1) as work:
            work.api.put("c1")
            work.api.fail(fail)
            await work.pulse("c1")
            await work.until_settled()

            assert [str(crash) for crash in work.seen.crashes] == ["a bug"]
            assert len(work.api.sent) == 1

    run(scenario())


def test_work_that_was_cut_off_before_its_report_is_done_again_by_the_next_process() -> None:
    async def scenario() -> None:
        script = Script()
        script.gate.clear()
        first = Workplace(script.adapter)
        await first.__aenter__()
        first.api.put("c1")
        await first.pulse("c1")
        await first.until(lambda: len(script.seen) == 1)

        await first.kill()
        script.gate.set()
        async with Workplace(script.adapter, succeeds=first) as second:
            await second.until_settled()

        assert len(script.seen) == 2
        assert len(first.api.sent) == 1

    run(scenario())
