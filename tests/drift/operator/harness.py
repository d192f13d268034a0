"""The reference operator on a fake API server, and what its users and sidecars do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from sentinel.core.json import Json
from sentinel.core.times import timestamp
from sentinel.drift.operator import policy
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER
from sentinel.drift.operator.openbao.health import HealthResponse
from sentinel.drift.operator.openbao.service import RESYNC, WATCHED_KINDS, OpenBaoOperator
from sentinel.drift.operator.telemetry import DriftMetrics
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.kube.events import EventRecorder
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.health import Health
from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import EVENT

NAMESPACE = "default"
TRIGGER = "openbao.org/sentinel-trigger"
TRIGGER_RESOURCE = "openbao.org/sentinel-trigger-resource"
_TIMEOUT = timedelta(seconds=90)
_LOOK_EVERY = 0.005


class DriftHarness:
    """One operator on one API server."""

    def __init__(self, server: FakeKubeServer, directory: Path) -> None:
        self.server = server
        self._kubeconfig = directory / "kubeconfig"
        self._kubeconfig.write_bytes(server.kubeconfig())
        self.registry = CollectorRegistry()
        self.health = HealthResponse(200)
        """What OpenBao responds."""
        self.health_requests: list[tuple[str, str]] = []
        self._task: asyncio.Task[int] | None = None
        self._stopping = Stopping()

    def install_policy(self) -> None:
        self.server.create(policy.POLICY, policy.policy())
        self.server.create(policy.BINDING, policy.binding())

    def create(self, name: str = "prod", **spec: Json) -> KubeObject:
        body: KubeObject = {
            "apiVersion": OPENBAO_CLUSTER.api_version,
            "kind": OPENBAO_CLUSTER.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"version": "2.4.1", "replicas": 3, "config": "ui = true", **spec},
        }
        return self.server.create(OPENBAO_CLUSTER, body)

    def edit(self, patch: KubeObject, name: str = "prod") -> None:
        self.server.merge_patch(OPENBAO_CLUSTER, name, patch, namespace=NAMESPACE)

    def trigger(self, resource: str = "StatefulSet/default/prod", *, name: str = "prod", value: str = "") -> str:
        """Do what a sidecar does. Returns the value of the trigger."""
        value = value or timestamp(datetime.now(UTC))
        annotations: KubeObject = {TRIGGER: value, **({TRIGGER_RESOURCE: resource} if resource else {})}
        self.edit({"metadata": {"annotations": annotations}}, name)
        return value

    def annotations(self, name: str = "prod") -> dict[str, str]:
        found: Any = self.server.get(OPENBAO_CLUSTER, name, namespace=NAMESPACE)
        annotations: dict[str, str] = found["metadata"].get("annotations", {})
        return annotations

    def status(self, name: str = "prod") -> dict[str, Any]:
        status = self.server.get(OPENBAO_CLUSTER, name, namespace=NAMESPACE).get("status")
        assert isinstance(status, dict | None)
        return status or {}

    def drift(self, name: str = "prod") -> dict[str, Any]:
        drift: dict[str, Any] = self.status(name).get("drift", {})
        return drift

    def last_runs(self, name: str = "prod") -> dict[str, str]:
        """Return when each step last ran."""
        return {step: each["lastRun"] for step, each in self.status(name).get("steps", {}).items()}

    def reasons(self, name: str = "prod") -> dict[str, str]:
        """Return the conditions of a cluster as `status/reason` by type."""
        return {
            each["type"]: f"{each['status']}/{each['reason']}" for each in self.status(name).get("conditions", [])
        }

    def find(self, kind: KubeKind, name: str) -> Any:
        """Return an object, or None."""
        try:
            return self.server.get(kind, name, namespace=NAMESPACE)
        except ApiError:
            return None

    def event_reasons(self) -> list[str]:
        return [str(event["reason"]) for event in self.server.objects(EVENT, namespace=NAMESPACE)]

    def metric(self, name: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"openbao_drift_{name}", labels)

    async def until(self, is_true: Callable[[], object]) -> None:
        """Wait until a claim holds, which nothing announces."""
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            while not is_true():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY)

    async def ready(self, name: str = "prod") -> None:
        """Wait until the first pass over a cluster has ended."""
        await self.until(lambda: self.reasons(name).get("Ready") == "True/Reconciled")

    def start(self, *, resync: timedelta = RESYNC) -> None:
        api = KubeClient(ApiConnection(find_access(kubeconfig=self._kubeconfig, environ={}), user_agent="test"))
        clock, log = SystemClock(), get_logger("test")
        self._stopping = Stopping()

        async def read_health(url: str, authority: str) -> HealthResponse:
            self.health_requests.append((url, authority))
            return self.health

        self.registry = CollectorRegistry()
        operator = OpenBaoOperator(
            api=api,
            namespace=NAMESPACE,
            operator_version="1.2.3",
            read_health=read_health,
            metrics=DriftMetrics(self.registry, kinds=WATCHED_KINDS),
            events=EventRecorder(api=api, component="test", instance="one", clock=clock, log=log),
            clock=clock,
            log=log,
            resync=resync,
            health_interval=timedelta(milliseconds=50),
            policy_interval=timedelta(milliseconds=50),
            retry=Backoff(initial=timedelta(milliseconds=20), maximum=timedelta(milliseconds=100), jitter=0),
        )

        async def run() -> int:
            try:
                return await runner.run(
                    parts=[operator.part], log=log, health=Health(), stopping=self._stopping, signals=()
                )
            finally:
                await api.close()

        self._task = asyncio.create_task(run())

    async def stop(self) -> int:
        """Stop the operator cleanly. Returns its exit code."""
        self._stopping.request()
        assert self._task is not None
        task, self._task = self._task, None
        return await task

    async def close(self) -> None:
        if self._task is not None:
            await self.stop()


@asynccontextmanager
async def drift_harness(directory: Path) -> AsyncIterator[DriftHarness]:
    """Yield a harness with the kind, without the policy."""
    async with FakeKubeServer() as server:
        server.register(OPENBAO_CLUSTER, has_status=True)
        harness = DriftHarness(server, directory)
        try:
            yield harness
        finally:
            await harness.close()
