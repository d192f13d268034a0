"""`sentinel adapter`: run an adapter as a service."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec

from sentinel.adapter import loading
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.settings import AdapterSettings
from sentinel.cli import options
from sentinel.cli.adapter.dead_letters import dead_letters
from sentinel.cli.adapter.new import new
from sentinel.cli.wiring.adapter import build_adapter, build_adapter_api, max_in_flight
from sentinel.cli.wiring.broker import build_subscriber
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, probe_options, refuse, serve
from sentinel.runtime import process
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import shared_resource
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.broker import BrokerSettings, load_broker


class AdapterReady(msgspec.Struct, frozen=True):
    """A configured adapter, ready to run.

    The secrets are redacted in its log, which begins with the warnings.
    """

    adapter: Adapter
    settings: AdapterSettings
    broker: BrokerSettings
    subscription: str
    secrets: tuple[str, ...]
    warnings: tuple[str, ...]


@click.group(invoke_without_command=True)
@click.option("--config", type=click.Path(path_type=Path), help="The settings file.")
@options.broker_option
@probe_options
@options.set_option
@options.log_options
@click.pass_context
def adapter(
    context: click.Context,
    config: Path | None,
    broker_config: Path | None,
    probes: ProbeAddresses,
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Run an adapter: evaluate resources when pulses arrive, and report their status.

    The file names the adapter (task: package.module:name) and the API. Broker settings come from the environment
    (BROKER_TYPE, BROKER_URL, BROKER_SUBSCRIPTION_ID, ...) and from --broker-config. The exit code is 2 if the
    configuration is invalid or the adapter cannot be imported. SIGTERM or Ctrl-C finishes the running evaluations
    and exits; a second one exits at once.
    """
    if context.invoked_subcommand is not None:
        return process.ExitCode.SUCCESS
    if config is None:
        raise click.UsageError("expected --config FILE, or one of the commands new, dead-letters")
    ready = prepare(config, broker_config, sets=sets, overrides=log_overrides, environ=os.environ)
    if not isinstance(ready, AdapterReady):
        return refuse(ready)
    return serve(
        partial(_assemble, ready),
        name="adapter",
        component="adapter",
        service_name="hyperfleet-adapter",
        log=ready.settings.log,
        secrets=ready.secrets,
        warnings=ready.warnings,
        probes=probes,
    )


def _assemble(ready: AdapterReady, context: ServiceContext) -> Assembly:
    settings, redactor = ready.settings, context.redactor
    subscriber = build_subscriber(
        ready.broker, subscription=ready.subscription, max_in_flight=max_in_flight(settings)
    )
    return Assembly(
        parts=[
            lambda: build_adapter(
                settings,
                adapter=ready.adapter,
                subscriber=subscriber,
                api=build_adapter_api(
                    settings.hyperfleet_api,
                    connections=max(100, settings.concurrency),
                    kinds=ready.adapter.kinds,
                    on_token=redactor.rotating(),
                    tracer=context.tracer,
                ),
                clock=context.clock,
                redact=redactor.redact,
                drain=runner.DRAIN_TIMEOUT,
                tracer=context.tracer,
            )
        ],
        shared=[shared_resource("broker", subscriber)],
        description={
            "adapter": ready.adapter.name,
            "kinds": ready.adapter.kinds,
            "endpoint": settings.hyperfleet_api.endpoint,
            "broker_type": ready.broker.type,
            "subscription": ready.subscription,
            "concurrency": settings.concurrency,
            "task_timeout": settings.task_timeout,
            "report_max_age": settings.report_max_age,
        },
        drain=runner.DRAIN_TIMEOUT,
    )


adapter.add_command(new)
adapter.add_command(dead_letters)


def prepare(
    config: Path,
    broker_config: Path | None,
    *,
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str],
) -> AdapterReady | list[str]:
    """Load everything that an adapter needs to run; otherwise return all problems."""
    loaded = loader.load(AdapterSettings, file=config, environ=environ, sets=sets, overrides=overrides)
    broker = load_broker(source=broker_config, environ=environ)
    problems = [str(problem) for problem in (*loaded.problems, *broker.problems)]
    if broker.settings is None and not broker.problems:
        problems.append("BROKER_TYPE: expected rabbitmq or pubsub, by environment or --broker-config, got nothing")
    if loaded.settings is None:
        return problems
    try:
        found = loading.load_adapter(loaded.settings.task, folder=config.parent)
    except loading.InvalidAdapter as error:
        return [str(loading.task_problem(error, file=config, loaded=loaded)), *problems]
    if broker.settings is None or problems:
        return problems
    return AdapterReady(
        adapter=found,
        settings=loaded.settings,
        broker=broker.settings,
        subscription=broker.settings.subscription_id or found.name,
        secrets=(
            *(secret.reveal() for secret in (*loaded.secrets, *broker.secrets)),
            # Tasks authenticate with these, and reports quote the exceptions of tasks.
            *secrets_in_environment(environ),
        ),
        warnings=(*loaded.warnings, *broker.warnings),
    )
