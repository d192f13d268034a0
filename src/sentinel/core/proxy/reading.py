"""From a document to a configuration.

The document has no errors: `validation` has checked it. So nothing is reported here, and a value that the proxy
itself would ignore is its default here, too. If a key is written twice, the first one counts; of top-level blocks
and of upstreams with the same id the last one does, as in the real proxy.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sentinel.core import kdl
from sentinel.core.proxy.children import Children, as_number, first, property_of
from sentinel.core.proxy.forwarded_headers import UNCHANGEABLE
from sentinel.core.proxy.model import (
    BuiltinHandler,
    Configuration,
    Endpoint,
    HeaderMatch,
    HeaderPolicy,
    HealthCheck,
    HealthCheckType,
    HostMatch,
    Listener,
    ListenerTls,
    LoadBalancing,
    Match,
    MethodMatch,
    MetricsEndpoint,
    PathMatch,
    PathPrefixMatch,
    PathRegexMatch,
    Protocol,
    QueryParamMatch,
    Route,
    StaticFiles,
    System,
    Target,
    Timeouts,
    Upstream,
    UpstreamTls,
)
from sentinel.core.proxy.schema.routes import PRIORITIES

_WEIGHTED: Final = frozenset(("weighted", "weighted_round_robin", "weighted-round-robin"))
_LEAST_CONNECTIONS: Final = frozenset(("least_connections", "leastconnections"))
LOAD_BALANCING_NAMES: Final = _WEIGHTED | _LEAST_CONNECTIONS | {"round_robin", "roundrobin"}
"""The values of `load-balancing` that the small proxy implements."""
_HANDLERS: Final = {handler.value: handler for handler in BuiltinHandler}
_PROTOCOLS: Final = {protocol.value: protocol for protocol in Protocol}


def read(document: kdl.Document) -> Configuration:
    """Return what the document means to the small proxy."""
    top = Children(document.nodes[::-1])
    in_order = Children(document.nodes)
    system = top.block("system", "server")
    upstreams = {upstream.id: upstream for upstream in map(_upstream, in_order.entries("upstreams", "upstream"))}
    return Configuration(
        system=System(
            graceful_shutdown_timeout=system.seconds(
                "graceful-shutdown-timeout-secs", System().graceful_shutdown_timeout
            ),
            pid_file=system.text("pid-file"),
        ),
        listeners=tuple(map(_listener, in_order.entries("listeners", "listener"))),
        routes=tuple(map(_route, in_order.entries("routes", "route"))),
        upstreams=tuple(upstreams.values()),
        metrics=_metrics(top.block("observability")),
    )


def parse_endpoint(text: str) -> Endpoint:
    """Parse `HOST:PORT` or `[IPV6]:PORT`. A port that is not a number is 0."""
    host, _, port = text.rpartition(":")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port) if port.isdecimal() else 0)


def _id(node: kdl.Node) -> str:
    return str(first(node))


def _listener(node: kdl.Node) -> Listener:
    children = Children(node.children)
    fallback = Listener(id="", address=Endpoint("", 0))
    return Listener(
        id=_id(node),
        address=parse_endpoint(children.text("address") or ""),
        protocol=_PROTOCOLS.get((children.text("protocol") or "").lower(), Protocol.HTTP),
        default_route=children.text("default-route"),
        request_timeout=children.seconds("request-timeout-secs", fallback.request_timeout),
        keepalive_timeout=children.seconds("keepalive-timeout-secs", fallback.keepalive_timeout),
        tls=_listener_tls(children.block("tls")),
    )


def _listener_tls(tls: Children) -> ListenerTls | None:
    certificate, key = tls.text("cert-file"), tls.text("key-file")
    if certificate is None or key is None:
        return None
    return ListenerTls(
        cert_file=certificate,
        key_file=key,
        ca_file=tls.text("ca-file"),
        requires_client_certificate=tls.is_true("client-auth") and tls.text("ca-file") is not None,
    )


def _route(node: kdl.Node) -> Route:
    children = Children(node.children)
    policies = children.block("policies")
    return Route(
        id=_id(node),
        priority=_priority(children.value("priority")),
        matches=tuple(match for match in map(_match, children.block("matches").nodes) if match is not None),
        upstream=children.text("upstream"),
        static_files=_static_files(children),
        builtin_handler=_HANDLERS.get((children.text("builtin-handler") or "").replace("_", "-")),
        request_headers=_header_policy(policies.block("request-headers")),
        response_headers=_header_policy(policies.block("response-headers")),
        max_attempts=max(1, children.block("retry-policy").number("max-attempts", 1)),
    )


def _priority(value: kdl.Scalar) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return PRIORITIES.get(value.lower() if isinstance(value, str) else "", PRIORITIES["normal"])


def _match(node: kdl.Node) -> Match | None:
    texts = [argument.value for argument in node.arguments if isinstance(argument.value, str)]
    if not texts:
        return None
    text, value = texts[0], texts[1] if len(texts) > 1 else None
    match node.name:
        case "path":
            return PathMatch(text)
        case "path-prefix":
            return PathPrefixMatch(text)
        case "path-regex":
            return PathRegexMatch(text)
        case "host":
            return HostMatch(text)
        case "method":
            return MethodMatch(text)
        case "header":
            return HeaderMatch(text, value)
        case "query-param":
            return QueryParamMatch(text, value)
    return None


def _static_files(route: Children) -> StaticFiles | None:
    files = route.block("static-files")
    root = files.text("root")
    if root is None:
        return None
    return StaticFiles(
        root=root,
        index=files.text("index") or StaticFiles(root="").index,
        fallback=files.text("fallback"),
        cache_control=files.text("cache-control") or StaticFiles(root="").cache_control,
    )


def _header_policy(policy: Children) -> HeaderPolicy:
    removed = policy.node("remove")
    return HeaderPolicy(
        rename=tuple(pair for pair in _pairs(policy.block("rename")) if pair[1].lower() not in UNCHANGEABLE),
        set=_pairs(policy.block("set")),
        add=_pairs(policy.block("add")),
        remove=()
        if removed is None
        else tuple(
            argument.value
            for argument in removed.arguments
            if isinstance(argument.value, str) and argument.value.lower() not in UNCHANGEABLE
        ),
    )


def _pairs(block: Children) -> tuple[tuple[str, str], ...]:
    values = ((node.name, first(node)) for node in block.nodes if node.name.lower() not in UNCHANGEABLE)
    return tuple((name, value) for name, value in values if isinstance(value, str))


def _upstream(node: kdl.Node) -> Upstream:
    children = Children(node.children)
    pool = children.block("connection-pool")
    fallback = Upstream(id="", targets=())
    return Upstream(
        id=_id(node),
        targets=_targets(children),
        load_balancing=_load_balancing(children.text("load-balancing") or ""),
        health_check=_health_check(children.node("health-check")),
        timeouts=_timeouts(children.block("timeouts")),
        max_connections=pool.number("max-connections", fallback.max_connections),
        idle_timeout=pool.seconds("idle-timeout", fallback.idle_timeout),
        tls=_upstream_tls(children.node("tls")),
    )


def _targets(upstream: Children) -> tuple[Target, ...]:
    """Return the targets in every notation: `target`, `targets { target }` and `address`."""
    nodes = [node for node in upstream.nodes if node.name in ("target", "address")]
    nodes += upstream.entries("targets", "target")
    found = map(_target, nodes)
    return tuple(target for target in found if target is not None)


def _target(node: kdl.Node) -> Target | None:
    children = Children(node.children)
    candidates = (first(node), property_of(node, "address"), children.text("address"))
    address = next((value for value in candidates if isinstance(value, str)), None)
    if address is None:
        return None
    weight = as_number(property_of(node, "weight"), children.number("weight", 1))
    return Target(parse_endpoint(address), weight)


def _load_balancing(text: str) -> LoadBalancing:
    name = text.lower()
    if name in _WEIGHTED:
        return LoadBalancing.WEIGHTED
    return LoadBalancing.LEAST_CONNECTIONS if name in _LEAST_CONNECTIONS else LoadBalancing.ROUND_ROBIN


def _health_check(node: kdl.Node | None) -> HealthCheck | None:
    if node is None:
        return None
    children = Children(node.children)
    kind, fallback = (children.text("type") or "tcp").lower(), HealthCheck()
    http = children.block("type")
    return HealthCheck(
        # Whether a port accepts connections is what can be said of types that are not implemented.
        type=HealthCheckType.HTTP if kind == "http" else HealthCheckType.TCP,
        interval=max(children.seconds("interval-secs", fallback.interval), timedelta(seconds=1)),
        timeout=max(children.seconds("timeout-secs", fallback.timeout), timedelta(seconds=1)),
        healthy_threshold=max(1, children.number("healthy-threshold", fallback.healthy_threshold)),
        unhealthy_threshold=max(1, children.number("unhealthy-threshold", fallback.unhealthy_threshold)),
        path=http.text("path") or fallback.path,
        expected_status=_status(http.value("expected-status"), fallback.expected_status),
        host=http.text("host"),
    )


def _status(value: kdl.Scalar, default: int) -> int:
    """Return a status, which may be written as a string."""
    return int(value) if isinstance(value, str) and value.isdecimal() else as_number(value, default)


def _timeouts(timeouts: Children) -> Timeouts:
    fallback = Timeouts()
    return Timeouts(
        connect=timeouts.seconds("connect", fallback.connect),
        request=timeouts.seconds("request", fallback.request),
        read=timeouts.seconds("read", fallback.read),
    )


def _upstream_tls(node: kdl.Node | None) -> UpstreamTls | None:
    if node is None:
        return None
    tls = Children(node.children)
    return UpstreamTls(
        sni=tls.text("sni"),
        is_insecure=tls.is_true("insecure-skip-verify"),
        client_cert=tls.text("client-cert"),
        client_key=tls.text("client-key"),
        ca_cert=tls.text("ca-cert"),
    )


def _metrics(observability: Children) -> MetricsEndpoint | None:
    node = observability.node("metrics")
    metrics = observability.block("metrics")
    if node is None or not metrics.is_true("enabled", default=True):
        return None
    fallback = MetricsEndpoint()
    address = metrics.text("address")
    return MetricsEndpoint(
        address=fallback.address if address is None else parse_endpoint(address),
        path=metrics.text("path") or fallback.path,
    )
