"""An object of another operator and its reconciler, on a fake API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.core.drift.fast_path import DriftStatus
from sentinel.core.drift.rules import AnnotationNames
from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectReference
from sentinel.drift.operator.reconciler import Reconciler
from sentinel.drift.operator.steps import StepFailed
from sentinel.drift.operator.telemetry import DriftMetrics
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.ports.kube import KubeApi, KubeKind, KubeObject
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.log import get_logger
from sentinel.testing.kube import FakeKubeServer

DATABASE = KubeKind("example.com", "v1", "Database", "databases")
NAMES = AnnotationNames.with_prefix("example.com/")


class Database(msgspec.Struct, frozen=True):
    """An object of another operator."""

    reference: ObjectReference
    annotations: Mapping[str, str]
    drift: DriftStatus


class Step:
    """Records that it ran."""

    def __init__(self, name: str, world: World, *, is_urgent: bool) -> None:
        self.name = name
        self.is_urgent = is_urgent
        self._world = world

    async def run(self, target: Database, now: datetime) -> Mapping[str, Json]:
        self._world.acts.append(self.name)
        if self.name == self._world.failing:
            raise StepFailed("out of disk")
        if self.name == "infra" and self._world.newer:
            self._world.annotate(self._world.newer)
        return {"phase": self.name}


class World:
    """An object, and its reconciler."""

    def __init__(self, server: FakeKubeServer, api: KubeApi, *, prefix: str) -> None:
        self.server = server
        self.acts: list[str] = []
        """Steps that ran, and what was written, in order."""
        self.failing = ""
        self.newer = ""
        """A trigger that replaces the handled one while steps run."""
        self.drift = DriftStatus(last_full_reconcile_time=datetime.now(UTC))
        self.registry = CollectorRegistry()
        server.create(DATABASE, {"metadata": {"name": "db", "namespace": "default"}})
        self.reconciler = Reconciler[Database](
            api=api,
            kind=DATABASE,
            names=NAMES,
            field_manager="database-operator",
            steps=[
                Step("certs", self, is_urgent=True),
                Step("infra", self, is_urgent=True),
                Step("upgrade", self, is_urgent=False),
                Step("backup", self, is_urgent=False),
            ],
            write_status=self._write_status,
            metrics=DriftMetrics(self.registry, kinds=["Service"], prefix=prefix),
            clock=SystemClock(),
            log=get_logger("test"),
        )

    async def _write_status(self, target: Database, fields: Mapping[str, Json]) -> None:
        has_trigger = NAMES.trigger in self.annotations()
        self.acts.append(f"status {' '.join(sorted(fields))}, trigger {'set' if has_trigger else 'cleared'}")
        self.status = dict(fields)

    def annotate(self, trigger: str) -> None:
        annotations: KubeObject = {NAMES.trigger: trigger, NAMES.trigger_resource: "Service/default/db"}
        self.server.merge_patch(DATABASE, "db", {"metadata": {"annotations": annotations}}, namespace="default")

    def clear_annotations(self) -> None:
        self.server.merge_patch(DATABASE, "db", {"metadata": {"annotations": None}}, namespace="default")

    def annotations(self) -> Mapping[str, str]:
        """Return the annotations; none if the object is gone."""
        found = self.server.objects(DATABASE, namespace="default")
        return objects.read_annotations(found[0]) if found else {}

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics about drift of Services."""
        labels = {"namespace": "default", "name": "db"}
        by_name = {
            "detected_total": {**labels, "resource_kind": "Service"},
            "corrected_total": labels,
            "unhandled": labels,
        }
        return {
            name: self.registry.get_sample_value(f"database_drift_{name}", each) for name, each in by_name.items()
        }

    @property
    def target(self) -> Database:
        found = self.server.get(DATABASE, "db", namespace="default")
        return Database(objects.reference(found), objects.read_annotations(found), self.drift)


@asynccontextmanager
async def database_world(directory: Path, *, prefix: str = "database_") -> AsyncIterator[World]:
    """Yield a world whose metrics have a prefix."""
    async with FakeKubeServer() as server:
        server.register(DATABASE)
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_bytes(server.kubeconfig())
        api = KubeClient(ApiConnection(find_access(kubeconfig=kubeconfig, environ={}), user_agent="test"))
        try:
            yield World(server, api, prefix=prefix)
        finally:
            await api.close()
