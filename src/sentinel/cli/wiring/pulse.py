"""Builds a pulse from its settings.

Drivers are imported where they are chosen, so that a process loads only what its configuration needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta

from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.hyperfleet_api import build_api_client
from sentinel.core.projection import requestable_paths
from sentinel.core.pulse.observation import FIELDS, PLAIN_FIELDS
from sentinel.core.pulse.pacing import Pacer
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FleetReader
from sentinel.ports.publisher import Publisher
from sentinel.pulse.report import PulseObserver
from sentinel.pulse.service import Pulse
from sentinel.pulse.settings import PulseSettings
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


def build_fleet(
    settings: PulseSettings,
    *,
    on_token: Callable[[str], None] = lambda token: None,
    environ: Mapping[str, str] = os.environ,
    tracer: Tracer = NO_TRACING,
) -> FleetReader:
    """Build the reader of the HyperFleet API; see `build_api_client`."""
    from sentinel.drivers.fleet_api.fleet_reader import HttpFleetReader

    api = settings.hyperfleet_api
    client = build_api_client(
        api,
        user_agent=f"hyperfleet-sentinel/{__version__}",
        keep_alive=_KEEP_ALIVE,
        on_token=on_token,
        environ=environ,
        tracer=tracer,
    )
    fields = settings.composer.fields_read()
    log = get_logger("pulse").bind(resource_type=settings.resource_type)
    return HttpFleetReader(
        client,
        resource_type=settings.resource_type,
        selector=settings.selector,
        selector_param=api.selector_param,
        page_size=api.page_size,
        timeout=api.timeout,
        retry_for=_page_deadline(settings),
        backoff=_page_backoff(settings),
        on_retry=lambda problem: log.warning("fetch.retrying", problem=problem),
        fields=() if fields is None else requestable_paths((*FIELDS, *fields)),
        plain_fields=() if fields is None else requestable_paths((*PLAIN_FIELDS, *fields)),
    )


def build_pulse_metrics(metrics: Metrics) -> PulseMetrics:
    """Build the metrics of all pulses of a process, and add them to its `/metrics`."""
    registry = CollectorRegistry()
    metrics.add(registry)
    return PulseMetrics(registry)


def build_pulse(
    settings: PulseSettings,
    *,
    fleet: FleetReader,
    publisher: Publisher,
    clock: Clock,
    tracer: Tracer,
    series: PulseSeries,
    pacer: Pacer,
    watch: Callable[[PulseObserver], PulseObserver] = lambda observer: observer,
) -> Part:
    """Build a pulse as a part. The caller owns the publisher, the series and the pacer. `watch` may wrap the
    telemetry in another observer.

    To rebuild a pulse for new settings, end the old one, then pass its `pacer` and, if the labels are unchanged,
    its `series`: published events stay paced, and the counters continue.
    """
    if (series.shard, series.resource_type) != (settings.shard, settings.resource_type):
        raise ValueError(
            f"expected the series of {settings.resource_type} ({settings.shard}),"
            f" got those of {series.resource_type} ({series.shard})"
        )
    observer = PulseTelemetry(
        series=series,
        log=get_logger("pulse").bind(resource_type=settings.resource_type),
        broker_type=publisher.broker_type,
    )
    pacer.republish_interval = settings.republish_interval
    pulse = Pulse(
        resource_type=settings.resource_type,
        poll_interval=settings.poll_interval,
        policy=settings.policy,
        pacer=pacer,
        composer=settings.composer,
        fleet=fleet,
        publisher=publisher,
        publish_deadline=min(max(settings.poll_interval, _MIN_DEADLINE), _MAX_DEADLINE),
        clock=clock,
        observer=watch(observer),
        tracer=tracer,
        max_events_per_second=settings.max_events_per_second,
        step_timeout=_page_deadline(settings),
    )
    return Part(
        name=f"pulse {settings.resource_type}",
        loops=(pulse.run,),
        checks=pulse.checks,
        liveness=pulse.liveness,
        close=fleet.close,
    )


def _page_backoff(settings: PulseSettings) -> Backoff:
    """At most one poll interval, so that a recovered API is noticed within one poll."""
    maximum = min(settings.poll_interval, _MAX_RETRY)
    return Backoff(initial=min(_FIRST_RETRY, maximum), maximum=maximum, jitter=0.2)


def _page_deadline(settings: PulseSettings) -> timedelta:
    return max(settings.poll_interval, settings.hyperfleet_api.timeout)
