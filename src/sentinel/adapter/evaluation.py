"""Running a task so that, whatever it does, an outcome comes of it.

A task is somebody else's code. It may raise anything, also what would end the process; be cancelled by itself or
by a library; never return; ignore that it was cancelled; return nonsense. Each of these is an outcome here, with
the reason in words, and none of them reaches the loop around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import UnsetType

from sentinel.adapter.context import Context
from sentinel.adapter.declaration import Task
from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Broken, CheckedOutcome, Finalized
from sentinel.core.json import Json
from sentinel.runtime import durations
from sentinel.runtime.log_format import describe

_GRACE = timedelta(seconds=1)
"""How long a task that was cancelled may take to clean up before its report is sent without waiting for it."""


class Evaluated(msgspec.Struct, frozen=True):
    """What an evaluation came to."""

    conclusion: CheckedOutcome
    error: BaseException | None = None
    """What the task raised."""
    lingering: asyncio.Task[object] | None = None
    """The task itself, where it ignores that it was cancelled."""
    is_interrupted: bool = False
    """The task was cut off, because the adapter ends, and has to be run again."""


class _Raised(msgspec.Struct, frozen=True):
    error: BaseException


async def evaluate(
    task: Task | None,
    resource: Resource,
    context: Context,
    *,
    timeout: timedelta,
    redact: Callable[[str], str] = str,
    grace: timedelta = _GRACE,
    interruption: asyncio.Future[None] | None = None,
) -> Evaluated:
    """Runs the task; raises only where this itself is cancelled, and then the task is, too.

    Without a task, the resource is one that is being deleted and for which there is nothing to clean up. Every
    text passes `redact`: an exception quotes the URL it failed on, password included. When `interruption` is done
    the task has no more time.
    """
    if task is None:
        return Evaluated(tasks.check_outcome(Finalized("There is nothing to clean up"), is_deleting=True))
    running = asyncio.create_task(_guarded(task, resource, context), name=f"evaluate {resource.id}")
    try:
        ends: set[asyncio.Future[Any]] = {running} if interruption is None else {running, interruption}
        await asyncio.wait(ends, timeout=timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        is_ended = running.done()
        if not is_ended:
            await _cancel(running, context, grace)
    except asyncio.CancelledError:
        await _cancel(running, context, grace)
        raise
    if not is_ended:
        lingering = None if running.done() else running
        if interruption is not None and interruption.done():
            return Evaluated(tasks.interrupted(), lingering=lingering, is_interrupted=True)
        text = f"the task did not end within {durations.render(timeout)}"
        return Evaluated(broken(text, "Timeout", redact), lingering=lingering)
    if running.cancelled():
        return Evaluated(broken("the task was cancelled, by itself or by something it used", "Cancelled", redact))
    result = running.result()
    if isinstance(result, _Raised):
        return Evaluated(broken(describe(result.error), "AdapterError", redact), error=result.error)
    try:
        return Evaluated(_redacted(tasks.check_outcome(result, is_deleting=resource.is_deleting), redact))
    except BaseException as error:  # even to look at a result may run somebody else's code
        text = f"the result cannot be looked at ({describe(error)})"
        return Evaluated(broken(text, "InvalidResult", redact), error=error)


async def _guarded(task: Task, resource: Resource, context: Context) -> object:
    try:
        return await task(resource, context)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # asyncio would end the whole loop for a SystemExit that a task raises
        return _Raised(error)


async def _cancel(running: asyncio.Task[object], context: Context, grace: timedelta) -> None:
    context.cancellation.request()
    running.cancel()
    await asyncio.wait({running}, timeout=grace.total_seconds())


def broken(message: str, reason: str, redact: Callable[[str], str]) -> CheckedOutcome:
    """What is said where not the resource is at fault; like all that `evaluate` concludes, fit to be reported."""
    return _redacted(CheckedOutcome(Broken(message, reason)), redact)


def _redacted(conclusion: CheckedOutcome, redact: Callable[[str], str]) -> CheckedOutcome:
    """Without secrets, and only then of a bearable length: half a secret would not be recognised."""
    outcome = conclusion.outcome
    told = msgspec.structs.replace(outcome, message=redact(outcome.message), reason=redact(outcome.reason))
    data = conclusion.data
    if not isinstance(data, UnsetType):
        said: Json = msgspec.json.decode(data)
        harmless = _redacted_json(said, redact)
        # Encoded anew only where it has to be, for that may write numbers in another way.
        data = data if harmless == said else msgspec.Raw(msgspec.json.encode(harmless))
    return tasks.truncated(CheckedOutcome(told, data))


def _redacted_json(value: Json, redact: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted_json(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(name): _redacted_json(item, redact) for name, item in value.items()}
    return value
