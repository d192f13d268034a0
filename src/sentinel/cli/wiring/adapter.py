"""Building an adapter from its settings.

Drivers are imported inside the functions, so that a process loads only those that its configuration needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from prometheus_client import CollectorRegistry

from sentinel.adapter.declaration import Adapter
from sentinel.adapter.observer import AdapterObserver
from sentinel.adapter.service import AdapterService
from sentinel.adapter.settings import AdapterSettings
from sentinel.adapter.telemetry import AdapterTelemetry
from sentinel.cli.wiring.hyperfleet_api import build_api_client
from sentinel.ports.adapter_api import AdapterApi
from sentinel.ports.clock import Clock
from sentinel.ports.subscription import Subscriber
from sentinel.ports.task_http import HttpClient
from sentinel.runtime.lifecycle.part import Hook, Part
from sentinel.runtime.log import get_logger
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.tracing import NO_TRACING, Tracer
from sentinel.version import __version__

_KEEP_ALIVE = timedelta(seconds=30)
_DELIVERIES_PER_WORKER = 4
"""Unsettled deliveries per worker: enough to handle several events of one resource in one evaluation, and few
enough to leave some for other replicas."""
_GRACE_SHARE = 0.75
"""The share of the drain in which tasks may finish; the rest is for reporting that they were interrupted."""


def max_in_flight(settings: AdapterSettings) -> int:
    """How many deliveries the adapter may hold unsettled."""
    return _DELIVERIES_PER_WORKER * settings.concurrency


def build_adapter_api(
    api: ApiSettings,
    *,
    connections: int,
    kinds: Sequence[str] = (),
    on_token: Callable[[str], None] = lambda token: None,
    environ: Mapping[str, str] = os.environ,
    tracer: Tracer = NO_TRACING,
) -> AdapterApi:
    """Return the HyperFleet API of these settings. `kinds` are tried when an event does not name one."""
    from sentinel.drivers.fleet_api.adapter_api import HttpAdapterApi

    client = build_api_client(
        api,
        user_agent=_user_agent(),
        keep_alive=_KEEP_ALIVE,
        connections=connections,
        on_token=on_token,
        environ=environ,
        tracer=tracer,
    )
    return HttpAdapterApi(client, timeout=api.timeout, kinds=kinds)


def build_adapter(
    settings: AdapterSettings,
    *,
    adapter: Adapter,
    subscriber: Subscriber,
    api: AdapterApi,
    clock: Clock,
    redact: Callable[[str], str],
    drain: timedelta,
    route: Callable[[HttpClient], HttpClient] = lambda client: client,
    watch: Callable[[AdapterObserver], AdapterObserver] = lambda observer: observer,
    tracer: Tracer = NO_TRACING,
) -> Part:
    """Return an adapter as a part. The caller owns the subscriber; the part closes the rest.

    `drain` is the time that the lifecycle gives loops to end. `route` may wrap the HTTP client of the tasks,
    `watch` the telemetry.
    """
    from sentinel.drivers.task_http import TaskHttp

    registry = CollectorRegistry()
    log = get_logger("adapter")
    client = TaskHttp(user_agent=_user_agent(), connections=max(100, settings.concurrency))
    service = AdapterService(
        adapter=adapter,
        subscriber=subscriber,
        api=api,
        http=route(client),
        clock=clock,
        observer=watch(
            AdapterTelemetry(registry=registry, log=log.bind(adapter=adapter.name), adapter=adapter.name)
        ),
        log=get_logger("task"),
        grace_period=drain * _GRACE_SHARE,
        concurrency=settings.concurrency,
        task_timeout=settings.task_timeout,
        report_max_age=settings.report_max_age,
        redact=redact,
        tracer=tracer,
    )
    return Part(
        name=f"adapter {adapter.name}",
        loops=(service.run,),
        checks=service.checks,
        registry=registry,
        close=_all(client.close, api.close),
    )


def _all(*hooks: Hook) -> Hook:
    async def close() -> None:
        for hook in hooks:
            await hook()

    return close


def _user_agent() -> str:
    return f"hyperfleet-adapter/{__version__}"
