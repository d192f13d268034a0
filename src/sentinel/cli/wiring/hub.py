"""Builds the hub: a component of a REST server, and a gRPC listener for agents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.hub_webhooks import build_webhooks
from sentinel.cli.wiring.server import BuiltComponent
from sentinel.core.ids import RANDOM_BYTES, uuid7
from sentinel.drivers.encryption import Encryption
from sentinel.drivers.hub_tls import HubTls, TlsPaths
from sentinel.drivers.identity.session_tokens import JwtSessionTokens
from sentinel.drivers.proxy_facts import SystemProxyFacts
from sentinel.drivers.rest.retries import NO_RETRIES
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.drivers.sql.hub.secrets import SqlSecretStore
from sentinel.drivers.sql.hub.signing_keys import SqlSigningKeys
from sentinel.drivers.sql.hub.store import SqlHubStore
from sentinel.drivers.sql.hub.webhooks import SqlWebhookStore
from sentinel.drivers.task_http import TaskHttp
from sentinel.hub import access, deployment_routes, routes
from sentinel.hub.agents import Agents
from sentinel.hub.canary_metrics import CanaryMetrics
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.configs import Configs
from sentinel.hub.deployment_http import DeploymentHandlers
from sentinel.hub.deployments import RolloutDeployments
from sentinel.hub.event_feed import EventFeed
from sentinel.hub.event_streams import EventStreams
from sentinel.hub.fetching import Fetching
from sentinel.hub.flusher import Flusher
from sentinel.hub.grpc.calls import FleetCalls
from sentinel.hub.grpc.event_encoding import EventEncoder
from sentinel.hub.grpc.listener import GrpcListener, ServerCredentials
from sentinel.hub.http import ConfigHandlers, InstanceHandlers, SecretHandlers
from sentinel.hub.instance_reads import InstanceReads
from sentinel.hub.instances import Instances
from sentinel.hub.registrants import Registrants
from sentinel.hub.registry import Registry
from sentinel.hub.rollout_copies import RolloutCopies
from sentinel.hub.rollout_planning import RolloutPlanning
from sentinel.hub.rollout_runner import RolloutRunner
from sentinel.hub.rollout_service import RolloutService
from sentinel.hub.secret_offers import SecretOffers
from sentinel.hub.secrets import Secrets
from sentinel.hub.sessions import Sessions
from sentinel.hub.settings import SECRETS_KEY_VARIABLE, HubSettings
from sentinel.hub.subscriptions import Subscriptions
from sentinel.hub.sweeper import Sweeper
from sentinel.hub.telemetry import METRICS_PREFIX, HubTelemetry
from sentinel.hub.version_cache import VersionCache
from sentinel.hub.webhooks import Webhook
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Unavailable
from sentinel.ports.hub_store import HubStore
from sentinel.ports.identity import Identities
from sentinel.ports.peer_certificates import PeerCertificates
from sentinel.ports.proxy_facts import ProxyFacts
from sentinel.ports.secret_store import SecretStore
from sentinel.ports.session_tokens import SessionTokens
from sentinel.ports.task_http import HttpClient
from sentinel.ports.webhook_store import WebhookStore
from sentinel.runtime.identities import CombinedIdentities
from sentinel.runtime.lifecycle.part import Hook, Part
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.probes.health import HealthCheck
from sentinel.runtime.retention import RetentionRule
from sentinel.version import __version__
from sentinel.web.app import Component
from sentinel.web.audit import Auditor
from sentinel.web.openapi import Info

__all__ = ["METRICS_PREFIX", "BuiltHub", "build_hub", "build_sql_hub", "info"]

CONNECTIONS: Final = 20
"""To webhooks."""
THIN_AFTER: Final = timedelta(hours=1)
"""Older metrics are thinned out."""


class BuiltHub(msgspec.Struct, frozen=True, kw_only=True):
    """A hub that is ready to be served."""

    component: BuiltComponent
    """For a REST server."""
    listener: GrpcListener
    """For agents. Its part starts after that of the component."""
    calls: FleetCalls
    instances: Instances
    configs: Configs
    rollouts: RolloutService
    registry: Registry
    secrets: Secrets
    offers: SecretOffers
    webhooks: Sequence[Webhook]
    feed: EventFeed
    flusher: Flusher
    sweeper: Sweeper
    subscriptions: Subscriptions
    telemetry: HubTelemetry


class AgentSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """How agents are recognized."""

    identities: Identities
    """Of registration tokens."""
    tokens: SessionTokens
    certificates: PeerCertificates | None = None
    """With them, every agent needs one."""
    credentials: ServerCredentials | None = None
    """Of the listener; None serves without TLS."""
    is_insecure: bool = False
    """Whether an agent may register without a token."""
    ignores_unknown_tokens: bool = False
    load_keys: Hook | None = None
    """Loads what `tokens` needs. Raises `Misconfigured`, `Unavailable`."""


def build_hub(
    settings: HubSettings,
    *,
    store: HubStore,
    secret_store: SecretStore,
    webhook_store: WebhookStore,
    http: HttpClient,
    security: AgentSecurity,
    facts: ProxyFacts,
    address: Address,
    unavailable_reason: HealthCheck,
    auditor: Auditor,
    clock: Clock,
    log: Log | None = None,
) -> BuiltHub:
    """Build the hub. `address` is that of the gRPC listener. `facts` finds out whether upstreams resolve, `http`
    sends to webhooks."""
    log = log or get_logger("hub")
    metrics = CollectorRegistry()
    hub = uuid7(clock.now(), os.urandom(RANDOM_BYTES))
    telemetry = HubTelemetry(
        store=store, clock=clock, registry=metrics, log=log, expected_agents=settings.expected_agents
    )
    timeouts = settings.timeouts
    registry = Registry(store)
    streams = EventStreams(store, clock=clock)
    sessions = Sessions(
        registry=registry,
        tokens=security.tokens,
        certificates=security.certificates,
        clock=clock,
        ttl=settings.session_ttl,
    )
    registrants = Registrants(
        sessions=sessions,
        identities=security.identities,
        is_insecure=security.is_insecure,
        ignores_unknown_tokens=security.ignores_unknown_tokens,
    )
    versions = VersionCache(store)
    secrets = Secrets(store=secret_store, clock=clock, auditor=auditor)
    offers = SecretOffers(secret_store, clock=clock, log=log)
    copies = RolloutCopies(store)
    runner = RolloutRunner(
        store=store,
        copies=copies,
        registry=registry,
        metrics=CanaryMetrics(store=store, registry=registry, heartbeat_interval=settings.heartbeat_interval),
        timeouts=timeouts,
        clock=clock,
        observer=telemetry,
        log=log,
    )
    deployments = RolloutDeployments(runner=runner, copies=copies, registry=registry, clock=clock)
    # The runner first: streams look for the deployment of an instance as soon as the instance has one.
    feed = EventFeed(store, readers=(runner, registry, streams), clock=clock, log=log)
    agents = Agents(
        hub=hub,
        store=store,
        registry=registry,
        feed=feed,
        sessions=sessions,
        registrants=registrants,
        deployments=deployments,
        timeouts=timeouts,
        metrics_retention=settings.metrics_retention,
        clock=clock,
        observer=telemetry,
        auditor=auditor,
    )
    subscriptions = Subscriptions(
        registry=registry,
        sessions=sessions,
        deployments=deployments,
        certificates=security.certificates,
        timeouts=timeouts,
        ping_interval=settings.ping_interval,
        clock=clock,
        observer=telemetry,
    )
    copies.notify(subscriptions)
    calls = FleetCalls(
        agents=agents,
        fetching=Fetching(
            store=store,
            registry=registry,
            sessions=sessions,
            versions=versions,
            secrets=secrets,
            deployments=deployments,
            clock=clock,
        ),
        subscriptions=subscriptions,
        events=EventEncoder(versions),
        certificates=security.certificates,
        observer=telemetry,
    )
    flusher = Flusher(registry, clock=clock, observer=telemetry, log=log)
    sweeper = Sweeper(store=store, registry=registry, timeouts=timeouts, clock=clock, observer=telemetry, log=log)

    instances = Instances(
        store=store, registry=registry, timeouts=timeouts, clock=clock, observer=telemetry, auditor=auditor
    )
    checker = ConfigChecker(facts=facts, secrets=secrets, resolve=settings.resolve, clock=clock)
    configs = Configs(store=store, checker=checker, clock=clock, auditor=auditor)
    rollouts = RolloutService(
        store=store,
        planning=RolloutPlanning(store=store, checker=checker),
        runner=runner,
        copies=copies,
        timeouts=timeouts,
        deployment_timeout=settings.deployment_timeout,
        clock=clock,
        auditor=auditor,
    )
    webhooks = build_webhooks(
        settings,
        hub=hub,
        events=store,
        store=webhook_store,
        http=http,
        auditor=auditor,
        clock=clock,
        telemetry=telemetry,
        log=log,
    )
    handlers = InstanceHandlers(
        reads=InstanceReads(store=store, registry=registry), instances=instances, streams=streams
    )

    async def load_keys() -> None:
        # A wrong key file ends the process at once. A database that is away is waited for.
        try:
            if security.load_keys is not None:
                await security.load_keys()
            if count := await secret_store.load():
                log.info("secrets.encrypted_again", secrets=count)
        except Unavailable as error:
            log.warning("keys.unavailable", error=error)

    return BuiltHub(
        component=BuiltComponent(
            part=Part(
                name="hub",
                loops=(
                    feed.run,
                    sweeper.run,
                    subscriptions.run,
                    flusher.run,
                    offers.run,
                    runner.run,
                    *(each.run for each in webhooks.hooks),
                ),
                registry=metrics,
                start=load_keys,
                close=flusher.close,
            ),
            web=Component(
                routes=(
                    *routes.instance_routes(handlers),
                    *routes.config_routes(ConfigHandlers(configs)),
                    *routes.secret_routes(SecretHandlers(secrets)),
                    *deployment_routes.deployment_routes(DeploymentHandlers(rollouts)),
                    *webhooks.routes,
                ),
                permissions=access.PERMISSIONS,
                tags={**routes.TAGS, **deployment_routes.TAGS},
            ),
            retention_rules=(
                RetentionRule("events", settings.retention.events, store.expire_events),
                RetentionRule("metrics", settings.metrics_retention, store.expire_metrics),
                RetentionRule("metrics", THIN_AFTER, store.thin_metrics),
                webhooks.retention_rule,
                RetentionRule("removed instances", settings.removed_retention, store.expire_removed),
            ),
            refresh=telemetry.refresh_if_stale,
        ),
        listener=GrpcListener(
            calls,
            address=address,
            credentials=security.credentials,
            subscriptions=subscriptions,
            unavailable_reason=unavailable_reason,
            clock=clock,
            log=log,
            has_reflection=settings.grpc_reflection,
        ),
        calls=calls,
        instances=instances,
        configs=configs,
        rollouts=rollouts,
        registry=registry,
        secrets=secrets,
        offers=offers,
        webhooks=webhooks.hooks,
        feed=feed,
        flusher=flusher,
        sweeper=sweeper,
        subscriptions=subscriptions,
        telemetry=telemetry,
    )


def _encryption(settings: HubSettings) -> Encryption | None:
    if settings.secrets_key is not None:
        return Encryption.parse(settings.secrets_key.reveal().encode(), source=SECRETS_KEY_VARIABLE)
    return None if settings.secrets_key_file is None else Encryption.read(settings.secrets_key_file)


def build_sql_hub(
    settings: HubSettings,
    *,
    database: SqlDatabase,
    identities: Sequence[Identities],
    ignores_unknown_tokens: bool,
    address: Address,
    auditor: Auditor,
    clock: Clock,
) -> BuiltHub:
    """Build the hub on a database, which the caller opens, with the TLS of its settings.

    `identities` are those of registration tokens. Raises `Misconfigured` if a file cannot be used.
    """
    log = get_logger("hub")
    encryption = _encryption(settings)
    tokens = JwtSessionTokens(SqlSigningKeys(database, encryption=encryption), clock=clock)
    tls = _tls(settings, log)
    security = AgentSecurity(
        identities=CombinedIdentities(identities),
        tokens=tokens,
        certificates=tls if settings.client_ca is not None else None,
        credentials=None if tls is None else tls.server_credentials(),
        is_insecure=settings.insecure,
        ignores_unknown_tokens=ignores_unknown_tokens,
        load_keys=tokens.load,
    )
    http = TaskHttp(user_agent=f"sentinel-hub/{__version__}", connections=CONNECTIONS, retries=NO_RETRIES)
    built = build_hub(
        settings,
        store=SqlHubStore(database),
        secret_store=SqlSecretStore(database, encryption=encryption),
        webhook_store=SqlWebhookStore(database),
        http=http,
        security=security,
        facts=SystemProxyFacts(),
        address=address,
        unavailable_reason=database.unavailable_reason,
        auditor=auditor,
        clock=clock,
        log=log,
    )
    return _closing(built, http.close)


def _closing(built: BuiltHub, close: Hook) -> BuiltHub:
    """Return the hub, whose part also closes something that it uses."""
    component, part = built.component, built.component.part
    close_part = part.close

    async def close_both() -> None:
        try:
            if close_part is not None:
                await close_part()
        finally:
            await close()

    closing = msgspec.structs.replace(component, part=msgspec.structs.replace(part, close=close_both))
    return msgspec.structs.replace(built, component=closing)


def _tls(settings: HubSettings, log: Log) -> HubTls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return HubTls(
        TlsPaths(
            certificate=settings.tls_cert,
            key=settings.tls_key,
            client_ca=settings.client_ca,
            revoked=settings.revoked_file,
        ),
        log=log,
    )


def info(settings: HubSettings) -> Info:
    """Return the head of the OpenAPI document."""
    return Info(
        title="Sentinel Hub",
        version=__version__,
        description="Proxy instances, the versions of their configuration, and what is assigned to whom.",
        is_insecure=settings.insecure,
    )
