"""Running a task so that every run ends in an outcome.

Tasks are user code. A task may raise anything, even an exception that would end the process. It may cancel itself
or be cancelled by a library, never return, ignore its cancellation, or return an invalid result. Each of these
becomes an outcome with a reason, and none of them reaches the service's loop.

An `async def` task runs on the event loop, a plain `def` task in a thread. A thread cannot be cancelled: its
timeout is reported on time, and the thread is handed back to the caller as one that lingers.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import UnsetType

from sentinel.adapter.declaration import Adapter, Cancellation, Context, Task, is_asynchronous
from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Broken, CheckedOutcome, Finalized
from sentinel.core.fleet.documents import Report
from sentinel.core.json import Json
from sentinel.ports.task_http import HttpClient
from sentinel.runtime import durations
from sentinel.runtime.blocking import run_in_thread
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.log_format import describe

_CLEANUP_TIMEOUT = timedelta(seconds=1)
"""How long a cancelled task may clean up. After that its report is sent without waiting for it."""


class Evaluated(msgspec.Struct, frozen=True):
    """The result of an evaluation."""

    checked: CheckedOutcome
    error: BaseException | None = None
    """The exception that the task raised."""
    lingering: asyncio.Future[object] | None = None
    """The task, if it still runs: it ignores its cancellation, or its thread cannot be cancelled."""
    is_interrupted: bool = False
    """Whether the task was cancelled because the adapter stops, and has to run again."""


class _Raised(msgspec.Struct, frozen=True):
    error: BaseException


async def evaluate(
    task: Task | None,
    resource: Resource,
    context: Context,
    *,
    timeout: timedelta,
    redact: Callable[[str], str] = str,
    interruption: asyncio.Future[None] | None = None,
) -> Evaluated:
    """Run the task. Raises only `CancelledError`, if this call is cancelled; the task is then cancelled too.

    Without a task the resource is being deleted and has nothing to clean up. Every text passes through `redact`,
    because exceptions quote the URLs they failed on, passwords included. The task is cancelled as soon as
    `interruption` is done.
    """
    if task is None:
        return Evaluated(tasks.check_outcome(Finalized("There is nothing to clean up"), is_deleting=True))
    running = _start(task, resource, context)
    try:
        ends: set[asyncio.Future[Any]] = {running} if interruption is None else {running, interruption}
        await asyncio.wait(ends, timeout=timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        has_ended = running.done()
        if not has_ended:
            await _cancel(running, context)
    except asyncio.CancelledError:
        await _cancel(running, context)
        raise
    if not has_ended:
        lingering = None if running.done() else running
        if interruption is not None and interruption.done():
            return Evaluated(tasks.interrupted(), lingering=lingering, is_interrupted=True)
        text = f"the task did not end within {durations.render(timeout)}"
        if lingering is not None and not isinstance(lingering, asyncio.Task):
            text = f"{text}, and its thread still runs"
        return Evaluated(broken(text, "Timeout", redact), lingering=lingering)
    if running.cancelled():
        return Evaluated(broken("the task cancelled itself, or a library cancelled it", "Cancelled", redact))
    failure = running.exception()
    result = running.result() if failure is None else _Raised(failure)
    if isinstance(result, _Raised):
        return Evaluated(broken(describe(result.error), "AdapterError", redact), error=result.error)
    try:
        return Evaluated(_redacted(tasks.check_outcome(result, is_deleting=resource.is_deleting), redact))
    except BaseException as error:  # reading attributes of the result may run the author's code
        text = f"the result cannot be read ({describe(error)})"
        return Evaluated(broken(text, "InvalidResult", redact), error=error)


async def evaluate_once(
    adapter: Adapter,
    resource: Resource,
    *,
    http: HttpClient,
    event: ReceivedEvent,
    timeout: timedelta,
    now: datetime,
) -> Report:
    """Evaluate a resource as the service does, without a broker or an API, and return the report.

    Tests of adapters use this, so that they run the same code as production. Raises `LookupError` if the adapter
    does not handle the resource.
    """
    if not adapter.handles(resource):
        raise LookupError(f"adapter {adapter.name} has nothing to do for a {resource.kind}; see its `kinds`")
    context = make_context(
        adapter, resource, http=http, event=event, log=get_logger("task"), deadline=now + timeout
    )
    evaluated = await evaluate(adapter.task_for(resource), resource, context, timeout=timeout)
    return make_report(evaluated.checked, adapter=adapter, resource=resource, now=now)


def make_context(
    adapter: Adapter, resource: Resource, *, http: HttpClient, event: ReceivedEvent, log: Log, deadline: datetime
) -> Context:
    """The context of an evaluation of this resource."""
    return Context(
        adapter=adapter.name,
        http=http,
        event=event,
        log=log.bind(
            adapter=adapter.name, resource_id=resource.id, kind=resource.kind, generation=resource.generation
        ),
        previous=resource.newest_of(adapter.name),
        deadline=deadline,
        cancellation=Cancellation(),
        loop=asyncio.get_running_loop(),
    )


def make_report(checked: CheckedOutcome, *, adapter: Adapter, resource: Resource, now: datetime) -> Report:
    """The report on an evaluation of this resource."""
    return tasks.report(
        checked, adapter=adapter.name, generation=resource.generation, is_deleting=resource.is_deleting, at=now
    )


def broken(message: str, reason: str, redact: Callable[[str], str]) -> CheckedOutcome:
    """The outcome when the adapter itself failed; redacted like those of `evaluate`."""
    return _redacted(CheckedOutcome(Broken(message, reason)), redact)


def _start(task: Task, resource: Resource, context: Context) -> asyncio.Future[object]:
    name = f"evaluate {resource.id}"
    if is_asynchronous(task):
        asynchronous = cast("Callable[[Resource, Context], Awaitable[object]]", task)
        return asyncio.create_task(_guarded(asynchronous, resource, context), name=name)
    return run_in_thread(partial(_guarded_blocking, task, resource, context), name=name)


def _guarded_blocking(task: Task, resource: Resource, context: Context) -> object:
    try:
        result = task(resource, context)
    except BaseException as error:  # a future does not take every exception
        return _Raised(error)
    if inspect.iscoroutine(result):
        result.close()
        return _Raised(TypeError("a plain `def` task returned a coroutine; declare it with `async def`"))
    return result


async def _guarded(
    task: Callable[[Resource, Context], Awaitable[object]], resource: Resource, context: Context
) -> object:
    try:
        return await task(resource, context)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # asyncio would stop the whole event loop for a task's SystemExit
        return _Raised(error)


async def _cancel(running: asyncio.Future[object], context: Context) -> None:
    context.cancellation.request()
    if isinstance(running, asyncio.Task):
        running.cancel()
    await asyncio.wait({running}, timeout=_CLEANUP_TIMEOUT.total_seconds())


def _redacted(checked: CheckedOutcome, redact: Callable[[str], str]) -> CheckedOutcome:
    """Redact first and shorten afterwards: half a secret would not be recognized."""
    outcome = checked.outcome
    redacted = msgspec.structs.replace(outcome, message=redact(outcome.message), reason=redact(outcome.reason))
    data = checked.data
    if not isinstance(data, UnsetType):
        decoded: Json = msgspec.json.decode(data)
        harmless = _redacted_json(decoded, redact)
        # Encode again only if something changed: encoding may write numbers differently.
        data = data if harmless == decoded else msgspec.Raw(msgspec.json.encode(harmless))
    return tasks.truncated(CheckedOutcome(redacted, data))


def _redacted_json(value: Json, redact: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted_json(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(name): _redacted_json(item, redact) for name, item in value.items()}
    return value
