"""The routes that the proxy responds to itself, with the bodies of the real proxy."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import assert_never

import msgspec
from aiohttp import hdrs, web

from sentinel.core.proxy.model import BuiltinHandler, Configuration, HeaderPolicy
from sentinel.ports.clock import Clock
from sentinel.proxy.responses import Response, json_page, page, problem
from sentinel.proxy.upstreams import UpstreamStatus
from sentinel.version import __version__


class BuiltinHandlers:
    """Responds to routes with a `builtin-handler`."""

    def __init__(
        self,
        *,
        clock: Clock,
        configuration: Callable[[], Configuration],
        upstreams: Callable[[], Iterable[UpstreamStatus]],
        render_metrics: Callable[[str], tuple[bytes, str]],
    ) -> None:
        """`render_metrics` gets the `Accept` header and returns the body and its type."""
        self._clock = clock
        self._configuration = configuration
        self._upstreams = upstreams
        self._render_metrics = render_metrics
        self._started_at = clock.now()
        self._instance = socket.gethostname()

    def respond(self, handler: BuiltinHandler, request: web.BaseRequest, request_id: str) -> Response:
        now = self._clock.now()
        match handler:
            case BuiltinHandler.HEALTH:
                return json_page({"status": "healthy", "timestamp": now}, request_id=request_id)
            case BuiltinHandler.STATUS:
                return json_page(self._status(now), request_id=request_id)
            case BuiltinHandler.METRICS:
                body, content_type = self._render_metrics(request.headers.get(hdrs.ACCEPT, ""))
                return page(body, content_type, request_id)
            case BuiltinHandler.CONFIG:
                document = {"timestamp": now, "config": _without_header_values(self._configuration())}
                return json_page(document, request_id=request_id)
            case BuiltinHandler.UPSTREAMS:
                upstreams = list(self._upstreams())
                document = {"timestamp": now, "total_upstreams": len(upstreams), "upstreams": upstreams}
                return json_page(document, request_id=request_id)
            case BuiltinHandler.NOT_FOUND:
                return json_page(
                    {
                        "error": "Not Found",
                        "status": HTTPStatus.NOT_FOUND,
                        "message": "The requested resource could not be found.",
                        "request_id": request_id,
                        "timestamp": now,
                    },
                    status=HTTPStatus.NOT_FOUND,
                    request_id=request_id,
                )
            case BuiltinHandler.CACHE_PURGE | BuiltinHandler.CACHE_STATS:
                return problem(HTTPStatus.NOT_IMPLEMENTED, "the small proxy has no cache")
            case _:
                assert_never(handler)

    def _status(self, now: datetime) -> dict[str, object]:
        uptime = now - self._started_at
        return {
            "status": "ok",
            "version": __version__,
            "uptime": _describe(uptime),
            "uptime_secs": int(uptime.total_seconds()),
            "instance_id": self._instance,
            "timestamp": now,
        }


def _describe(uptime: timedelta) -> str:
    minutes, seconds = divmod(int(uptime.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number}{unit}" for number, unit in parts)


def _without_header_values(configuration: Configuration) -> Configuration:
    """Return the configuration without the values of headers: a policy may set a credential."""
    routes = tuple(
        msgspec.structs.replace(
            route,
            request_headers=_masked(route.request_headers),
            response_headers=_masked(route.response_headers),
        )
        for route in configuration.routes
    )
    return msgspec.structs.replace(configuration, routes=routes)


def _masked(policy: HeaderPolicy) -> HeaderPolicy:
    return msgspec.structs.replace(
        policy,
        set=tuple((name, "***") for name, _ in policy.set),
        add=tuple((name, "***") for name, _ in policy.add),
    )
