"""Builds a REST server from its components.

A server is a list of components on one listener. Their parts run side by side, and their routes form one
application with one OpenAPI document. This module adds what every server needs: the shared database, accounts, the
audit log, idempotency keys, probes, metrics and the guard. A component only contributes its routes, its service
and its tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.accounts import BuiltAccounts, build_accounts
from sentinel.cli.wiring.serve import Assembly, ServiceContext
from sentinel.drivers.sql import engine
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.schema import History
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.idempotency import SqlIdempotencyStore
from sentinel.ports.errors import Misconfigured
from sentinel.ports.identity import Identities
from sentinel.runtime.database_url import InvalidDatabaseUrl
from sentinel.runtime.lifecycle.part import Part, PartFactory, shared_resource
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log
from sentinel.runtime.probes.pages import metrics_pages, probe_pages
from sentinel.runtime.retention import Retention, RetentionRule
from sentinel.runtime.settings.server import DatabaseSettings, RetentionSettings, ServerSettings
from sentinel.runtime.wait_for_database import DatabaseOpener
from sentinel.web import audit
from sentinel.web.app import Component, build_app, page_routes
from sentinel.web.audit import Auditor
from sentinel.web.identity import Guard
from sentinel.web.metrics import RequestMetrics
from sentinel.web.middleware import AccessLog
from sentinel.web.openapi import Info
from sentinel.web.routing import Route
from sentinel.web.server import Server


class BuiltComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A component that is ready to be served."""

    part: Part
    """Its loops, checks and metrics, without a listener."""
    web: Component
    """Its routes and permissions."""
    retention_rules: Sequence[RetentionRule] = ()
    """How long rows of its tables are kept."""
    refresh: Callable[[], Awaitable[None]] | None = None
    """Awaited before metrics are rendered, for gauges that are read from the database."""


class BuiltServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is ready to run."""

    parts: Sequence[Part]
    """One per component, without the listener."""
    database: DatabaseOpener
    """Shared by the parts. Opened before the first, closed after the last."""
    listener: Server
    settings: ServerSettings

    def assembly(self, **description: object) -> Assembly:
        """Return a service that consists of this server. `description` adds fields to its first log line."""
        return Assembly(
            parts=[*self.factories, self.listener.part],
            shared=[shared_resource("database", self.database)],
            description={
                "listen": str(self.listener.address),
                "database": str(self.settings.database_url),
                **description,
                "insecure": self.settings.insecure,
            },
            has_large_bodies=True,
        )

    @property
    def factories(self) -> list[PartFactory]:
        """The parts as factories for the lifecycle. A restart runs the same part again."""
        return [partial(_identity, part) for part in self.parts]


def build_database(settings: DatabaseSettings, *, history: History = HISTORY) -> SqlDatabase:
    """Build the database that all stores of the process share, without opening it.

    `history` has the migrations of all components. Raises `Misconfigured` for a bad URL.
    """
    try:
        return engine.database(
            settings.database_url.reveal(),
            migrate=settings.migrate,
            connections=settings.database_connections,
            history=history,
        )
    except InvalidDatabaseUrl as error:
        raise Misconfigured(f"database_url: {error}") from None


def build_server(
    components: Sequence[BuiltComponent],
    *,
    database: SqlDatabase,
    settings: ServerSettings,
    retention: RetentionSettings,
    address: Address,
    info: Info,
    metrics_prefix: str,
    context: ServiceContext,
    log: Log,
    auditor: Auditor,
    routes: Sequence[Route] = (),
    identities: Sequence[Identities] = (),
    accounts: BuiltAccounts | None = None,
    credentials: Sequence[Identities] | None = None,
) -> BuiltServer:
    """Build a server with one listener for these components.

    `info` heads the OpenAPI document. `auditor` is that of the components. `routes` are further routes that are
    not in the document. `identities` are added to those in the settings and in the database. `accounts` and
    `credentials` (of `configured_identities`) are given if something else uses them, too. Raises `Misconfigured`
    if a file with tokens or keys cannot be used. Opening the database raises it if nobody could use the server.
    """
    audit_log = SqlAuditLog(database)
    accounts = accounts or build_accounts(database, auditor=auditor, clock=context.clock)
    known = [*(configured_identities(settings, log=log) if credentials is None else credentials), *identities]
    is_usable = settings.insecure or settings.has_credentials or bool(identities)
    opener = DatabaseOpener(
        database, clock=context.clock, log=log, check=None if is_usable else accounts.require_any
    )
    rows = [
        *accounts.retention_rules,
        *(each for component in components for each in component.retention_rules),
        RetentionRule("audit entries", retention.audit, audit_log.expire),
        RetentionRule("idempotency keys", retention.answers, SqlIdempotencyStore(database).expire),
    ]
    expiry = Retention(rows, clock=context.clock, log=log)
    registry = CollectorRegistry()
    context.metrics.add(registry)
    app = build_app(
        [*_pages(components, context), *routes],
        components=[*(component.web for component in components), accounts.web, audit_component(audit_log)],
        info=info,
        guard=build_guard(settings, known=known, stored=accounts.identities),
        log=log,
        observers=(AccessLog(log), RequestMetrics(registry=registry, prefix=metrics_prefix)),
        request_timeout=settings.request_timeout,
        tracer=context.tracer,
    )
    # The shared loops and checks join the first part, so that readiness shows the database under a known name.
    first, *others = (component.part for component in components)
    first = msgspec.structs.replace(
        first,
        loops=(opener.run, *first.loops, expiry.run),
        checks={"database": database.unavailable_reason, **first.checks},
    )
    return BuiltServer(
        parts=(first, *others),
        database=opener,
        listener=Server(app, address=address, log=context.log),
        settings=settings,
    )


def audit_component(log: SqlAuditLog) -> Component:
    """Return the component that serves the audit log of all components."""
    return Component(routes=audit.audit_routes(log), permissions=audit.PERMISSIONS)


def configured_identities(settings: ServerSettings, *, log: Log) -> Sequence[Identities]:
    """Return the tokens and keys in the settings.

    Raises `Misconfigured` if a file with tokens or keys cannot be used.
    """
    known: list[Identities] = []
    if settings.tokens_file is not None:
        from sentinel.drivers.identity.tokens_file import TokensFile

        known.append(TokensFile(settings.tokens_file, log=log))
    if settings.jwt_key_file is not None or settings.jwks_url is not None:
        from sentinel.drivers.identity.jwks import JwtKeySet
        from sentinel.drivers.identity.jwt import ExpectedClaims, JwtKey

        expected = ExpectedClaims(issuer=settings.jwt_issuer, audience=settings.jwt_audience)
        if settings.jwt_key_file is not None:
            known.append(JwtKey(settings.jwt_key_file, expected=expected, log=log))
        if settings.jwks_url is not None:
            known.append(JwtKeySet(settings.jwks_url, expected=expected, log=log))
    return known


def build_guard(settings: ServerSettings, *, known: Sequence[Identities], stored: Identities) -> Guard:
    """Build the guard. `stored` are the identities of the database, `known` all others."""
    return Guard(
        identities=[*known, stored],
        is_insecure=settings.insecure,
        # Clients that are set up for another server may send its token. It grants less than none.
        ignores_unknown_tokens=settings.insecure and not known,
    )


def _pages(components: Sequence[BuiltComponent], context: ServiceContext) -> Sequence[Route]:
    refreshes = [component.refresh for component in components if component.refresh is not None]

    async def refresh() -> None:
        for each in refreshes:
            await each()

    pages = probe_pages(context.health) | metrics_pages(context.metrics)
    return page_routes(pages, before={"/metrics": refresh})


def _identity(part: Part) -> Part:
    return part
