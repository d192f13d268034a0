"""What a configuration means to the small proxy: typed values, from which everything else is built.

`reading` makes them from a document that has no errors. Fields that the small proxy does not implement are absent;
`unimplemented` names them. Defaults are those of the real proxy.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Protocol(StrEnum):
    """What a listener speaks."""

    HTTP = "http"
    HTTPS = "https"
    H2 = "h2"
    H3 = "h3"


class LoadBalancing(StrEnum):
    """How a target is chosen. The real proxy has more; here they are round robin."""

    ROUND_ROBIN = "round_robin"
    WEIGHTED = "weighted"
    LEAST_CONNECTIONS = "least_connections"


class BuiltinHandler(StrEnum):
    """A response that the proxy makes itself."""

    STATUS = "status"
    HEALTH = "health"
    METRICS = "metrics"
    CONFIG = "config"
    UPSTREAMS = "upstreams"
    NOT_FOUND = "not-found"
    CACHE_PURGE = "cache-purge"
    CACHE_STATS = "cache-stats"


class HealthCheckType(StrEnum):
    """How a target is checked."""

    HTTP = "http"
    TCP = "tcp"


class System(msgspec.Struct, frozen=True, kw_only=True):
    """The block `system`."""

    graceful_shutdown_timeout: timedelta = timedelta(seconds=30)
    pid_file: str | None = None


class ListenerTls(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate that a listener presents."""

    cert_file: str
    key_file: str
    ca_file: str | None = None
    requires_client_certificate: bool = False


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """An address that clients connect to."""

    id: str
    address: Endpoint
    protocol: Protocol = Protocol.HTTP
    default_route: str | None = None
    request_timeout: timedelta = timedelta(seconds=60)
    keepalive_timeout: timedelta = timedelta(seconds=75)
    tls: ListenerTls | None = None


class PathMatch(msgspec.Struct, frozen=True, tag="path"):
    """The path is exactly this one."""

    path: str


class PathPrefixMatch(msgspec.Struct, frozen=True, tag="path-prefix"):
    """The path begins with this text."""

    prefix: str


class PathRegexMatch(msgspec.Struct, frozen=True, tag="path-regex"):
    """The pattern is found in the path."""

    pattern: str


class HostMatch(msgspec.Struct, frozen=True, tag="host"):
    """The host is this one, without its port. `*.example.com` is every host below it."""

    host: str


class MethodMatch(msgspec.Struct, frozen=True, tag="method"):
    """The method is this one."""

    method: str


class HeaderMatch(msgspec.Struct, frozen=True, tag="header"):
    """The header is present, with this value if one is given."""

    name: str
    value: str | None = None


class QueryParamMatch(msgspec.Struct, frozen=True, tag="query-param"):
    """The query has this parameter, with this value if one is given."""

    name: str
    value: str | None = None


Match: TypeAlias = (
    PathMatch | PathPrefixMatch | PathRegexMatch | HostMatch | MethodMatch | HeaderMatch | QueryParamMatch
)


class HeaderPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of headers, in this order. Pairs are a name and a value, or an old and a new name."""

    rename: tuple[tuple[str, str], ...] = ()
    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class StaticFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files below a directory. The whole path of a request is the path of the file, as with nginx's `root`."""

    root: str
    index: str = "index.html"
    fallback: str | None = None
    cache_control: str = "public, max-age=3600"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests, and what responds to them."""

    id: str
    priority: int = 50
    matches: tuple[Match, ...] = ()
    """All of them have to match. A route without any matches every request."""
    upstream: str | None = None
    static_files: StaticFiles | None = None
    builtin_handler: BuiltinHandler | None = None
    request_headers: HeaderPolicy = HeaderPolicy()
    response_headers: HeaderPolicy = HeaderPolicy()
    max_attempts: int = 1


class Target(msgspec.Struct, frozen=True):
    """A server of an upstream."""

    address: Endpoint
    weight: int = 1


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How the targets of an upstream are checked."""

    type: HealthCheckType = HealthCheckType.TCP
    interval: timedelta = timedelta(seconds=10)
    timeout: timedelta = timedelta(seconds=5)
    healthy_threshold: int = 2
    unhealthy_threshold: int = 3
    path: str = "/health"
    expected_status: int = 200
    host: str | None = None


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long an upstream may take."""

    connect: timedelta = timedelta(seconds=10)
    request: timedelta = timedelta(seconds=60)
    read: timedelta = timedelta(seconds=30)


class UpstreamTls(msgspec.Struct, frozen=True, kw_only=True):
    """TLS towards an upstream."""

    sni: str | None = None
    is_insecure: bool = False
    client_cert: str | None = None
    client_key: str | None = None
    ca_cert: str | None = None


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Servers that requests are forwarded to."""

    id: str
    targets: tuple[Target, ...]
    load_balancing: LoadBalancing = LoadBalancing.ROUND_ROBIN
    health_check: HealthCheck | None = None
    timeouts: Timeouts = Timeouts()
    max_connections: int = 100
    idle_timeout: timedelta = timedelta(seconds=60)
    tls: UpstreamTls | None = None


class MetricsEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where metrics are served."""

    address: Endpoint = Endpoint("0.0.0.0", 9090)  # noqa: S104  # the real proxy's default
    path: str = "/metrics"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A whole configuration."""

    system: System
    listeners: tuple[Listener, ...]
    routes: tuple[Route, ...] = ()
    upstreams: tuple[Upstream, ...] = ()
    metrics: MetricsEndpoint | None = None


def with_port_offset(configuration: Configuration, offset: int) -> Configuration:
    """Return the configuration with this number added to each port that it listens on; 0 stays any free port."""

    def moved(address: Endpoint) -> Endpoint:
        return Endpoint(address.host, address.port + offset if address.port else 0)

    listeners = tuple(
        msgspec.structs.replace(listener, address=moved(listener.address)) for listener in configuration.listeners
    )
    metrics = configuration.metrics
    if metrics is not None:
        metrics = msgspec.structs.replace(metrics, address=moved(metrics.address))
    return msgspec.structs.replace(configuration, listeners=listeners, metrics=metrics)


def blocks_that_need_restart(running: Configuration, wanted: Configuration) -> tuple[str, ...]:
    """Return the blocks that differ and that a reload does not apply."""
    pairs = (("system", running.system, wanted.system), ("listeners", running.listeners, wanted.listeners))
    return tuple(name for name, old, new in pairs if old != new)
