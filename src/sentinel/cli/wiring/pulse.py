"""A pulse from its settings: which driver reads the fleet, and with which limits.

Drivers are imported where one is chosen, so that a process loads only what its configuration asks for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta

from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.hyperfleet_api import build_api_client
from sentinel.core.projection import askable
from sentinel.core.pulse.message import Composer
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
from sentinel.runtime.tracing import Tracer
from sentinel.version import __version__

_KEEP_ALIVE = timedelta(seconds=60)
_FIRST_RETRY, _LONGEST_RETRY = timedelta(milliseconds=100), timedelta(seconds=5)
_SHORTEST_DEADLINE, _LONGEST_DEADLINE = timedelta(seconds=1), timedelta(seconds=15)


def build_fleet(
    settings: PulseSettings,
    *,
    on_token: Callable[[str], None] = lambda token: None,
    environ: Mapping[str, str] = os.environ,
) -> FleetReader:
    """The HyperFleet API that the settings name, as `build_api_client` reaches it."""
    from sentinel.drivers.fleet_api.fleet import FleetApi

    api = settings.hyperfleet_api
    client = build_api_client(
        api,
        user_agent=f"hyperfleet-sentinel/{__version__}",
        keep_alive=_KEEP_ALIVE,
        on_token=on_token,
        environ=environ,
    )
    composed = Composer(settings.message_data).fields_read()
    log = get_logger("pulse").bind(resource_type=settings.resource_type)
    return FleetApi(
        client,
        resource_type=settings.resource_type,
        selector=settings.selector,
        selector_param=api.selector_param,
        page_size=api.page_size,
        timeout=api.timeout,
        retry_for=_page_patience(settings),
        backoff=_page_retry(settings),
        on_retry=lambda problem: log.warning("fetch.retrying", problem=problem),
        fields=() if composed is None else askable((*FIELDS, *composed)),
        plain_fields=() if composed is None else askable((*PLAIN_FIELDS, *composed)),
    )


def build_pulse_metrics(metrics: Metrics) -> PulseMetrics:
    """The metrics of all pulses of a process, shown among its others."""
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
    """A pulse as a part; the caller owns the publisher, the series and the pacer. `watch` may put another observer
    around its telemetry.

    To rebuild a pulse for new settings, let the old one end, then hand in its `pacer` and, if the labels are still
    the same, its `series`: what it has published stays paced, and its counters go on.
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
        composer=Composer(settings.message_data),
        fleet=fleet,
        publisher=publisher,
        publish_deadline=min(max(settings.poll_interval, _SHORTEST_DEADLINE), _LONGEST_DEADLINE),
        clock=clock,
        observer=watch(observer),
        tracer=tracer,
        max_events_per_second=settings.max_events_per_second,
        step_timeout=_page_patience(settings),
    )
    return Part(
        name=f"pulse {settings.resource_type}",
        loops=(pulse.run,),
        checks=pulse.checks,
        liveness=pulse.liveness,
        close=fleet.close,
    )


def _page_retry(settings: PulseSettings) -> Backoff:
    """Never longer than a poll: an API that is back is found within one."""
    longest = min(settings.poll_interval, _LONGEST_RETRY)
    return Backoff(initial=min(_FIRST_RETRY, longest), maximum=longest, jitter=0.2)


def _page_patience(settings: PulseSettings) -> timedelta:
    return max(settings.poll_interval, settings.hyperfleet_api.timeout)
