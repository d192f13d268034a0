"""An operator on a fake API server, with real pulses over fake fleets and publishers that record."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.pulse import WatchedFleet, build_pulse
from sentinel.core.events import Event
from sentinel.core.json import Json
from sentinel.core.kube.election import Timings
from sentinel.core.operator.status import WRITE_INTERVAL
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.drivers.reconnect import end_now
from sentinel.operator.plans import PulsePlan
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.operator.service import Operator
from sentinel.ports.errors import Misconfigured
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.ports.publisher import PublishOutcome, Receipt
from sentinel.pulse.report import PulseObserver, PulseObservers
from sentinel.pulse.telemetry import PulseMetrics
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.kube.events import EventRecorder
from sentinel.runtime.kube.leader_election import LeaderCallbacks, LeaderElector
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.secrets import Redactor
from sentinel.runtime.tracing import NO_TRACING
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.kube import FakeKubeServer
from tests.support.loop_time import LoopTime

NAMESPACE = "hyperfleet-system"
_NAMESPACE_KIND = KubeKind(group="", version="v1", kind="Namespace", plural="namespaces", is_namespaced=False)
TIMINGS = Timings(
    lease_duration=timedelta(hours=1), renew_deadline=timedelta(minutes=45), retry_period=timedelta(minutes=1)
)
"""So long that no leader loses its lease because the machine stalls. Tests let time pass with `loop_time`."""
ALL = {"shard": "all", "resource_type": "clusters"}
"""The labels of the pulse that `poll_all` starts."""
_TIMEOUT = timedelta(seconds=90)
_LOOK_EVERY = 0.01


class OperatorClock(SystemClock):
    """The clock of all operators, which is advanced together with the event loop's time, or alone."""

    def __init__(self, loop_time: LoopTime) -> None:
        self._loop_time = loop_time
        self.ahead = timedelta(0)
        """How far it is ahead of the event loop's time."""

    def now(self) -> datetime:
        return super().now() + self._loop_time.advanced + self.ahead


class _ElectionClock(OperatorClock):
    """Sleeps only briefly, so that leases are renewed and looked at often."""

    async def sleep(self, duration: timedelta) -> None:
        await super().sleep(timedelta(milliseconds=50))


class PublishedEvent(msgspec.Struct, frozen=True):
    """An event that an operator published."""

    operator: str
    exchange: str
    resource_id: str
    data: Mapping[str, Json]


class RecordingPublisher:
    """Confirms every event, after an optional delay, and records it."""

    broker_type = "rabbitmq"

    def __init__(self, operator: str, exchange: str, published: list[PublishedEvent]) -> None:
        self._operator = operator
        self._exchange = exchange
        self._published = published
        self.delay = 0.0
        self.opened = 0
        self.hangs = False
        self.refuses = False
        self.crashes = False
        self.fails = False
        self.has_started = False
        """Whether an event was handed to it."""
        self.is_closed = False
        self.unavailable = ""
        """Why nothing can be sent."""
        self.abandoned = 0
        self._attempt: asyncio.Timeout | None = None

    async def open(self) -> None:
        self.opened += 1
        if self.hangs and self.opened == 1:
            await asyncio.Event().wait()
        if self.refuses:
            raise Misconfigured(f"exchange {self._exchange}: refused")
        if self.crashes:
            raise LookupError("secret1 is broken")

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        self.has_started = True
        try:
            async with asyncio.timeout(None) as self._attempt:
                await asyncio.sleep(self.delay)
        except TimeoutError:
            return Receipt([PublishOutcome.UNCONFIRMED] * len(events), (), "abandoned")
        assert not self.is_closed
        if self.fails:
            return Receipt([PublishOutcome.REFUSED] * len(events), (), "refused")
        self._published += [
            PublishedEvent(self._operator, self._exchange, event.subject, msgspec.json.decode(event.data))
            for event in events
        ]
        return Receipt([PublishOutcome.CONFIRMED] * len(events), ())

    def abandon(self) -> None:
        self.abandoned += 1
        end_now(self._attempt)

    def unavailable_reason(self) -> str | None:
        return self.unavailable or None

    async def close(self) -> None:
        self.is_closed = True


def config_spec(**spec: Json) -> dict[str, Json]:
    """A valid spec that polls every 100 ms."""
    return {
        "resourceType": "clusters",
        "pollInterval": "100ms",
        "backoffNotReady": "10s",
        "hyperfleetAPI": {"url": "http://hyperfleet.example"},
        "broker": {"type": "rabbitmq", "topic": "events", "url": "amqp://broker.example"},
        **spec,
    }


