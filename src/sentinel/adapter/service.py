"""The adapter service: it receives events, evaluates their resources and reports to the API.

An event only says which resource to look at. The service reads the resource again, runs the task for its kind and
always reports the outcome. It acks the event when the API has stored or deliberately discarded the report. Until
then the broker keeps the event, so a crash at any point costs a repetition, and tasks are safe to repeat.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from sentinel.adapter.api_gate import ApiGate, RetriesExhausted
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.evaluation import Evaluated, broken, evaluate, make_context, make_report
from sentinel.adapter.observer import AdapterObserver, ApiOperation, Evaluation, SkipReason
from sentinel.core.adapter import event_target
from sentinel.core.adapter.event_target import EventTarget, ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import CheckedOutcome, OutcomeKind
from sentinel.ports.adapter_api import AdapterApi, ReportOutcome, ReportResult
from sentinel.ports.clock import Clock
from sentinel.ports.subscription import Delivery, Subscriber
from sentinel.ports.task_http import HttpClient
from sentinel.runtime import workqueue
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe
from sentinel.runtime.tracing import NO_TRACING, Span, SpanKind, Tracer


class DeliveriesEnded(Exception):
    """The subscription ended unexpectedly. An adapter that kept running would look healthy but receive nothing."""


class QueuedEvent(msgspec.Struct, frozen=True):
    """An event whose resource waits for its evaluation."""

    target: EventTarget
    delivery: Delivery

    @property
    def traceparent(self) -> str:
        return self.target.event.attributes.get("traceparent", "")

    @property
    def published_time(self) -> datetime:
        return self.delivery.published_time or self.delivery.received_time


class AdapterService:
    """One adapter. `run` does the work, `checks` are its readiness."""

    def __init__(
        self,
        *,
        adapter: Adapter,
        subscriber: Subscriber,
        api: AdapterApi,
        http: HttpClient,
        clock: Clock,
        observer: AdapterObserver,
        log: Log,
        grace_period: timedelta,
        concurrency: int = 10,
        task_timeout: timedelta = timedelta(seconds=30),
        report_max_age: timedelta = timedelta(0),
        redact: Callable[[str], str] = str,
        jitter: Callable[[], float] = random.random,
        tracer: Tracer = NO_TRACING,
    ) -> None:
        """`log` is for tasks and for messages that cannot be read. `redact` removes secrets from reports.

        When the service stops, tasks may run for `grace_period`. It has to leave time in the lifecycle's drain to
        report that they were interrupted.
        """
        self._adapter = adapter
        self._subscriber = subscriber
        self._api = api
        self._http = http
        self._clock = clock
        self._observer = observer
        self._log = log
        self._grace_period = grace_period
        self._task_timeout = task_timeout
        self._report_max_age = report_max_age
        self._redact = redact
        self._tracer = tracer
        self._gate = ApiGate(clock=clock, observer=observer, jitter=jitter)
        self._queue: workqueue.WorkQueue[str, QueuedEvent] = workqueue.WorkQueue(
            clock=clock, log=log.bind(adapter=adapter.name), workers=concurrency, jitter=jitter
        )
        """Resource ids with their events. The broker bounds it by the number of unsettled deliveries."""
        self._interruption: asyncio.Future[None] | None = None
        """Done when the grace period is over."""
        self._concurrency = concurrency
        self._lingering: dict[str, asyncio.Future[object]] = {}
        """Tasks that still run after their evaluation has ended, by resource id."""
        self._kept_workers = 0
        """How many workers wait for such tasks."""

    @property
    def checks(self) -> Mapping[str, Callable[[], str | None]]:
        """Readiness checks: each returns what is wrong, or None."""
        return {
            "hyperfleet_api": self._gate.unavailable_reason,
            "broker": self._subscriber.unavailable_reason,
            "tasks": self._capacity_problem,
        }

    async def run(self, stopping: Stopping) -> None:
        """Process events until stopped, then receive no more and finish the running evaluations.

        Events that are still queued, were interrupted or could not be reported stay with the broker.
        """
        kind = next(iter(self._adapter.kinds), "")
        loop = asyncio.get_running_loop()
        self._interruption = loop.create_future()
        grace_timer: asyncio.TimerHandle | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._gate.keep_probing(lambda: self._api.probe(kind), stopping))
                group.create_task(self._queue.run(partial(self._process, stopping), stopping))
                if not await stopping.interrupts(self._receive(group)):
                    raise DeliveriesEnded("the subscription ended although the service was not asked to stop")
                delay = self._grace_period.total_seconds()
                grace_timer = loop.call_later(delay, self._interruption.set_result, None)
        finally:
            if grace_timer is not None:
                grace_timer.cancel()

    def _capacity_problem(self) -> str | None:
        if self._kept_workers < self._concurrency:
            return None
        return f"all {self._concurrency} workers wait for tasks that did not end after their timeout"

    async def _receive(self, group: asyncio.TaskGroup) -> None:
        deliveries = self._subscriber.deliveries()
        try:
            async for delivery in deliveries:
                self._enqueue(delivery, group)
                # While the API is unavailable, leave deliveries to replicas that can reach it.
                await self._gate.wait_until_available()
        finally:
            if isinstance(deliveries, AsyncGenerator):
                await deliveries.aclose()

    def _enqueue(self, delivery: Delivery, group: asyncio.TaskGroup) -> None:
        """Queue the event, or settle it in a task: a slow broker must not delay the next delivery."""
        message = delivery.message
        try:
            target = event_target.read(
                body=message.body, content_type=message.content_type, attributes=message.attributes
            )
        except Exception as error:  # no message may stop the service
            event_id = message.attributes.get("id", "")
            reason = str(error)
            if not isinstance(error, event_target.InvalidEvent):
                self._log.exception("message.unreadable", event_id=event_id, error=error)
                reason = f"the message cannot be read: {describe(error)}"
            self._observer.dead_lettered(reason, event_id, "")
            group.create_task(delivery.dead_letter(reason))
            return
        ref = target.ref
        if not self._adapter.may_handle(ref.kind):
            self._observer.skipped(SkipReason.OTHER_KIND, ref.id, 1)
            group.create_task(delivery.ack())
            return
        self._queue.add(ref.id, QueuedEvent(target, delivery))

    async def _process(
        self, stopping: Stopping, resource_id: str, events: Sequence[QueuedEvent]
    ) -> workqueue.RunResult:
        """Reconcile the resource, and nack its events if that fails.

        Never returns `Again` and never raises: the broker redelivers nacked events after its own backoff, to this
        process or to another.
        """
        result: workqueue.RunResult = workqueue.Completed()
        try:
            with self._tracer.span(
                "sentinel.evaluation",
                span_kind=SpanKind.CONSUMER,
                # The newest event comes first: its cycle saw the latest state. The older ones become links.
                continues=(event.traceparent for event in reversed(events)),
                adapter=self._adapter.name,
                resource_id=resource_id,
                events=len(events),
            ) as span:
                await self._reconcile(events, stopping, span)
        except RetriesExhausted as error:
            # When the service stops, closing the subscriber requeues unsettled deliveries without a delay.
            if not stopping.requested:
                self._observer.nacked(str(error), resource_id, len(events))
                await _nack(events)
            result = workqueue.Never(str(error))
        except (Exception, asyncio.CancelledError) as error:  # not left to the queue: the events must be settled
            if workqueue.is_cancelled(error):
                raise
            self._observer.crashed(resource_id, error)
            await _nack(events)
            result = workqueue.Never(describe(error))
        lingering = self._lingering.pop(resource_id, None)
        if lingering is not None:
            # The task keeps its worker until it ends, so it never runs twice for one resource and there are never
            # more tasks and threads than `concurrency`.
            self._kept_workers += 1
            try:
                await stopping.interrupts(_wait_for(lingering))
            finally:
                self._kept_workers -= 1
        return result

    async def _reconcile(self, events: Sequence[QueuedEvent], stopping: Stopping, span: Span) -> None:
        """Read the resource, evaluate it, report, and then settle the events."""
        self._observer.dequeued(self._clock.now() - min(event.published_time for event in events))
        ref = _best_ref(events)
        resource = await self._gate.call_with_retry(ApiOperation.READ, lambda: self._api.get(ref), stopping)
        skip_reason = self._skip_reason(resource)
        if resource is None or skip_reason is not None:
            skip_reason = skip_reason or SkipReason.GONE
            span.set(skipped=skip_reason)
            self._observer.skipped(skip_reason, ref.id, len(events))
            await _ack(events)
            return
        span.set(kind=resource.kind, generation=resource.generation)
        with self._tracer.span("sentinel.task") as task_span:
            evaluated = await self._evaluate(resource, events)
            if evaluated.checked.kind is OutcomeKind.BROKEN:
                task_span.fail(evaluated.checked.outcome.message)
        span.set(outcome=evaluated.checked.kind, reason=evaluated.checked.outcome.reason)
        if evaluated.lingering is not None:
            self._lingering[ref.id] = evaluated.lingering
        result = await self._report(resource, evaluated.checked, stopping)
        if result.outcome is ReportOutcome.REFUSED:
            # The report itself may be at fault. One about the refusal usually is accepted.
            text = f"the API refused the report on this evaluation: {result.reason}"
            result = await self._report(resource, broken(text, "ReportRefused", self._redact), stopping)
        span.set(report=result.outcome)
        if result.outcome is ReportOutcome.REFUSED:
            await self._dead_letter(f"the API refused the report: {result.reason}", events)
        elif not evaluated.is_interrupted:
            # Interrupted events stay unsettled: closing the subscriber requeues them for the next process.
            await _ack(events)

    def _skip_reason(self, resource: Resource | None) -> SkipReason | None:
        if resource is None:
            return SkipReason.GONE
        if not self._adapter.handles(resource):
            return SkipReason.OTHER_KIND
        is_fresh = resource.has_fresh_report(
            self._adapter.name, now=self._clock.now(), max_age=self._report_max_age
        )
        return SkipReason.FRESH if is_fresh else None

    async def _evaluate(self, resource: Resource, events: Sequence[QueuedEvent]) -> Evaluated:
        loop = asyncio.get_running_loop()
        started = loop.time()
        context = make_context(
            self._adapter,
            resource,
            http=self._http,
            event=events[-1].target.event,
            log=self._log,
            deadline=self._clock.now() + self._task_timeout,
        )
        self._observer.started()
        try:
            evaluated = await evaluate(
                self._adapter.task_for(resource),
                resource,
                context,
                timeout=self._task_timeout,
                redact=self._redact,
                interruption=self._interruption,
            )
        except asyncio.CancelledError:
            self._observer.interrupted()
            raise
        outcome = evaluated.checked.outcome
        self._observer.evaluated(
            Evaluation(
                resource=resource,
                outcome=evaluated.checked.kind,
                reason=outcome.reason,
                message=outcome.message,
                duration=timedelta(seconds=loop.time() - started),
                events=len(events),
                error=evaluated.error,
                is_lingering=evaluated.lingering is not None,
            )
        )
        return evaluated

    async def _report(self, resource: Resource, checked: CheckedOutcome, stopping: Stopping) -> ReportResult:
        report = make_report(checked, adapter=self._adapter, resource=resource, now=self._clock.now())
        result = await self._gate.call_with_retry(
            ApiOperation.REPORT, lambda: self._api.report(resource, report), stopping
        )
        self._observer.reported(resource, result)
        return result

    async def _dead_letter(self, reason: str, events: Sequence[QueuedEvent]) -> None:
        """Dead-letter the newest event and ack the others: they would be copies of the same dead letter."""
        *others, newest = events
        reason = self._redact(reason)
        self._observer.dead_lettered(reason, newest.target.event.id, newest.target.ref.id)
        await newest.delivery.dead_letter(reason)
        await _ack(others)


async def _ack(events: Sequence[QueuedEvent]) -> None:
    await asyncio.gather(*(event.delivery.ack() for event in events))


async def _nack(events: Sequence[QueuedEvent]) -> None:
    await asyncio.gather(*(event.delivery.nack() for event in events))


async def _wait_for(task: asyncio.Future[object]) -> None:
    await asyncio.wait({task})


def _best_ref(events: Sequence[QueuedEvent]) -> ResourceRef:
    """The newest reference that has the resource's path, which saves a request; otherwise the newest."""
    refs = [event.target.ref for event in reversed(events)]
    return next((ref for ref in refs if ref.href), refs[0])
