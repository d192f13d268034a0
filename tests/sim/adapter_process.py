"""A simulated adapter process: the real adapter service on fake ports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from sentinel.adapter.observer import ApiOperation, Evaluation, SkipReason
from sentinel.adapter.service import AdapterService
from sentinel.core.adapter.resource import Resource
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.adapter_api import AdapterApi, ReportResult
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.subscription import Subscriber
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.testing.task_http import FakeHttp
from tests.sim.adapters import AdapterBackend, TaskError
from tests.sim.faults import FaultRates
from tests.sim.fleet_checker import FleetChecker
from tests.sim.message_checker import MessageChecker, MessageLog
from tests.sim.network import Network, NetworkReporting
from tests.sim.process import DRAIN, SimulatedProcess
from tests.sim.trace import Trace

_LAST_WORK = DRAIN * 3 / 4


class SimulatedAdapter(SimulatedProcess):
    """One replica; the replicas of an adapter share a subscription and a backend."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        backend: AdapterBackend,
        broker: MemoryBroker,
        messages: MessageLog,
        network: Network,
        faults: FaultRates,
        fleet_checker: FleetChecker,
        wrap_subscriber: Callable[[Subscriber], Subscriber],
        wrap_reporting: Callable[[AdapterApi], AdapterApi],
        concurrency: int,
        task_timeout: timedelta,
        report_max_age: timedelta,
        skew: timedelta,
        random: Random,
    ) -> None:
        super().__init__(name, trace, network=network, skew=skew)
        self.backend = backend
        self._messages = messages
        self._subscribe = partial(broker.subscribe, max_in_flight=2 * concurrency)
        self._wrap_subscriber = wrap_subscriber
        self._make_reporting = partial(NetworkReporting, network, faults=faults, checker=fleet_checker)
        self._wrap_reporting = wrap_reporting
        self._report_max_age = report_max_age
        self._make_service = partial(
            AdapterService,
            grace_period=_LAST_WORK,
            concurrency=concurrency,
            task_timeout=task_timeout,
            report_max_age=report_max_age,
            jitter=random.random,
        )
        self._subscriber: Subscriber | None = None

    def _run(self, stopping: Stopping) -> Coroutine[Any, Any, None]:
        adapter = self.backend.adapter()
        checker = MessageChecker(
            self, messages=self._messages, adapter=adapter, report_max_age=self._report_max_age
        )
        self._subscriber = self._wrap_subscriber(checker.subscriber(self._subscribe(adapter.name)))
        service = self._make_service(
            adapter=adapter,
            subscriber=self._subscriber,
            api=self._wrap_reporting(checker.reporting(self._make_reporting(adapter=adapter.name))),
            http=FakeHttp(),
            clock=self.clock,
            observer=_TraceObserver(self.name, self.trace),
            log=self.trace.log(self.name),
        )
        return service.run(stopping)

    async def _disconnect(self) -> None:
        if self._subscriber is not None:
            await self._subscriber.close()


class _TraceObserver:
    """An `AdapterObserver` that writes to the trace. An unexpected error is a violation."""

    def __init__(self, name: str, trace: Trace) -> None:
        self._name = name
        self._trace = trace

    def dequeued(self, queue_age: timedelta) -> None: ...

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        self._trace.note(self._name, f"skips {resource_id}: {reason}")

    def started(self) -> None: ...

    def evaluated(self, evaluation: Evaluation) -> None:
        resource = evaluation.resource
        outcome = f"{evaluation.outcome} {evaluation.reason}"
        self._trace.note(self._name, f"evaluated {resource.id}@{resource.generation}: {outcome}")
        if evaluation.error is not None and not isinstance(evaluation.error, TaskError):
            self._trace.unexpected(self._name, evaluation.error)

    def interrupted(self) -> None: ...

    def reported(self, resource: Resource, result: ReportResult) -> None: ...

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None: ...

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._trace.note(self._name, f"nacks {events} about {resource_id}", reason)

    def api_failed(self, operation: ApiOperation, error: ApiUnavailable) -> None:
        self._trace.note(self._name, f"cannot {operation}", error)

    def api_recovered(self, operation: ApiOperation) -> None: ...

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self._trace.unexpected(f"{self._name} on {resource_id}", error)
