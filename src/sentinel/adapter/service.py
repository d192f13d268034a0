"""An adapter at work: events come in, resources are looked at, reports go out, and only then are events settled.

Each event is a hint at a resource. The resource is read again, the task for its kind runs, and what it came to is
reported, always. An event is acknowledged when the API has stored the report or has deliberately discarded it;
whatever happens before that, the broker still has it. So a crash at any point costs a repetition and nothing
else, and the tasks are safe to repeat.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from sentinel.adapter.api_gate import ApiGate, ApiOperation, RetriesExhausted
from sentinel.adapter.context import Cancellation, Context
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.evaluation import Evaluated, broken, evaluate
from sentinel.adapter.observer import AdapterObserver, Evaluation, ReportDisposition, SkipReason
from sentinel.core.adapter import event_target
from sentinel.core.adapter import task as tasks
from sentinel.core.adapter.event_target import EventTarget, ResourceRef
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Conclusion
from sentinel.core.fleet.documents import Report
from sentinel.ports.adapter_api import AdapterApi, ReportRefused
from sentinel.ports.clock import Clock
from sentinel.ports.subscription import Delivery, Subscriber
from sentinel.ports.task_http import HttpClient
from sentinel.runtime import workqueue
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log, describe


class DeliveriesEnded(Exception):
    """Nothing will ever come any more; an adapter that waited on would look alive and be deaf."""


class Call(msgspec.Struct, frozen=True):
    """An event that waits for its resource to be looked at."""

    hint: EventTarget
    delivery: Delivery


class AdapterService:
    """One adapter. Run `run`; ask `checks` how it is."""

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
    ) -> None:
        """`log` is what the tasks write to, and what hears of messages that our own reading fails on. `redact`
        takes secrets out of what is reported. Once the service ends tasks may go on for `grace_period`, which has to
        leave time for saying that they were cut off."""
        self._adapter = adapter
        self._subscriber = subscriber
        self._api = api
        self._http = http
        self._clock = clock
        self._observer = observer
        self._log = log
        self._last_work = grace_period
        self._task_timeout = task_timeout
        self._report_max_age = report_max_age
        self._redact = redact
        self._asking = ApiGate(clock=clock, watcher=observer, random=jitter)
        self._queue: workqueue.WorkQueue[str, Call] = workqueue.WorkQueue(
            clock=clock, log=log.bind(adapter=adapter.name), workers=concurrency, jitter=jitter
        )
        """Ids of resources, each with the events that ask for it. The broker's limit on deliveries bounds it."""
        self._interruption: asyncio.Future[None] | None = None
        """Done when tasks have no more time, because the service ends."""
        self._lingering: dict[str, asyncio.Task[Any]] = {}

    @property
    def checks(self) -> Mapping[str, Callable[[], str | None]]:
        """Readiness: None where all is well, otherwise what is wrong."""
        return {"hyperfleet_api": self._asking.trouble, "broker": self._subscriber.trouble}

    async def run(self, stopping: Stopping) -> None:
        """Answers events until stopped; then takes in no more, and ends what it has begun, or says that it cannot.

        What was not begun by then, was cut off, or could not be reported, is left to the broker.
        """
        kind = next(iter(self._adapter.kinds), "")
        loop = asyncio.get_running_loop()
        self._interruption = loop.create_future()
        last_call: asyncio.TimerHandle | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._asking.keep_asking(lambda: self._api.probe(kind), stopping))
                group.create_task(self._queue.run(partial(self._process, stopping), stopping))
                if not await stopping.interrupts(self._take_in(group)):
                    raise DeliveriesEnded(
                        "the subscription delivers no more, although nobody has asked us to stop"
                    )
                last_call = loop.call_later(self._last_work.total_seconds(), self._interruption.set_result, None)
        finally:
            if last_call is not None:
                last_call.cancel()

    async def _take_in(self, group: asyncio.TaskGroup) -> None:
        deliveries = self._subscriber.deliveries()
        try:
            async for delivery in deliveries:
                self._admit(delivery, group)
                # The gate is in front of the queue and not inside it: what is not taken in stays with the broker,
                # for a replica that can reach the API.
                await self._asking.until_well()
        finally:
            if isinstance(deliveries, AsyncGenerator):
                await deliveries.aclose()

    def _admit(self, delivery: Delivery, group: asyncio.TaskGroup) -> None:
        """Settling is not waited for here: a broker that is slow to answer must not keep the others waiting."""
        message = delivery.message
        try:
            hint = event_target.read(
                body=message.body, content_type=message.content_type, attributes=message.attributes
            )
        except event_target.InvalidEvent as error:
            self._refuse(delivery, str(error), group)
            return
        except Exception as error:  # the loop's edge: nothing that strangers send may end the work on the others
            self._log.unexpected("message.unreadable", event_id=message.attributes.get("id", ""), error=error)
            self._refuse(delivery, f"the message cannot be read: {describe(error)}", group)
            return
        if not self._adapter.may_handle(hint.pointer.kind):
            self._observer.skipped(SkipReason.OTHER_KIND, hint.pointer.id, 1)
            group.create_task(delivery.ack())
            return
        self._queue.add(hint.pointer.id, Call(hint, delivery))

    def _refuse(self, delivery: Delivery, reason: str, group: asyncio.TaskGroup) -> None:
        """Gives up a message of which it is not even known what resource it is about."""
        self._observer.dead_lettered(reason, delivery.message.attributes.get("id", ""), "")
        group.create_task(delivery.dead_letter(reason))

    async def _process(self, stopping: Stopping, resource_id: str, calls: Sequence[Call]) -> workqueue.Result:
        """Never `Again`, and no exception: events that could not be answered go back to the broker, which delivers
        them again after a delay of its own, to this process or to another."""
        result: workqueue.Result = workqueue.Done()
        try:
            await self._attend(calls, stopping)
        except RetriesExhausted as error:
            # When the service ends, the subscriber gives back what is left, and does not wait before it does.
            if not stopping.requested:
                await self._give_back(str(error), calls)
            result = workqueue.Never(str(error))
        except (Exception, asyncio.CancelledError) as error:  # not left to the queue: the events need settling
            if workqueue.is_cancelled(error):
                raise
            self._observer.crashed(resource_id, error)
            await _settle(call.delivery.nack() for call in calls)
            result = workqueue.Never(describe(error))
        await self._outlast(resource_id, stopping)
        return result

    async def _outlast(self, resource_id: str, stopping: Stopping) -> None:
        """Nobody else looks at a resource before a task that ignores its cancellation is really over. It keeps its
        worker, so that there are never more tasks than were asked for."""
        lingering = self._lingering.pop(resource_id, None)
        if lingering is not None:
            await stopping.interrupts(_ended(lingering))

    async def _attend(self, calls: Sequence[Call], stopping: Stopping) -> None:
        """Looks at one resource, and settles its events once the report about it is accepted."""
        self._observer.dequeued(self._clock.now() - min(map(_asked, calls)))
        pointer = _best_pointer(calls)
        resource = await self._asking.ask(ApiOperation.READ, lambda: self._api.get(pointer), stopping)
        skipped = self._reason_to_skip(resource)
        if resource is None or skipped is not None:
            self._observer.skipped(skipped or SkipReason.GONE, pointer.id, len(calls))
            await _settle(call.delivery.ack() for call in calls)
            return
        evaluated = await self._evaluate(resource, calls)
        if evaluated.lingering is not None:
            self._lingering[pointer.id] = evaluated.lingering
        try:
            await self._report(resource, evaluated.conclusion, stopping)
        except ReportRefused as error:
            self._observer.reported(resource, ReportDisposition.REFUSED, str(error))
            await self._bury(f"the API refused the report: {error}", calls)
            return
        if evaluated.is_interrupted:
            return  # to the broker, by the subscriber as it closes, and from there at once to whoever goes on
        await _settle(call.delivery.ack() for call in calls)

    def _reason_to_skip(self, resource: Resource | None) -> SkipReason | None:
        if resource is None:
            return SkipReason.GONE
        if not self._adapter.handles(resource):
            return SkipReason.OTHER_KIND
        is_fresh = resource.has_fresh_report(
            self._adapter.name, now=self._clock.now(), max_age=self._report_max_age
        )
        return SkipReason.FRESH if is_fresh else None

    async def _evaluate(self, resource: Resource, calls: Sequence[Call]) -> Evaluated:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        context = Context(
            adapter=self._adapter.name,
            http=self._http,
            event=calls[-1].hint.event,
            log=self._log.bind(
                adapter=self._adapter.name,
                resource_id=resource.id,
                kind=resource.kind,
                generation=resource.generation,
            ),
            previous=resource.report_of(self._adapter.name),
            deadline=self._clock.now() + self._task_timeout,
            cancellation=Cancellation(),
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
        outcome = evaluated.conclusion.outcome
        self._observer.evaluated(
            Evaluation(
                resource=resource,
                ending=evaluated.conclusion.ending,
                reason=outcome.reason,
                message=outcome.message,
                duration=timedelta(seconds=loop.time() - begun),
                events=len(calls),
                error=evaluated.error,
                is_lingering=evaluated.lingering is not None,
            )
        )
        return evaluated

    async def _report(self, resource: Resource, conclusion: Conclusion, stopping: Stopping) -> None:
        """Reports, and where the API refuses that, reports the refusal; raises `ReportRefused` where it refuses
        that as well."""
        try:
            await self._send(resource, self._compose(resource, conclusion), stopping)
        except ReportRefused as error:
            self._observer.reported(resource, ReportDisposition.REFUSED, str(error))
            said = f"the API refused the report on this evaluation: {error}"
            refused = broken(said, "ReportRefused", self._redact)
            await self._send(resource, self._compose(resource, refused), stopping)

    def _compose(self, resource: Resource, conclusion: Conclusion) -> Report:
        return tasks.report(
            conclusion,
            adapter=self._adapter.name,
            generation=resource.generation,
            is_deleting=resource.is_deleting,
            at=self._clock.now(),
        )

    async def _send(self, resource: Resource, report: Report, stopping: Stopping) -> None:
        answer = await self._asking.ask(
            ApiOperation.REPORT,
            lambda: self._api.report(resource, report),
            stopping,
        )
        self._observer.reported(resource, ReportDisposition(answer.outcome.value), answer.reason)

    async def _give_back(self, reason: str, calls: Sequence[Call]) -> None:
        self._observer.nacked(reason, calls[-1].hint.pointer.id, len(calls))
        await _settle(call.delivery.nack() for call in calls)

    async def _bury(self, reason: str, calls: Sequence[Call]) -> None:
        """Gives up one message of those that say the same; the rest would only be the same letter again."""
        *others, newest = calls
        reason = self._redact(reason)
        self._observer.dead_lettered(reason, newest.hint.event.id, newest.hint.pointer.id)
        await newest.delivery.dead_letter(reason)
        await _settle(call.delivery.ack() for call in others)


async def _settle(settlements: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*settlements)


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task})


def _asked(call: Call) -> datetime:
    return call.delivery.published_time or call.delivery.received_time


def _best_pointer(calls: Sequence[Call]) -> ResourceRef:
    """The newest with the shortest way to the resource."""
    pointers = [call.hint.pointer for call in reversed(calls)]
    return next((pointer for pointer in pointers if pointer.href), pointers[0])
