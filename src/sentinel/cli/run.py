"""`sentinel run`: the pulse as a service."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click

from sentinel.cli import options
from sentinel.cli.addresses import listen_options
from sentinel.cli.build import build_fleet, build_publisher, build_pulse, pulse_metrics
from sentinel.ports.errors import Misconfigured
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import lifecycle, process, telemetry, tracing
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.health import Health
from sentinel.runtime.http import Listener, listeners
from sentinel.runtime.lifecycle import Shared, opened
from sentinel.runtime.listening import Address
from sentinel.runtime.metrics import Metrics
from sentinel.runtime.settings.broker import BrokerSettings, load_broker
from sentinel.runtime.settings.report import Loaded
from sentinel.runtime.tracing import Tracer


@click.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="The settings file.")
@options.broker_option
@listen_options
@options.set_option
@options.log_options
def run(
    config: Path,
    broker_config: Path | None,
    metrics_bind_address: Address | None,
    health_probe_bind_address: Address | None,
    sets: Sequence[str],
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Poll the fleet and publish an event for each resource that is due.

    Broker settings come from the environment (BROKER_TYPE, BROKER_URL, ...) and from --broker-config. A
    configuration with problems ends the command with 2 before any connection is opened. SIGTERM or Ctrl-C ends it
    cleanly; a second one at once.
    """
    overrides = options.log_overrides(log_level=log_level, log_format=log_format)
    loaded = pulse_settings.load(file=config, environ=os.environ, sets=sets, overrides=overrides)
    broker = load_broker(source=broker_config, environ=os.environ)
    if loaded.settings is None or broker.settings is None:
        return _refuse(loaded, broker)
    settings = loaded.settings

    secrets = [secret.reveal() for secret in (*loaded.secrets, *broker.secrets)] + tracing.secrets(os.environ)
    logging = telemetry.configure(settings.log.level, settings.log.format, secrets=secrets)
    log = telemetry.get_logger("run")
    for warning in (*loaded.warnings, *broker.warnings):
        log.warning("settings.warning", problem=warning)
    try:
        publisher = build_publisher(broker.settings, mode=settings.event_mode)
    except Misconfigured as error:
        click.echo(str(error), err=True)
        return lifecycle.ExitCode.MISCONFIGURED

    tracer = tracing.from_environment(os.environ, log=log, redact=logging.redactor.redact)
    health = Health(redact=logging.redactor.redact)
    metrics = Metrics(component="pulse")
    pulses = pulse_metrics(metrics)
    listening = listeners(
        metrics_address=metrics_bind_address,
        probes_address=health_probe_bind_address,
        metrics=metrics,
        health=health,
        log=log,
    )
    log.info("service.starting", **_described(settings, broker.settings))
    service = lifecycle.run(
        parts=[
            lambda: build_pulse(
                settings,
                fleet=build_fleet(settings, on_token=logging.redactor.add),
                publisher=publisher,
                clock=SystemClock(),
                tracer=tracer,
                series=pulses.claim(shard=settings.shard, resource_type=settings.resource_type),
            )
        ],
        shared=[
            *map(_shared, listening),
            Shared("tracing", lambda: _closed_at_end(tracer)),
            opened("broker", publisher),
        ],
        log=log,
        health=health,
        metrics=metrics,
    )
    return process.main(service, log=log)


def _shared(listener: Listener) -> Shared:
    return Shared(f"listener {listener.address}", lambda: listener)


@asynccontextmanager
async def _closed_at_end(tracer: Tracer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await tracer.close()


def _refuse(loaded: Loaded[PulseSettings], broker: Loaded[BrokerSettings]) -> int:
    """Says everything that is wrong, at once."""
    for problem in (*loaded.problems, *broker.problems):
        click.echo(str(problem), err=True)
    if broker.settings is None and not broker.problems:
        click.echo(
            "BROKER_TYPE: expected rabbitmq, pubsub or stdout, by environment or --broker-config, got nothing",
            err=True,
        )
    sys.stderr.flush()
    return lifecycle.ExitCode.MISCONFIGURED


def _described(settings: PulseSettings, broker: BrokerSettings) -> dict[str, object]:
    """What a person wants to see in the first line of a log."""
    return {
        "resource_type": settings.resource_type,
        "selector": settings.shard,
        "endpoint": settings.hyperfleet_api.endpoint,
        "poll_interval": settings.poll_interval,
        "max_age_not_ready": settings.max_age_not_ready,
        "max_age_ready": settings.max_age_ready,
        "broker_type": broker.type,
    }
