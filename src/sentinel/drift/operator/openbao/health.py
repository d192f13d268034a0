"""What OpenBao says about itself, as the condition `Healthy`.

The operator does not read unseal keys or root tokens, so drift of these is seen here: a server that was sealed or
lost its keys says so in the response to `GET /v1/sys/health`, which needs no token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from sentinel.core.kube.conditions import ConditionStatus
from sentinel.drift.operator.openbao.cluster import OpenBaoCluster
from sentinel.drift.operator.openbao.server_objects import API_PORT
from sentinel.drift.operator.openbao.status import ConditionType, ConditionUpdate


class HealthResponse(msgspec.Struct, frozen=True):
    """The response of a server, or why there is none."""

    status: int = 0
    error: str = ""


ReadHealth: TypeAlias = Callable[[str, str], Awaitable[HealthResponse]]
"""Requests the health of the servers at a URL, trusting this CA certificate in PEM. Never raises."""


def _healthy(status: ConditionStatus, reason: str, message: str) -> ConditionUpdate:
    return ConditionUpdate(ConditionType.HEALTHY, status, reason, message)


_CONDITIONS: Final = {
    HTTPStatus.OK: _healthy(ConditionStatus.TRUE, "Active", "initialized, unsealed and active"),
    HTTPStatus.TOO_MANY_REQUESTS: _healthy(ConditionStatus.TRUE, "Standby", "unsealed and standby"),
    472: _healthy(ConditionStatus.TRUE, "DisasterRecovery", "a secondary for disaster recovery"),
    473: _healthy(ConditionStatus.TRUE, "PerformanceStandby", "unsealed and performance standby"),
    HTTPStatus.NOT_IMPLEMENTED: _healthy(ConditionStatus.FALSE, "NotInitialized", "not initialized"),
    HTTPStatus.SERVICE_UNAVAILABLE: _healthy(ConditionStatus.FALSE, "Sealed", "sealed"),
}


def health_url(cluster: OpenBaoCluster) -> str:
    """Return where the servers of a cluster are reached from inside Kubernetes."""
    return f"https://{cluster.name}.{cluster.namespace}.svc:{API_PORT}"


def condition(response: HealthResponse) -> ConditionUpdate:
    """Return what a response says about the cluster."""
    if not response.status:
        return _healthy(ConditionStatus.UNKNOWN, "Unreachable", response.error)
    unexpected = _healthy(
        ConditionStatus.UNKNOWN, "Unexpected", f"expected a status of /v1/sys/health, got {response.status}"
    )
    return _CONDITIONS.get(response.status, unexpected)
