"""Builds the drift sidecar of a cluster, with the observers that its settings ask for."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.kube import build_event_recorder
from sentinel.cli.wiring.serve import ServiceContext
from sentinel.core.drift.debounce import Debounce, jitter
from sentinel.drift.setting_types import KindSettings, TargetSettings
from sentinel.drift.settings import ClusterIdentity, DriftSettings
from sentinel.drift.sidecar.kube_events import DriftEvents
from sentinel.drift.sidecar.plan import DriftPlan
from sentinel.drift.sidecar.report import DriftObserver, DriftObservers
from sentinel.drift.sidecar.service import DriftSidecar
from sentinel.drift.sidecar.telemetry import DriftTelemetry
from sentinel.drift.sidecar.webhook import Webhook
from sentinel.ports.kube import KubeApi, KubeKind
from sentinel.runtime.lifecycle.part import Hook, Loop, Part
from sentinel.runtime.secrets import Secret
from sentinel.version import __version__

COMPONENT = "openbao-sentinel"
"""The source of Kubernetes Events."""


def build_drift(
    settings: DriftSettings, *, cluster: ClusterIdentity, api: KubeApi, context: ServiceContext
) -> Part:
    """Build the sidecar as a part."""
    plan = drift_plan(settings, cluster)
    registry = CollectorRegistry()
    observers: list[DriftObserver] = [
        DriftTelemetry(kinds=[kind.kind for kind in plan.kinds], registry=registry, log=context.log)
    ]
    loops: list[Loop] = []
    closings: list[Hook] = []
    sidecar = DriftSidecar(
        plan,
        api=api,
        observer=DriftObservers(*observers, log=context.log),
        clock=context.clock,
        log=context.log,
    )
    if settings.events:
        recorder = build_event_recorder(api, component=COMPONENT, instance=socket.gethostname(), context=context)
        observers.append(DriftEvents(recorder, cluster=lambda: sidecar.reference))
        loops.append(recorder.run)
        closings.append(recorder.flush)
    if settings.webhook_url is not None:
        webhook, close = _build_webhook(settings.webhook_url, cluster, context)
        observers.append(webhook)
        loops.append(webhook.run)
        closings.append(close)

    async def close_all() -> None:
        for close in closings:
            await close()

    return msgspec.structs.replace(sidecar.part(loops=loops), registry=registry, close=close_all)


def drift_plan(settings: DriftSettings, cluster: ClusterIdentity) -> DriftPlan:
    """Return what the settings mean for one cluster."""
    return DriftPlan(
        namespace=cluster.namespace,
        cluster=cluster.name,
        target=_kind(settings.target),
        kinds=[_kind(each) for each in settings.kinds],
        label_selector=_selector(settings.labels_of(cluster.name)),
        rules=settings.rules,
        mode=settings.mode,
        debounce=Debounce(
            settings.debounce_window + jitter(cluster.name, settings.debounce_jitter), settings.longest_wait
        ),
        ack_timeout=settings.ack_timeout,
    )


def _build_webhook(url: Secret, cluster: ClusterIdentity, context: ServiceContext) -> tuple[Webhook, Hook]:
    from sentinel.drivers.task_http import TaskHttp

    http = TaskHttp(user_agent=f"{COMPONENT}/{__version__}", connections=1)
    webhook = Webhook(
        http=http,
        url=url,
        cluster=cluster,
        clock=context.clock,
        log=context.log,
    )
    return webhook, http.close


def _kind(settings: KindSettings | TargetSettings) -> KubeKind:
    group, _, version = settings.api_version.rpartition("/")
    return KubeKind(group, version, settings.kind, settings.resource)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())
