"""`sentinel adapter`: an adapter as a service, and what goes with one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from sentinel.adapter import loading
from sentinel.adapter import settings as adapter_settings
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.settings import AdapterSettings
from sentinel.cli import options
from sentinel.cli.addresses import listen_options
from sentinel.cli.build_adapter import build_adapter, build_reporting, build_subscriber, in_flight
from sentinel.cli.dead_letters import dead_letters
from sentinel.cli.new_adapter import new
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import process, telemetry
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.health import Health
from sentinel.runtime.http import Listener, listeners
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import Shared, opened
from sentinel.runtime.listening import Address
from sentinel.runtime.metrics import Metrics
from sentinel.runtime.redaction import secrets_within
from sentinel.runtime.settings.broker import BrokerSettings, load_broker
from sentinel.runtime.settings.report import Problem


class Ready(msgspec.Struct, frozen=True):
    """An adapter that could be run: everything that was written down about it is in order."""

    adapter: Adapter
    settings: AdapterSettings
    broker: BrokerSettings
    subscription: str
    secrets: tuple[str, ...]
    warnings: tuple[str, ...]


@click.group(invoke_without_command=True)
@click.option("--config", type=click.Path(path_type=Path), help="The settings file.")
@options.broker_option
@listen_options
@options.set_option
@options.log_options
@click.pass_context
def adapter(
    context: click.Context,
    config: Path | None,
    broker_config: Path | None,
    metrics_bind_address: Address | None,
    health_probe_bind_address: Address | None,
    sets: Sequence[str],
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Run an adapter: answer the pulses for its kinds of resource, and report what it found.

    The file names the adapter (task: package.module:name) and the API. Broker settings come from the environment
    (BROKER_TYPE, BROKER_URL, BROKER_SUBSCRIPTION_ID, ...) and from --broker-config. A configuration with problems,
    or an adapter that cannot be imported, ends the command with 2. SIGTERM or Ctrl-C finishes what has been begun
    and ends it; a second one at once.
    """
    if context.invoked_subcommand is not None:
        return process.ExitCode.SUCCESS
    if config is None:
        raise click.UsageError("expected --config FILE, or one of the commands new, dead-letters")
    overrides = options.log_overrides(log_level=log_level, log_format=log_format)
    ready = prepare(config, broker_config, sets=sets, overrides=overrides, environ=os.environ)
    if not isinstance(ready, Ready):
        return _refuse(ready)
    settings = ready.settings
    logging = telemetry.configure(settings.log.level, settings.log.format, secrets=ready.secrets)
    log = telemetry.get_logger("adapter")
    for warning in ready.warnings:
        log.warning("settings.warning", problem=warning)
    try:
        subscriber = build_subscriber(
            ready.broker, subscription=ready.subscription, max_in_flight=in_flight(settings)
        )
    except Misconfigured as error:
        return _refuse([str(error)])

    health = Health(redact=logging.redactor.redact)
    metrics = Metrics(component="adapter")
    listening = listeners(
        metrics_address=metrics_bind_address,
        probes_address=health_probe_bind_address,
        metrics=metrics,
        health=health,
        log=log,
    )
    log.info(
        "service.starting",
        adapter=ready.adapter.name,
        kinds=ready.adapter.kinds,
        endpoint=settings.hyperfleet_api.endpoint,
        broker_type=ready.broker.type,
        subscription=ready.subscription,
        concurrency=settings.concurrency,
        task_timeout=settings.task_timeout,
        report_max_age=settings.report_max_age,
    )
    service = runner.run(
        parts=[
            lambda: build_adapter(
                settings,
                adapter=ready.adapter,
                subscriber=subscriber,
                reporting=build_reporting(
                    settings.hyperfleet_api,
                    connections=max(100, settings.concurrency),
                    kinds=ready.adapter.kinds,
                    on_token=logging.redactor.add,
                ),
                clock=SystemClock(),
                redact=logging.redactor.redact,
                drain=runner.DRAIN,
            )
        ],
        shared=[*map(_shared, listening), opened("broker", subscriber)],
        log=log,
        health=health,
        metrics=metrics,
        drain=runner.DRAIN,
    )
    return process.main(service, log=log)


adapter.add_command(new)
adapter.add_command(dead_letters)


def prepare(
    config: Path,
    broker_config: Path | None,
    *,
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str],
) -> Ready | list[str]:
    """Everything that running an adapter takes, or everything that is wrong with it."""
    loaded = adapter_settings.load(file=config, environ=environ, sets=sets, overrides=overrides)
    broker = load_broker(source=broker_config, environ=environ)
    problems = [str(problem) for problem in (*loaded.problems, *broker.problems)]
    if broker.settings is None and not broker.problems:
        problems.append("BROKER_TYPE: expected rabbitmq or pubsub, by environment or --broker-config, got nothing")
    if loaded.settings is None:
        return problems
    try:
        found = loading.load_adapter(loaded.settings.task, folder=config.parent)
    except loading.NoAdapter as error:
        return [str(Problem.at(adapter_settings.place_of_task(config, loaded), "task", str(error))), *problems]
    if broker.settings is None or problems:
        return problems
    return Ready(
        adapter=found,
        settings=loaded.settings,
        broker=broker.settings,
        subscription=broker.settings.subscription_id or found.name,
        secrets=(
            *(secret.reveal() for secret in (*loaded.secrets, *broker.secrets)),
            # What a task is probably given to authenticate by: its exceptions must not tell the whole fleet.
            *secrets_within(environ),
        ),
        warnings=(*loaded.warnings, *broker.warnings),
    )


def _shared(listener: Listener) -> Shared:
    return Shared(f"listener {listener.address}", lambda: listener)


def _refuse(problems: Iterable[str]) -> int:
    """Says everything that is wrong, at once."""
    for problem in problems:
        click.echo(problem, err=True)
    return process.ExitCode.MISCONFIGURED
