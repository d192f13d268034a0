"""Builds a pulse from its definition.

Drivers are imported where they are chosen, so that a process loads only what its configuration needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.hyperfleet_api import build_api_client
from sentinel.core.projection import requestable_paths
from sentinel.core.pulse.observation import FIELDS, PLAIN_FIELDS
from sentinel.core.pulse.pacing import Pacer
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FleetReader
from sentinel.ports.fleet_stream import FleetStream, StreamPosition
from sentinel.ports.publisher import Publisher
from sentinel.pulse.definition import PulseDefinition, WatchMode
from sentinel.pulse.report import PulseObserver
from sentinel.pulse.service import Pulse
from sentinel.pulse.telemetry import PulseMetrics, PulseSeries, PulseTelemetry
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.tracing import NO_TRACING, Tracer
from sentinel.version import __version__

_KEEP_ALIVE = timedelta(seconds=60)
_FIRST_RETRY, _MAX_RETRY = timedelta(milliseconds=100), timedelta(seconds=5)
_MIN_DEADLINE, _MAX_DEADLINE = timedelta(seconds=1), timedelta(seconds=15)


class WatchedFleet(msgspec.Struct, frozen=True):
    """How a pulse reads the fleet: with polls, and with a stream of changes, if it follows one."""

    reader: FleetReader
    """Closing it also ends the stream."""
    stream: FleetStream | None = None


def build_watched_fleet(
    definition: PulseDefinition,
    *,
    on_token: Callable[[str], None] = lambda token: None,
    environ: Mapping[str, str] = os.environ,
    tracer: Tracer = NO_TRACING,
    log_fields: Mapping[str, object] | None = None,
    position: StreamPosition | None = None,
) -> WatchedFleet:
    """Build the reader of the HyperFleet API, and the stream on the same client; see `build_api_client`.

    `log_fields` are added to its log lines. With the `position` of a pulse that is rebuilt, the stream continues
    where the last one ended.
    """
    from sentinel.drivers.fleet_api.fleet_reader import HttpFleetReader
    from sentinel.drivers.fleet_api.fleet_stream import HttpFleetStream
    from sentinel.drivers.fleet_api.server_wait import ServerWait

    api = definition.api
    wait = ServerWait()
    client = build_api_client(
        api,
        user_agent=f"hyperfleet-sentinel/{__version__}",
        keep_alive=_KEEP_ALIVE,
        on_token=on_token,
        environ=environ,
        tracer=tracer,
    )
    fields = definition.composer.fields_read()
    log = get_logger("pulse").bind(resource_type=definition.resource_type, **(log_fields or {}))
    all_fields = () if fields is None else requestable_paths((*FIELDS, *fields))
    reader = HttpFleetReader(
        client,
        resource_type=definition.resource_type,
        selector=definition.selector,
        selector_param=api.selector_param,
        page_size=api.page_size,
        timeout=api.timeout,
        retry_for=_page_deadline(definition),
        backoff=_page_backoff(definition),
        on_retry=lambda problem: log.warning("fetch.retrying", problem=problem),
        fields=all_fields,
        plain_fields=() if fields is None else requestable_paths((*PLAIN_FIELDS, *fields)),
        wait=wait,
    )
    if api.watch is WatchMode.OFF:
        return WatchedFleet(reader)
    stream = HttpFleetStream(
        client,
        resource_type=definition.resource_type,
        selector=definition.selector,
        timeout=api.timeout,
        fields=all_fields,
        wait=wait,
        position=position,
    )
    return WatchedFleet(reader, stream)


def build_fleet(
    definition: PulseDefinition, *, on_token: Callable[[str], None] = lambda token: None
) -> FleetReader:
    """Build the reader of `build_watched_fleet`, for commands that read the fleet once."""
    return build_watched_fleet(definition, on_token=on_token).reader


def build_pulse_metrics(metrics: Metrics) -> PulseMetrics:
    """Build the metrics of all pulses of a process, and add them to its `/metrics`."""
    registry = CollectorRegistry()
    metrics.add(registry)
    return PulseMetrics(registry)


def build_pulse(
    definition: PulseDefinition,
    *,
    fleet: WatchedFleet,
    publisher: Publisher,
    clock: Clock,
    tracer: Tracer,
    series: PulseSeries,
    pacer: Pacer,
    may_publish: Callable[[], bool] = lambda: True,
    log_fields: Mapping[str, object] | None = None,
    watch: Callable[[PulseObserver], PulseObserver] = lambda observer: observer,
) -> Part:
    """Build a pulse as a part. The caller owns the publisher, the series and the pacer. `watch` may wrap the
    telemetry in another observer. While `may_publish` returns False, the pulse follows a leader and publishes
    nothing. `log_fields` are added to each of its log lines.

    To rebuild a pulse with a new definition, end the old one, then pass its `pacer` and, if the labels are
    unchanged, its `series`: published events stay paced, and the counters continue.
    """
    if (series.shard, series.resource_type) != (definition.shard, definition.resource_type):
        raise ValueError(
            f"expected the series of {definition.resource_type} ({definition.shard}),"
            f" got those of {series.resource_type} ({series.shard})"
        )
    observer = PulseTelemetry(
        series=series,
        log=get_logger("pulse").bind(resource_type=definition.resource_type, **(log_fields or {})),
        broker_type=publisher.broker_type,
    )
    pacer.republish_interval = definition.republish_interval
    pulse = Pulse(
        resource_type=definition.resource_type,
        poll_interval=definition.poll_interval,
        policy=definition.policy,
        pacer=pacer,
        composer=definition.composer,
        fleet=fleet.reader,
        stream=fleet.stream,
        publisher=publisher,
        publish_deadline=min(max(definition.poll_interval, _MIN_DEADLINE), _MAX_DEADLINE),
        clock=clock,
        observer=watch(observer),
        tracer=tracer,
        max_events_per_second=definition.max_events_per_second,
        may_publish=may_publish,
        step_timeout=_page_deadline(definition),
    )
    return Part(
        name=f"pulse {definition.resource_type}",
        loops=(pulse.run,) if fleet.stream is None else (pulse.run, pulse.follow),
        checks=pulse.checks,
        liveness=pulse.liveness,
        close=fleet.reader.close,
    )


def _page_backoff(definition: PulseDefinition) -> Backoff:
    """At most one poll interval, so that a recovered API is noticed within one poll."""
    maximum = min(definition.poll_interval, _MAX_RETRY)
    return Backoff(initial=min(_FIRST_RETRY, maximum), maximum=maximum, jitter=0.2)


def _page_deadline(definition: PulseDefinition) -> timedelta:
    return max(definition.poll_interval, definition.api.timeout)
