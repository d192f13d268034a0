"""A sidecar on a fake API server, on virtual time, with an operator and others who change objects."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec

from prometheus_client import CollectorRegistry

from sentinel.core.drift.attestation import attest
from sentinel.core.drift.debounce import Debounce
from sentinel.core.drift.judgement import Judgement, Reason
from sentinel.core.drift.rules import OPENBAO
from sentinel.core.drift.schedule import Acknowledged
from sentinel.core.drift.trigger import DriftMode
from sentinel.core.json import Json
from sentinel.drift.sidecar.plan import DriftPlan
from sentinel.drift.sidecar.report import (
    ConflictFound,
    DriftObserver,
    DriftObservers,
    Judged,
    Triggered,
    TriggerFailed,
)
from sentinel.drift.sidecar.service import DriftSidecar
from sentinel.drift.sidecar.telemetry import DriftTelemetry
from sentinel.drivers.kube.client import KubeClient
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.runtime.lifecycle.part import Loop
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import START
from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import CONFIG_MAP, NAMESPACE, SERVICE, STATEFUL_SET
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.clocks import AdjustedClock
from tests.support.kube.in_process import InProcessConnection
from tests.support.kube.watching import member

P = ParamSpec("P")
PROD = "prod"
BAO = "bao"
OPERATOR = "openbao-operator"
OPEN_BAO_CLUSTER = KubeKind("openbao.org", "v1alpha1", "OpenBaoCluster", "openbaoclusters")
TRIGGER = "openbao.org/sentinel-trigger"
RESOURCE = "openbao.org/sentinel-trigger-resource"
FINGERPRINT = "openbao.org/sentinel-fingerprint"
LABELS = {"app.kubernetes.io/managed-by": OPERATOR, "app.kubernetes.io/instance": BAO}
WINDOW, MAX_WAIT, ACK_TIMEOUT = timedelta(seconds=2), timedelta(seconds=10), timedelta(seconds=60)


class Reports:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.judged_reports: list[Judged] = []
        self.triggers: list[Triggered] = []
        self.failures: list[TriggerFailed] = []
        self.acknowledgements: list[Acknowledged] = []
        self.conflicts: list[ConflictFound] = []
        self.relists = 0
        self.trigger_times: list[float] = []
        """In seconds since the start of the test."""

    @property
    def drift(self) -> list[Judgement]:
        return [report.judgement for report in self.judged_reports if report.judgement.is_drift]

    @property
    def reasons(self) -> list[Reason]:
        """Of each drift."""
        return [judgement.reason for judgement in self.drift]

    def judged(self, report: Judged) -> None:
        self.judged_reports.append(report)

    def triggered(self, report: Triggered) -> None:
        self.triggers.append(report)
        self.trigger_times.append(asyncio.get_running_loop().time())

    def trigger_failed(self, report: TriggerFailed) -> None:
        self.failures.append(report)

    def acknowledged(self, report: Acknowledged) -> None:
        self.acknowledgements.append(report)

    def outstanding_changed(self, has_outstanding: bool) -> None:
        pass

    def conflict_found(self, report: ConflictFound) -> None:
        self.conflicts.append(report)

    def relisted(self) -> None:
        self.relists += 1


class RunningSidecar:
    """A sidecar that runs until it is stopped or killed."""

    def __init__(self, harness: DriftHarness, plan: DriftPlan, observers: Sequence[DriftObserver] = ()) -> None:
        self.reports = Reports()
        self.registry = CollectorRegistry()
        self.connection = InProcessConnection(harness.server, user_agent="sentinel")
        log = get_logger("test")
        telemetry = DriftTelemetry(kinds=[kind.kind for kind in plan.kinds], registry=self.registry, log=log)
        self.sidecar = DriftSidecar(
            plan,
            api=KubeClient(self.connection),
            observer=DriftObservers(telemetry, self.reports, *observers, log=log),
            clock=harness.clock,
            log=log,
            jitter=lambda: 0.5,
        )
        self.part = self.sidecar.part()
        self._stopping = Stopping()
        self._task: asyncio.Task[None] | None = None

    def start(self, loops: Sequence[Loop] = ()) -> None:
        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                for loop in (*self.part.loops, *loops):
                    group.create_task(loop(self._stopping))

        self._task = asyncio.create_task(run())

    async def until_ready(self) -> None:
        await until(lambda: not self.problems())

    def problems(self) -> dict[str, str]:
        """Return the failing readiness checks."""
        found = {name: check() for name, check in self.part.checks.items()}
        return {name: problem for name, problem in found.items() if problem is not None}

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"sentinel_drift_{name}", labels)

    async def stop(self) -> None:
        self._stopping.request()
        task, self._task = self._task, None
        if task is not None:
            await task

    async def kill(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


class DriftHarness:
    """An API server with a cluster, its operator, and sidecars."""

    def __init__(self) -> None:
        self.clock = AdjustedClock()
        self.server = FakeKubeServer(now=lambda: datetime.now(UTC) if _is_outside() else SimulatedClock().now())
        self.server.register(OPEN_BAO_CLUSTER, has_status=True)
        self.server.create(NAMESPACE, {"metadata": {"name": PROD}})
        self.operator = KubeClient(InProcessConnection(self.server, user_agent=OPERATOR))
        self.sidecars: list[RunningSidecar] = []

    def create_cluster(self, **annotations: str) -> KubeObject:
        return self.server.create(
            OPEN_BAO_CLUSTER,
            {
                "metadata": {"name": BAO, "namespace": PROD, "annotations": dict(annotations)},
                "spec": {"replicas": 3},
            },
        )

    def annotate(self, **annotations: str | None) -> None:
        """Change annotations of the cluster: `maintenance_until` for `openbao.org/sentinel-maintenance-until`."""
        named: dict[str, Json] = {
            f"openbao.org/sentinel-{name.replace('_', '-')}": value for name, value in annotations.items()
        }
        patch: dict[str, Json] = {"metadata": {"annotations": named}}
        self.server.merge_patch(OPEN_BAO_CLUSTER, BAO, patch, namespace=PROD)

    @property
    def annotations(self) -> Mapping[str, str]:
        cluster = self.server.get(OPEN_BAO_CLUSTER, BAO, namespace=PROD)
        found = member(cluster, "metadata", "annotations")
        assert isinstance(found, dict | None)
        return {name: str(value) for name, value in (found or {}).items()}

    @property
    def trigger(self) -> str:
        return self.annotations.get(TRIGGER, "")

    async def until_triggered(self, *, timeout: float = 3600) -> str:
        """Wait for a trigger, and return it."""
        await until(lambda: self.trigger, timeout=timeout)
        return self.trigger

    async def apply(self, kind: KubeKind, body: KubeObject, *, is_attested: bool = True) -> KubeObject:
        """Apply an object as the operator does."""
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        attested: dict[str, Json] = {FINGERPRINT: attest(body, OPENBAO)} if is_attested else {}
        annotated: KubeObject = {**body, "metadata": {**metadata, "annotations": attested}}
        return await self.operator.apply(kind, annotated, field_manager=OPERATOR, namespace=PROD, is_forced=True)

    async def apply_all(self) -> None:
        """Apply one object of each kind."""
        await self.apply(STATEFUL_SET, stateful_set())
        await self.apply(SERVICE, service())
        await self.apply(CONFIG_MAP, config_map())

    def edit(
        self,
        kind: KubeKind,
        patch: Mapping[str, Json],
        *,
        name: str = BAO,
        manager: str = "kubectl-edit",
        subresource: str = "",
    ) -> None:
        """Change an object as someone else does."""
        self.server.merge_patch(kind, name, patch, namespace=PROD, manager=manager, subresource=subresource)

    def scale(self, replicas: int, manager: str = "kubectl-edit") -> None:
        self.edit(STATEFUL_SET, {"spec": {"replicas": replicas}}, manager=manager)

    async def acknowledge(self) -> None:
        """Clear the trigger, as the operator does."""
        self.annotate(trigger=None, trigger_resource=None)
        await asyncio.sleep(0.01)

    async def restore(self) -> None:
        """Correct everything and clear the trigger, as the operator does."""
        await self.apply_all()
        await self.acknowledge()

    def start(
        self,
        *,
        mode: DriftMode = DriftMode.ENFORCE,
        observers: Sequence[DriftObserver] = (),
        loops: Sequence[Loop] = (),
    ) -> RunningSidecar:
        running = RunningSidecar(
            self,
            DriftPlan(
                namespace=PROD,
                cluster=BAO,
                target=OPEN_BAO_CLUSTER,
                kinds=(STATEFUL_SET, SERVICE, CONFIG_MAP),
                label_selector=",".join(f"{name}={value}" for name, value in LABELS.items()),
                rules=OPENBAO,
                mode=mode,
                debounce=Debounce(WINDOW, MAX_WAIT),
                ack_timeout=ACK_TIMEOUT,
            ),
            observers,
        )
        self.sidecars.append(running)
        running.start(loops)
        return running

    async def started(self, **options: Any) -> RunningSidecar:
        """Start a sidecar as `start` does, and wait until it watches everything."""
        running = self.start(**options)
        await running.until_ready()
        return running


@asynccontextmanager
async def drift_harness(*, has_cluster: bool = True) -> AsyncIterator[DriftHarness]:
    """Yield a harness with a cluster and its objects. Its sidecars are killed at the end."""
    harness = DriftHarness()
    if has_cluster:
        harness.create_cluster()
        await harness.apply_all()
    try:
        yield harness
    finally:
        for running in harness.sidecars:
            await running.kill()


def with_harness(
    test: Callable[Concatenate[DriftHarness, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Decorate a test so that it runs on virtual time, with a harness as its first argument."""

    @simulated
    async def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async with drift_harness() as harness:
            await test(harness, *args, **kwargs)

    return _without_arguments(run, test, 1)


