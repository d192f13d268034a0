"""Whatever a task does, a report comes of it; seen through what users test their tasks with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from sentinel.adapter import Adapter, Context, Done, Failed, Finalized, HttpFailure, Outcome, Resource
from sentinel.adapter.context import Cancellation
from sentinel.adapter.evaluation import Evaluated
from sentinel.adapter.evaluation import evaluate as run_task
from sentinel.core.adapter.task import OutcomeKind
from sentinel.core.fleet.documents import ConditionStatus, Report
from sentinel.runtime.log import get_logger
from sentinel.runtime.secrets import Redactor
from sentinel.testing import loop
from sentinel.testing.adapter import (
    START,
    FakeHttp,
    evaluate,
    make_event,
    make_resource,
    report_on,
    reported,
)

FALSE, TRUE = ConditionStatus.FALSE, ConditionStatus.TRUE
SECOND = timedelta(seconds=1)

Task = Callable[[Resource, Context], Awaitable[Outcome]]


def adapter_of(task: Task) -> Adapter:
    adapter = Adapter("dns")
    adapter.task(kinds=["Cluster"])(task)
    return adapter


def on_virtual_time(task: Task, *, timeout: timedelta = 30 * SECOND) -> Report:
    return loop.run(evaluate(adapter_of(task), make_resource("Cluster"), timeout=timeout))


def is_broken(report: Report) -> bool:
    return [each.status for each in report.conditions] == [FALSE, FALSE, FALSE]


class _Unprintable(Exception):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __str__(self) -> str:
        raise self._error


class _Odd(Done, frozen=True):
    """A result that cannot even be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name == "message":
            raise SystemExit("no")
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such zone"),
        ExceptionGroup("several", [ValueError("no such zone"), KeyError("x")]),
        SystemExit("no such zone"),
        KeyboardInterrupt("no such zone"),
        GeneratorExit("no such zone"),
        RecursionError("no such zone"),
        TimeoutError("no such zone"),
    ],
)
def test_whatever_a_task_raises_is_reported(error: BaseException) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        raise error

    report = on_virtual_time(task)

    assert is_broken(report)
    assert "no such zone" in report.conditions[2].message


