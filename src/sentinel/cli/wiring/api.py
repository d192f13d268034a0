"""The fleet API from its settings: which store stands behind it, who is let in, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.api import access as fleet_access
from sentinel.api import routes as fleet_routes
from sentinel.api.kinds import Kinds
from sentinel.api.service import FleetService
from sentinel.api.settings import FleetApiSettings
from sentinel.api.telemetry import PREFIX, FleetTelemetry
from sentinel.api.upkeep import Upkeep, retained
from sentinel.core import access
from sentinel.core.access import Permissions
from sentinel.core.decision import Policy
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.drivers.sql.idempotency import SqlIdempotencyStore
from sentinel.ports.clock import Clock
from sentinel.runtime import telemetry
from sentinel.runtime.http import Page
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.retention import Retained, Retention
from sentinel.runtime.telemetry import Log
from sentinel.runtime.wait_for_database import DatabaseOpener
from sentinel.version import __version__
from sentinel.web import access as server_access
from sentinel.web import openapi
from sentinel.web.app import Component, build_app
from sentinel.web.asgi import App
from sentinel.web.audit import Auditor, audit_routes
from sentinel.web.identity import Guard
from sentinel.web.metrics import RequestMetrics
from sentinel.web.middleware import AccessLog
from sentinel.web.pages import page_routes
from sentinel.web.routing import Route

PERMISSIONS: Final[Permissions] = access.combine(fleet_access.PERMISSIONS, server_access.PERMISSIONS)
"""Who may do what on the fleet API's server."""


class BuiltApi(msgspec.Struct, frozen=True):
    """The fleet API without a listener."""

    part: Part
    database: DatabaseOpener
    """To be shared: opened before the part runs, closed after it has ended."""
    routes: list[Route]
    refresh: Callable[[], Awaitable[None]]
    """Brings the gauges up to date, where they are not."""
    requests: RequestMetrics


def build_api(
    settings: FleetApiSettings,
    *,
    kinds: Kinds,
    database: SqlDatabase,
    clock: Clock,
    policies: Mapping[str, Policy] | None = None,
) -> BuiltApi:
    """The fleet API as a part, with its routes for whichever listener serves them.

    `policies` are those of the pulses that run in the same process, by plural.
    """
    log = telemetry.get_logger("api")
    registry = CollectorRegistry()
    store = SqlFleetStore(database)
    audit = SqlAuditLog(database)
    measured = FleetTelemetry(kinds=kinds, store=store, clock=clock, registry=registry, log=log)
    service = FleetService(
        store=store,
        kinds=kinds,
        clock=clock,
        observer=measured,
        auditor=Auditor(),
        emits_public_names=settings.public_condition_names,
        policies=policies,
    )
    upkeep = Upkeep(service=service, store=store, kinds=kinds, clock=clock, log=log)
    retention = Retention(
        [
            *retained(store, settings.retention),
            Retained("audit entries", settings.retention.audit, audit.expire),
            Retained("idempotency keys", settings.retention.answers, SqlIdempotencyStore(database).expire),
        ],
        clock=clock,
        log=log,
    )
    opener = DatabaseOpener(database, clock=clock, log=log)
    return BuiltApi(
        database=opener,
        part=Part(
            name="api",
            loops=(opener.run, upkeep.aggregate_anew, retention.run),
            checks={"database": database.trouble},
            registry=registry,
        ),
        routes=[*fleet_routes.routes(kinds, service), *audit_routes(audit)],
        refresh=measured.refresh_if_stale,
        requests=RequestMetrics(registry=registry, prefix=f"{PREFIX}_"),
    )


def application(
    built: BuiltApi,
    *,
    pages: Mapping[str, Page],
    guard: Guard,
    settings: FleetApiSettings,
    log: Log,
    others: Sequence[Route] = (),
) -> App:
    """The application: the API, its document, probes and metrics; and others, where one listener serves more."""
    return build_app(
        [*page_routes(pages, before={"/metrics": built.refresh}), *others],
        components=[Component(routes=built.routes)],
        info=info(settings),
        guard=guard,
        log=log,
        observers=(AccessLog(log), built.requests),
        deadline=settings.request_timeout,
    )


def info(settings: FleetApiSettings) -> openapi.Info:
    """How the OpenAPI document introduces the server."""
    return openapi.Info(
        title="Fleet API",
        version=__version__,
        description="Resources with generations, adapters' reports, and the conditions aggregated from them.",
        is_insecure=settings.insecure,
    )
