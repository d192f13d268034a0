"""`sentinel run`: the pulse as a service."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from sentinel.cli import options
from sentinel.cli.wiring.broker import build_publisher
from sentinel.cli.wiring.pulse import build_pulse, build_pulse_metrics, build_watched_fleet
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, probe_options, refuse, serve
from sentinel.core.pulse.pacing import Pacer
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.lifecycle.part import Part, shared_resource
from sentinel.runtime.settings.broker import BrokerSettings, load_broker
from sentinel.runtime.settings.report import Loaded


@click.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="The settings file.")
@options.broker_option
@probe_options
@options.set_option
@options.log_options
def run(
    config: Path,
    broker_config: Path | None,
    probes: ProbeAddresses,
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Poll the fleet and publish an event for each resource that is due.

    Broker settings come from the environment (BROKER_TYPE, BROKER_URL, ...) and from --broker-config. A bad
    configuration exits with 2 before any connection is opened. SIGTERM or Ctrl-C stops the command cleanly; a
    second one stops it at once.
    """
    loaded = pulse_settings.load(file=config, environ=os.environ, sets=sets, overrides=log_overrides)
    broker = load_broker(source=broker_config, environ=os.environ)
    if loaded.settings is None or broker.settings is None:
        return refuse((*loaded.problems, *broker.problems, *_missing_broker(broker)))
    return serve(
        partial(_assemble, loaded.settings, broker.settings),
        name="run",
        component="pulse",
        log=loaded.settings.log,
        secrets=[secret.reveal() for secret in (*loaded.secrets, *broker.secrets)],
        warnings=(*loaded.warnings, *broker.warnings),
        probes=probes,
    )


def _assemble(settings: PulseSettings, broker: BrokerSettings, context: ServiceContext) -> Assembly:
    redactor = context.redactor
    metrics = build_pulse_metrics(context.metrics)
    definition = settings.definition
    publisher = build_publisher(broker, mode=definition.event_mode)

    def build() -> Part:
        fleet = build_watched_fleet(definition, on_token=redactor.rotating(), tracer=context.tracer)
        return build_pulse(
            definition,
            fleet=fleet,
            publisher=publisher,
            clock=context.clock,
            tracer=context.tracer,
            pacer=Pacer(),
            series=metrics.claim(shard=definition.shard, resource_type=definition.resource_type),
        )

    return Assembly(
        parts=[build],
        shared=[shared_resource("broker", publisher)],
        description=_description(settings, broker),
        has_large_bodies=True,
    )


def _missing_broker(broker: Loaded[BrokerSettings]) -> Iterator[str]:
    if broker.settings is None and not broker.problems:
        yield "BROKER_TYPE: expected rabbitmq, pubsub or stdout, by environment or --broker-config, got nothing"


def _description(settings: PulseSettings, broker: BrokerSettings) -> dict[str, object]:
    """The fields of the first log line."""
    return {
        "resource_type": settings.resource_type,
        "selector": settings.definition.shard,
        "endpoint": settings.hyperfleet_api.endpoint,
        "poll_interval": settings.poll_interval,
        "max_age_not_ready": settings.max_age_not_ready,
        "max_age_ready": settings.max_age_ready,
        "broker_type": broker.type,
    }