class OperatorHarness:
    """Operators on one API server, over one fleet."""

    def __init__(self, server: FakeKubeServer, directory: Path) -> None:
        self.server = server
        self._kubeconfig = directory / "kubeconfig"
        self._kubeconfig.write_bytes(server.kubeconfig())
        self.loop_time = LoopTime()
        self.clock = OperatorClock(self.loop_time)
        self.fleet_documents: list[dict[str, Any]] = []
        self.published: list[PublishedEvent] = []
        self.publishers: list[RecordingPublisher] = []
        self.publish_delay = 0.0
        self.refused_exchange = ""
        """Cannot be published to at all."""
        self.crashing_exchange = ""
        """Connecting to it is a bug."""
        self.silent_exchange = ""
        """Does not respond to the first publisher that connects."""
        self.has_hung = False
        self.failing_operator = ""
        """Its events are refused."""
        self.has_broken = asyncio.Event()
        """While it is set, pulses fail."""
        self.seconds = 0.0
        """The time of the redactor."""
        self.redactor = Redactor(now=lambda: self.seconds)
        self.registries: dict[str, CollectorRegistry] = {}
        self.health: dict[str, Health] = {}
        self._tasks: dict[str, asyncio.Task[int]] = {}
        self._stoppings: dict[str, Stopping] = {}

    def put(self, resource_id: str, **fields: Any) -> None:
        """Add a resource to the fleet; see `FakeFleet.put`."""
        self.fleet_documents.append({"resource_id": resource_id, **fields})

    def create(self, name: str, **spec: Json) -> KubeObject:
        return self.server.create(
            SENTINEL_CONFIG, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": config_spec(**spec)}
        )

    def edit(self, name: str, **spec: Json) -> KubeObject:
        return self.server.merge_patch(SENTINEL_CONFIG, name, {"spec": dict(spec)}, namespace=NAMESPACE)

    def delete(self, name: str) -> None:
        self.server.delete(SENTINEL_CONFIG, name, namespace=NAMESPACE)

    def status(self, name: str) -> dict[str, Any]:
        status = self.server.get(SENTINEL_CONFIG, name, namespace=NAMESPACE).get("status")
        assert isinstance(status, dict | None)
        return status or {}

    def reasons(self, name: str) -> dict[str, str]:
        """Return the conditions of a SentinelConfig as `status/reason` by type."""
        return {
            each["type"]: f"{each['status']}/{each['reason']}" for each in self.status(name).get("conditions", [])
        }

    def metric(self, name: str, operator: str = "one", **labels: str) -> float | None:
        return self.registries[operator].get_sample_value(f"hyperfleet_sentinel_{name}", labels)

    def ids(self, exchange: str = "events") -> list[str]:
        return [event.resource_id for event in self.published if event.exchange == exchange]

    def start(
        self,
        operator: str = "one",
        *,
        name: str = "",
        elects_leaders: bool = False,
        retry: timedelta = timedelta(milliseconds=200),
        drain_timeout: timedelta = runner.DRAIN_TIMEOUT,
        status_interval: timedelta = WRITE_INTERVAL,
    ) -> None:
        """Start an operator."""
        access = find_access(kubeconfig=self._kubeconfig, environ={})
        api = KubeClient(ApiConnection(access, user_agent="test"))
        parts = DynamicParts()
        clock, log = self.clock, get_logger(f"test.{operator}")
        registry = self.registries[operator] = CollectorRegistry()
        health = self.health[operator] = Health()
        stopping = self._stoppings[operator] = Stopping()

        def elector(config_name: str, callbacks: LeaderCallbacks) -> LeaderElector:
            return LeaderElector(
                api=api,
                name=f"sentinel-{config_name}",
                namespace=NAMESPACE,
                identity=operator,
                callbacks=callbacks,
                timings=TIMINGS,
                clock=_ElectionClock(self.loop_time),
                log=log,
            )

        built = Operator(
            api=api,
            namespace=NAMESPACE,
            name=name,
            parts=parts,
            build_pulse=lambda plan: self._build_pulse(plan, operator),
            identity=operator,
            build_elector=elector if elects_leaders else None,
            renew_interval=TIMINGS.retry_period,
            metrics=PulseMetrics(registry),
            events=EventRecorder(api=api, component="test", instance=operator, clock=clock, log=log),
            clock=clock,
            log=log,
            retry=retry,
            set_secrets_in_use=self.redactor.set_in_use,
            secrets_interval=timedelta(milliseconds=200),
            status_interval=status_interval,
        )

        async def run() -> int:
            try:
                return await runner.run(
                    parts=[built.part],
                    dynamic=parts,
                    log=log,
                    health=health,
                    stopping=stopping,
                    signals=(),
                    drain_timeout=drain_timeout,
                )
            finally:
                await api.close()

        self._tasks[operator] = asyncio.create_task(run())

    async def poll_all(self) -> None:
        """Start an operator with a SentinelConfig `all-clusters`, and wait for its first cycle."""
        self.create("all-clusters")
        self.start()
        await self.cycles(1, **ALL)

    def disconnect(self) -> None:
        """Let the API server be away until it accepts connections."""
        self.server.refuse_connections()
        self.server.reset_connections()

    async def stop(self, operator: str = "one") -> int:
        """Stop an operator cleanly. Returns its exit code."""
        self._stoppings[operator].request()
        return await self._tasks.pop(operator)

    async def kill(self, operator: str = "one") -> None:
        """End an operator without any of its clean-up taking effect on the API server."""
        self.server.refuse_connections()
        task = self._tasks.pop(operator)
        task.cancel()
        await asyncio.wait({task})
        await self.server.accept_connections()

    async def until(self, is_true: Callable[[], object]) -> None:
        """Wait until a claim holds, which nothing announces."""
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            while not is_true():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY)

    async def cycles(self, count: int, operator: str = "one", **labels: str) -> None:
        """Wait for this many more cycles of a pulse."""
        before = self.metric("reconcile_duration_seconds_count", operator, **labels) or 0
        await self.until(
            lambda: (self.metric("reconcile_duration_seconds_count", operator, **labels) or 0) >= before + count
        )

    async def close(self) -> None:
        for operator in list(self._tasks):
            await self.stop(operator)

    async def _break(self, stopping: Stopping) -> None:
        if not await stopping.interrupts(self.has_broken.wait()):
            raise LookupError("secret1 is broken")

    def _build_pulse(self, plan: PulsePlan, operator: str) -> Part:
        definition = plan.config.definition
        fleet = FakeFleet(selector=definition.selector)
        for document in self.fleet_documents:
            fleet.put(**document)
        publisher = RecordingPublisher(operator, plan.config.broker.exchange, self.published)
        publisher.delay = self.publish_delay
        publisher.refuses = plan.config.broker.exchange == self.refused_exchange
        publisher.crashes = plan.config.broker.exchange == self.crashing_exchange
        publisher.hangs = plan.config.broker.exchange == self.silent_exchange and not self.has_hung
        self.has_hung = self.has_hung or publisher.hangs
        publisher.fails = operator == self.failing_operator
        self.publishers.append(publisher)
        plan.publishers.add(publisher)

        async def close() -> None:
            plan.publishers.discard(publisher)
            await publisher.close()

        def watch(telemetry: PulseObserver) -> PulseObserver:
            return PulseObservers(telemetry, plan.observer, log=get_logger("test"))

        built = build_pulse(
            definition,
            fleet=WatchedFleet(fleet),
            publisher=publisher,
            clock=self.clock,
            tracer=NO_TRACING,
            series=plan.series,
            pacer=plan.pacer,
            may_publish=plan.may_publish,
            watch=watch,
        )
        return Part(
            name=built.name,
            loops=(*built.loops, self._break),
            checks=built.checks,
            start=publisher.open,
            close=close,
        )


@asynccontextmanager
async def operator_harness(directory: Path) -> AsyncIterator[OperatorHarness]:
    """Yield a harness with the namespace and the kind. What it started is stopped at the end."""
    # Each object is a second younger than the one before: Kubernetes keeps no fractions.
    ages = itertools.count()
    start = datetime.now(UTC)
    async with FakeKubeServer(now=lambda: start + next(ages) * timedelta(seconds=1)) as server:
        server.register(SENTINEL_CONFIG, has_status=True)
        server.create(_NAMESPACE_KIND, {"metadata": {"name": NAMESPACE}})
        harness = OperatorHarness(server, directory)
        try:
            yield harness
        finally:
            await harness.close()
