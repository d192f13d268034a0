"""The pages that every service shows: `/healthz`, `/readyz` and `/metrics`.

They do not depend on an HTTP server. `listener` serves them for a service without one. A REST server makes routes
of them, and then loads no second HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from sentinel.runtime.probes.health import Health, HealthReport
from sentinel.runtime.probes.metrics import Metrics


class PageResponse(msgspec.Struct, frozen=True):
    """What a page says."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page: TypeAlias = Callable[[str], PageResponse]
"""Answers a GET; it is given the request's `Accept`."""


def probe_pages(health: Health) -> dict[str, Page]:
    """`/healthz` and `/readyz`."""
    return {
        "/healthz": lambda accept: _health_answer(health.liveness()),
        "/readyz": lambda accept: _health_answer(health.readiness()),
    }


def metrics_pages(metrics: Metrics) -> dict[str, Page]:
    """`/metrics`."""

    def page(accept: str) -> PageResponse:
        body, content_type = metrics.render(accept)
        return PageResponse(HTTPStatus.OK, content_type, body)

    return {"/metrics": page}


def _health_answer(report: HealthReport) -> PageResponse:
    status = HTTPStatus.OK if report.is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    return PageResponse(status, "application/json", report.encode())