@pytest.mark.parametrize("inner", [RuntimeError("no text"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_without_a_text_is_reported_by_its_name(inner: BaseException) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        raise _Unprintable(inner)

    assert on_virtual_time(task).conditions[0].message == "_Unprintable"


@pytest.mark.parametrize("way", ["raised", "cancelled by itself", "awaited something cancelled"])
def test_a_task_that_is_cancelled_by_something_else_is_reported(way: str) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        if way == "raised":
            raise asyncio.CancelledError
        if way == "cancelled by itself":
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(1)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return Done()

    report = on_virtual_time(task)

    assert is_broken(report)
    assert "cancelled" in report.conditions[0].message


def test_a_task_that_takes_too_long_is_cancelled_and_reported() -> None:
    ended: list[bool] = []

    async def task(resource: Resource, context: Context) -> Outcome:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(context.cancelled)
        return Done()

    report = on_virtual_time(task, timeout=5 * SECOND)

    assert is_broken(report)
    assert report.conditions[0].message == "the task did not end within 5s"
    assert report.conditions[0].reason == "Timeout"
    assert ended == [True]


@pytest.mark.parametrize(
    "result", [None, "done", Finalized(), Done(data=object()), Done(data="x" * 100_000), _Odd()]
)
def test_a_result_that_cannot_be_reported_is_the_adapter_s_error(result: Outcome) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return result

    report = on_virtual_time(task)

    assert is_broken(report)
    assert report.conditions[0].reason == "InvalidResult"


def evaluated(task: Task, redactor: Redactor) -> Evaluated:
    async def scenario() -> Evaluated:
        resource = make_resource("Cluster")
        context = Context(
            adapter="dns",
            http=FakeHttp(),
            event=make_event(resource),
            log=get_logger("test"),
            previous=None,
            deadline=START,
            cancellation=Cancellation(),
        )
        return await run_task(task, resource, context, timeout=SECOND, redact=redactor.redact)

    return loop.run(scenario())


def test_no_secret_is_reported_even_where_the_message_is_cut_in_its_midst() -> None:
    secret = "hunter2hunter2hunter2"

    async def task(resource: Resource, context: Context) -> Outcome:
        filling = "x" * (4090 - len("ValueError: "))
        raise ValueError(f"{filling}{secret} at https://user:{secret}@dns.internal and ftp://u:other@host")

    came = evaluated(task, Redactor([secret]))

    assert came.conclusion.kind is OutcomeKind.BROKEN
    assert "hunter2" not in came.conclusion.outcome.message
    assert "other" not in came.conclusion.outcome.message


def test_no_secret_is_in_what_a_task_says_itself() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Done("connected with hunter2hunter2", reason="hunter2hunter2")

    outcome = evaluated(task, Redactor(["hunter2hunter2"])).conclusion.outcome

    assert "hunter2" not in f"{outcome.message} {outcome.reason}"


def test_no_secret_is_in_the_data() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Done(data={"dsn": ["postgresql://u:hunter2hunter2@db"], "hunter2hunter2": 1.0, "count": 2})

    conclusion = evaluated(task, Redactor(["hunter2hunter2"])).conclusion

    assert conclusion.data == msgspec.Raw(b'{"dsn":["postgresql://u:***@db"],"***":1.0,"count":2}')


def test_data_without_a_secret_stays_as_it_was_written() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Done(data={"large": 2**63, "exact": Decimal("1.50"), "nested": [{"zone": "z1"}, None, True]})

    conclusion = evaluated(task, Redactor(["hunter2hunter2"])).conclusion

    assert conclusion.data == msgspec.Raw(
        b'{"large":9223372036854775808,"exact":"1.50","nested":[{"zone":"z1"},null,true]}'
    )


def test_what_a_task_says_is_of_bearable_length_for_whoever_logs_it() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Failed("x" * 10_000_000)

    assert len(evaluated(task, Redactor()).conclusion.outcome.message) < 5_000


def test_what_was_raised_is_kept_for_the_log() -> None:
    error = ValueError("x")

    async def task(resource: Resource, context: Context) -> Outcome:
        raise error

    assert evaluated(task, Redactor()).error is error


def test_cancelling_an_evaluation_cancels_its_task() -> None:
    ended: list[str] = []

    async def task(resource: Resource, context: Context) -> Outcome:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("task")
        return Done()

    async def scenario() -> None:
        evaluation = asyncio.create_task(evaluate(adapter_of(task), make_resource("Cluster")))
        await asyncio.sleep(1)
        evaluation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await evaluation

    loop.run(scenario())

    assert ended == ["task"]


class TestTheContext:
    def test_a_task_sees_what_other_adapters_say(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            return Done(str(cluster.is_available("validation")))

        resource = make_resource("Cluster", reports=[reported("validation"), reported("dns", "False")])

        report = report_on(adapter_of(task), resource)

        assert report.conditions[0].message == "True"

    def test_a_task_sees_its_own_last_report(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            assert context.previous is not None
            return Done(data=context.previous.read_data())

        resource = make_resource("Cluster", reports=[reported("dns", data={"zone": "z1"})])

        assert bytes(report_on(adapter_of(task), resource).data) == b'{"zone":"z1"}'  # type: ignore[arg-type]

    def test_a_task_knows_its_event_its_deadline_and_its_adapter(self) -> None:
        seen: list[Context] = []

        async def task(cluster: Resource, context: Context) -> Outcome:
            seen.append(context)
            context.log.info("zone.created", zone="z1")
            return Done()

        report_on(adapter_of(task), make_resource("Cluster", id="c1"), timeout=5 * SECOND)

        [context] = seen
        assert context.adapter == "dns"
        assert context.event.subject == "c1"
        assert context.event.type == "com.redhat.hyperfleet.cluster.reconcile"
        assert context.deadline == START + 5 * SECOND
        assert not context.cancelled

    def test_a_request_that_the_test_did_not_expect_fails_like_a_server_that_is_not_there(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            with pytest.raises(HttpFailure, match="GET http://dns"):
                await context.http.get("http://dns")
            return Done()

        assert report_on(adapter_of(task), make_resource("Cluster")).status_of("Available") is TRUE

    def test_a_kind_that_the_adapter_does_nothing_for_is_a_mistake_of_the_test(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            return Done()

        with pytest.raises(LookupError, match="nothing to do for a NodePool"):
            report_on(adapter_of(task), make_resource("NodePool"))

    def test_a_resource_without_a_finalizer_is_finalised(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            raise AssertionError("not for a resource that is being deleted")

        report = report_on(adapter_of(task), make_resource("Cluster", deleted_time=START))

        assert report.status_of("Finalized") is TRUE
