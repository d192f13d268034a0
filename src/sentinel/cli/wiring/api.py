"""Builds the fleet API as a component of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from sentinel.api import access, routes
from sentinel.api.change_feed import ChangeFeed
from sentinel.api.kinds import Kinds
from sentinel.api.maintenance import Maintenance, retention_rules
from sentinel.api.resource_streams import ResourceStreams
from sentinel.api.service import FleetService
from sentinel.api.settings import FleetApiSettings
from sentinel.api.telemetry import PREFIX, FleetTelemetry
from sentinel.cli.wiring.server import BuiltComponent
from sentinel.core.pulse.decision import Policy
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.fleet.change_log import SqlChangeLog
from sentinel.drivers.sql.fleet.store import SqlFleetStore
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.log import get_logger
from sentinel.runtime.tracing import NO_TRACING, Tracer
from sentinel.version import __version__
from sentinel.web.app import Component
from sentinel.web.audit import Auditor
from sentinel.web.openapi import Info

METRICS_PREFIX: Final = f"{PREFIX}_"
"""The prefix of the request metrics of a server that serves the fleet API."""


def build_api(
    settings: FleetApiSettings,
    *,
    kinds: Kinds,
    database: SqlDatabase,
    auditor: Auditor,
    clock: Clock,
    policies: Mapping[str, Policy] | None = None,
    tracer: Tracer = NO_TRACING,
) -> BuiltComponent:
    """Build the fleet API. `policies` are those of pulses in the same process, by plural."""
    log = get_logger("api")
    registry = CollectorRegistry()
    store = SqlFleetStore(database)
    telemetry = FleetTelemetry(kinds=kinds, store=store, clock=clock, registry=registry, log=log)
    service = FleetService(
        store=store,
        kinds=kinds,
        clock=clock,
        observer=telemetry,
        auditor=auditor,
        emits_public_names=settings.public_condition_names,
        policies=policies,
        tracer=tracer,
    )
    changes = SqlChangeLog(database)
    feed = ChangeFeed(changes, log=log)
    streams = ResourceStreams(
        store=store,
        changes=changes,
        feed=feed,
        observer=telemetry,
        retention=settings.retention.changes,
        log=log,
    )
    maintenance = Maintenance(service=service, store=store, kinds=kinds, clock=clock, log=log)
    return BuiltComponent(
        part=Part(
            name="api",
            loops=(maintenance.reaggregate_outdated, feed.run, streams.end_with_tokens),
            registry=registry,
        ),
        web=Component(routes=routes.routes(kinds, service, streams), permissions=access.PERMISSIONS),
        retention_rules=retention_rules(store, changes, settings.retention),
        refresh=telemetry.refresh_if_stale,
    )


def info(settings: FleetApiSettings) -> Info:
    """Return the head of the OpenAPI document."""
    return Info(
        title="Fleet API",
        version=__version__,
        description="Resources with generations, adapters' reports, and the conditions aggregated from them.",
        is_insecure=settings.insecure,
    )
