"""Runs a service. Every service command calls `serve`.

It configures logging and tracing, logs warnings about settings, calls the command to assemble its parts, opens the
listeners for probes and metrics, runs the lifecycle, and returns the exit code. A command only loads its settings
and names its parts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial, wraps
from typing import Any, TextIO

import click
import msgspec

from sentinel.cli.options import bind_address
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import process, tracing
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Hook, PartFactory, SharedResource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log, configure_logging, get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.secrets import Redactor
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.tracing import Tracer


class ProbeAddresses(msgspec.Struct, frozen=True):
    """The addresses of metrics and probes, for a service without an HTTP server. None disables them."""

    metrics: Address | None
    probes: Address | None


def probe_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--metrics-bind-address` and `--health-probe-bind-address`, as the parameter `probes`."""

    @wraps(command)
    def with_probes(
        *args: Any, metrics_bind_address: Address | None, health_probe_bind_address: Address | None, **kwargs: Any
    ) -> int:
        return command(*args, probes=ProbeAddresses(metrics_bind_address, health_probe_bind_address), **kwargs)

    address_option = partial(click.option, metavar="ADDRESS", callback=bind_address, show_default=True)
    metrics = address_option(
        "--metrics-bind-address", default=":8080", help="Address that serves /metrics; 0 to disable."
    )
    probes = address_option(
        "--health-probe-bind-address",
        default=":8081",
        help="Address that serves /healthz and /readyz; 0 to disable.",
    )
    return metrics(probes(with_probes))


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a command needs to assemble its parts."""

    log: Log
    redactor: Redactor
    """Masks secrets in all output. Parts register secrets that they load later."""
    health: Health
    metrics: Metrics
    clock: Clock
    tracer: Tracer
    """`NO_TRACING` unless the environment configures tracing. `serve` closes it."""


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a service."""

    parts: Sequence[PartFactory]
    """Started in this order."""
    shared: Sequence[SharedResource] = ()
    """What the parts share. Opened in this order before the parts, closed in reverse after them."""
    description: Mapping[str, object] = {}
    """The fields of the first log line."""
    drain: timedelta = runner.DRAIN_TIMEOUT
    """How long loops may take to end after they are stopped."""
    restart: Backoff | None = None
    """The backoff for restarting failed parts. None: a failed part ends the service."""
    stopping: Stopping | None = None
    """For a service that can stop itself."""
    dynamic: DynamicParts | None = None
    """For a service that adds and removes parts while it runs."""
    on_reload: Hook | None = None
    """Called on SIGHUP. None: SIGHUP stops the service."""
    has_large_bodies: bool = False
    """Whether it sends or receives bodies of 100 kB and more. The allocator then keeps large blocks for reuse."""


def serve(
    assemble: Callable[[ServiceContext], Assembly],
    *,
    name: str,
    component: str,
    service_name: str = tracing.SERVICE_NAME,
    log: LogSettings,
    secrets: Iterable[str] = (),
    warnings: Iterable[str] = (),
    probes: ProbeAddresses | None = None,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run a service until it ends. Return the exit code.

    `name` names the logger, `component` is the label of the build-info metric, `service_name` the name in traces
    if `environ` has none. Without `probes`, the service serves health and metrics itself. Logs go to `stream` or
    to stderr. If `assemble` raises `Misconfigured`, the reason is printed and the exit code is 2.
    """
    # gRPC's own output on stderr is neither JSON nor redacted. Our modules report its errors themselves.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    logging = configure_logging(
        log.level, log.format, stream=stream, secrets=(*secrets, *tracing.exporter_secrets(environ))
    )
    own_log = get_logger(name)
    context = ServiceContext(
        log=own_log,
        redactor=logging.redactor,
        health=Health(redact=logging.redactor.redact),
        metrics=Metrics(component=component),
        clock=SystemClock(),
        tracer=tracing.from_environment(
            environ, log=own_log, redact=logging.redactor.redact, service_name=service_name
        ),
    )
    try:
        for warning in warnings:
            own_log.warning("settings.warning", problem=warning)
        return _run(_assembled(assemble, context), context, probes)
    except Misconfigured as error:
        return refuse([str(error)])
    finally:
        logging.restore()


def _assembled(assemble: Callable[[ServiceContext], Assembly], context: ServiceContext) -> Assembly:
    try:
        return assemble(context)
    except BaseException:
        asyncio.run(context.tracer.close())  # no lifecycle will close it, and it has a thread
        raise


def _run(assembly: Assembly, context: ServiceContext, probes: ProbeAddresses | None) -> int:
    if assembly.description:
        context.log.info("service.starting", **assembly.description)
    service = runner.run(
        parts=assembly.parts,
        shared=[
            SharedResource("tracing", lambda: _closing(context.tracer)),
            *_probe_listeners(probes, context),
            *assembly.shared,
        ],
        log=context.log,
        health=context.health,
        metrics=context.metrics,
        drain_timeout=assembly.drain,
        restart=assembly.restart,
        stopping=assembly.stopping,
        dynamic=assembly.dynamic,
        on_reload=assembly.on_reload,
    )
    if assembly.has_large_bodies:
        process.tune_memory()
    return process.main(service, log=context.log)


def refuse(problems: Iterable[object]) -> int:
    """Print the problems to stderr, one per line. Return the exit code for a bad configuration."""
    for problem in problems:
        click.echo(mask_secret_text(str(problem)), err=True)
    return ExitCode.MISCONFIGURED


def _probe_listeners(probes: ProbeAddresses | None, context: ServiceContext) -> list[SharedResource]:
    if probes is None:
        return []
    # They load aiohttp, which a REST server does not need.
    from sentinel.runtime.probes.listener import listeners
    from sentinel.runtime.probes.probe_thread import ProbeThread

    served = listeners(
        metrics_address=probes.metrics,
        probes_address=probes.probes,
        metrics=context.metrics,
        health=context.health,
        log=context.log,
    )
    if not served:
        return []
    return [SharedResource("probes", lambda: ProbeThread(served, health=context.health, log=context.log))]


@asynccontextmanager
async def _closing(tracer: Tracer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await tracer.close()