def with_sidecar(
    test: Callable[Concatenate[DriftHarness, RunningSidecar, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """Like `with_harness`; the second argument is a sidecar that watches everything."""

    @simulated
    async def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async with drift_harness() as harness:
            await test(harness, await harness.started(), *args, **kwargs)

    return _without_arguments(run, test, 2)


def _without_arguments(run: Callable[P, None], test: Callable[..., object], count: int) -> Callable[P, None]:
    """Give `run` the name and the arguments of `test` except the first ones, which pytest does not provide."""
    signature = inspect.signature(test)
    functools.update_wrapper(run, test)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect documents it
        parameters=list(signature.parameters.values())[count:]
    )
    return run


async def until(is_true: Callable[[], object], *, timeout: float = 3600) -> None:
    """Wait on virtual time until a claim holds, which nothing announces."""
    async with asyncio.timeout(timeout):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def stateful_set(*, name: str = BAO, replicas: int = 3, image: str = "openbao/openbao:2.1.0") -> KubeObject:
    labels: KubeObject = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": PROD, "labels": dict(LABELS)},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "bao", "image": image}]},
            },
        },
    }


def service(name: str = BAO) -> KubeObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": PROD, "labels": dict(LABELS)},
        "spec": {"ports": [{"name": "http", "port": 8200, "protocol": "TCP"}], "selector": {"app": name}},
    }


def config_map(name: str = BAO, text: str = "ui = true") -> KubeObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": PROD, "labels": dict(LABELS)},
        "data": {"config.hcl": text},
    }


def seconds_since_start(value: str) -> float:
    """Return a trigger's time in seconds since the start of the test."""
    return (datetime.fromisoformat(value[:26] + "+00:00") - START).total_seconds()


def _is_outside() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False
