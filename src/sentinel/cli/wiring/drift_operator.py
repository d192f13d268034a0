"""Builds the reference operator of OpenBaoClusters."""

from __future__ import annotations

import socket
import uuid

from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.kube import KubeConnection, build_event_recorder
from sentinel.cli.wiring.serve import ServiceContext
from sentinel.runtime.lifecycle.part import Part
from sentinel.version import __version__

COMPONENT = "openbao-operator"
"""The name of the operator in Kubernetes: the source of Events, and the manager of fields."""


def build_drift_operator(
    kube: KubeConnection, context: ServiceContext, *, operator_version: str, sidecar_config: str
) -> Part:
    """Build the operator as a part. Raises `Misconfigured` if a library is missing."""
    with extra("openbao", who="sentinel drift-operator"):
        from sentinel.drift.operator.openbao.service import WATCHED_KINDS, OpenBaoOperator
    from sentinel.drift.operator.openbao.health import HealthResponse
    from sentinel.drift.operator.telemetry import DriftMetrics
    from sentinel.drivers.openbao import request_health

    async def read_health(url: str, ca_certificate: str) -> HealthResponse:
        status, error = await request_health(url, ca_certificate, user_agent=f"hyperfleet-sentinel/{__version__}")
        return HealthResponse(status, error)

    registry = CollectorRegistry()
    context.metrics.add(registry)
    operator = OpenBaoOperator(
        api=kube.api,
        namespace=kube.namespace,
        operator_version=operator_version,
        read_health=read_health,
        metrics=DriftMetrics(registry, kinds=WATCHED_KINDS),
        events=build_event_recorder(
            kube.api, component=COMPONENT, instance=f"{socket.gethostname()}_{uuid.uuid4()}", context=context
        ),
        clock=context.clock,
        log=context.log,
        sidecar_config=sidecar_config,
    )
    return operator.part()
