"""One evaluation by itself: an adapter, a resource, and the report that would be sent.

What the service does between reading a resource and sending the report, without either. It is what tests of
adapters run, so that they run the very code that production does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sentinel.adapter.context import Cancellation, Context
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.evaluation import evaluate
from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.core.adapter.resource import Resource
from sentinel.core.fleet.documents import Report
from sentinel.ports.task_http import HttpClient
from sentinel.runtime.log import get_logger


async def rehearse(
    adapter: Adapter,
    resource: Resource,
    *,
    http: HttpClient,
    event: ReceivedEvent,
    timeout: timedelta,
    at: datetime,
    redact: Callable[[str], str] = str,
) -> Report:
    """The report on an evaluation of this resource that was made at this moment.

    Raises `LookupError` where the adapter does nothing for such a resource.
    """
    if not adapter.handles(resource):
        raise LookupError(f"adapter {adapter.name} has nothing to do for a {resource.kind}; see its `kinds`")
    context = Context(
        adapter=adapter.name,
        http=http,
        event=event,
        log=get_logger("task").bind(adapter=adapter.name, resource_id=resource.id),
        previous=resource.report_of(adapter.name),
        deadline=at + timeout,
        cancellation=Cancellation(),
    )
    evaluated = await evaluate(adapter.task_for(resource), resource, context, timeout=timeout, redact=redact)
    return tasks.report(
        evaluated.conclusion,
        adapter=adapter.name,
        generation=resource.generation,
        is_deleting=resource.is_deleting,
        at=at,
    )
