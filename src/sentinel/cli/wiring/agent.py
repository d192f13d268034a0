"""Builds an agent."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.agent.hub_connection import HubConnection
from sentinel.agent.sampling import Sampling
from sentinel.agent.settings import REGISTRATION_TOKEN, AgentSettings, HubConnectionSettings
from sentinel.agent.telemetry import AgentTelemetry
from sentinel.cli.wiring.applier import build_applier
from sentinel.cli.wiring.serve import ServiceContext
from sentinel.core.agent.offline import OfflineBehavior
from sentinel.core.agent.proxy_metrics import MetricNames
from sentinel.drivers.hub_client.client import GrpcHubClient
from sentinel.drivers.hub_client.credentials import TlsFiles, WatchedTls
from sentinel.drivers.proxy_metrics import ProxyMetrics
from sentinel.drivers.rest.token import BearerToken
from sentinel.ports.hub_client import Registration
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.log import Log, get_logger
from sentinel.version import __version__

CAPABILITIES: Final = ("reload", "drain", "metrics", "secrets")


class BuiltAgent(msgspec.Struct, frozen=True):
    """An agent, and what the command says about it."""

    part: Part
    instance_id: str


def build_agent(settings: AgentSettings, *, stop_agent: Callable[[], None], context: ServiceContext) -> BuiltAgent:
    """Build an agent. It calls `stop_agent` when it has ended by itself.

    Raises `Misconfigured` if a file that it needs cannot be used.
    """
    log = get_logger("agent")
    registry = CollectorRegistry()
    telemetry = AgentTelemetry(registry=registry, log=log)
    applying = build_applier(settings, environ=os.environ, clock=context.clock, log=log)
    applier, instance_id = applying.applier, applying.instance_id
    metrics = None if settings.proxy.metrics_url is None else ProxyMetrics(settings.proxy.metrics_url)
    sampling = Sampling(
        None if metrics is None else metrics.fetch,
        names=msgspec.convert(settings.proxy.metrics, MetricNames, from_attributes=True),
        clock=context.clock,
        observer=telemetry,
    )
    client = GrpcHubClient(
        settings.hub.address,
        instance_id,
        tls=_tls(settings.hub, log),
        registration_token=_registration_token(settings.hub, context.redactor.rotating()),
        on_token=context.redactor.rotating(),
    )
    offline = settings.offline_behavior

    def registration() -> Registration:
        return Registration(
            instance_id=instance_id,
            name=settings.instance_name,
            hostname=socket.gethostname(),
            agent_version=__version__,
            sentinel_version=sampling.proxy_version,
            labels=settings.instance.labels,
            capabilities=[each for each in CAPABILITIES if each != "metrics" or metrics is not None],
        )

    connection = HubConnection(
        client=client,
        applier=applier,
        sampling=sampling,
        registration=registration,
        policy=OfflineBehavior(mode=offline.mode, max_offline_duration=offline.max_offline_duration),
        backoff=offline.retry_backoff.backoff,
        deregisters_on_shutdown=settings.deregister_on_shutdown,
        stop_agent=stop_agent,
        clock=context.clock,
        observer=telemetry,
    )

    async def close() -> None:
        await client.close()
        await applying.close()
        if metrics is not None:
            await metrics.close()

    part = Part(
        name="agent",
        loops=(applier.run, connection.run),
        checks={"hub": connection.problem},
        registry=registry,
        start=applier.start,
        close=close,
    )
    return BuiltAgent(part, instance_id)


def _tls(hub: HubConnectionSettings, log: Log) -> WatchedTls | None:
    if hub.tls is None:
        return None
    return WatchedTls(TlsFiles(ca=hub.tls.ca, certificate=hub.tls.cert, key=hub.tls.key), log=log)


def _registration_token(hub: HubConnectionSettings, on_token: Callable[[str], None]) -> BearerToken | None:
    if hub.registration_token is not None:
        return BearerToken(hub.registration_token.reveal(), name=REGISTRATION_TOKEN, on_token=on_token)
    if hub.registration_token_file is not None:
        return BearerToken(file=hub.registration_token_file, on_token=on_token)
    return None
