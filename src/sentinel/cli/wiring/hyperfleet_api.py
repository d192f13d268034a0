"""Builds the client of the HyperFleet API, for pulses and adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.tracing import NO_TRACING, Tracer

if TYPE_CHECKING:
    from sentinel.drivers.rest.client import RestClient


def build_api_client(
    api: ApiSettings,
    *,
    user_agent: str,
    keep_alive: timedelta,
    on_token: Callable[[str], None],
    environ: Mapping[str, str],
    connections: int = 100,
    tracer: Tracer = NO_TRACING,
) -> RestClient:
    """Build the client for the API that the settings name.

    `on_token` is called with every token before its first use, so that it can be redacted in logs. `environ` may
    name a proxy. Requests carry the `traceparent` of the current span. Raises `Misconfigured` if the proxy
    cannot be used.
    """
    from sentinel.drivers.fleet_api.connection import connect
    from sentinel.drivers.rest.proxies import Proxies

    return connect(
        endpoint=api.endpoint,
        user_agent=user_agent,
        connections=connections,
        keep_alive=keep_alive,
        token=api.token.reveal() if api.token is not None else "",
        token_file=api.token_file,
        ca_file=api.ca_file,
        proxies=Proxies(environ),
        gzip=api.gzip,
        on_token=on_token,
        tracer=tracer,
    )
