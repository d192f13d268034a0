"""The REST client of the HyperFleet API, and its failures as errors of the ports."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from sentinel.core.fleet.lifecycle import API_ROOT
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, TooLarge, Unreachable, UnreachableReason
from sentinel.drivers.rest.proxies import NO_PROXIES, Proxies
from sentinel.drivers.rest.token import BearerToken
from sentinel.drivers.rest.url import CredentialsInUrl, InvalidUrl
from sentinel.ports.errors import ApiUnavailable, Misconfigured
from sentinel.runtime.tracing import NO_TRACING, Tracer

RequestFailure: TypeAlias = Unreachable | RequestRejected | TooLarge | Misconfigured
REQUEST_FAILURES = (Unreachable, RequestRejected, TooLarge, Misconfigured)
"""The exceptions of `RestClient.request`."""


def connect(
    *,
    endpoint: str,
    user_agent: str,
    connections: int = 100,
    keep_alive: timedelta,
    token: str = "",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    proxies: Proxies = NO_PROXIES,
    gzip: bool = False,
    on_token: Callable[[str], None] = lambda token: None,
    tracer: Tracer = NO_TRACING,
) -> RestClient:
    """Return a client whose paths are relative to the API's root. Raises `ValueError` for an invalid endpoint.

    `token` takes precedence over `token_file`, which is read for every request. `on_token` is called with every
    new token before its first use, so that logs can redact it. `ca_file` replaces the system's authorities.
    """
    try:
        return RestClient(
            base_url=f"{endpoint.rstrip('/')}{API_ROOT}",
            user_agent=user_agent,
            token=BearerToken(token, file=token_file, on_token=on_token),
            ca_file=ca_file,
            proxies=proxies,
            gzip=gzip,
            connections=connections,
            keep_alive=keep_alive,
            tracer=tracer,
        )
    except CredentialsInUrl:
        raise ValueError("endpoint: expected no credentials; use a token instead") from None
    except InvalidUrl as error:
        raise ValueError(f"endpoint: {error}") from None


def api_unavailable(failure: RequestFailure) -> ApiUnavailable:
    """Translate a failed request; the text names the setting that may be wrong."""
    match failure:
        case RequestRejected(response=response):
            text = f"{failure}, is endpoint right?" if response.is_redirect else str(failure)
            return ApiUnavailable(text, needs_operator=response.needs_operator, retry_after=response.retry_after)
        case Unreachable(reason=UnreachableReason.CERTIFICATE):
            return ApiUnavailable(f"{failure}; is ca_file right?", needs_operator=True)
        case Unreachable():
            return ApiUnavailable(str(failure), needs_operator=failure.needs_operator)
        case Misconfigured():
            return ApiUnavailable(str(failure), needs_operator=True)
        case TooLarge():
            return ApiUnavailable(f"expected a response of at most {failure.limit} bytes, got more")
