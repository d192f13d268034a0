"""Runs a service: every service command calls `serve`.

It configures logging, logs the warnings about settings, has the command assemble its parts, opens the listeners
for probes and metrics, runs the lifecycle, and returns the exit code. A command brings only what is its own: how
its settings are loaded, and which parts it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import process
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import PartFactory, Shared, Step
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log, configure_logging, get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.process import ExitCode
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.settings.log import LogSettings

if TYPE_CHECKING:
    from sentinel.runtime.probes.listener import Listener


class ProbeAddresses(msgspec.Struct, frozen=True):
    """Where a service without an HTTP server of its own shows metrics and probes; None for nowhere."""

    metrics: Address | None
    probes: Address | None


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a command assembles its parts with."""

    log: Log
    redactor: Redactor
    """Masks secrets in all output; parts register the secrets that they learn later."""
    health: Health
    metrics: Metrics
    clock: Clock


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a service, ready to run."""

    parts: Sequence[PartFactory]
    """Started in this order."""
    shared: Sequence[Shared] = ()
    """What the parts share. Opened in this order before any part, closed in reverse after the last."""
    description: Mapping[str, object] = {}
    """The fields of the first log line."""
    drain: timedelta = runner.DRAIN
    """How long loops may take to end once they are asked to."""
    restart: Backoff | None = None
    """How a part that fails is restarted; None: its failure ends the service."""
    stopping: Stopping | None = None
    """For a service that may end itself."""
    dynamic: DynamicParts | None = None
    """For a service whose parts come and go while it runs."""
    on_reload: Step | None = None
    """What SIGHUP does; None: it stops the service."""
    has_large_responses: bool = False
    """Whether it sends bodies of many megabytes; the allocator is then told to keep large blocks."""


def serve(
    assemble: Callable[[ServiceContext], Assembly],
    *,
    name: str,
    component: str,
    log: LogSettings,
    secrets: Iterable[str] = (),
    warnings: Iterable[str] = (),
    probes: ProbeAddresses | None = None,
    stream: TextIO | None = None,
) -> int:
    """Runs a service until it ends; returns the exit code.

    `name` is the logger's, `component` the one in the build-info metric. Without `probes` the service shows health
    and metrics on its own listener. Logs go to `stream`, or to stderr. Where `assemble` raises `Misconfigured`,
    the reason is printed and the exit code is 2.
    """
    logging = configure_logging(log.level, log.format, stream=stream, secrets=secrets)
    context = ServiceContext(
        log=get_logger(name),
        redactor=logging.redactor,
        health=Health(redact=logging.redactor.redact),
        metrics=Metrics(component=component),
        clock=SystemClock(),
    )
    try:
        for warning in warnings:
            context.log.warning("settings.warning", problem=warning)
        return _run(assemble(context), context, probes)
    except Misconfigured as error:
        return refuse([str(error)])
    finally:
        logging.restore()


def _run(assembly: Assembly, context: ServiceContext, probes: ProbeAddresses | None) -> int:
    if assembly.description:
        context.log.info("service.starting", **assembly.description)
    service = runner.run(
        parts=assembly.parts,
        shared=[*_listening(probes, context), *assembly.shared],
        log=context.log,
        health=context.health,
        metrics=context.metrics,
        drain=assembly.drain,
        restart=assembly.restart,
        stopping=assembly.stopping,
        dynamic=assembly.dynamic,
        on_reload=assembly.on_reload,
    )
    if assembly.has_large_responses:
        process.settle_memory()
    return process.main(service, log=context.log)


def refuse(problems: Iterable[object]) -> int:
    """Prints everything that is wrong, one problem a line; returns the exit code for bad usage."""
    for problem in problems:
        click.echo(str(problem), err=True)
    return ExitCode.MISCONFIGURED


def _listening(probes: ProbeAddresses | None, context: ServiceContext) -> list[Shared]:
    if probes is None:
        return []
    from sentinel.runtime.probes.listener import listeners  # loads aiohttp, which a REST server does without

    opened = listeners(
        metrics_address=probes.metrics,
        probes_address=probes.probes,
        metrics=context.metrics,
        health=context.health,
        log=context.log,
    )
    return [Shared(f"listener {listener.address}", partial(_itself, listener)) for listener in opened]


def _itself(listener: Listener) -> Listener:
    return listener
