"""The pages that every service has: `/healthz`, `/readyz` and `/metrics`.

They do not depend on an HTTP server. `listener` serves them for a service without one. A REST server turns them
into routes, and so needs no second HTTP server.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from sentinel.runtime.probes.health import Health, HealthReport
from sentinel.runtime.probes.metrics import Metrics


class PageResponse(msgspec.Struct, frozen=True):
    """The response of a page."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page: TypeAlias = Callable[[str], PageResponse]
"""Responds to GET. The argument is the request's `Accept` header."""


def probe_pages(health: Health) -> dict[str, Page]:
    """Return `/healthz` and `/readyz`."""
    return {
        "/healthz": lambda accept: _health_response(health.liveness()),
        "/readyz": lambda accept: _health_response(health.readiness()),
    }


def metrics_pages(metrics: Metrics) -> dict[str, Page]:
    """Return `/metrics`."""

    def page(accept: str) -> PageResponse:
        body, content_type = metrics.render(accept)
        return PageResponse(HTTPStatus.OK, content_type, body)

    return {"/metrics": page}


def _health_response(report: HealthReport) -> PageResponse:
    status = HTTPStatus.OK if report.is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    return PageResponse(status, "application/json", report.encode())
