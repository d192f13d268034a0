"""Running tasks: every run ends in a report. Most tests use `sentinel.testing.adapter`, as users do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from sentinel.adapter import Adapter, Context, Done, Failed, Finalized, HttpFailure, Outcome, Resource
from sentinel.adapter.evaluation import Evaluated, make_context, make_report
from sentinel.adapter.evaluation import evaluate as run_task
from sentinel.core.adapter.task import CheckedOutcome, OutcomeKind
from sentinel.core.fleet.documents import ConditionStatus, Report
from sentinel.runtime.log import get_logger
from sentinel.runtime.secrets import Redactor
from sentinel.testing import loop
from sentinel.testing.adapter import START, FakeHttp, evaluate, make_event, make_resource, report_on, reported
from sentinel.testing.loop import simulated

FALSE, TRUE = ConditionStatus.FALSE, ConditionStatus.TRUE
SECOND = timedelta(seconds=1)

Task = Callable[[Resource, Context], Awaitable[Outcome]]


AnyTask = Task | Callable[[Resource, Context], Outcome]


def adapter_of(task: AnyTask) -> Adapter:
    adapter = Adapter("dns")
    adapter.task(kinds=["Cluster"])(task)
    return adapter


def report_of(task: Task, *, timeout: timedelta = 30 * SECOND) -> Report:
    """Run the task on virtual time."""
    return loop.run(evaluate(adapter_of(task), make_resource("Cluster"), timeout=timeout))


def is_broken(report: Report) -> bool:
    return [each.status for each in report.conditions] == [FALSE, FALSE, FALSE]


class Unprintable(Exception):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __str__(self) -> str:
        raise self._error


class UnreadableResult(Done, frozen=True):
    """A result whose attributes raise."""

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
def test_every_exception_of_a_task_is_reported(error: BaseException) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        raise error

    report = report_of(task)

    assert is_broken(report)
    assert "no such zone" in report.conditions[2].message


@pytest.mark.parametrize("inner", [RuntimeError("no text"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_without_a_message_is_reported_by_its_name(inner: BaseException) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        raise Unprintable(inner)

    assert report_of(task).conditions[0].message == "Unprintable"


@pytest.mark.parametrize("cause", ["raised", "cancelled by itself", "awaited something cancelled"])
def test_a_task_cancelled_by_something_else_is_reported(cause: str) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        if cause == "raised":
            raise asyncio.CancelledError
        if cause == "cancelled by itself":
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await asyncio.sleep(1)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return Done()

    report = report_of(task)

    assert is_broken(report)
    assert "cancelled" in report.conditions[0].message


def test_a_task_that_exceeds_its_timeout_is_cancelled_and_reported() -> None:
    ended: list[bool] = []

    async def task(resource: Resource, context: Context) -> Outcome:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(context.cancelled)
        return Done()

    report = report_of(task, timeout=5 * SECOND)

    assert is_broken(report)
    assert report.conditions[0].message == "the task did not end within 5s"
    assert report.conditions[0].reason == "Timeout"
    assert ended == [True]


@pytest.mark.parametrize(
    "result", [None, "done", Finalized(), Done(data=object()), Done(data="x" * 100_000), UnreadableResult()]
)
def test_an_invalid_result_is_an_error_of_the_adapter(result: Outcome) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return result

    report = report_of(task)

    assert is_broken(report)
    assert report.conditions[0].reason == "InvalidResult"


async def run_evaluation(task: AnyTask, redactor: Redactor) -> Evaluated:
    resource = make_resource("Cluster")
    context = make_context(
        Adapter("dns"),
        resource,
        http=FakeHttp(),
        event=make_event(resource),
        log=get_logger("test"),
        deadline=START,
    )
    return await run_task(task, resource, context, timeout=30 * SECOND, redact=redactor.redact)


def evaluated(task: AnyTask, redactor: Redactor) -> Evaluated:
    return asyncio.run(run_evaluation(task, redactor))


def report_text(checked: CheckedOutcome) -> str:
    report = make_report(checked, adapter=Adapter("dns"), resource=make_resource("Cluster"), now=START)
    return msgspec.json.encode(report).decode()


def test_a_secret_is_redacted_even_where_the_message_is_cut() -> None:
    secret = "hunter2hunter2hunter2"

    async def task(resource: Resource, context: Context) -> Outcome:
        filling = "x" * (4090 - len("ValueError: "))
        raise ValueError(f"{filling}{secret} at https://user:{secret}@dns.internal and ftp://u:other@host")

    checked = evaluated(task, Redactor([secret])).checked

    assert checked.kind is OutcomeKind.BROKEN
    assert "hunter2" not in checked.outcome.message
    assert "other" not in checked.outcome.message


@pytest.mark.parametrize(
    "text",
    [
        "refused: password=swordfish user=u",
        '{"user": "u", "password": "swordfish"}',
        "{'user': 'u', 'password': 'sword fish: swordfish'}",
        "Authorization: Custom swordfish",
        "POST https://u:swordfish@dns.internal/zones: 401",
        "api_key: swordfish",
    ],
)
def test_a_secret_that_an_exception_quotes_reaches_no_report(text: str) -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        raise ConnectionError(text)

    def blocking(resource: Resource, context: Context) -> Outcome:
        return Failed(text, reason=text, data={"last_error": text})

    raised, returned = evaluated(task, Redactor()), evaluated(blocking, Redactor())

    reports = [report_text(each.checked) for each in (raised, returned)]
    assert "ConnectionError" in reports[0]
    assert "last_error" in reports[1]
    assert "fish" not in "".join(reports)


def test_message_and_reason_of_an_outcome_are_redacted() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Done("connected with hunter2hunter2", reason="hunter2hunter2")

    outcome = evaluated(task, Redactor(["hunter2hunter2"])).checked.outcome

    assert "hunter2" not in f"{outcome.message} {outcome.reason}"


def test_the_data_is_redacted() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Done(data={"dsn": ["postgresql://u:hunter2hunter2@db"], "hunter2hunter2": 1.0, "count": 2})

    checked = evaluated(task, Redactor(["hunter2hunter2"])).checked

    assert checked.data == msgspec.Raw(b'{"dsn":["postgresql://u:***@db"],"***":1.0,"count":2}')


def test_data_without_a_secret_keeps_its_encoding() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Done(data={"large": 2**63, "exact": Decimal("1.50"), "nested": [{"zone": "z1"}, None, True]})

    checked = evaluated(task, Redactor(["hunter2hunter2"])).checked

    assert checked.data == msgspec.Raw(
        b'{"large":9223372036854775808,"exact":"1.50","nested":[{"zone":"z1"},null,true]}'
    )


def test_a_long_message_is_truncated_for_the_report() -> None:
    async def task(resource: Resource, context: Context) -> Outcome:
        return Failed("x" * 10_000_000)

    assert len(evaluated(task, Redactor()).checked.outcome.message) < 5_000


def test_the_exception_is_kept_for_the_log() -> None:
    error = ValueError("x")

    async def task(resource: Resource, context: Context) -> Outcome:
        raise error

    assert evaluated(task, Redactor()).error is error


@simulated
async def test_cancelling_an_evaluation_cancels_its_task() -> None:
    ended: list[str] = []

    async def task(resource: Resource, context: Context) -> Outcome:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("task")
        return Done()

    evaluation = asyncio.create_task(evaluate(adapter_of(task), make_resource("Cluster")))
    await asyncio.sleep(1)
    evaluation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await evaluation

    assert ended == ["task"]


class TestContext:
    def test_a_task_sees_the_reports_of_other_adapters(self) -> None:
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

    def test_an_unexpected_request_fails_like_an_unreachable_server(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            with pytest.raises(HttpFailure, match="GET http://dns"):
                await context.http.get("http://dns")
            return Done()

        assert report_on(adapter_of(task), make_resource("Cluster")).status_of("Available") is TRUE

    def test_a_kind_that_the_adapter_does_not_handle_raises(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            return Done()

        with pytest.raises(LookupError, match="nothing to do for a NodePool"):
            report_on(adapter_of(task), make_resource("NodePool"))

    def test_a_resource_without_a_finalizer_is_finalized(self) -> None:
        async def task(cluster: Resource, context: Context) -> Outcome:
            raise AssertionError("not for a resource that is being deleted")

        report = report_on(adapter_of(task), make_resource("Cluster", deleted_time=START))

        assert report.status_of("Finalized") is TRUE
