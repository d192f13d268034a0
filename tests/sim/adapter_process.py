"""One replica of an adapter as a process of the simulation: the real runtime on fakes of its ports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
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
from tests.sim.chance import Weather
from tests.sim.fleet_witness import FleetWitness
from tests.sim.message_witness import Ledger, MessageWitness
from tests.sim.network import Network, NetworkReporting
from tests.sim.process import DRAIN, Process
from tests.sim.trace import Trace
from tests.sim.trades import Mishap, Workshop

_LAST_WORK = DRAIN * 3 / 4


class AdapterProcess(Process):
    """A replica; those of one adapter share a subscription and a workshop."""

    def __init__(
        self,
        name: str,
        trace: Trace,
        *,
        workshop: Workshop,
        broker: MemoryBroker,
        ledger: Ledger,
        network: Network,
        weather: Weather,
        fleet_witness: FleetWitness,
        around_subscriber: Callable[[Subscriber], Subscriber],
        around_reporting: Callable[[AdapterApi], AdapterApi],
        concurrency: int,
        task_timeout: timedelta,
        report_max_age: timedelta,
        skew: timedelta,
        random: Random,
    ) -> None:
        super().__init__(name, trace, network=network, skew=skew)
        self.workshop = workshop
        self._broker = broker
        self._ledger = ledger
        self._weather = weather
        self._fleet_witness = fleet_witness
        self._around_subscriber = around_subscriber
        self._around_reporting = around_reporting
        self._concurrency = concurrency
        self._task_timeout = task_timeout
        self._report_max_age = report_max_age
        self._random = random
        self._subscriber: Subscriber | None = None

    def _run(self, stopping: Stopping) -> Coroutine[Any, Any, None]:
        adapter = self.workshop.adapter()
        witness = MessageWitness(
            self.name,
            self._trace,
            ledger=self._ledger,
            adapter=adapter,
            clock=self.clock,
            report_max_age=self._report_max_age,
        )
        queue = self._broker.subscribe(adapter.name, max_in_flight=2 * self._concurrency)
        self._subscriber = self._around_subscriber(witness.subscriber(queue))
        reporting = NetworkReporting(
            self.network, adapter=adapter.name, weather=self._weather, witness=self._fleet_witness
        )
        service = AdapterService(
            adapter=adapter,
            subscriber=self._subscriber,
            api=self._around_reporting(witness.reporting(reporting)),
            http=FakeHttp(),
            clock=self.clock,
            observer=_Observer(self.name, self._trace),
            log=self._trace.log(self.name),
            grace_period=_LAST_WORK,
            concurrency=self._concurrency,
            task_timeout=self._task_timeout,
            report_max_age=self._report_max_age,
            jitter=self._random.random,
        )
        return service.run(stopping)

    async def _bury(self) -> None:
        if self._subscriber is not None:
            await self._subscriber.close()


class _Observer:
    """`adapter.observer.Observer`, for the trace; a fault of our own is a violation."""

    def __init__(self, name: str, trace: Trace) -> None:
        self._name = name
        self._trace = trace

    def dequeued(self, queue_age: timedelta) -> None: ...

    def skipped(self, reason: SkipReason, resource_id: str, events: int) -> None:
        self._trace.note(self._name, f"skips {resource_id}: {reason}")

    def started(self) -> None: ...

    def evaluated(self, evaluation: Evaluation) -> None:
        resource = evaluation.resource
        said = f"{evaluation.ending} {evaluation.reason}"
        self._trace.note(self._name, f"evaluated {resource.id}@{resource.generation}: {said}")
        if evaluation.error is not None and not isinstance(evaluation.error, Mishap):
            self._trace.fault(self._name, evaluation.error)

    def interrupted(self) -> None: ...

    def reported(self, resource: Resource, result: ReportResult) -> None: ...

    def dead_lettered(self, reason: str, event_id: str, resource_id: str) -> None: ...

    def nacked(self, reason: str, resource_id: str, events: int) -> None:
        self._trace.note(self._name, f"gives {events} back about {resource_id}", reason)

    def api_failed(self, operation: ApiOperation, trouble: ApiUnavailable) -> None:
        self._trace.note(self._name, f"cannot {operation}", trouble)

    def api_recovered(self, operation: ApiOperation) -> None: ...

    def crashed(self, resource_id: str, error: BaseException) -> None:
        self._trace.fault(f"{self._name} on {resource_id}", error)
